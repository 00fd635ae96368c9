"""Computed values: scalar SQL expressions over the columns of a row, such as ``price * 1.1``.

DuckDB parses and evaluates them, on columns that this module gives it. An expression is deterministic: the same row has
the same value in a retry and on another machine. So functions of time, of chance and of the session are refused, and so
are subqueries, aggregates and windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa

from kubothek.errors import FilterInvalid, InputError
from kubothek.in_memory_database import functions, in_memory_database, nodes, quoted

if TYPE_CHECKING:
    import duckdb

TARGET: Final = "target"
SOURCE: Final = "source"
_CLASSES: Final = frozenset(
    {"BETWEEN", "CASE", "CAST", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION", "OPERATOR", "TYPE"}
)
_MACROS: Final = frozenset(
    {"date_add", "days_in_month", "fdiv", "fmod", "if", "list_append", "list_prepend", "list_reverse", "nullif"}
    | {"split_part"}
)
"""Macros of DuckDB, which has no note of their stability, that expand to deterministic functions."""
_OF_THE_SESSION: Final = frozenset({"age", "version"})
"""Functions that DuckDB calls deterministic, and that depend on the day or on its version."""
_MOST_CHARACTERS: Final = 1 << 16
_SHOWN_CHARACTERS: Final = 200
_ROW: Final = "n"
_GIVEN: Final = "given"

Read = tuple[str, str]
"""A column that an expression reads: its side and its name."""
Sides = Mapping[str, pa.Schema]
"""The stored columns that an expression may read, by the name before the point: ``source.price``, ``target.price``."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A value that is computed from a row, as SQL text: ``Expression("price * 1.1")``."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Compiled:
    """A checked expression; sent to executors.

    ``text``   as the user wrote it
    ``sql``    the same over the internal names of columns
    ``reads``  the columns that it reads, as side and name
    """

    text: str
    sql: str
    reads: frozenset[Read]


def compile_expression(text: str, sides: Sides, *, bare: str | None = None) -> Compiled:
    """Check the expression and return it; nothing is evaluated.

    ``bare``  the side of names without a side; None: they are refused

    Raises FilterInvalid for text that is no such expression, and for an unknown column.
    """
    tree = _parse(text)
    columns = {side: schema.names for side, schema in sides.items()}
    reads: set[Read] = set()
    for node in nodes(tree):
        if node.get("class") == "COLUMN_REF":
            side, name, fields = _resolve(text, node["column_names"], columns, bare)
            node["column_names"] = [_inside(side, name), *fields]
            reads.add((side, name))
    try:
        statement = orjson.dumps({"error": False, "statements": [{"node": tree}]}).decode()
    except orjson.JSONEncodeError as error:
        raise _too_deep(text) from error
    sql: str = _parser().execute("SELECT json_deserialize_sql(?)", [statement]).fetchall()[0][0]
    return Compiled(text, sql.removeprefix("SELECT "), frozenset(reads))


def check_expression(text: str, columns: Mapping[str, Sequence[str] | None]) -> None:
    """Check the expression as far as possible without a table.

    ``columns``  the columns by side; None = unknown, so any name is accepted

    Raises FilterInvalid as :func:`compile_expression`.
    """
    for node in nodes(_parse(text)):
        if node.get("class") == "COLUMN_REF":
            _resolve(text, node["column_names"], columns, None)


class Evaluator:
    """Evaluates expressions over rows in memory. Use it from one thread, and close it."""

    def __init__(self) -> None:
        self._opened: duckdb.DuckDBPyConnection | None = None

    def close(self) -> None:
        """Release its memory."""
        if self._opened is not None:
            self._opened.close()

    @property
    def _database(self) -> duckdb.DuckDBPyConnection:
        if self._opened is None:
            self._opened = in_memory_database(threads=1)
            self._opened.execute("SET TimeZone = 'UTC'")
        return self._opened

    def evaluate(self, expressions: Sequence[Compiled], columns: Mapping[Read, Any], count: int) -> list[Any]:
        """Return the value of each expression for each of ``count`` rows, as DuckDB types it.

        ``columns``  by side and name, at least those that the expressions read

        Raises InputError if an expression has no value for a row: a division of text, a number out of range.
        """
        reads = sorted({each for expression in expressions for each in expression.reads})
        given = pa.table({_ROW: pa.nulls(count, pa.int8())} | {_inside(*each): columns[each] for each in reads})
        values = ", ".join(f"{expression.sql} AS v{number}" for number, expression in enumerate(expressions))
        self._database.register(_GIVEN, given)
        try:
            found: pa.Table = self._run(f"SELECT {values} FROM {_GIVEN}", expressions)  # noqa: S608  # checked
        finally:
            self._database.unregister(_GIVEN)
        return list(found.columns)

    def _run(self, query: str, expressions: Sequence[Compiled]) -> pa.Table:
        import duckdb

        try:
            table: pa.Table = self._database.sql(query).to_arrow_table()
        except duckdb.Error as error:
            texts = "; ".join(expression.text for expression in expressions)
            raise InputError(f"cannot evaluate {texts}: {str(error).partition(chr(10))[0]}") from error
        return table


