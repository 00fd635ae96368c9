"""``table_changes('flights', 3, 5)`` in FROM: the change feed of a dataset as a table.

The parser turns the call into a reference to the dataset, which is then found and authorised as any other. The rows are
computed in the statement's own database, under its limits: DuckDB has no such function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from kubothek.errors import QueryInvalid
from kubothek.in_memory_database import StreamErrors, quoted
from kubothek.storage.base import Store
from kubothek.table.changes.files import open_changes
from kubothek.table.changes.plan import Changes, with_feed_columns
from kubothek.table.changes.relation import difference
from kubothek.table.changes.rows import compared_rows, portions
from kubothek.table.log import Version
from kubothek.table.log.model.record import utc

FUNCTION: Final = "table_changes"
USAGE: Final = "table_changes('flights', 3, 5): a dataset, the version before the first change, the last (or none)"
_KEY: Final = "key"
_MOST_POSITIONAL: Final = 3

Node: TypeAlias = dict[str, Any]


class Feed(NamedTuple):
    """The arguments of one call.

    ``before``  the version before the first change
    ``after``   the last version; None = that of the whole query
    """

    name: str
    before: Version
    after: Version | None
    key: tuple[str, ...]

    def __str__(self) -> str:
        parts = (quoted(self.name), self.before, self.after, ", ".join(map(quoted, self.key)))
        return f"{FUNCTION} {'; '.join(map(str, parts))}"


def is_call(node: Node) -> bool:
    """Return whether a node of the parse tree calls the function."""
    if node.get("type") != "TABLE_FUNCTION":
        return False
    function = node["function"]
    return not function["schema"] and not function["catalog"] and function["function_name"].casefold() == FUNCTION


def feed_of(node: Node) -> Feed:
    """Return the arguments of a call. Raises QueryInvalid unless they are literals of the expected types."""
    function = node["function"]
    if node["with_ordinality"] != "WITHOUT_ORDINALITY" or function["distinct"] or function["filter"]:
        raise QueryInvalid(f"{FUNCTION} takes no other clauses; write {USAGE}")
    positional = [each["expression"] for each in function["arguments"] if not each["name"]]
    named = {each["name"].casefold(): each["expression"] for each in function["arguments"] if each["name"]}
    if not 2 <= len(positional) <= _MOST_POSITIONAL or named.keys() - {_KEY}:
        raise QueryInvalid(f"write {USAGE}; key => ['id'] names the columns that identify a row")
    return Feed(
        name=_text(positional[0], "the name of the dataset"),
        before=_version(positional[1]),
        after=_version(positional[2]) if len(positional) == _MOST_POSITIONAL else None,
        key=_names(named[_KEY]) if _KEY in named else (),
    )


def _literal(expression: Node) -> tuple[str, str]:
    """Return the kind and the text of a constant; TIMESTAMP if it is cast to one."""
    kind = None
    while expression.get("type") == "OPERATOR_CAST":
        cast = str(expression["type_expr"].get("type_name", "")).upper()
        kind = "TIMESTAMP" if cast.startswith("TIMESTAMP") or cast == "DATE" else cast
        expression = expression["child"]
    if expression.get("type") != "VALUE_CONSTANT":
        raise QueryInvalid(f"arguments of {FUNCTION} are literals; write {USAGE}")
    literal = expression["literal"]
    return kind or str(literal["kind"]), str(literal.get("text", ""))


def _text(expression: Node, what: str) -> str:
    kind, text = _literal(expression)
    if kind != "STRING":
        raise QueryInvalid(f"{what} is a text; write {USAGE}")
    return text


def _version(expression: Node) -> Version:
    """Return a number, a time, or a tag, which begins with a letter, as on the command line."""
    kind, text = _literal(expression)
    try:
        if kind == "INTEGER" and int(text) >= 0:
            return int(text)
        if kind == "STRING" and text[:1].isalpha():
            return text
        if kind in ("STRING", "TIMESTAMP"):
            return utc(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        pass
    raise QueryInvalid(f"{FUNCTION}: {text!r} is no version; write 3, 'audit' (a tag), or '2026-11-21 14:00:00'")


def _names(expression: Node) -> tuple[str, ...]:
    if expression.get("class") == "FUNCTION" and expression["function_name"] == "list_value":
        return tuple(_text(each["expression"], "a column of the key") for each in expression["arguments"])
    return (_text(expression, "the key"),)


# --- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FeedTable:
    """The planned feed of one call."""

    changes: Changes
    store: Store

    @property
    def schema(self) -> pa.Schema:
        """The stored columns, and those of a feed."""
        return with_feed_columns(self.changes.stored)

    def create(self, database: duckdb.DuckDBPyConnection, table: str, errors: StreamErrors) -> ds.FileSystemDataset:
        """Make the table in a database; return all its files.

        Rows of files that were only added or only removed are read where the statement scans them. The others are
        compared in portions, each without the rows that a rewrite left in their places.

        ``errors``  gets those of reading the compared files
        """
        stored, store = self.changes.stored, self.store
        items = self.changes.items
        whole = f"{table} streamed"
        database.register(whole, open_changes(store, [item for item in items if not item.compared], stored))
        selects = [self._select(database, whole, f"FROM {quoted(whole)}")]
        key = [stored.get_field_index(name) for name in self.changes.key]
        for number, portion in enumerate(portions(item for item in items if item.compared)):
            name = f"{table} compared {number}"
            rows = partial(compared_rows, store, stored, portion)
            database.register(name, _Rescanned(self.schema, rows, errors))
            selects.append(self._select(database, name, difference(name, _columns(database, name), key)))
        database.sql(" UNION ALL ".join(selects)).create_view(table)
        return open_changes(store, items, stored)

    def _select(self, database: duckdb.DuckDBPyConnection, name: str, rows: str) -> str:
        return f"SELECT {self._replaced(_columns(database, name))} FROM ({rows})"  # noqa: S608 - quoted

    def _replaced(self, columns: list[str]) -> str:
        """Return all columns, those with a time zone, naive UTC in files, as TIMESTAMPTZ."""
        zoned = [
            column
            for column, stored in zip(columns, self.changes.stored.names, strict=False)
            if self.changes.zones.get(stored)
        ]
        moments = ", ".join(f"{name} AT TIME ZONE 'UTC' AS {name}" for name in map(quoted, zoned))
        return f"* REPLACE ({moments})" if moments else "*"


@dataclass(frozen=True, slots=True)
class _Rescanned:
    """Rows that a database reads anew for each scan, as a stream."""

    schema: pa.Schema
    rows: Callable[[], Iterator[pa.RecordBatch]]
    errors: StreamErrors

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self.schema, self.rows())
        watched: Any = self.errors.watch(reader)
        return watched.__arrow_c_stream__(requested_schema)


def _columns(database: duckdb.DuckDBPyConnection, name: str) -> list[str]:
    return list(database.table(quoted(name)).columns)
