"""Ranks used only as upper bounds: with ``row_number() … <= 3``, a row does not depend on the rows before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kubothek.odf.transform.allowed import function_of
from kubothek.odf.transform.join_terms import conjuncts
from kubothek.odf.transform.trees import column_names
from kubothek.sql.statement import Node

RANKS: Final = frozenset({"row_number", "rank", "dense_rank", "rank_dense"})
_LESS: Final = ("COMPARE_LESSTHANOREQUALTO", "COMPARE_LESSTHAN")


def bounding(condition: Node | None) -> Iterator[Node]:
    """Yield the ranks in a condition that stays true if rows before the current one are removed."""
    for each in conjuncts(condition):
        if (bounded := _bounded(each)) is not None and function_of(bounded) in RANKS:
            yield bounded


def _bounded(conjunct: Node) -> Node | None:
    """Return ``x`` of ``x <= 3``, ``x < 3`` and ``x = 1``."""
    if conjunct.get("class") != "COMPARISON" or conjunct["right"].get("class") != "CONSTANT":
        return None
    is_first = conjunct["type"] == "COMPARE_EQUAL" and conjunct["right"].get("literal", {}).get("text") == "1"
    found: Node = conjunct["left"]
    return found if conjunct["type"] in _LESS or is_first else None


def qualified(node: Node) -> Node:
    """Return ``SELECT … FROM (SELECT …, rank() … AS r FROM …) WHERE r <= 3`` with the filter as QUALIFY in the
    subquery, if ``r`` is not used elsewhere.
    """
    inner = node["from_table"].get("subquery", {}).get("node", {})
    if inner.get("type") != "SELECT_NODE" or inner["modifiers"] or node["from_table"].get("column_name_alias"):
        return node
    if any(item["class"] == "STAR" for item in node["select_list"]):
        return node
    kept, moved = list[Node](), list[Node]()
    items: list[Node] = inner["select_list"]
    everywhere = [node[part] for part in ("select_list", "where_clause", "group_expressions", "having", "qualify")]
    used = [names[-1].casefold() for names in column_names(everywhere)]
    for each in conjuncts(node["where_clause"]):
        item = _ranked(_bounded(each), items)
        if item is None or used.count(item["alias"].casefold()) > 1:
            kept.append(each)
            continue
        window = item | {"alias": ""}
        moved.append(each | {"left": window})
        items = [one for one in items if one is not item]
    if not moved:
        return node
    inside = inner | {"select_list": items, "qualify": _all([*conjuncts(inner["qualify"]), *moved])}
    source = node["from_table"] | {"subquery": node["from_table"]["subquery"] | {"node": inside}}
    return node | {"from_table": source, "where_clause": _all(kept)}


def _ranked(column: Node | None, items: list[Node]) -> Node | None:
    """Return the item that is a rank and that a column refers to."""
    if column is None or column["class"] != "COLUMN_REF":
        return None
    name = column["column_names"][-1].casefold()
    named = [item for item in items if item["alias"].casefold() == name and function_of(item) in RANKS]
    return named[0] if len(named) == 1 and len(items) > 1 else None


def _all(conditions: list[Node]) -> Any:
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return {"class": "CONJUNCTION", "type": "CONJUNCTION_AND", "alias": "", "children": conditions}
