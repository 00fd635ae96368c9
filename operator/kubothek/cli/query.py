"""``kubothek query``: one SELECT, its rows as a table, CSV, JSON or YAML."""

from __future__ import annotations

import shutil
import sys
import time
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

import click

from kubothek.cli.options import store_options
from kubothek.cli.output import output_option
from kubothek.cli.versions import AnyVersion, EventTime
from kubothek.words import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from kubothek.cli.stores import StoreChoice
    from kubothek.sql import TableScan

_TABLE_ROWS = 1000
"""Most rows of a table."""


@click.command()
@store_options
@click.argument("sql", metavar="SQL")
@output_option()
@click.option("--as-of", type=AnyVersion(), help="Read every dataset as it was then.")
@click.option("--as-at", type=EventTime(), help="Of ledgers, only events up to this event time.")
@click.option("--explain", is_flag=True, help="Only show which files the query would read, and what left out others.")
def query(
    choice: StoreChoice,
    sql: str,
    output: str,
    as_of: int | datetime | str | None,
    as_at: datetime | None,
    explain: bool,
) -> None:
    """Run one SELECT over the datasets of a store.

    Each dataset is a table of its name, and so are files with skipping metadata (a SkippingIndex). FROM flights AS OF
    VERSION 3 (AS OF TIMESTAMP '2026-11-21', AS OF TAG 'audit') reads an older version. CSV, JSON and YAML are streamed
    and complete; a table shows the first 1,000 rows, on a terminal in its width.
    """
    from kubothek.catalog import Lake
    from kubothek.cli.remembered import remember
    from kubothek.odf.time_axes import happened_until
    from kubothek.sql import prepare

    started = time.monotonic()
    with choice.opened() as store:
        lake = Lake(store)
        restrict = None if as_at is None else happened_until(lake.store, as_at)
        prepared = prepare(lake.store, sql, lake.look(as_of), lake.datasets, restrict=restrict)
        if explain:
            _explain(prepared.scans, output)
            return
        remember(store.url, prepared.reads)
        reader = prepared.rows()
        text = write_rows(reader, output, started)
    if text is None:
        return
    read = ", ".join(
        f"{scan.name}{f' version {scan.version}' if scan.version else ''} ({count(scan.files, 'file')})"
        for scan in prepared.scans
    )
    click.echo(text + (f", from {read}" if read else ""))


def _explain(scans: Sequence[TableScan], output: str) -> None:
    """Print what the query reads of each dataset."""
    from kubothek.cli.output import show

    found = [
        {
            "dataset": scan.name,
            "version": scan.version,
            "where": scan.where.to_sql(),
            "steps": [{"step": step, "files": files} for step, files in scan.steps],
        }
        for scan in scans
    ]
    show(output, found, _explained(scans))


def _explained(scans: Sequence[TableScan]) -> Iterator[str]:
    from kubothek.cli.columns import columns

    if not scans:
        yield "no dataset is read"
    for scan in scans:
        version = f", version {scan.version}" if scan.version else ""
        yield f"{scan.name}{version}, rows where {scan.where.to_sql()}"
        steps = [(f"  {step}", f"{files:,}") for step, files in scan.steps]
        yield from columns(("  STEP", "FILES LEFT"), steps, right=("FILES LEFT",))


def write_rows(reader: pa.RecordBatchReader, output: str, started: float | None = None) -> str | None:
    """Write the rows in this format; return a text with the number of rows of a table, None for other formats.

    ``started``: start time of the query, for its duration; time in a pager does not count.
    """
    if output in ("csv", "json", "yaml"):
        {"csv": write_csv, "json": write_json, "yaml": _write_yaml}[output](reader)
        return None
    return print_table(reader, wide=output == "wide", started=started)


def print_table(
    reader: pa.RecordBatchReader,
    *,
    wide: bool = False,
    started: float | None = None,
    most: int | None = _TABLE_ROWS,
) -> str:
    """Print the first ``most`` rows, on a terminal in its width unless ``wide``; return a text with their number."""
    from kubothek.cli.columns import columns, fitted
    from kubothek.cli.output import print_lines
    from kubothek.table.frames import digits_of, text_of

    rows = list(islice(_rows(reader), None if most is None else most + 1))
    took = "" if started is None else f" in {time.monotonic() - started:.1f} s"
    digits = [digits_of(field.type) for field in reader.schema]
    shown = [tuple(text_of(value, number) for value, number in zip(row, digits, strict=True)) for row in rows[:most]]
    names = reader.schema.names
    numbers = [field.name for field in reader.schema if _is_number(field.type)]
    if wide or not sys.stdout.isatty():
        print_lines(columns(names, shown, numbers), chop=True)
    else:
        print_lines(fitted(names, shown, numbers, shutil.get_terminal_size().columns))
    if most is not None and len(rows) > most:
        return f"the first {count(most, 'row')} (all of them: -o csv, json or yaml){took}"
    return count(len(shown), "row") + took


def _rows(reader: pa.RecordBatchReader) -> Iterator[tuple[object, ...]]:
    for batch in reader:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def write_csv(reader: pa.RecordBatchReader) -> None:
    """Stream all rows to standard output as CSV. Raises QueryInvalid for columns that CSV cannot hold."""
    import pyarrow as pa
    import pyarrow.csv

    from kubothek.errors import QueryInvalid

    nested = [field.name for field in reader.schema if pa.types.is_nested(field.type)]
    if nested:
        raise QueryInvalid(f"column {nested[0]!r} holds lists or structs, which CSV cannot: use -o json")
    with pyarrow.csv.CSVWriter(sys.stdout.buffer, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)


def write_json(reader: pa.RecordBatchReader) -> None:
    """Write one array of objects, one object per line."""
    import orjson  # it writes NaN and infinities as null, as JSON lacks them

    from kubothek.table.schema import require_distinct

    require_distinct(reader.schema.names)

    out = sys.stdout.buffer
    names, lead = reader.schema.names, b"["
    for row in _rows(reader):
        out.write(lead + b"\n  " + orjson.dumps(dict(zip(names, row, strict=True)), default=_json_value))
        lead = b","
    out.write((b"[" if lead == b"[" else b"\n") + b"]\n")
    out.flush()


def _write_yaml(reader: pa.RecordBatchReader) -> None:
    """Write one list of objects, one batch at a time."""
    from kubothek.cli.output import yaml_text
    from kubothek.table.schema import require_distinct

    require_distinct(reader.schema.names)
    names, empty = reader.schema.names, True
    for batch in reader:
        rows = [dict(zip(names, row, strict=True)) for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)]
        if rows:
            click.echo(yaml_text(rows), nl=False)
            empty = False
    if empty:
        click.echo("[]")


def _json_value(value: object) -> object:
    """Convert a value that JSON lacks: bytes to hexadecimal digits, others to text."""
    return value.hex() if isinstance(value, bytes) else str(value)