def _inside(side: str, name: str) -> str:
    """Return the internal name of a column: DuckDB ignores the case of names."""
    return f"{side}_{name.encode().hex()}"


# --- parsing ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _parser() -> duckdb.DuckDBPyConnection:
    return in_memory_database(threads=1)


def _require_text(text: str) -> None:
    if not text.strip():
        raise FilterInvalid("an expression is empty; write one, such as source.price * 1.1")
    if len(text) > _MOST_CHARACTERS:
        raise FilterInvalid(
            f"{_shown(text)} has {len(text):,} characters; an expression has at most {_MOST_CHARACTERS:,}; compute "
            "such a value in your program"
        )
    if not text.isascii() and (bad := next((mark for mark in text if "\ud800" <= mark <= "\udfff"), "")):
        raise FilterInvalid(f"{_shown(text)} is no Unicode text: it has half of a surrogate pair, {bad!r}; remove it")


def _too_deep(text: str) -> FilterInvalid:
    return FilterInvalid(
        f"{_shown(text)} has too many operators in each other; use fewer, or compute such a value in your program"
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…")


def _parse(text: str) -> dict[str, Any]:
    """Return the tree of the SELECT of this expression alone."""
    _require_text(text)
    try:
        parsed = _serialised(f"SELECT ({text}\n)")
    except orjson.JSONDecodeError as error:
        raise _too_deep(text) from error
    if parsed["error"]:
        if "expression depth" in parsed["error_message"]:
            raise _too_deep(text)
        raise FilterInvalid(f"{_shown(text)} is no SQL expression: {parsed['error_message']}")
    if len(parsed["statements"]) != 1 or len(parsed["statements"][0]["node"].get("select_list", ())) != 1:
        raise FilterInvalid(f"{_shown(text)} is no single SQL expression")
    tree: dict[str, Any] = parsed["statements"][0]["node"]
    if _clauses(tree) != _plain_clauses():
        raise FilterInvalid(f"{_shown(text)} is no single SQL expression")
    for node in nodes(tree["select_list"]):
        _require_allowed(text, node)
    return tree


def _serialised(text: str) -> dict[str, Any]:
    ((found,),) = _parser().execute("SELECT json_serialize_sql(?)", [text]).fetchall()
    parsed: dict[str, Any] = orjson.loads(found)
    return parsed


def _clauses(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a SELECT beside its values."""
    return {key: value for key, value in tree.items() if key != "select_list"}


@lru_cache(maxsize=1)
def _plain_clauses() -> dict[str, Any]:
    return _clauses(_serialised("SELECT 1")["statements"][0]["node"])


def _require_allowed(text: str, node: Mapping[str, Any]) -> None:
    kind = node.get("class")
    if kind is None:
        return
    if kind not in _CLASSES:
        raise FilterInvalid(
            f"{_shown(text)}: {kind.lower()} is not allowed in the value of a row; use columns, constants, operators, "
            "CASE, CAST and functions of these"
        )
    if kind == "FUNCTION" and node["function_name"].lower() not in _deterministic():
        raise FilterInvalid(
            f"{_shown(text)}: {node['function_name']} is no function of a row's values alone, or unknown; "
            "compute such a value in your program"
        )


@lru_cache(maxsize=1)
def _deterministic() -> frozenset[str]:
    pure = functions("function_type = 'scalar' AND stability = 'CONSISTENT' AND NOT has_side_effects")
    other = functions("function_type NOT IN ('scalar', 'macro') OR stability <> 'CONSISTENT' OR has_side_effects")
    return (pure - other - _OF_THE_SESSION) | _MACROS


def _resolve(
    text: str, names: Sequence[str], columns: Mapping[str, Sequence[str] | None], bare: str | None
) -> tuple[str, str, Sequence[str]]:
    """Return the side, the column, and the fields of a struct that follow."""
    if bare is not None and names[0] in (columns[bare] or ()):
        return bare, names[0], names[1:]
    if len(names) > 1 and names[0] in columns:
        side, name, *fields = names
        known = columns[side]
        if known is not None and name not in known:
            raise FilterInvalid(f"{_shown(text)}: no column {name!r} in {side}; it has {', '.join(known)}")
        return side, name, fields
    written = ".".join(quoted(name) if not name.isidentifier() else name for name in names)
    choice = " or ".join(f"{side}.{names[-1]}" for side in columns)
    if bare is not None:
        choice = f"one of {', '.join(columns[bare] or ())}"
    raise FilterInvalid(f"{_shown(text)}: unknown column {written}; write {choice}")
