"""The value of a term for many rows of which only the bounds are known, as from statistics."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

from kubothek.table.expressions.terms import Op, Term, matches, place


@dataclass(frozen=True, slots=True)
class Range:
    """The values of a column in some rows.

    ``low``, ``high``  bounds of the values that are not NULL; None if unknown. NaN is above all other numbers
    ``nulls``          whether there may be NULLs; ``values``: whether there may be anything else
    """

    low: Any = None
    high: Any = None
    nulls: bool = True
    values: bool = True

    @classmethod
    def of(cls, value: object) -> Range:
        """Return the range of a single value; None is NULL."""
        return cls(value, value, nulls=value is None, values=value is not None)


def verdict(term: Term, known: Range) -> bool | None:
    """Return True if the bound term is TRUE for all rows, False if for none, None if unknown."""
    if not _possible(term, known):
        return False
    return True if _certain(term, known) else None


def _possible(term: Term, known: Range) -> bool:
    if term.never:
        return False
    if term.op is Op.IS_NULL:
        return known.nulls
    if not known.values:
        return False
    match term.op:
        case Op.EQ:
            return _inside(term.value, known)
        case Op.NE:
            return not _only(known, (term.value,))
        case Op.IN:
            return _one_inside(term.value, known)
        case Op.NOT_IN:
            return not _only(known, term.value)
        case Op.LT:
            return known.low is None or place(known.low) < place(term.value)
        case Op.LE:
            return known.low is None or place(known.low) <= place(term.value)
        case Op.GT:
            return known.high is None or place(known.high) > place(term.value)
        case Op.GE:
            return known.high is None or place(known.high) >= place(term.value)
        case _:
            return _alike(term, known) is not False


def _certain(term: Term, known: Range) -> bool:
    if term.op is Op.IS_NULL:
        return not known.values
    if known.nulls:
        return False
    match term.op:
        case Op.EQ:
            return _only(known, (term.value,))
        case Op.NE:
            return not _inside(term.value, known)
        case Op.IN:
            return _only(known, term.value)
        case Op.NOT_IN:
            return not _one_inside(term.value, known)
        case Op.LT:
            return known.high is not None and place(known.high) < place(term.value)
        case Op.LE:
            return known.high is not None and place(known.high) <= place(term.value)
        case Op.GT:
            return known.low is not None and place(known.low) > place(term.value)
        case Op.GE:
            return known.low is not None and place(known.low) >= place(term.value)
        case _:
            return _alike(term, known) is True


def _alike(term: Term, known: Range) -> bool | None:
    """Return whether all values match the pattern, or none; None if they may differ. Any value IS NOT NULL."""
    if term.op is Op.IS_NOT_NULL:
        return True
    if known.low is None or known.low != known.high:
        return None
    return matches(term.value, known.low) is (term.op is Op.LIKE)


def _inside(literal: Any, known: Range) -> bool:
    """Return whether the range may contain this value."""
    value = place(literal)
    above = known.low is None or place(known.low) <= value
    return above and (known.high is None or value <= place(known.high))


def _one_inside(literals: tuple[Any, ...], known: Range) -> bool:
    """Return whether the range may contain one of these sorted values."""
    first = 0 if known.low is None else bisect_left(literals, place(known.low), key=place)
    return first < len(literals) and (known.high is None or place(literals[first]) <= place(known.high))


def _only(known: Range, literals: tuple[Any, ...]) -> bool:
    """Return whether the range is a single value, and one of these sorted values."""
    if known.low is None or known.high is None or place(known.low) != place(known.high):
        return False
    return _one_inside(literals, known)
