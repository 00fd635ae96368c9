"""What entries say of terms: the corners in which statistics lie, and types that differ between files."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kubothek.table.expressions import Term, parse
from kubothek.table.skipping.collect.collectors import Describing
from kubothek.table.skipping.model import IndexDefinition
from kubothek.table.skipping.prune.clauses import Mask, clause_of, minmax, register, valuelist
from kubothek.table.skipping.prune.plan import may_hold

MINMAX = IndexDefinition("MinMax", ("x",))
VALUES = IndexDefinition("ValueList", ("x",))
NAN = math.nan


def bounds(pairs: list[Any], data_type: pa.DataType) -> pa.Array[Any]:
    """Entries of files: None is "not known", (None, None) "no values"."""
    ends = [None if pair is None else {"min": pair[0], "max": pair[1]} for pair in pairs]
    return pa.array(ends, pa.struct([("min", data_type), ("max", data_type)]))


def term(where: str, data_type: pa.DataType) -> Term:
    ((found,),) = parse(where).bind(pa.schema([pa.field("x", data_type)])).conjunctions
    return found


def asked(where: str, entries: Any, data_type: pa.DataType) -> list[bool]:
    clause, definition = (minmax, MINMAX) if pa.types.is_struct(entries.type) else (valuelist, VALUES)
    found = clause(term(where, data_type), definition, entries)
    return [True] * len(entries) if found is None else found.tolist()


INTEGERS = bounds([(1, 5), (3, 3), (None, None), None], pa.int64())


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("x = 3", [True, True, False, True]),
        ("x = 6", [False, False, False, True]),
        ("x != 3", [True, False, False, True]),
        ("x < 3", [True, False, False, True]),
        ("x <= 3", [True, True, False, True]),
        ("x > 3", [True, False, False, True]),
        ("x >= 5", [True, False, False, True]),
        ("x IN (0, 6)", [False, False, False, True]),
        ("x IN (0, 3)", [True, True, False, True]),
        (f"x IN ({', '.join(map(str, [0, *range(6, 40)]))})", [False, False, False, True]),
        (f"x IN ({', '.join(map(str, [3, *range(6, 40)]))})", [True, True, False, True]),
        ("x NOT IN (3, 4)", [True, False, False, True]),
        ("x IS NOT NULL", [True, True, False, True]),
        ("x IS NULL", [True, True, True, True]),
    ],
)
def test_min_max_clause_on_integers_matches_expected_entries(where: str, expected: list[bool]) -> None:
    assert asked(where, INTEGERS, pa.int64()) == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("x > 5e0", [False, True, True, False]),
        ("x = DOUBLE 'NaN'", [False, True, True, False]),
        ("x < DOUBLE 'NaN'", [True, True, False, True]),
        ("x != DOUBLE 'NaN'", [True, True, False, True]),
        ("x = 0e0", [True, True, False, True]),
        ("x < 0e0", [False, False, False, False]),
        ("x != 0e0", [True, True, True, False]),
    ],
)
def test_min_max_clause_on_doubles_orders_nan_last_and_equates_zeros(where: str, expected: list[bool]) -> None:
    """NaN is the greatest number, and the two zeros are one."""
    entries = bounds([(-0.0, 2.0), (0.0, NAN), (NAN, NAN), (-0.0, 0.0)], pa.float64())
    assert asked(where, entries, pa.float64()) == expected


def test_min_max_clause_on_text_orders_by_bytes() -> None:
    entries = bounds([("a", "～"), ("a", "😀"), ("B", "B")], pa.string())
    assert asked("x > '～'", entries, pa.string()) == [False, True, False]
    assert asked("x >= 'a'", entries, pa.string()) == [True, True, False]


@pytest.mark.parametrize(
    ("where", "found", "wanted", "entries", "expected"),
    [
        ("x = 3000000000", pa.int32(), pa.int64(), [(1, 5)], [False]),
        ("x = 3.5", pa.int64(), pa.float64(), [(1, 5), (4, 5)], [True, False]),
        ("x = 9007199254740993e0", pa.int64(), pa.float64(), [(2**53 + 1, 2**53 + 1)], [True]),
        ("x > 2.25", pa.decimal128(5, 1), pa.decimal128(9, 2), [(Decimal("1.0"), Decimal("2.3"))], [True]),
        ("x = 1", pa.float64(), pa.int64(), [(2.0, 3.0)], [True]),
        ("x = 'a'", pa.int64(), pa.string(), [(1, 1)], [True]),
    ],
)
def test_min_max_clause_on_widened_column_matches_expected_entries(
    where: str, found: pa.DataType, wanted: pa.DataType, entries: list[Any], expected: list[bool]
) -> None:
    """A column became wider: or else nothing is said."""
    assert asked(where, bounds(entries, found), wanted) == expected


def test_min_max_clause_on_finer_timestamps_keeps_truncated_and_rounded() -> None:
    """Rows are cut off, or rounded, by whoever reads them: both are kept, before 1970 too."""
    low = datetime(2020, 1, 1, tzinfo=UTC)
    ticks = int(low.timestamp()) * 10**9
    entries: Any = bounds([(ticks + 1500, ticks + 1500), (-1500, -1500)], pa.int64())
    struct = pa.struct([("min", pa.timestamp("ns")), ("max", pa.timestamp("ns"))])
    typed = pa.StructArray.from_arrays([entries.field(0).cast(struct[0].type)] * 2, ["min", "max"])
    for text, expected in (
        ("x = TIMESTAMP '2020-01-01 00:00:00.000001Z'", [True, False]),
        ("x = TIMESTAMP '2020-01-01 00:00:00.000002Z'", [True, False]),
        ("x = TIMESTAMP '2020-01-01 00:00:00.000003Z'", [False, False]),
        ("x > TIMESTAMP '1969-12-31 23:59:59.999998Z'", [True, True]),
        ("x = TIMESTAMP '1969-12-31 23:59:59.999999Z'", [False, True]),
    ):
        assert asked(text, typed, pa.timestamp("us", "UTC")) == expected


def test_value_list_clause_matches_expected_entries() -> None:
    entries = pa.array([["ab", "b"], [], None, ["c", None]], pa.list_(pa.string()))
    for where, expected in (
        ("x = 'b'", [True, False, True, True]),
        ("x != 'b'", [True, False, True, True]),
        ("x LIKE '%b'", [True, False, True, True]),
        ("x > 'c'", [False, False, True, True]),
        ("x IN ('x', 'y')", [False, False, True, True]),
        ("x NOT IN ('ab', 'b')", [False, False, True, True]),
        ("x IS NOT NULL", [True, False, True, True]),
        ("x IS NULL", [True, True, True, True]),
    ):
        assert asked(where, entries, pa.string()) == expected, where
    zeros = pa.array([[-0.0], [0.0], [NAN], [1.0]])
    assert asked("x = 0e0", zeros, pa.float64()) == [True, True, False, False]
    assert asked("x > 0e0", zeros, pa.float64()) == [False, False, True, True]
    days = pa.array([[date(2020, 1, 1)], [date(2021, 1, 1)]])
    assert asked("x >= '2020-06-01'", days, pa.date32()) == [False, True]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("x > 2 AND x < 7", [False, True, False, True, True]),
        ("x > 2 AND x < 7 AND x NOT IN (5, 6)", [False, False, False, True, True]),
        ("x >= 7 AND x IS NOT NULL AND y = 1", [True, False, False, True, True]),
        ("x > 2 AND x IS NULL", [True, True, False, True, True]),
    ],
)
def test_value_list_clause_requires_one_value_for_all_terms(where: str, expected: list[bool]) -> None:
    rows = pa.table({"x_valuelist_1": pa.array([[2, 7], [5], [], None, [2, None]], pa.list_(pa.int64()))})
    schema = pa.schema([pa.field("x", pa.int64()), pa.field("y", pa.int64())])
    assert may_hold(parse(where).bind(schema), [VALUES], rows).tolist() == expected


def test_conjunctions_use_registered_custom_index_type() -> None:
    class Even:
        asked = 0

    def even(found: Term, definition: IndexDefinition, entries: Any) -> Mask | None:
        Even.asked += 1
        return np.asarray(entries) if isinstance(found.value, int) and found.value % 2 == 0 else None

    register("Even", even)
    assert clause_of(IndexDefinition("even", ("x",))) is even
    rows = pa.table({"x_minmax_1": INTEGERS, "x_even_1": [True, False, True, True]})
    schema = pa.schema([pa.field("x", pa.int64()), pa.field("y", pa.int64())])
    definitions = [MINMAX, IndexDefinition("Even", ("X",))]
    for where, expected in (
        ("x = 4 AND y = 1", [True, False, False, True]),
        ("x = 3 OR x = 4", [True, True, False, True]),
        ("y = 1", [True] * 4),
        ("y = 1 AND x = NULL", [False] * 4),
        ("FALSE", [False] * 4),
        ("TRUE", [True] * 4),
    ):
        assert may_hold(parse(where).bind(schema), definitions, rows).tolist() == expected, where
    assert Even.asked


def test_bloom_filter_precision_grows_with_file_count() -> None:
    """All that a table of any size has together name less than a tenth of a file falsely."""
    for digits in range(1, 6):
        together = 0.0
        for exponent in range(digits):
            first, last = 10**exponent, 10 ** (exponent + 1)
            together += (last - first) * Describing(files=first).fpp()
            assert Describing(files=first).fpp() == Describing(files=last - 1).fpp() == Describing().fpp(first)
        assert together < 0.1
