"""In-memory databases of DuckDB that can reach nothing outside: one set of defaults for all that run SQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


_ISOLATED: Final[Mapping[str, str | bool]] = {
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,
    "temp_directory": "",
}
"""Settings: no files, no network, no extensions, no variables of Python, nothing on disk."""


def in_memory_database(**settings: Any) -> duckdb.DuckDBPyConnection:
    """Return a new database without access to anything outside; ``settings`` complete or replace the defaults.

    ``lock_configuration=True`` keeps statements from changing them.
    """
    import duckdb  # a tenth of a second: not for every program that only quotes a name

    return duckdb.connect(":memory:", config={**_ISOLATED, **settings})


def quoted(name: str) -> str:
    """Quote a name for SQL, also for dialects with more keywords than DuckDB's."""
    return '"' + name.replace('"', '""') + '"'


@lru_cache(maxsize=8)
def functions(condition: str) -> frozenset[str]:
    """Return the names of DuckDB's functions, in lower case, for which a condition on ``duckdb_functions()`` holds."""
    with in_memory_database() as database:
        query = f"SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE {condition}"  # noqa: S608 - ours
        found = database.execute(query).fetchall()
    return frozenset(name for (name,) in found)


def nodes(tree: object) -> Iterator[dict[str, Any]]:
    """Yield all objects in a parse tree of DuckDB; without recursion, because its depth is the statement's."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)


class StreamErrors:
    """The first error of the streams that a database reads: DuckDB replaces it by an error of its own with its text."""

    def __init__(self) -> None:
        self._first: Exception | None = None

    def watch(self, rows: pa.Table | pa.RecordBatchReader) -> pa.Table | pa.RecordBatchReader:
        """Return a stream of the same batches that records its error; a table is returned as it is."""
        import pyarrow as pa  # not for every program that only quotes a name

        if not isinstance(rows, pa.RecordBatchReader):
            return rows
        return pa.RecordBatchReader.from_batches(rows.schema, self._watched(rows))

    def take(self) -> Exception | None:
        """Return the error of the statement that failed last, once; None if no stream failed."""
        error, self._first = self._first, None
        return error

    def _watched(self, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            yield from rows
        except Exception as error:
            self._first = self._first or error
            raise
