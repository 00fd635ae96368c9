"""The combined interval of all terms of a conjunction on one column: ``x >= 3 AND x < 5`` is one interval.

Planners look up the interval in an index, which knows values and not rows. A file that holds 2 and 7 satisfies each
half separately, but has no matching row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from kubothek.table.expressions.terms import Op, Term, place


@dataclass(frozen=True, slots=True)
class Interval:
    """The values of a column, in one Python type, for which all of some comparisons are TRUE.

    ``low``, ``high``            bounds; None: unbounded
    ``low_open``, ``high_open``  whether the bound itself is outside
    ``values``                   the only values, all within the bounds; None: any value within the bounds
    """

    low: Any = None
    high: Any = None
    low_open: bool = False
    high_open: bool = False
    values: tuple[Any, ...] | None = None

    @classmethod
    def of(cls, op: str, value: Any) -> Self | None:
        """Return the interval of one comparison; None for an operator outside COMPARISONS. Nothing equals NULL."""
        if op not in COMPARISONS:
            return None
        if op in (Op.EQ, Op.IN):
            values = value if isinstance(value, tuple | list) else (value,)
            return cls(values=tuple(each for each in values if each is not None))
        if value is None:
            return cls(values=())
        if op in (Op.LT, Op.LE):
            return cls(high=value, high_open=op == Op.LT)
        return cls(low=value, low_open=op == Op.GT)

    @property
    def empty(self) -> bool:
        """Whether it contains no value."""
        if self.values is not None:
            return not self.values
        if self.low is None or self.high is None:
            return False
        low, high = place(self.low), place(self.high)
        return bool(low > high or (low == high and (self.low_open or self.high_open)))

    def holds(self, value: Any) -> bool:
        """Return whether this value is within the bounds."""
        at = place(value)
        if self.low is not None and not (place(self.low) < at or (place(self.low) == at and not self.low_open)):
            return False
        return self.high is None or at < place(self.high) or (at == place(self.high) and not self.high_open)

    def and_(self, other: Interval) -> Interval:
        """Return the values that are in both."""
        if self.values is not None or other.values is not None:
            first, second = (self, other) if self.values is not None else (other, self)
            inside = tuple(value for value in first.values or () if second.holds(value))
            if second.values is not None:
                positions = {place(value) for value in second.values}
                inside = tuple(value for value in inside if place(value) in positions)
            return Interval(values=inside)
        found = self
        if other.low is not None and (found.low is None or _tighter(other.low, other.low_open, found.low)):
            found = replace(found, low=other.low, low_open=other.low_open)
        if other.high is not None and (found.high is None or _tighter(found.high, other.high_open, other.high)):
            found = replace(found, high=other.high, high_open=other.high_open)
        return found


def intervals(terms: Iterable[Term]) -> dict[str, Interval]:
    """Return the interval of each column that these terms of a bound conjunction compare with values."""
    found: dict[str, Interval] = {}
    for term in terms:
        interval = Interval.of(term.op, term.value)
        if interval is not None:
            found[term.column] = found[term.column].and_(interval) if term.column in found else interval
    return found


def _tighter(above: Any, is_open: bool, below: Any) -> bool:
    """Return whether the bound ``above`` is above the other, or equal to it but open, and so replaces it."""
    return bool(place(above) > place(below) or (place(above) == place(below) and is_open))


COMPARISONS: Final = frozenset({Op.EQ, Op.IN, Op.LT, Op.LE, Op.GT, Op.GE})
"""The operators that compare with values and are never TRUE for others: not ``!=``, ``not in``, ``is null``."""
