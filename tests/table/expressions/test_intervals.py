"""All terms of one column are one interval: a value is in it just if every term is TRUE for it."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import pytest

from kubothek.table.expressions import Op, Range, Term, intervals
from kubothek.table.expressions.ranges import verdict

NAN = float("nan")
VALUES: dict[str, list[Any]] = {"int": [1, 2, 3, 4], "float": [-0.0, 0.0, 1.5, NAN], "text": ["", "a", "b", "ä"]}
COMPARISONS = (Op.EQ, Op.LT, Op.LE, Op.GT, Op.GE)


def terms_of(values: list[Any]) -> list[Term]:
    single = [Term("x", op, value) for op in COMPARISONS for value in values]
    return [*single, Term("x", Op.IN, tuple(values[:2])), Term("x", Op.IN, tuple(values[1:])), Term("x", Op.EQ, None)]


@pytest.mark.parametrize("kind", VALUES)
def test_interval_of_terms_holds_exactly_values_that_satisfy_all_terms(kind: str) -> None:
    values = VALUES[kind]
    for terms in combinations_with_replacement(terms_of(values), 3):
        interval = intervals([*terms, Term("x", Op.NE, values[0]), Term("y", Op.EQ, None)])["x"]
        if interval.values is None:
            inside = [value for value in values if interval.holds(value)]
        else:
            inside = [value for value in values if Range.of(value) and _among(value, interval.values)]
        expected = [value for value in values if all(verdict(term, Range.of(value)) for term in terms)]
        assert list(map(repr, inside)) == list(map(repr, expected)), terms
        if interval.empty:
            assert not expected, terms


def _among(value: Any, values: tuple[Any, ...]) -> bool:
    return verdict(Term("x", Op.IN, values), Range.of(value)) is True if values else False
