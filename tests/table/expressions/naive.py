"""What SQL says of a row and a predicate: three-valued, on literals as they were written."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import date, datetime, time
from fractions import Fraction
from typing import Any

from kubothek.table.expressions import Op, Predicate, Term

Row = Mapping[str, Any]


def place(column: str, value: Any) -> Any:
    """The value's place in its column's order."""
    if column == "f":
        number = float(value)
        return (math.isnan(number), 0.0 if math.isnan(number) else number)
    if isinstance(value, bool | str | bytes):
        return value.encode() if isinstance(value, str) else value
    if isinstance(value, date):
        return value if isinstance(value, datetime) else datetime.combine(value, time())
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


def naive_term(term: Term, row: Row) -> bool | None:
    value = row[term.column]
    if term.op in (Op.IS_NULL, Op.IS_NOT_NULL):
        return (value is None) is (term.op is Op.IS_NULL)
    if value is None or term.value is None:
        return None
    if term.op in (Op.LIKE, Op.NOT_LIKE):
        pattern = "".join({"%": ".*", "_": "."}.get(mark, re.escape(mark)) for mark in term.value)
        return (re.fullmatch(pattern, value, re.DOTALL) is not None) is (term.op is Op.LIKE)
    literals = term.value if isinstance(term.value, tuple) else (term.value,)
    mine, theirs = place(term.column, value), [place(term.column, literal) for literal in literals]
    if term.op in (Op.IN, Op.NOT_IN):
        return (mine in theirs) is (term.op is Op.IN)
    (other,) = theirs
    below, same = bool(mine < other), bool(mine == other)
    return {"=": same, "!=": not same, "<": below, "<=": below or same, ">": not below and not same, ">=": not below}[
        term.op.value
    ]


def naive(predicate: Predicate, row: Row) -> bool:
    return any(all(naive_term(term, row) is True for term in terms) for terms in predicate.conjunctions)
