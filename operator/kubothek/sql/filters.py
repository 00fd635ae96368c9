"""Derive from a statement's WHERE clauses which rows of each dataset it can need.

DuckDB pushes its own filters into the scan of each file. The filters here select the files before that, with the
partition keys and indices that only the planner knows. A filter may be weaker than the statement, never stronger: a
condition that is not clearly understood needs all rows.

A comparison of a column with a literal can move from a WHERE clause to the table, through any kind of join. It is not
TRUE for NULL, so it also drops the rows that an outer join would add for missing matches. It cannot move past operators
that count rows or pair them by position: samples, POSITIONAL and ASOF joins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import or_
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Final, NamedTuple

import pyarrow as pa

from kubothek.errors import FilterInvalid
from kubothek.in_memory_database import nodes
from kubothek.sql.conditions import Column, weakened
from kubothek.sql.statement import Node, Statement
from kubothek.table.expressions import TRUE, Predicate

_LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)
_BY_PLACE: Final = ("POSITIONAL", "ASOF")


def needed_rows(statement: Statement, schemas: Mapping[str, pa.Schema]) -> dict[str, Predicate]:
    """Return by table name of the statement a predicate that holds for every row that can affect the answer.

    ``schemas``  the stored schema by table name; other names are not datasets
    """
    found: dict[str, list[Predicate]] = {name: [] for name in schemas}
    filtered: set[int] = set()
    for select in nodes(statement.tree):
        if select.get("type") == "SELECT_NODE":
            for table, predicate in _of_select(select, statement, schemas):
                filtered.add(id(table))
                found[table["table_name"]].append(predicate)
    for node in nodes(statement.tree):
        if node.get("type") == "BASE_TABLE" and id(node) not in filtered and node["table_name"] in found:
            found[node["table_name"]].append(TRUE)
    return {name: _either(predicates) for name, predicates in found.items()}


def _either(predicates: list[Predicate]) -> Predicate:
    try:
        return reduce(or_, predicates) if predicates else TRUE
    except FilterInvalid:  # too large
        return TRUE


class _From(NamedTuple):
    """The tables of a FROM clause, below its joins."""

    tables: list[Node]
    by_place: bool


def _of_select(
    select: Node, statement: Statement, schemas: Mapping[str, pa.Schema]
) -> Iterator[tuple[Node, Predicate]]:
    """Yield the datasets in one SELECT's own FROM, each with the predicate that its WHERE implies."""
    sources = _sources(select["from_table"])
    where = select["where_clause"]
    if where is None or sources.by_place or select["sample"]:
        return
    known = all(_is_dataset(table, statement, schemas) for table in sources.tables)
    for table in sources.tables:
        if not _is_dataset(table, statement, schemas) or table["sample"] or table["column_name_alias"]:
            continue
        own = schemas[table["table_name"]]
        others = [schemas[o["table_name"]] for o in sources.tables if o is not table] if known else None
        alone = len(sources.tables) == 1
        yield table, weakened(where, _column_of(table, own, others), nulls=alone)


def _sources(node: Node) -> _From:
    tables, pending, by_place = [], [node], False
    while pending:
        node = pending.pop()
        if node["type"] == "JOIN":
            by_place |= node["ref_type"] in _BY_PLACE
            pending += [node["right"], node["left"]]
        else:
            tables.append(node)
    return _From(tables, by_place)


def _is_dataset(table: Node, statement: Statement, schemas: Mapping[str, pa.Schema]) -> bool:
    """Return whether the table is certainly a dataset, and not a name of a WITH clause."""
    if table["type"] != "BASE_TABLE" or table["table_name"] not in schemas:
        return False
    return table["table_name"].casefold() not in statement.local


def _column_of(table: Node, own: pa.Schema, others: list[pa.Schema] | None) -> Column:
    """Return a finder of one table's columns; if not all ``others`` are known, it accepts only qualified names."""
    alias = _folded(table["alias"] or table["table_name"])
    times = Counter(map(_folded, own.names))
    fields = {_folded(name): own.field(name) for name in own.names if times[_folded(name)] == 1}
    ambiguous = {_folded(name) for other in others or () for name in other.names}

    def column(expression: Node) -> pa.Field[Any] | None:
        if expression.get("type") != "COLUMN_REF":
            return None
        names = [_folded(name) for name in expression["column_names"]]
        if names[0] == alias and len(names) > 1:
            # "nest.a" may be column a of a table nest, or field a of a column nest.
            return _field(own, fields, names[1:]) if len(names) == 2 or alias not in fields else None
        if len(names) == 1:
            return fields.get(names[0]) if others is not None and names[0] not in ambiguous else None
        return None if others or others is None else _field(own, fields, names)

    return column


def _field(schema: pa.Schema, columns: Mapping[str, pa.Field[Any]], names: list[str]) -> pa.Field[Any] | None:
    """Return the column, or the field of a struct, with this path."""
    found = columns.get(names[0])
    path = [] if found is None else [found.name]
    for name in names[1:]:
        if found is None or not pa.types.is_struct(found.type):
            return None
        inner = [each for each in found.type if _folded(each.name) == name]
        found = inner[0] if len(inner) == 1 else None
        path += [] if found is None else [found.name]
    if found is None or len(path) == 1:
        return found
    dotted = ".".join(path)
    return None if dotted in schema.names or any("." in each for each in path) else found.with_name(dotted)


def _folded(name: str) -> str:
    """Return the form by which DuckDB compares names: it folds ASCII letters only."""
    return name.translate(_LOWER)
