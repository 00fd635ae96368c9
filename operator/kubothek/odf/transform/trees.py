"""Expressions as trees: canonical form, replacement of nodes, and names of columns."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import orjson

from kubothek.sql.statement import Node

_WORDING = frozenset({"alias", "query_location", "query_location_length"})


def canon(node: Node, alias: str | None = None) -> str:
    """Return the canonical form of an expression; ``alias`` is that of the only input, and is left out."""
    return orjson.dumps(_plain(node, alias), option=orjson.OPT_SORT_KEYS).decode()


def _plain(node: Any, alias: str | None) -> Any:
    if isinstance(node, list):
        return [_plain(each, alias) for each in node]
    if not isinstance(node, dict):
        return node
    kept = {key: _plain(value, alias) for key, value in node.items() if key not in _WORDING}
    if node.get("class") == "COLUMN_REF":
        names = [name.casefold() for name in node["column_names"]]
        kept["column_names"] = names[1:] if alias is not None and len(names) > 1 and names[0] == alias else names
    if node.get("class") in ("FUNCTION", "WINDOW"):
        kept["function_name"] = node["function_name"].casefold()
        kept.pop("qualified_name", None)
    return kept


def rewrite(node: Any, change: Callable[[Node], Node | None]) -> Any:
    """Replace nodes, from the top, by what ``change`` returns; None keeps a node, and the search goes on inside."""
    if isinstance(node, list):
        return [rewrite(each, change) for each in node]
    if not isinstance(node, dict):
        return node
    if "class" in node and (instead := change(node)) is not None:
        found = deepcopy(instead)
        found["alias"] = node.get("alias", "")
        return found
    return {key: rewrite(value, change) for key, value in node.items()}


def column_names(node: object) -> list[list[str]]:
    """Return the names of all columns in an expression, without parameters of lambdas."""
    found: list[list[str]] = []
    _collect(node, frozenset(), found)
    return found


def _collect(node: object, bound: frozenset[str], found: list[list[str]]) -> None:
    if isinstance(node, list):
        for each in node:
            _collect(each, bound, found)
    elif isinstance(node, dict):
        if node.get("class") == "LAMBDA":
            bound |= {names[0].casefold() for names in column_names(node["lhs"])}
            _collect(node["expr"], bound, found)
            return
        if node.get("class") == "COLUMN_REF" and node["column_names"][0].casefold() not in bound:
            found.append(node["column_names"])
        for value in node.values():
            _collect(value, bound, found)
