"""Rows of small CSV files that inference has parsed as a whole, so that they are not parsed again.

Arrow parses a value to the same result whether it inferred the type or was given it. The rows are used only if each
column has the inferred type, or one that its values become without text; else the reader parses the file again.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

import pyarrow as pa

from kubothek.ingest.model import SourceFile
from kubothek.table.time_zones import NAIVE, expected_zones


class ParsedFiles:
    """Parsed rows by file, for one read of each. Threads may share it."""

    def __init__(self) -> None:
        self._tables: dict[SourceFile, pa.Table] = {}
        self._lock = Lock()

    def keep(self, file: SourceFile, table: pa.Table) -> None:
        """Keep all rows of a file, in the types that inference found."""
        with self._lock:
            self._tables[file] = table

    def take(self, file: SourceFile, schema: pa.Schema) -> list[pa.RecordBatch] | None:
        """Return the rows in the columns and types of ``schema``, and forget them; None if they must be parsed."""
        with self._lock:
            table = self._tables.pop(file, None)
        return None if table is None else _as_schema(table, schema)

    def clear(self) -> None:
        """Forget all rows."""
        with self._lock:
            self._tables.clear()


def _as_schema(table: pa.Table, schema: pa.Schema) -> list[pa.RecordBatch] | None:
    if sorted(table.column_names) != sorted(schema.names) or "" in schema.names:
        return None
    columns = [_as_field(table.column(field.name), field) for field in schema]
    found = [column for column in columns if column is not None]
    if len(found) < len(columns):
        return None
    return pa.Table.from_arrays(found, schema=schema).to_batches()


def _as_field(column: pa.ChunkedArray[Any], field: pa.Field[Any]) -> pa.ChunkedArray[Any] | None:
    if pa.types.is_timestamp(column.type) and pa.types.is_timestamp(field.type):
        return _as_times(column, field)
    if column.type == field.type:
        return column
    if pa.types.is_null(column.type):
        return pa.chunked_array([pa.nulls(len(chunk), field.type) for chunk in column.chunks], field.type)
    return None


def _as_times(column: pa.ChunkedArray[Any], field: pa.Field[Any]) -> pa.ChunkedArray[Any] | None:
    """Return the times as :func:`~kubothek.ingest.readers.values.parse_column` would; all or none have a zone."""
    zone = expected_zones(pa.schema([field])).get(field.name)
    if zone is not None and (zone == NAIVE) != (column.type.tz is None):
        return None
    try:
        times = column.cast(pa.timestamp(field.type.unit, column.type.tz))
    except pa.ArrowInvalid:  # more digits than the unit holds
        return None
    return pa.chunked_array([chunk.view(field.type) for chunk in times.chunks], field.type)
