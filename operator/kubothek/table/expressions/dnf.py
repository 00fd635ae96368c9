"""Predicates as lists: ``[[("month", "==", 3), ("carrier", "in", ["AA", "UA"])], …]``, kartothek's own shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from kubothek.errors import FilterInvalid
from kubothek.table.expressions.model import Predicate, any_of
from kubothek.table.expressions.terms import NULL_TESTS, PATTERNS, SETS, Literal, Op, Term, is_nan, never

_OPS: Final = {**{op.value: op for op in Op if op not in PATTERNS}, "==": Op.EQ, "<>": Op.NE}
_LITERALS: Final = (bool, int, float, Decimal, str, bytes, datetime, date)


def from_dnf(conjunctions: Sequence[Sequence[Sequence[Any]]]) -> Predicate:
    """Return the predicate of a list (OR) of lists (AND) of ``(column, operator, literal)``.

    Operators are those of SQL and ``==``; ``is null`` and ``is not null`` need no literal. Literals are scalars of
    Python, numpy, pandas or pyarrow. Raises FilterInvalid for anything else and for an empty list, which could mean all
    rows or none. None as a literal raises as well: kartothek's ``== None`` is ``is null`` here.
    """
    if isinstance(conjunctions, str) or not isinstance(conjunctions, Sequence) or not conjunctions:
        raise FilterInvalid(f"{_shown(conjunctions)}: expected a list of lists of (column, operator, literal)")
    found = []
    for terms in conjunctions:
        if isinstance(terms, str) or not isinstance(terms, Sequence) or not terms:
            raise FilterInvalid(
                f"{_shown(terms)}: expected a list of (column, operator, literal), all of which must hold; "
                "for all rows write the filter TRUE"
            )
        found.append(Predicate((tuple(map(_term, terms)),)))
    return any_of(found)


def _term(triple: Sequence[Any]) -> Term:
    if isinstance(triple, str) or not isinstance(triple, Sequence) or not 2 <= len(triple) <= 3:
        raise FilterInvalid(
            f"{_shown(triple)}: expected (column, operator, literal) here; the filter is a list (OR) of lists (AND) "
            "of them"
        )
    column, name, value = (*triple, None)[:3]
    op = _OPS.get(name.strip().lower()) if isinstance(name, str) else None
    if not isinstance(column, str) or op is None:
        raise FilterInvalid(f"{_shown(triple)}: the operator is one of {', '.join(_OPS)}, after the name of a column")
    if op in NULL_TESTS:
        if value is not None:
            raise FilterInvalid(f"{_shown(triple)}: {op} takes no literal")
        return Term(column, op)
    if op not in SETS:
        return Term(column, op, _literal(triple, value))
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        raise FilterInvalid(f"{_shown(triple)}: {op} takes a list of literals")
    literals = tuple(_literal(triple, item) for item in value)
    if literals:
        return Term(column, op, literals)
    if op is Op.IN:
        return never(column)
    raise FilterInvalid(f"{_shown(triple)}: nothing to exclude; leave the condition out")


def _literal(triple: Sequence[Any], value: Any) -> Literal:
    if type(value) not in _LITERALS:
        value = _from_library(triple, value)
    if value is None:
        raise FilterInvalid(
            f"{_shown(triple)}: nothing compares with NULL; use ({triple[0]!r}, 'is null') or (…, 'is not null')"
        )
    if type(value) not in _LITERALS:
        raise FilterInvalid(f"{_shown(triple)}: {type(value).__name__} is no literal")
    return math.nan if is_nan(value) else value


def _from_library(triple: Sequence[Any], value: Any) -> Any:
    """Convert scalars of numpy, pandas and pyarrow, and subclasses of Python's types, to Python's types."""
    if getattr(value, "nanosecond", 0):  # of a pandas Timestamp, which Arrow would truncate
        raise FilterInvalid(f"{_shown(triple)}: tables store microseconds, {value} has nanoseconds")
    try:
        scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value)
        return (
            scalar.cast(pa.timestamp("us", scalar.type.tz)) if pa.types.is_timestamp(scalar.type) else scalar
        ).as_py()
    except (pa.ArrowException, OverflowError, ValueError) as error:
        raise FilterInvalid(f"{_shown(triple)}: {value!r} is no literal: {error}") from error


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 100 else f"{shown[:100]}…"
