"""``table_changes('flights', 3, 5)`` in FROM: the change feed of a dataset as a table.

The parser turns the call into a reference to the dataset, which is then found and authorised as any other. The rows are
computed in the statement's own database, under its limits: DuckDB has no such function.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from kubothek.errors import QueryInvalid
from kubothek.in_memory_database import quoted
from kubothek.storage.base import Store
from kubothek.table.changes.files import open_changes
from kubothek.table.changes.plan import Changes, with_feed_columns
from kubothek.table.changes.relation import difference
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

    def create(self, database: duckdb.DuckDBPyConnection, table: str) -> ds.FileSystemDataset:
        """Make the table in a database; return all its files."""
        items = self.changes.items
        parts = {
            "streamed": [item for item in items if not item.compared],
            "compared": [item for item in items if item.compared],
        }
        selects = list(self._selects(database, table, parts))
        database.sql(" UNION ALL ".join(selects)).create_view(table)
        return open_changes(self.store, items, self.changes.stored)

    def _selects(self, database: duckdb.DuckDBPyConnection, table: str, parts: dict[str, Any]) -> Iterator[str]:
        key = [self.changes.stored.get_field_index(name) for name in self.changes.key]
        for part, items in parts.items():
            if not items and part == "compared":
                continue
            name = f"{table} {part}"
            database.register(name, open_changes(self.store, items, self.changes.stored))
            columns = database.table(quoted(name)).columns
            rows = difference(name, columns, key) if part == "compared" else f"FROM {quoted(name)}"
            yield f"SELECT {self._replaced(columns)} FROM ({rows})"  # noqa: S608 - quoted

    def _replaced(self, columns: list[str]) -> str:
        """Return all columns, those with a time zone, naive UTC in files, as TIMESTAMPTZ."""
        zoned = [
            column
            for column, stored in zip(columns, self.changes.stored.names, strict=False)
            if self.changes.zones.get(stored)
        ]
        moments = ", ".join(f"{name} AT TIME ZONE 'UTC' AS {name}" for name in map(quoted, zoned))
        return f"* REPLACE ({moments})" if moments else "*"
