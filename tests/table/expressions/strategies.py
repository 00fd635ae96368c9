"""Random predicates, and random rows that they select from."""

from __future__ import annotations

import math
from datetime import date, datetime
from typing import Any, Final

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st

from kubothek.table.expressions import Op, Predicate, Term
from kubothek.table.expressions.model import any_of
from kubothek.table.expressions.terms import NULL_TESTS, PATTERNS, SETS

_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("i", pa.int64()),
    pa.field("u", pa.uint64()),
    pa.field("f", pa.float64()),
    pa.field("s", pa.string()),
    pa.field("y", pa.binary()),
    pa.field("o", pa.bool_()),
    pa.field("d", pa.date32()),
    pa.field("t", pa.timestamp("us")),
    pa.field("n", pa.decimal128(10, 2)),
    pa.field("z", pa.null()),
]
SCHEMA: Final = pa.schema(_FIELDS)
QUICK: Final = settings(max_examples=60, deadline=None)
"""The suite is run often, on machines that do other things beside it."""
_TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.sampled_from(
    ["", "a", "b", "a/b", "100%", "it's", '"', "ü", "A\x00", "\U0001f600"]
)
_FLOATS: Final = st.floats().map(lambda number: math.nan if math.isnan(number) else number) | st.sampled_from(
    [0.0, -0.0, 1.0, 0.1, math.nan, math.inf, -math.inf, 2.0**53]
)
_DECIMALS: Final = st.decimals(-1000, 1000, places=2, allow_nan=False)
VALUES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "i": st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
    "u": st.integers(0, 2**64 - 1) | st.integers(0, 3),
    "f": _FLOATS,
    "s": _TEXT,
    "y": st.binary(max_size=3),
    "o": st.booleans(),
    "d": st.dates() | st.dates(date(2020, 1, 1), date(2020, 1, 3)),
    "t": st.datetimes() | st.sampled_from([datetime(2020, 1, 1), datetime(2020, 1, 1, 12)]),
    "n": _DECIMALS,
    "z": st.none(),
}
_NUMBERS: Final = (
    st.integers(-(2**65), 2**65)
    | st.integers(-3, 3)
    | st.decimals(-4, 4, places=1, allow_nan=False)
    | st.decimals(-4, 4, places=3, allow_nan=False)
    | st.floats(-4, 4)
)
LITERALS: Final[dict[str, st.SearchStrategy[Any]]] = {
    **VALUES,
    "i": VALUES["i"] | _NUMBERS,
    "u": VALUES["u"] | _NUMBERS,
    "n": VALUES["n"] | _NUMBERS,
    "f": VALUES["f"] | st.integers(-3, 3) | st.decimals(-4, 4, places=1, allow_nan=False),
    "d": VALUES["d"] | VALUES["t"],
    "t": VALUES["t"] | VALUES["d"],
    "z": VALUES["i"] | VALUES["s"],
}


@st.composite
def terms(draw: st.DrawFn) -> Term:
    column = draw(st.sampled_from(SCHEMA.names))
    op = draw(st.sampled_from([op for op in Op if column == "s" or op not in PATTERNS]))
    if op in PATTERNS:
        return Term(column, op, "_" + draw(st.text("a%_/\u00fc\n", max_size=3)))
    if op in NULL_TESTS:
        return Term(column, op)
    literals = LITERALS[column].filter(lambda literal: literal is not None)
    if op in SETS:
        return Term(column, op, tuple(draw(st.lists(literals, min_size=1, max_size=4))))
    return Term(column, op, draw(literals))


def predicates() -> st.SearchStrategy[Predicate]:
    conjunctions = st.lists(terms(), max_size=3).map(tuple)
    return st.lists(conjunctions, max_size=3).map(lambda found: any_of([Predicate((c,)) for c in found]))


def rows(min_size: int = 0, max_size: int = 8) -> st.SearchStrategy[list[dict[str, Any]]]:
    row = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})
    return st.lists(row, min_size=min_size, max_size=max_size)
