"""Restrictions on the SQL of a transformation beyond those on any query: the inputs alone must decide its result."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from kubothek.errors import TransformInvalid
from kubothek.in_memory_database import functions
from kubothek.odf.transform.trees import column_names
from kubothek.sql.statement import Node

HIDDEN: Final = "__"
"""The prefix of the engine's own names."""
_TELLS_THE_MACHINE: Final = frozenset({"version", "hash", "pg_typeof", "error"})
_ORDER_OF_ROWS: Final = frozenset({"first", "last", "any_value", "arbitrary", "mode", "histogram", "histogram_exact"})
_UNCALLED: Final = frozenset(
    {"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"}
    | {"user", "current_user", "session_user", "current_role", "current_catalog", "current_schema", "rowid"}
)
"""Names that DuckDB takes for a function, or for a place in its own storage, unless a column has the name."""
_INSTEAD: Final = {
    "first": "arg_min(x, event_time)",
    "last": "arg_max(x, event_time)",
    "any_value": "min(x)",
    "arbitrary": "min(x)",
    "collect_list": "list(x ORDER BY x)",
    "now": "a column of the inputs",
}


def own_nodes(tree: object) -> Iterator[Node]:
    """Yield all objects of an expression, except those inside of subqueries."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
            if node.get("class") != "SUBQUERY":
                pending.extend(node.values())
        elif isinstance(node, list | tuple):
            pending.extend(node)


def function_of(node: Node) -> str:
    """Return the function that a node calls, in lower case; '' if it calls none."""
    if node.get("class") not in ("FUNCTION", "WINDOW"):
        return ""
    return str(node["function_name"]).casefold()


def require_allowed(tree: object, where: str) -> None:
    """Raise TransformInvalid, naming the first disallowed node in a tree of any kind."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            _require_allowed(node, where)
            pending.extend(node.values())
        elif isinstance(node, list | tuple):
            pending.extend(node)


def _require_allowed(node: Node, where: str) -> None:
    kind = node.get("class")
    if kind == "SUBQUERY":
        raise TransformInvalid(
            f"{where}: a subquery in an expression (IN, EXISTS, a scalar) cannot be kept up to date; join instead"
        )
    if kind == "COLUMN_REF" and any(name.startswith(HIDDEN) for name in node["column_names"]):
        raise TransformInvalid(f"{where}: names that begin with {HIDDEN} are the engine's own; rename the column")
    if node.get("sample") is not None and "sample" in node:
        raise TransformInvalid(f"{where}: a sample is not decided by the inputs alone; filter by a column")
    name = function_of(node)
    if name and (name in _TELLS_THE_MACHINE or name in _unstable()):
        instead = f"; use {_INSTEAD[name]}" if name in _INSTEAD else ""
        raise TransformInvalid(
            f"{where}: {name}() is not decided by the inputs alone, so that its result could not be verified{instead}"
        )
    if name in _ORDER_OF_ROWS or name.startswith(("approx_", "reservoir_")):
        instead = f"; use {_INSTEAD[name]}" if name in _INSTEAD else ""
        raise TransformInvalid(f"{where}: {name}() depends on the order in which rows come{instead}")


def require_columns(tree: object, columns: Collection[str], where: str) -> None:
    """Raise TransformInvalid for a name that is not a column (in lower case), and means the clock or the machine."""
    for names in column_names(tree):
        if (name := names[-1].casefold()) in _UNCALLED and name not in columns:
            raise TransformInvalid(f"{where}: {name} is not decided by the inputs alone; use a column of the inputs")


def _unstable() -> frozenset[str]:
    return functions("stability <> 'CONSISTENT' OR has_side_effects")


def aggregates() -> frozenset[str]:
    """Return the names of all aggregate functions."""
    return functions("function_type = 'aggregate'")
