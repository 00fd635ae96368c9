"""Many small files on a local disk, decoded in one query by DuckDB.

A small file of 20 columns has 40 compressed pages, and Arrow creates a decompressor for each: DuckDB takes half the
time. It reads flat columns of the types in :func:`exact` bit for bit. It would silently change values of some files, so
Arrow reads those: files without exactly the requested columns, and files whose schemas differ. Arrow also reads what
DuckDB fails to read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.in_memory_database import in_memory_database, quoted

if TYPE_CHECKING:
    import duckdb

FEWEST: Final = 8
"""Minimum number of files for which a query pays."""
_BATCH_ROWS: Final = 1 << 16
_PATTERN: Final = re.compile(r"[*?\[\]{}\\]")
_making = Lock()


def exact(schema: pa.Schema) -> bool:
    """Return whether DuckDB reads all columns of this schema from Parquet bit for bit."""
    return len(schema) > 0 and all(map(_exact, schema.types))


def decoded(paths: Sequence[Path], schema: pa.Schema) -> pa.Table | None:
    """Return the columns of these files, whose types are :func:`exact`, in the order of files and rows.

    None if a file has other columns, does not exist or cannot be read.
    """
    import duckdb  # a tenth of a second: not for every job that only inspects the health of its table

    names = [str(path) for path in paths]
    if any(_PATTERN.search(name) for name in names):  # DuckDB would match other files as well
        return None
    try:
        rows = _rows(names, schema)
        if rows is None:
            return None
        columns = ", ".join(map(quoted, schema.names))
        query = f"SELECT {columns} FROM read_parquet($1, hive_partitioning=false, union_by_name=false)"  # noqa: S608
        with _cursor() as cursor:
            found = cursor.sql(query, params=[names]).to_arrow_table(_BATCH_ROWS)
    except (duckdb.Error, pa.ArrowException, OSError):
        return None
    same = (found.schema.names, found.schema.types, found.num_rows) == (schema.names, schema.types, rows)
    return found if same else None


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


def _rows(paths: Sequence[str], schema: pa.Schema) -> int | None:
    """Return the number of rows of the files; None unless all have these columns and equal schemas.

    DuckDB uses the schema of the first file. It casts columns of another type in later files, even numbers to text. It
    compares names without case, and takes nanoseconds in the old form for microseconds.
    """
    rows, first = 0, None
    for path in paths:
        footer = pq.read_metadata(path)
        columns = footer.schema
        if first is None:
            first = columns
            there = columns.to_arrow_schema()
            if len({name.casefold() for name in there.names}) < len(there):
                return None
            if any(field.name not in there.names or there.field(field.name).type != field.type for field in schema):
                return None
        elif not columns.equals(first):
            return None
        rows += footer.num_rows
    return rows


@cache
def _database() -> duckdb.DuckDBPyConnection:
    return in_memory_database(
        enable_external_access=True,  # to the data files
        enable_external_file_cache=False,
        threads=1,  # the caller decodes a bundle on each core
        async_threads=0,  # a fork would leave any other thread behind
    )


def _cursor() -> duckdb.DuckDBPyConnection:
    """Return a connection for one thread to the one database of this process: a new database would take 15 ms."""
    with _making:
        return _database().cursor()
