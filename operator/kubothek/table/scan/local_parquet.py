"""Parquet files on a local disk as DuckDB reads them: which columns it reads bit for bit, and the database for it."""

from __future__ import annotations

import re
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.in_memory_database import in_memory_database

if TYPE_CHECKING:
    import duckdb

_PATTERN: Final = re.compile(r"[*?\[\]{}\\]")
_making = Lock()


def exact(schema: pa.Schema) -> bool:
    """Return whether DuckDB reads all columns of this schema from Parquet bit for bit."""
    return len(schema) > 0 and all(map(_exact, schema.types))


def is_pattern(path: str) -> bool:
    """Return whether DuckDB would match other files with this path as well."""
    return _PATTERN.search(path) is not None


def columns_of(footer: pq.ParquetSchema) -> pa.Schema | None:
    """Return the columns of a file; None if DuckDB, which compares names without case, would take one for another."""
    there = footer.to_arrow_schema()
    return there if len({name.casefold() for name in there.names}) == len(there) else None


def cursor() -> duckdb.DuckDBPyConnection:
    """Return a connection for one thread to the one database of this process: a new database would take 15 ms."""
    with _making:
        return _database().cursor()


@cache
def _database() -> duckdb.DuckDBPyConnection:
    return in_memory_database(
        enable_external_access=True,  # to the data files
        enable_external_file_cache=False,
        threads=1,  # the caller decodes several parts at once, each in a thread
        async_threads=0,  # a fork would leave any other thread behind
    )


def _exact(data_type: pa.DataType) -> bool:
    types = pa.types
    return (
        types.is_boolean(data_type)
        or types.is_integer(data_type)
        or types.is_float32(data_type)
        or types.is_float64(data_type)
        or types.is_string(data_type)
        or types.is_binary(data_type)
        or types.is_decimal128(data_type)
        or data_type in (pa.date32(), pa.timestamp("us"))
    )
