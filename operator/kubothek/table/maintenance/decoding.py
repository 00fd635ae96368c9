"""Many small files on a local disk, decoded in one query by DuckDB.

A small file of 20 columns has 40 compressed pages, and Arrow makes a decompressor for each: of what such a file costs,
DuckDB takes half. It reads flat columns of the types in :func:`exact` bit for bit. What it would make something else of
without a word is found out before: files whose columns are not just those that are wanted, alike in all of them, are
left to Arrow, and so is whatever DuckDB fails at.
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

from kubothek.table.expressions.text import quoted

if TYPE_CHECKING:
    import duckdb

FEWEST: Final = 8
"""Files for which a query pays."""
_BATCH_ROWS: Final = 1 << 16
_PATTERN: Final = re.compile(r"[*?\[\]{}\\]")
_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "threads": 1,  # there is a bundle for each core
    "async_threads": 0,  # nor any other thread, which a fork would leave behind
    "temp_directory": "",
    "enable_external_file_cache": False,
    "python_enable_replacements": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
}
_making = Lock()


def exact(schema: pa.Schema) -> bool:
    """Whether all columns are of types that DuckDB reads from Parquet and hands over without a change of any bit."""
    return len(schema) > 0 and all(map(_exact, schema.types))


def decoded(paths: Sequence[Path], schema: pa.Schema) -> pa.Table | None:
    """The columns of these files, whose types are :func:`exact`, in the order of files and rows.

    None if one of them does not have just these columns, is not there or cannot be read.
    """
    import duckdb  # not for every job that looks at how healthy its table is: it takes a tenth of a second

    names = [str(path) for path in paths]
    if any(_PATTERN.search(name) for name in names):  # it would be other files as well
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
    """How many rows the files have; None if they do not all have these columns, and the same ones altogether.

    DuckDB goes by the first file. It casts what another one has as another type, even numbers to text; names it
    compares without regard to case, and it takes nanoseconds in the old form for microseconds.
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
    import duckdb

    return duckdb.connect(":memory:", config=_CONFIG)


def _cursor() -> duckdb.DuckDBPyConnection:
    """A connection for one thread, of the one database of this process: another one would take 15 ms to make."""
    with _making:
        return _database().cursor()
