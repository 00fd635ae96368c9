"""Terms of a join's condition: which columns are equal, and how far apart two times may be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from kubothek.errors import TransformInvalid
from kubothek.odf.transform.trees import column_names
from kubothek.sql.statement import Node

_FLIPPED: Final = {
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
}
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two inputs: its alias, and its columns in lower case."""

    alias: str
    columns: frozenset[str]


@dataclass(slots=True)
class Terms:
    """The terms of a condition.

    ``equal``             pairs of expressions, of the left and of the right
    ``lower``, ``upper``  by two times, left and right, how many microseconds the left may be after the right
    ``after``             pairs of times of which the left is not before the right
    """

    equal: list[tuple[Node, Node]] = field(default_factory=list)
    lower: dict[tuple[str, str], int] = field(default_factory=dict)
    upper: dict[tuple[str, str], int] = field(default_factory=dict)
    after: list[tuple[Node, Node]] = field(default_factory=list)

    @property
    def bounds(self) -> tuple[tuple[str, str], int, int] | None:
        """Two times, as SQL, with the bounds of left minus right in microseconds; None if no times are bounded."""
        for times in self.lower:
            if times in self.upper and self.lower[times] <= self.upper[times]:
                return times, self.lower[times], self.upper[times]
        return None


def conjuncts(condition: Node | None) -> Iterator[Node]:
    """Yield the parts of a condition that must all hold."""
    if condition is None:
        return
    if condition["type"] == "CONJUNCTION_AND":
        for child in condition["children"]:
            yield from conjuncts(child)
    elif condition["type"] == "COMPARE_BETWEEN":
        for kind, other in (("COMPARE_GREATERTHANOREQUALTO", "lower"), ("COMPARE_LESSTHANOREQUALTO", "upper")):
            yield {"class": "COMPARISON", "type": kind, "left": condition["input"], "right": condition[other]}
    else:
        yield condition


def terms(
    conditions: Sequence[Node],
    both: tuple[Side, Side],
    text: Callable[[Node], str],
    constant: Callable[[Node], Any],
) -> Terms:
    """Return the terms of some conditions; other conditions are still checked, but speed up no lookup."""
    found = Terms()
    for each in conditions:
        if each.get("class") != "COMPARISON":
            continue
        kind, one, other = each["type"], each["left"], each["right"]
        sides = (side_of(one, both), side_of(other, both))
        if sides == (1, 0):
            one, other, kind = other, one, _FLIPPED.get(kind, kind)
        elif sides != (0, 1):
            continue
        if kind == "COMPARE_EQUAL":
            found.equal.append((one, other))
        elif kind in _FLIPPED:
            if kind == "COMPARE_GREATERTHANOREQUALTO":
                found.after.append((one, other))
            _bound(found, kind, one, other, text, constant)
    return found


def side_of(node: Node, both: tuple[Side, Side]) -> int | None:
    """Return 0 or 1 for an expression over columns of one side; None if it uses both, none or ambiguous columns."""
    sides: set[int] = set()
    for names in column_names(node):
        folded = [name.casefold() for name in names]
        there = [
            number
            for number, side in enumerate(both)
            if (folded[0] == side.alias and len(folded) > 1) or (folded[0] in side.columns and len(folded) == 1)
        ]
        if len(there) != 1:
            return None
        sides.add(there[0])
    return sides.pop() if len(sides) == 1 else None


def _bound(
    found: Terms, kind: str, one: Node, other: Node, text: Callable[[Node], str], constant: Callable[[Node], Any]
) -> None:
    """Add the bound of ``one + x >= other + y`` for plain columns: one minus other is at least y - x."""
    left, right = _shifted(one, constant), _shifted(other, constant)
    if left is None or right is None:
        return
    times = (text(left[0]), text(right[0]))
    distance = right[1] - left[1]
    if kind.startswith("COMPARE_GREATERTHAN"):
        found.lower[times] = max(distance, found.lower.get(times, distance))
    else:
        found.upper[times] = min(distance, found.upper.get(times, distance))


def _shifted(node: Node, constant: Callable[[Node], Any]) -> tuple[Node, int] | None:
    """Return a column and the interval that is added to it, in microseconds."""
    if node["class"] == "COLUMN_REF":
        return node, 0
    if node["class"] != "FUNCTION" or node["function_name"] not in ("+", "-") or len(node["arguments"]) != 2:
        return None
    one, other = (each["expression"] for each in node["arguments"])
    if column_names(other) or one["class"] != "COLUMN_REF":
        return None
    value = constant(other)
    if not isinstance(value, timedelta):
        return None
    distance = value // _MICROSECOND
    return one, distance if node["function_name"] == "+" else -distance


def using(names: Sequence[str], left: str, right: str, column: Callable[[str, str], Node]) -> list[tuple[Node, Node]]:
    """Return the pairs that USING equates."""
    return [(column(left, name), column(right, name)) for name in names]


def require_key(
    tables: Mapping[str, Sequence[str]], table: str, equal: Sequence[tuple[Node, Node]], where: str
) -> None:
    """Raise TransformInvalid unless the condition has the whole primary key of a temporal table."""
    if (key := tables.get(table.casefold())) is None:
        return
    named = {right["column_names"][-1].casefold() for _, right in equal if right["class"] == "COLUMN_REF"}
    if missing := [column for column in key if column.casefold() not in named]:
        raise TransformInvalid(
            f"{where}: {table}: the condition has to equate {missing[0]}, which is in its primary key"
        )
