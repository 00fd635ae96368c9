"""DuckDB for records: the engines whose SQL it runs, their databases, and types: times without zone, UUIDs as UUIDs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kubothek.in_memory_database import in_memory_database

if TYPE_CHECKING:
    import duckdb

ENGINES: Final = {"datafusion": True, "flink": True, "risingwave": True, "spark": False, "duckdb": False}
"""The engines whose SQL is understood, and whether 5 / 2 is 2 there."""


def database_of(engine: str, memory: str, scratch: Path | None, **settings: Any) -> duckdb.DuckDBPyConnection:
    """Return a locked database that divides as the engine does.

    ``memory``   its limit, in DuckDB's notation
    ``scratch``  the directory for what exceeds the limit; None: such statements fail
    """
    return in_memory_database(
        lock_configuration=True,
        memory_limit=memory,
        temp_directory="" if scratch is None else str(scratch / "duckdb"),
        integer_division=ENGINES[engine],
        **settings,
    )


def for_duckdb(kind: Any) -> pa.DataType:
    """Return the type in which DuckDB gets values of a type."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit)
    return pa.uuid() if kind == pa.binary(16) else kind


def cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast a batch to the types of :func:`for_duckdb`."""
    columns: list[pa.Array[Any]] = []
    for values, field in zip(batch.columns, schema, strict=True):
        if isinstance(field.type, pa.UuidType):
            columns.append(pa.ExtensionArray.from_storage(field.type, values))
        else:
            columns.append(values if values.type == field.type else values.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
