"""``kubothek query``: one SELECT, its rows as a table, CSV or JSON."""

from __future__ import annotations

import sys
import time
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

import click

from kubothek.cli.options import store_options
from kubothek.cli.versions import AnyVersion, EventTime
from kubothek.words import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from kubothek.cli.stores import StoreChoice
    from kubothek.lake.sql import TableScan

_TABLE_ROWS = 1000
"""How many rows a table for people has at most."""


@click.command()
@store_options
@click.argument("sql", metavar="SQL")
@click.option("-o", "--output", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
@click.option("--as-of", type=AnyVersion(), help="Read every dataset as it was then.")
@click.option("--as-at", type=EventTime(), help="Of ledgers, only what had happened by then, by event time.")
@click.option("--explain", is_flag=True, help="Only say which files it would read, and why so few.")
def query(
    choice: StoreChoice,
    sql: str,
    output: str,
    as_of: int | datetime | str | None,
    as_at: datetime | None,
    explain: bool,
) -> None:
    """Run one SELECT over the datasets of a store.

    Datasets are tables of their names, and so are files with skipping metadata (a SkippingIndex); FROM flights AS OF
    VERSION 3 (AS OF TIMESTAMP '2026-11-21', AS OF TAG 'audit') reads a dataset as it was. CSV and JSON are streamed and
    complete; a table has its first rows, for people.
    """
    from kubothek.cli.remembered import remember
    from kubothek.lake.door import Lake
    from kubothek.lake.ledger.asking import happened_until
    from kubothek.lake.sql import prepare
    from kubothek.lake.store import open_store

    started = time.monotonic()
    with choice.config() as config:
        lake = Lake(open_store(config))
        restrict = None if as_at is None else happened_until(lake.store, as_at)
        prepared = prepare(lake.store, sql, lake.look(as_of), lake.datasets, restrict=restrict)
        if explain:
            _explain(prepared.scans, as_json=output == "json")
            return
        remember(config.url, prepared.reads)
        reader = prepared.rows()
        if output == "csv":
            write_csv(reader)
            return
        if output == "json":
            write_json(reader)
            return
        told = print_table(reader)
    read = ", ".join(
        f"{scan.name}{f' version {scan.version}' if scan.version else ''} ({count(scan.files, 'file')})"
        for scan in prepared.scans
    )
    click.echo(f"{told} in {time.monotonic() - started:.1f} s" + (f", from {read}" if read else ""))


def _explain(scans: Sequence[TableScan], *, as_json: bool) -> None:
    """Print what is read of each dataset."""
    import orjson

    from kubothek.cli.columns import columns

    if as_json:
        told = [
            {
                "dataset": scan.name,
                "version": scan.version,
                "where": scan.where.to_sql(),
                "steps": [{"step": step, "files": files} for step, files in scan.steps],
            }
            for scan in scans
        ]
        click.echo(orjson.dumps(told, option=orjson.OPT_INDENT_2))
        return
    if not scans:
        click.echo("no dataset is read")
    for scan in scans:
        version = f", version {scan.version}" if scan.version else ""
        click.echo(f"{scan.name}{version}, rows where {scan.where.to_sql()}")
        steps = [(f"  {step}", f"{files:,}") for step, files in scan.steps]
        for line in columns(("  STEP", "FILES LEFT"), steps, right=("FILES LEFT",)):
            click.echo(line)


def print_table(reader: pa.RecordBatchReader) -> str:
    """Print the first rows; returns how many there are, in words."""
    from kubothek.cli.columns import columns, rich_table

    rows = list(islice(_rows(reader), _TABLE_ROWS + 1))
    shown = [tuple("NULL" if value is None else str(value) for value in row) for row in rows[:_TABLE_ROWS]]
    names = reader.schema.names
    numbers = [field.name for field in reader.schema if _is_number(field.type)]
    if sys.stdout.isatty():
        rich_table(names, shown, numbers)
    else:
        for line in columns(names, shown, numbers):
            click.echo(line)
    if len(rows) > _TABLE_ROWS:
        return f"the first {count(_TABLE_ROWS, 'row')} (all of them: --output csv or json)"
    return count(len(shown), "row")


def _rows(reader: pa.RecordBatchReader) -> Iterator[tuple[object, ...]]:
    for batch in reader:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def write_csv(reader: pa.RecordBatchReader) -> None:
    """Write all rows to standard output as they come. Raises QueryInvalid for columns that CSV cannot hold."""
    import pyarrow as pa
    import pyarrow.csv

    from kubothek.lake.errors import QueryInvalid

    nested = [field.name for field in reader.schema if pa.types.is_nested(field.type)]
    if nested:
        raise QueryInvalid(f"column {nested[0]!r} holds lists or structs, which CSV cannot: use --output json")
    with pyarrow.csv.CSVWriter(sys.stdout.buffer, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)


def write_json(reader: pa.RecordBatchReader) -> None:
    """One array of objects, an object a line."""
    import orjson  # it writes NaN and the infinities as null, as JSON has none of them

    from kubothek.lake.schema import require_distinct

    require_distinct(reader.schema.names)

    out = sys.stdout.buffer
    names, lead = reader.schema.names, b"["
    for row in _rows(reader):
        out.write(lead + b"\n  " + orjson.dumps(dict(zip(names, row, strict=True)), default=_json_value))
        lead = b","
    out.write((b"[" if lead == b"[" else b"\n") + b"]\n")
    out.flush()


def _json_value(value: object) -> object:
    """What JSON has no form for, as text; bytes as hexadecimal digits."""
    return value.hex() if isinstance(value, bytes) else str(value)
