"""The FROM clause: one input or several, and the lists that are unnested beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from kubothek.errors import TransformInvalid
from kubothek.in_memory_database import nodes
from kubothek.odf.transform.allowed import aggregates, function_of, own_nodes
from kubothek.odf.transform.delta import Delta
from kubothek.odf.transform.dialect import temporal
from kubothek.sql.statement import Node, base_tables

Compile = Callable[[Node], Delta]
"""Compiles a subquery in FROM."""
_JOINS: Final = ("INNER", "LEFT")


@dataclass(slots=True)
class Leaf:
    """An input, or the answer of a query, in a FROM clause.

    ``node``    its node in the tree, which is a plain table
    ``alias``   its name in the query
    ``table``   the name of the input or earlier query; '' for a subquery
    ``moment``  the column of FOR SYSTEM_TIME AS OF; '' without
    """

    node: Node
    alias: str
    delta: Delta
    table: str = ""
    moment: str = ""


@dataclass(slots=True)
class From:
    """A FROM clause whose leaves are relations of the session.

    ``unfolds``  whether there are lists, or constants, beside the leaves
    """

    tree: Node
    leaves: list[Leaf] = field(default_factory=list)
    unfolds: bool = False


def read_from(source: Node, scope: Mapping[str, Delta], compile_: Compile, where: str) -> From:
    """Return the clause with its leaves compiled. Raises TransformInvalid."""
    found = From(deepcopy(source))
    _visit(found.tree, found, scope, compile_, where)
    return found


def joins(tree: Node) -> Iterator[Node]:
    """Yield all joins of a FROM clause, without those inside of subqueries."""
    if tree["type"] == "JOIN":
        yield tree
        yield from joins(tree["left"])
        yield from joins(tree["right"])


def _visit(node: Node, found: From, scope: Mapping[str, Delta], compile_: Compile, where: str) -> None:
    kind = node["type"]
    if kind == "JOIN":
        _check_join(node, where)
        before = len(found.leaves)
        _visit(node["left"], found, scope, compile_, where)
        left = len(found.leaves)
        _visit(node["right"], found, scope, compile_, where)
        if node["join_type"] == "LEFT" and left == before and len(found.leaves) > left:
            raise TransformInvalid(f"{where}: LEFT JOIN keeps the rows of its left side, which has to be an input")
    elif kind == "BASE_TABLE":
        name, moment = temporal(node["table_name"])
        if (delta := scope.get(name.casefold())) is None:
            raise unknown(name, scope, where)
        _become(node, found, Leaf(node, node["alias"] or name, delta, name, moment))
    elif kind == "SUBQUERY":
        inner = node["subquery"]["node"]
        if (
            any(temporal(each["table_name"])[0].casefold() in scope for each in base_tables(inner))
            or inner["cte_map"]["map"]
        ):
            _become(node, found, Leaf(node, node["alias"], compile_(inner)))
        else:
            _check_constant(inner, scope, where)
            found.unfolds = True
    elif kind in ("TABLE_FUNCTION", "EXPRESSION_LIST"):
        found.unfolds = True
    elif kind != "EMPTY":
        raise TransformInvalid(f"{where}: {kind} cannot be kept up to date; write it as GROUP BY with FILTER")


def _become(node: Node, found: From, leaf: Leaf) -> None:
    """Replace a node by a plain table with the alias of the leaf."""
    names = node.get("column_name_alias", [])
    query_location = node["query_location"]
    node.clear()
    node.update(_base_table(leaf.delta.name, leaf.alias, names, query_location))
    found.leaves.append(leaf)


def _base_table(name: str, alias: str, names: list[str], location: Any) -> Node:
    return {
        "type": "BASE_TABLE",
        "alias": alias,
        "sample": None,
        "query_location": location,
        "query_location_length": 1,
        "schema_name": "",
        "table_name": name,
        "column_name_alias": names,
        "catalog_name": "",
        "at_clause": None,
        "qualified_name": {"path": [name]},
    }


def _check_join(node: Node, where: str) -> None:
    kind, reference = node["join_type"], node["ref_type"]
    if kind not in _JOINS or reference == "POSITIONAL":
        shown = reference if reference == "POSITIONAL" else kind
        raise TransformInvalid(f"{where}: {shown} JOIN cannot be kept up to date; there are JOIN and LEFT JOIN")


def _check_constant(inner: Node, scope: Mapping[str, Delta], where: str) -> None:
    """Raise TransformInvalid for a subquery without inputs that aggregates; it may only unnest values."""
    for table in base_tables(inner):
        raise unknown(table["table_name"], scope, where)
    for node in nodes(inner):
        if function_of(node) in aggregates() or node.get("class") == "WINDOW":
            raise TransformInvalid(
                f"{where}: {function_of(node)}() in a subquery without input; use a function of lists, as list_sum"
            )


def has_unnest(items: object) -> bool:
    """Return whether a SELECT makes several rows of one."""
    return any(function_of(node) == "unnest" for node in own_nodes(items))


def unknown(name: str, scope: Mapping[str, Delta], where: str) -> TransformInvalid:
    """Return the error for an unknown table."""
    return TransformInvalid(
        f"{where}: there is no input or earlier query {name!r}; there are {', '.join(sorted(scope))}"
    )
