"""Which rows of a dataset a statement can need, read off its WHERE clauses.

DuckDB pushes its own filters into the scan of each file; what is found here decides before that which files there are
to scan, with the partition keys and indices that only the planner knows. A filter may be weaker than what the
statement says, never stronger: whatever is not plainly understood is taken to need every row.

A comparison of a column with a literal can be moved from a WHERE clause to the table below it, whatever kind of join
lies between: it is not TRUE for NULL, so it drops the rows that an outer join would make up for those that are gone.
It cannot be moved past what counts or pairs rows by their place: samples, POSITIONAL and ASOF joins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from operator import and_, or_
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Final, NamedTuple

import pyarrow as pa

from kubothek.lake.errors import FilterInvalid
from kubothek.lake.predicates import TRUE, Op, Predicate, Term
from kubothek.lake.sql.statement import Node, Statement, nodes

_COMPARISONS: Final = {
    "COMPARE_EQUAL": Op.EQ,
    "COMPARE_NOTEQUAL": Op.NE,
    "COMPARE_LESSTHAN": Op.LT,
    "COMPARE_LESSTHANOREQUALTO": Op.LE,
    "COMPARE_GREATERTHAN": Op.GT,
    "COMPARE_GREATERTHANOREQUALTO": Op.GE,
}
_LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)
_MIRRORED: Final = {Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE}
_MOST_NESTING: Final = 64
"""Of ANDs and ORs in each other: people write a few, and Python's own stack is what it costs."""
_BY_PLACE: Final = ("POSITIONAL", "ASOF")
_EXACT_DIGITS: Final = 15
"""DuckDB makes decimals of numbers, and of those floats: with so many digits nothing is lost on the way."""
_MICROSECONDS: Final = len("2026-11-21 14:00:00.000000")

Column = Callable[[Node], "pa.Field[Any] | None"]
"""The column of the table that an expression is, None if it is anything else."""


class _Unclear(Exception):
    """A part of a condition that says nothing about the table on its own."""


def needed_rows(statement: Statement, schemas: Mapping[str, pa.Schema]) -> dict[str, Predicate]:
    """By table name of the statement, a predicate that holds for every row that can matter to the answer.

    ``schemas``  the stored schema by table name; what is not there is not a dataset
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
    """What stands in a FROM clause, below its joins."""

    tables: list[Node]
    by_place: bool


def _of_select(
    select: Node, statement: Statement, schemas: Mapping[str, pa.Schema]
) -> Iterator[tuple[Node, Predicate]]:
    """The datasets in one SELECT's own FROM, each with what its WHERE says of it."""
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
        yield table, _weakened(where, _column_of(table, own, others))


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
    """Whether the table is a dataset for certain, and not what a WITH clause calls so."""
    if table["type"] != "BASE_TABLE" or table["table_name"] not in schemas:
        return False
    return table["table_name"].casefold() not in statement.local


def _column_of(table: Node, own: pa.Schema, others: list[pa.Schema] | None) -> Column:
    """Finds columns of one table; without knowing all ``others`` beside it, only by its qualified name."""
    alias = _folded(table["alias"] or table["table_name"])
    times = Counter(map(_folded, own.names))
    fields = {_folded(name): own.field(name) for name in own.names if times[_folded(name)] == 1}
    ambiguous = {_folded(name) for other in others or () for name in other.names}

    def column(expression: Node) -> pa.Field[Any] | None:
        if expression.get("type") != "COLUMN_REF":
            return None
        *qualifier, name = map(_folded, expression["column_names"])
        if qualifier == [alias] or (not qualifier and others is not None and name not in ambiguous):
            return fields.get(name)
        return None

    return column


def _folded(name: str) -> str:
    """What DuckDB compares names by: it knows the case of ASCII letters only."""
    return name.translate(_LOWER)


# --- conditions -----------------------------------------------------------------------------------------------------


