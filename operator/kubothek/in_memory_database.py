"""In-memory databases of DuckDB that can reach nothing outside: one set of defaults for all that run SQL."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import duckdb

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
