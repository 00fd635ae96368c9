"""Translate a condition of a statement into a predicate on the columns of one table.

The predicate may be weaker than the condition, never stronger: a part that is not clearly understood is dropped. NOT is
first pushed down to the comparisons, whose negations are exact, so that a weakened part never becomes stronger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from operator import and_, or_
from typing import Any, Final

import pyarrow as pa

from kubothek.errors import FilterInvalid
from kubothek.sql.statement import Node
from kubothek.table.expressions import TRUE, Op, Predicate, Term
from kubothek.table.expressions.parser import like
from kubothek.table.expressions.terms import NEGATED

Column = Callable[[Node], "pa.Field[Any] | None"]
"""Function from an expression to the column of the table that it is; None for anything else."""

_COMPARISONS: Final = {
    "COMPARE_EQUAL": Op.EQ,
    "COMPARE_NOTEQUAL": Op.NE,
    "COMPARE_LESSTHAN": Op.LT,
    "COMPARE_LESSTHANOREQUALTO": Op.LE,
    "COMPARE_GREATERTHAN": Op.GT,
    "COMPARE_GREATERTHANOREQUALTO": Op.GE,
}
_MIRRORED: Final = {Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE}
_SETS: Final = {"COMPARE_IN": Op.IN, "COMPARE_NOT_IN": Op.NOT_IN}
_NULL_TESTS: Final = {"OPERATOR_IS_NULL": Op.IS_NULL, "OPERATOR_IS_NOT_NULL": Op.IS_NOT_NULL}
_PATTERNS: Final = {"~~": False, "!~~": True}
_PARTS_OF_TEXT: Final = {
    "starts_with": "{}%",
    "prefix": "{}%",
    "ends_with": "%{}",
    "suffix": "%{}",
    "contains": "%{}%",
}
"""Functions of a column and a text, as patterns."""
_MOST_NESTING: Final = 64
"""Maximum nesting of ANDs and ORs: users write a few, and each level costs Python's stack."""


def weakened(node: Node, column: Column, *, nulls: bool = False) -> Predicate:
    """Return the predicate that the condition implies for the table, as far as it is understood.

    ``nulls``  no join adds rows of NULLs, so IS NULL can be decided by the table itself
    """
    return _Reading(column, nulls=nulls).weakened(node, negated=False, depth=0)


class _Reading:
    """One call of :func:`weakened`."""

    def __init__(self, column: Column, *, nulls: bool) -> None:
        self._column = column
        self._nulls = nulls

    def weakened(self, node: Node, *, negated: bool, depth: int) -> Predicate:
        """Translate a node; ``negated``: it is under an odd number of NOTs."""
        if depth > _MOST_NESTING:
            return TRUE
        kind = node["type"]
        if kind == "OPERATOR_NOT":
            return self.weakened(node["children"][0], negated=not negated, depth=depth + 1)
        if kind == ("CONJUNCTION_OR" if negated else "CONJUNCTION_AND"):
            parts = [self.weakened(child, negated=negated, depth=depth + 1) for child in node["children"]]
            try:
                return reduce(and_, parts)
            except FilterInvalid:  # too large: the first part suffices
                return parts[0]
        try:
            if kind in ("CONJUNCTION_OR", "CONJUNCTION_AND"):
                return reduce(or_, self._branches(node["children"], negated=negated, depth=depth))
            return self._comparison(node, negated=negated)
        except (Unclear, FilterInvalid):
            return TRUE

    def _branches(self, nodes: Sequence[Node], *, negated: bool, depth: int) -> Iterator[Predicate]:
        """Yield the branches of an OR. If one implies nothing for the table, neither does the OR. Raises Unclear."""
        for node in nodes:
            predicate = self.weakened(node, negated=negated, depth=depth + 1)
            if predicate == TRUE:
                raise Unclear
            yield predicate

    def _comparison(self, node: Node, *, negated: bool) -> Predicate:
        """Return the predicate of a condition without AND, OR and NOT. Raises Unclear if it implies nothing."""
        kind = node["type"]
        if kind in _COMPARISONS:
            return self._compared(_COMPARISONS[kind], node["left"], node["right"], negated=negated)
        if kind == "COMPARE_BETWEEN":
            low = self._compared(Op.GE, node["input"], node["lower"], negated=negated)
            high = self._compared(Op.LE, node["input"], node["upper"], negated=negated)
            return low | high if negated else low & high
        if kind in _SETS:
            return self._in(node["children"], _SETS[kind], negated=negated)
        if kind in _NULL_TESTS:
            return self._null_test(node["children"][0], _NULL_TESTS[kind], negated=negated)
        if kind == "FUNCTION":
            return self._like(node, negated=negated)
        if (found := self._column(node)) is not None and pa.types.is_boolean(found.type):
            return _one(found, Op.EQ, not negated)
        raise Unclear

    def _compared(self, op: Op, left: Node, right: Node, *, negated: bool) -> Predicate:
        for first, second, sense in ((left, right, op), (right, left, _MIRRORED.get(op, op))):
            wanted = NEGATED[sense] if negated else sense
            if (found := self._column(first)) is not None:
                return _one(found, wanted, literal(second, found.type))
            with suppress(Unclear):
                return self._of_expression(first, wanted, second)
        raise Unclear

    def _of_expression(self, expression: Node, op: Op, other: Node) -> Predicate:
        """Translate a comparison of a column's cast or function, which keeps the order of values. Raises Unclear."""
        if expression["type"] == "OPERATOR_CAST" and not expression["try_cast"]:
            found = self._known(expression["child"])
            return _of_cast(found, expression["type_expr"]["type_name"].upper(), op, other)
        if expression["type"] == "FUNCTION" and expression["function_name"] == "year":
            found = self._known(_arguments(expression)[0])
            if pa.types.is_date(found.type) or (pa.types.is_timestamp(found.type) and found.type.tz is None):
                first, following = year_of(other)
                return _of_span(found, op, first, following)
        raise Unclear

    def _known(self, expression: Node) -> pa.Field[Any]:
        if (found := self._column(expression)) is None:
            raise Unclear
        return found

    def _in(self, children: Sequence[Node], op: Op, *, negated: bool) -> Predicate:
        first, *others = children
        found = self._known(first)
        return _one(found, NEGATED[op] if negated else op, tuple(literal(each, found.type) for each in others))

    def _null_test(self, expression: Node, op: Op, *, negated: bool) -> Predicate:
        wanted = NEGATED[op] if negated else op
        if wanted is Op.IS_NULL and not self._nulls:
            raise Unclear
        return Predicate(((Term(self._known(expression).name, wanted),),))

    def _like(self, node: Node, *, negated: bool) -> Predicate:
        name = node["function_name"]
        arguments = _arguments(node)
        if len(arguments) != 2:
            raise Unclear
        found = self._known(arguments[0])
        text = text_of(arguments[1])
        if not (pa.types.is_string(found.type) or pa.types.is_large_string(found.type)) or "\\" in text:
            raise Unclear
        if name in _PATTERNS:
            return like(found.name, text)(_PATTERNS[name] is not negated)
        if name not in _PARTS_OF_TEXT or "%" in text or "_" in text:
            raise Unclear
        return like(found.name, _PARTS_OF_TEXT[name].format(text))(negated)