def _weakened(node: Node, column: Column, depth: int = 0) -> Predicate:
    """What the condition says of the table, as far as it is understood."""
    if depth > _MOST_NESTING:
        return TRUE
    if node["type"] == "CONJUNCTION_AND":
        parts = [_weakened(child, column, depth + 1) for child in node["children"]]
        try:
            return reduce(and_, parts)
        except FilterInvalid:  # too large: the first says enough
            return parts[0]
    try:
        return _understood(node, column, depth)
    except (_Unclear, FilterInvalid):
        return TRUE


def _understood(node: Node, column: Column, depth: int) -> Predicate:
    """What the condition says of the table. Raises _Unclear if that is nothing.

    There is no NOT in here: what is weaker inside stays weaker outside.
    """
    kind = node["type"]
    if kind == "CONJUNCTION_OR":
        return reduce(or_, (_something(child, column, depth + 1) for child in node["children"]))
    if kind in _COMPARISONS:
        op, left, right = _COMPARISONS[kind], node["left"], node["right"]
        if column(left) is None:
            op, left, right = _MIRRORED.get(op, op), right, left
        return _term(column(left), op, right)
    if kind == "COMPARE_BETWEEN":
        found = column(node["input"])
        return _term(found, Op.GE, node["lower"]) & _term(found, Op.LE, node["upper"])
    if kind == "COMPARE_IN":
        found, *literals = node["children"]
        return _in(column(found), literals)
    if kind == "OPERATOR_IS_NOT_NULL" and (known := column(node["children"][0])) is not None:
        return Predicate(((Term(known.name, Op.IS_NOT_NULL),),))
    raise _Unclear


def _something(node: Node, column: Column, depth: int) -> Predicate:
    """A branch of an OR: if it says nothing of the table, the OR does not either. Raises _Unclear."""
    predicate = _weakened(node, column, depth)
    if predicate == TRUE:
        raise _Unclear
    return predicate


def _term(column: pa.Field[Any] | None, op: Op, literal: Node) -> Predicate:
    if column is None:
        raise _Unclear
    value = _value(literal, column.type)
    return Predicate(((Term(column.name, op, value),),)).bind(pa.schema([column]))


def _in(column: pa.Field[Any] | None, literals: list[Node]) -> Predicate:
    if column is None:
        raise _Unclear
    values = tuple(_value(literal, column.type) for literal in literals)
    return Predicate(((Term(column.name, Op.IN, values),),)).bind(pa.schema([column]))


def _value(node: Node, kind: pa.DataType) -> object:
    """The literal as DuckDB compares it with a column of this type, if that needs no knowledge of its casts."""
    cast = None
    if node["type"] == "OPERATOR_CAST" and not node["try_cast"]:
        cast, node = node["type_expr"]["type_name"].upper(), node["child"]
    if node["type"] != "VALUE_CONSTANT" or cast not in (None, "DATE", "TIMESTAMP"):
        raise _Unclear
    literal = node["literal"]
    try:
        return _typed(literal["kind"], literal["text"], cast, kind)
    except ValueError:
        raise _Unclear from None


def _typed(literal: str, text: str, cast: str | None, kind: pa.DataType) -> object:
    types = pa.types
    if literal == "STRING":
        return _from_string(text, cast, kind)
    if cast is None and literal == "BOOLEAN" and types.is_boolean(kind):
        return text == "true"
    if cast is None and literal == "INTEGER" and types.is_integer(kind):
        return int(text)
    exact = text.strip("-").replace(".", "", 1).isdigit() and len(text) <= _EXACT_DIGITS
    if cast is None and literal in ("INTEGER", "NUMERIC") and exact:
        if types.is_decimal(kind):
            return Decimal(text)
        if types.is_float64(kind):
            return float(text)
    raise _Unclear


def _from_string(text: str, cast: str | None, kind: pa.DataType) -> object:
    types = pa.types
    if cast is None and (types.is_string(kind) or types.is_large_string(kind)):
        return text
    if types.is_date(kind) and cast in (None, "DATE"):
        return date.fromisoformat(text)
    if types.is_timestamp(kind) and len(text) <= _MICROSECONDS:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None and (cast != "DATE" or moment.time() == datetime.min.time()):
            return moment
    raise _Unclear
