"""Parquet reader: by row groups, with exact casts only."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.errors import SchemaMismatch
from kubothek.ingest.readers.decoding import decoding
from kubothek.ingest.readers.parquet_batches import decoded_batches
from kubothek.ingest.readers.values import check_names, convert_column
from kubothek.table.partitioning import check_without_time_zones
from kubothek.table.schema import type_name
from kubothek.table.time_zones import NAIVE, expected_zones, mixed, zones_in
from kubothek.table.untrusted_parquet import open_parquet_file


@contextmanager
def open_parquet(name: str, raw: io.BufferedIOBase) -> Iterator[pq.ParquetFile]:
    """Open the file and read its footer. Errors within the context mean a damaged file: SourceCorrupt."""
    with raw, decoding(name, "Parquet file", "upload it again or correct source.format"):
        yield open_parquet_file(raw)


def row_group_bytes(file: pq.ParquetFile) -> list[int]:
    """Return the uncompressed bytes of each row group, empty ones included."""
    return [file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups)]


def read_parquet(
    name: str,
    raw: io.BufferedIOBase,
    schema: pa.Schema,
    row_groups: tuple[int, ...] | None,
    partition_on: Sequence[str] = (),
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of these row groups (None: all), each batch with the number of its first row in the file, from 1.

    Raises SchemaMismatch (columns), PartitionInvalid (a partition column with time zone), DataTypeMismatch (a value
    that its column cannot hold exactly), SourceCorrupt.
    """
    with open_parquet(name, raw) as file:
        check_parquet_columns(name, file, schema, partition_on)
        counts = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        for group in range(len(counts)) if row_groups is None else row_groups:
            first_row = sum(counts[:group]) + 1
            for batch in decoded_batches(name, raw, file, group):
                yield first_row, _convert(name, batch, schema, first_row)
                first_row += batch.num_rows


def check_parquet_columns(name: str, file: pq.ParquetFile, schema: pa.Schema, partition_on: Sequence[str]) -> None:
    """Raise SchemaMismatch or PartitionInvalid for columns that cannot become those of the schema."""
    check_names(name, file.schema_arrow.names, schema.names)
    _check_types(name, file.schema_arrow, schema)
    check_without_time_zones(file.schema_arrow, partition_on, of=f"{name!r}, ")
    found = zones_in(file.schema_arrow)
    for column, zone in expected_zones(schema).items():
        if column in found and (found[column] == NAIVE) != (zone == NAIVE):
            raise mixed(f"{name!r}, column {column!r}", zone)


def _convert(name: str, batch: pa.RecordBatch, schema: pa.Schema, first_row: int) -> pa.RecordBatch:
    def column(field: pa.Field[Any]) -> pa.Array[Any]:
        values = batch.column(field.name)
        if values.type == field.type:
            return values
        return convert_column(
            values,
            field.type,
            lambda v: v.cast(field.type),
            file=name,
            column=field.name,
            first_row=first_row,
        )

    return pa.RecordBatch.from_arrays([column(field) for field in schema], schema=schema)


def _check_types(name: str, found: pa.Schema, wanted: pa.Schema) -> None:
    problems = [
        f"{field.name!r} is {type_name(found.field(field.name).type)}, the table has {type_name(field.type)}"
        for field in wanted
        if not _may_become(found.field(field.name).type, field.type)
    ]
    if problems:
        raise SchemaMismatch(f"the columns of {name!r} do not match: {'; '.join(problems)}; convert them in the file")


def _may_become(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether values of one type can have the same meaning in the other; the cast still checks each value."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    if found == wanted or pa.types.is_null(found):
        return True
    return any(any(is_one(found) for is_one in kind) and any(is_one(wanted) for is_one in kind) for kind in _KINDS)


_types = pa.types
_KINDS = (
    (_types.is_integer, _types.is_floating, _types.is_decimal),
    (_types.is_string, _types.is_large_string, _types.is_string_view),
    (_types.is_binary, _types.is_large_binary, _types.is_binary_view, _types.is_fixed_size_binary),
    (_types.is_timestamp, _types.is_date),
    (_types.is_time,),
    (_types.is_duration,),
    (_types.is_list, _types.is_large_list, _types.is_fixed_size_list),
    (_types.is_struct,),
)