def _one(column: pa.Field[Any], op: Op, value: Any) -> Predicate:
    return Predicate(((Term(column.name, op, value),),)).bind(pa.schema([column]))


def _of_cast(column: pa.Field[Any], to: str, op: Op, other: Node) -> Predicate:
    types = pa.types
    if to in ("BIGINT", "HUGEINT") and types.is_integer(column.type):
        return _one(column, op, literal(other, column.type))
    if to == "DATE" and types.is_timestamp(column.type) and column.type.tz is None:
        day = literal(other, pa.date32())
        return _of_span(column, op, day, day.fromordinal(day.toordinal() + 1))
    if to in ("VARCHAR", "STRING", "TEXT") and types.is_integer(column.type) and op is Op.EQ:
        text = text_of(other)
        if text == str(int(text)):
            return _one(column, op, int(text))
    raise Unclear


def _of_span(column: pa.Field[Any], op: Op, first: Any, following: Any) -> Predicate:
    """Translate a comparison of the days, or years, of times into a predicate on the times."""
    match op:
        case Op.EQ:
            return _one(column, Op.GE, first) & _one(column, Op.LT, following)
        case Op.NE:
            return _one(column, Op.LT, first) | _one(column, Op.GE, following)
        case Op.LT | Op.GE:
            return _one(column, op, first)
        case Op.LE:
            return _one(column, Op.LT, following)
        case Op.GT:
            return _one(column, Op.GE, following)
    raise Unclear


def _arguments(function: Node) -> list[Node]:
    return [each["expression"] for each in function["arguments"]]


# Literals of a statement as DuckDB compares them with columns, where that is independent of its casts.


_EXACT_DIGITS: Final = 15
"""DuckDB converts numbers to decimals, and those to floats: up to this many digits are exact."""
_MICROSECONDS: Final = len("2026-11-21 14:00:00.000000")
_YEARS: Final = range(1, 9999)


class Unclear(Exception):
    """A part of a condition that implies nothing for the table alone."""


def literal(node: Node, kind: pa.DataType) -> Any:
    """Return the literal as it is compared with a column of this type. Raises Unclear."""
    cast = None
    if node["type"] == "OPERATOR_CAST" and not node["try_cast"]:
        cast, node = node["type_expr"]["type_name"].upper(), node["child"]
    if node["type"] != "VALUE_CONSTANT" or cast not in (None, "DATE", "TIMESTAMP"):
        raise Unclear
    found = node["literal"]
    try:
        return _typed(found["kind"], found["text"], cast, kind)
    except ValueError:
        raise Unclear from None


def text_of(node: Node) -> str:
    """Return the text of a string literal. Raises Unclear."""
    if node["type"] != "VALUE_CONSTANT" or node["literal"]["kind"] != "STRING":
        raise Unclear
    return str(node["literal"]["text"])


def year_of(node: Node) -> tuple[date, date]:
    """Return the first day of the literal's year, and of the next year. Raises Unclear."""
    year = literal(node, pa.int64())
    if year not in _YEARS:
        raise Unclear
    return date(year, 1, 1), date(year + 1, 1, 1)


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
    raise Unclear


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
    raise Unclear
