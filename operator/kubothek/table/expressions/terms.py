"""Terms of predicates: one column compared with literals.

A literal is an int, Decimal, float, str, bytes, bool, date or datetime.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa

Literal = int | Decimal | float | str | bytes | bool | date | datetime


class Op(StrEnum):
    """Comparison operator; the value is its SQL text in lower case."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    IN = "in"
    NOT_IN = "not in"
    LIKE = "like"
    NOT_LIKE = "not like"
    IS_NULL = "is null"
    IS_NOT_NULL = "is not null"


NEGATED: Final = {
    Op.EQ: Op.NE,
    Op.NE: Op.EQ,
    Op.LT: Op.GE,
    Op.GE: Op.LT,
    Op.GT: Op.LE,
    Op.LE: Op.GT,
    Op.IN: Op.NOT_IN,
    Op.NOT_IN: Op.IN,
    Op.LIKE: Op.NOT_LIKE,
    Op.NOT_LIKE: Op.LIKE,
    Op.IS_NULL: Op.IS_NOT_NULL,
    Op.IS_NOT_NULL: Op.IS_NULL,
}
"""The operator that is TRUE where the other is FALSE; both are UNKNOWN for the same rows. This holds because NaN has a
place in the order."""
NULL_TESTS: Final = frozenset({Op.IS_NULL, Op.IS_NOT_NULL})
SETS: Final = frozenset({Op.IN, Op.NOT_IN})
PATTERNS: Final = frozenset({Op.LIKE, Op.NOT_LIKE})


@dataclass(frozen=True, slots=True)
class Term:
    """One comparison.

    ``column`` its name; for a field in a struct the path, ``nest.a``, unless a column has this very name
    ``value``  a literal; a tuple of at least one literal for IN and NOT IN; a pattern for LIKE and NOT LIKE, in which
               ``%`` is any text and ``_`` any character; None for the tests of NULL. ``= NULL`` is the form of a
               comparison that is TRUE for no row
    ``path``   path of the column in the schema, once bound: its name alone, or that of a struct and of a field in it
    ``type``   stored type of the column, once bound: literals then have the matching Python type, and tuples are sorted
    """

    column: str
    op: Op
    value: Any = None
    type: pa.DataType | None = field(default=None, compare=False)
    path: tuple[str, ...] = field(default=(), compare=False)

    @property
    def never(self) -> bool:
        """Whether it is TRUE for no row."""
        return self.value is None and self.op not in NULL_TESTS


def never(column: str, data_type: pa.DataType | None = None) -> Term:
    """Return the term on this column that is TRUE for no row."""
    return Term(column, Op.EQ, None, data_type)


def is_nan(value: object) -> bool:
    """Return whether the literal is the float NaN."""
    return isinstance(value, float) and math.isnan(value)


def matches(pattern: str, text: str) -> bool:
    """Return whether the text is LIKE the pattern."""
    patterns = (".*" if mark == "%" else "." if mark == "_" else re.escape(mark) for mark in pattern)
    return re.fullmatch("".join(patterns), text, re.DOTALL) is not None


def place(value: Any) -> Any:
    """Return a key that compares in Python as the value, which is not NULL, compares in SQL."""
    return (is_nan(value), 0.0 if is_nan(value) else value)


# Dates and timestamps in text, in ISO form only.


_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_TIMESTAMP: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,6}))?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)


def parse_date(text: str) -> date:
    """Parse ``2019-07-28``. Raise ValueError for other forms."""
    if not _DATE.fullmatch(text):
        raise ValueError(f"{text!r} is no date YYYY-MM-DD")
    return date.fromisoformat(text)


def parse_timestamp(text: str) -> datetime:
    """Parse ``2019-07-28 12:30:00.123456``, with ``+02:00`` or ``Z`` if it has a zone; a date is its midnight.

    Raises ValueError, also for digits beyond microseconds, which no table stores.
    """
    if _DATE.fullmatch(text):
        return datetime.fromisoformat(text)
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no timestamp YYYY-MM-DD hh:mm:ss[.ffffff][±hh:mm]")
    day, clock, fraction, zone = match.groups()
    seconds = "" if clock.count(":") == 2 else ":00"
    return datetime.fromisoformat(f"{day} {clock}{seconds}.{(fraction or '').ljust(6, '0')}{zone or ''}")
