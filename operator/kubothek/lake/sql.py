"""SQL over datasets: one SELECT, answered by an embedded DuckDB that can reach nothing else.

The statement is hostile until proven otherwise. It must parse as exactly one SELECT, and it runs in a
database of its own, in memory, without access to files, network, extensions, the caller's variables or its
own settings; it sees only the datasets it names. Filters and columns are pushed down into their scans.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from typing import Any, Final

import duckdb
import orjson
import pyarrow as pa
import pyarrow.dataset as ds

from kubothek.lake.errors import DatasetNotFound, InputError, LakeError, QueryInvalid
from kubothek.lake.store.base import Store
from kubothek.lake.table.scan import read_failure

MEMORY_LIMIT: Final = "2GB"

_CONFIG: Final[dict[str, str | bool]] = {
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,
    "temp_directory": "",
    "lock_configuration": True,
}
_TABLE_FUNCTIONS: Final = frozenset({"generate_series", "range", "repeat", "unnest"})
_BATCH_ROWS: Final = 65_536
_MOST_NAMES: Final = 10
_READ_FAILED: Final = "reading the stream registered as"


def select(
    store: Store,
    statement: str,
    open_dataset: Callable[[str], ds.FileSystemDataset],
    names: Callable[[], Iterable[str]],
) -> pa.RecordBatchReader:
    """The rows that the SELECT gives, as a stream.

    ``open_dataset``  the dataset of a name in the statement; raises DatasetNotFound
    ``names``         all there are, for the message if one is not

    Raises QueryInvalid for anything but one SELECT over these datasets that DuckDB can answer within its
    memory; the stream raises it, too, for a value that an expression cannot take.
    """
    database = duckdb.connect(":memory:", config={**_CONFIG, "memory_limit": MEMORY_LIMIT})
    opened: dict[str, ds.FileSystemDataset] = {}
    try:
        tables, local = _tables(database, statement)
        for name in sorted(tables):
            # Inside "WITH flights AS (SELECT … FROM flights)" the name is still the dataset's.
            found = _open(name, open_dataset, names, optional=name.casefold() in local)
            if found is not None:
                opened[name] = found
                database.register(name, found)
        reader = database.sql(statement).to_arrow_reader(_BATCH_ROWS)
    except duckdb.Error as error:
        database.close()
        raise _failure(store, opened, error) from error
    except LakeError:
        database.close()
        raise
    return pa.RecordBatchReader.from_batches(reader.schema, _batches(store, database, opened, reader))


def _tables(database: duckdb.DuckDBPyConnection, statement: str) -> tuple[set[str], set[str]]:
    """The names that the statement takes rows from, and those of its WITH clauses, in lower case.

    Parses only. Refuses all but one SELECT over plain names.
    """
    kinds = [found.type.name for found in database.extract_statements(statement)]
    if kinds != ["SELECT"]:
        raise QueryInvalid(f"expected exactly one SELECT, found {', '.join(kinds) or 'nothing'}")
    ((serialized,),) = database.execute("SELECT json_serialize_sql(?)", [statement]).fetchall()
    try:
        tree = orjson.loads(serialized)
    except orjson.JSONDecodeError as error:
        raise QueryInvalid("the statement is nested too deeply") from error
    if tree["error"]:
        raise QueryInvalid(str(tree.get("error_message")))
    tables: set[str] = set()
    for node in _nodes(tree):
        if node.get("type") == "BASE_TABLE":
            if node["schema_name"]:
                raise QueryInvalid(
                    f"{node['schema_name']}.{node['table_name']}: datasets have plain names; quote one that "
                    'has dots or dashes: "a-b"'
                )
            tables.add(node["table_name"])
        elif node.get("type") == "TABLE_FUNCTION":
            _require_harmless(node["function"]["function_name"])
    folded = Counter(table.casefold() for table in tables)
    if clash := sorted(table for table in tables if folded[table.casefold()] > 1):
        raise QueryInvalid(f"{' and '.join(map(repr, clash))} differ in case only, which SQL does not see")
    return tables, {name for node in _nodes(tree) for name in _with_names(node)}


def _with_names(node: dict[str, Any]) -> Iterator[str]:
    """The names that a WITH clause gives to queries."""
    for entry in node.get("cte_map", {}).get("map", ()):
        yield entry["key"].casefold()


def _nodes(tree: object) -> Iterator[dict[str, Any]]:
    """All objects in a JSON document; without recursion, because its depth is the statement's."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)


def _require_harmless(function: str) -> None:
    if function.casefold() not in _TABLE_FUNCTIONS:
        raise QueryInvalid(
            f"function {function!r} cannot stand in FROM; rows come from datasets, or from "
            + ", ".join(sorted(_TABLE_FUNCTIONS))
        )


def _open(
    name: str,
    open_dataset: Callable[[str], ds.FileSystemDataset],
    names: Callable[[], Iterable[str]],
    *,
    optional: bool,
) -> ds.FileSystemDataset | None:
    try:
        return open_dataset(name)
    except (DatasetNotFound, InputError) as error:
        if optional:
            return None
        known = list(names())
        near = get_close_matches(name, known, n=_MOST_NAMES) or known[:_MOST_NAMES]
        hint = f"there is {', '.join(map(repr, near))}" if near else "the store has none yet"
        raise QueryInvalid(f"no dataset {name!r}; {hint}") from error


def _batches(
    store: Store,
    database: duckdb.DuckDBPyConnection,
    opened: dict[str, ds.FileSystemDataset],
    reader: pa.RecordBatchReader,
) -> Iterator[pa.RecordBatch]:
    try:
        yield from reader
    except (duckdb.Error, OSError, pa.ArrowException) as error:
        raise _failure(store, opened, error) from error
    finally:
        database.close()


def _failure(store: Store, opened: dict[str, ds.FileSystemDataset], error: Exception) -> LakeError:
    text = str(error).partition("\n\nLINE ")[0]
    if _READ_FAILED in text and (not_empty := [dataset for dataset in opened.values() if dataset.files]):
        return read_failure(store, not_empty[0], error)
    if isinstance(error, duckdb.OutOfMemoryException):
        return QueryInvalid(f"the query needs more than {MEMORY_LIMIT} of memory; select less, or run it as a job")
    return QueryInvalid(text)
