"""``kubothek query``: one SELECT, its rows as a table, CSV or JSON."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

import click

from kubothek.cli.options import store_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    import pyarrow.dataset as ds

    from kubothek.cli.stores import StoreChoice

_TABLE_ROWS = 1000
"""How many rows a table for people has at most."""


def _version(context: click.Context, parameter: click.Parameter, value: str | None) -> int | datetime | None:
    """A version number or a time; without a zone, UTC."""
    if value is None or value.isdigit():
        return None if value is None else int(value)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        text = f"{value!r} is neither a version number nor a time like 2026-11-21T14:00"
        raise click.BadParameter(text, context, parameter) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


@click.command()
@store_options
@click.argument("sql", metavar="SQL")
@click.option("-o", "--output", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
@click.option("--as-of", callback=_version, metavar="VERSION|TIME", help="Read every dataset as it was then.")
def query(choice: StoreChoice, sql: str, output: str, as_of: int | datetime | None) -> None:
    """Run one SELECT over the datasets of a store.

    Datasets are tables of their names. CSV and JSON are streamed and complete; a table has its first rows, for
    people.
    """
    import kubothek
    from kubothek.lake.sql import select
    from kubothek.runtime.local.words import count

    files: dict[str, int] = {}
    started = time.monotonic()
    with choice.config() as config:
        lake = kubothek.open(
            config.url, endpoint=config.endpoint, region=config.region, credentials_dir=config.credentials_dir
        )

        def open_dataset(name: str) -> ds.FileSystemDataset:
            found = lake.dataset(name).arrow_dataset(as_of)
            files[name] = len(found.files)
            return found

        reader = select(lake.store, sql, open_dataset, lake.datasets)
        if output == "csv":
            _write_csv(reader)
            return
        if output == "json":
            _write_json(reader)
            return
        told = _print_table(reader)
    read = ", ".join(f"{name} ({count(number, 'file')})" for name, number in files.items())
    click.echo(f"{told} in {time.monotonic() - started:.1f} s" + (f", from {read}" if read else ""))


def _print_table(reader: pa.RecordBatchReader) -> str:
    """Print the first rows; returns how many there are, in words."""
    from kubothek.cli.columns import columns, rich_table
    from kubothek.runtime.local.words import count

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
        return f"the first {_TABLE_ROWS:,} rows (all of them: --output csv or json)"
    return count(len(shown), "row")


def _rows(reader: pa.RecordBatchReader) -> Iterator[tuple[object, ...]]:
    for batch in reader:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _write_csv(reader: pa.RecordBatchReader) -> None:
    import pyarrow as pa
    import pyarrow.csv

    from kubothek.lake.errors import QueryInvalid

    nested = [field.name for field in reader.schema if pa.types.is_nested(field.type)]
    if nested:
        raise QueryInvalid(f"column {nested[0]!r} holds lists or structs, which CSV cannot: use --output json")
    with pyarrow.csv.CSVWriter(sys.stdout.buffer, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)


def _write_json(reader: pa.RecordBatchReader) -> None:
    """One array of objects, an object a line."""
    import orjson  # it writes NaN and the infinities as null, as JSON has none of them

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
