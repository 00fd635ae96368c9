"""What predicates select: Arrow, verdicts on known values and a naive evaluator of SQL's rules agree."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubothek.errors import FilterInvalid
from kubothek.table.expressions import FALSE, TRUE, Op, Predicate, Range, Term, parse
from tests.table.expressions.naive import naive, place
from tests.table.expressions.strategies import QUICK, SCHEMA, predicates, rows

# --- all say the same --------------------------------------------------------------------------------------------


@pytest.mark.slow
@QUICK
@given(predicates(), rows())
def test_predicate_as_arrow_expression_selects_rows_that_sql_selects(
    predicate: Predicate, data: list[dict[str, Any]]
) -> None:
    table = pa.Table.from_pylist(
        [{**row, "row": n} for n, row in enumerate(data)], SCHEMA.append(pa.field("row", pa.int64()))
    )
    found = ds.dataset(table).to_table(filter=predicate.bind(SCHEMA).expression())["row"].to_pylist()
    assert found == [n for n, row in enumerate(data) if naive(predicate, row)]


@QUICK
@given(predicates(), rows(min_size=1), st.sets(st.sampled_from(SCHEMA.names)))
def test_verdict_on_some_known_columns_holds_for_all_matching_rows(
    predicate: Predicate, data: list[dict[str, Any]], columns: set[str]
) -> None:
    known = {column: data[0][column] for column in columns}
    verdict = predicate.bind(SCHEMA).verdict(known)
    assert {naive(predicate, {**row, **known}) for row in data} <= ({True, False} if verdict is None else {verdict})


@QUICK
@given(predicates(), rows(min_size=1, max_size=1))
def test_verdict_with_all_columns_known_is_definite(predicate: Predicate, data: list[dict[str, Any]]) -> None:
    assert predicate.bind(SCHEMA).verdict(data[0]) is naive(predicate, data[0])


@QUICK
@given(predicates())
def test_binding_of_predicate_survives_text_and_is_idempotent(predicate: Predicate) -> None:
    bound = predicate.bind(SCHEMA)
    assert parse(bound.to_sql()).bind(SCHEMA) == bound
    assert bound.bind(SCHEMA) == bound
    assert bound.columns == predicate.columns


@pytest.mark.slow
@QUICK
@given(predicates(), predicates(), rows())
def test_predicates_combined_with_and_and_or_follow_sql_logic(
    one: Predicate, other: Predicate, data: list[dict[str, Any]]
) -> None:
    for row in data:
        assert naive(one & other, row) is (naive(one, row) and naive(other, row))
        assert naive(one | other, row) is (naive(one, row) or naive(other, row))


# --- decisions, by example ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("f = DOUBLE 'NaN'", [math.nan]),
        ("f > 1", [math.inf, math.nan]),
        ("f != 1", [-math.inf, 0.0, math.inf, math.nan]),
        ("f <= 1", [-math.inf, 0.0, 1.0]),
        ("NOT f <= 1", [math.inf, math.nan]),
        ("f < DOUBLE 'NaN'", [-math.inf, 0.0, 1.0, math.inf]),
        ("f NOT IN (1)", [-math.inf, 0.0, math.inf, math.nan]),
        ("f NOT IN (1, NULL)", []),
        ("f != NULL", []),
        ("f IN (-0e0, NULL)", [0.0]),
        ("f IS NULL", [None]),
        ("f IN (1) OR f NOT IN (1)", [-math.inf, 0.0, 1.0, math.inf, math.nan]),
        ("TRUE", [-math.inf, 0.0, 1.0, math.inf, math.nan, None]),
        ("FALSE", []),
    ],
)
def test_comparison_orders_nan_above_numbers_and_never_matches_null(text: str, matches: list[float | None]) -> None:
    values = [-math.inf, 0.0, 1.0, math.inf, math.nan, None]
    table = pa.table({"f": pa.array(values, pa.float64(), from_pandas=False)})
    found = ds.dataset(table).to_table(filter=parse(text).bind(table.schema).expression())["f"].to_pylist()
    assert list(map(repr, found)) == list(map(repr, matches))


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("i < 3.5", "i <= 3"),
        ("i <= 3.5", "i <= 3"),
        ("i > -3.5", "i > -4"),
        ("i >= 3.0", "i >= 3"),
        ("i = 3.5", "i = NULL"),
        ("i != 3.5", "i IS NOT NULL"),
        ("i IN (1, 1.0, 2.5)", "i IN (1)"),
        ("i IN (2.5)", "i = NULL"),
        ("i NOT IN (2.5)", "i IS NOT NULL"),
        ("i < 9223372036854775808", "i <= 9223372036854775807"),
        ("i > 9223372036854775808", "i > 9223372036854775807"),
        ("i > -9223372036854775809", "i IS NOT NULL"),
        ("i < -9223372036854775809", "i = NULL"),
        ("u = 18446744073709551615", "u = 18446744073709551615"),
        ("u >= -1", "u IS NOT NULL"),
        ("f = 0.1", "f = 0.1e0"),
        ("f = 9007199254740993", "f = 9007199254740992.0e0"),
        ("n = 0.1", "n = 0.10"),
        ("n = 1e-1", "n = 0.10"),
        ("n > 0.001", "n > 0.00"),
        ("n < 1e20", "n <= 99999999.99"),
        ("d = '2019-07-28'", "d = DATE '2019-07-28'"),
        ("d < TIMESTAMP '2019-07-28 12:00'", "d <= DATE '2019-07-28'"),
        ("d = TIMESTAMP '2019-07-28 12:00'", "d = NULL"),
        ("t >= DATE '2019-07-28'", "t >= TIMESTAMP '2019-07-28 00:00:00'"),
        ("t = '2019-07-28T12:00:00+02:00'", "t = TIMESTAMP '2019-07-28 10:00:00'"),
        ("z = 1", "z = NULL"),
        ("z IS NULL", "z IS NULL"),
    ],
)
def test_literal_outside_column_precision_is_rounded_to_select_same_rows(text: str, bound: str) -> None:
    assert parse(text).bind(SCHEMA).to_sql() == bound


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("s = 1", "column 's' is string: cannot compare it with the integer 1"),
        ("i = '1'", "column 'i' is int64: cannot compare it with the string '1'"),
        ("i = TRUE", "column 'i' is int64: cannot compare it with the bool True"),
        ("i = DOUBLE 'NaN'", "int64: cannot compare it with the double nan"),
        ("o = 1", "column 'o' is bool: cannot compare it with the integer 1"),
        ("y = 'x'", "column 'y' is binary: cannot compare it with the string 'x'"),
        ("s = X'00'", "column 's' is string: cannot compare it with the binary"),
        ("d = 20190728", "column 'd' is date32: cannot compare it with the integer 20190728"),
        ("d = 'yesterday'", "column 'd' is date32: .* 'yesterday'"),
        ("t IN ('2019-07-28', 'x')", "column 't' is timestamp\\[us\\]: .* 'x'"),
        ("n = 'x'", "column 'n' is decimal128\\(10,2\\): .* string 'x'"),
        ("l = 1", "values of type list<int64> cannot be compared; only IS NULL"),
        ("I = 1", "no column 'I'; did you mean 'i'"),
        ("nosuch = NULL", "no column 'nosuch'; there are i, "),
        ("i = 1 OR nosuch IS NULL", "no column 'nosuch'"),
        ("i = 1 OR nosuch = 1 AND FALSE", "no column 'nosuch'"),
        ("TRUE OR nosuch = 1", "no column 'nosuch'"),
    ],
)
def test_predicate_that_mismatches_schema_is_refused(text: str, problem: str) -> None:
    with pytest.raises(FilterInvalid, match=problem):
        parse(text).bind(SCHEMA.append(pa.field("l", pa.list_(pa.int64()))))


def test_literal_with_unbounded_digits_is_refused_quickly() -> None:
    for value in (Decimal("1E+999999999"), Decimal("1E-999999999"), 10**500, Decimal("NaN"), "\ud800"):
        for column in ("f", "i", "n", "s"):
            term = Term(column, Op.GT, value)
            if column == "i" and isinstance(value, int):
                assert Predicate(((term,),)).bind(SCHEMA).to_sql() == f"i > {2**63 - 1}"
            elif not (column == "n" and isinstance(value, int)):
                with pytest.raises(FilterInvalid, match=f"column '{column}'"):
                    Predicate(((term,),)).bind(SCHEMA)


def test_column_with_time_zone_compares_by_instant() -> None:
    moments = [datetime(2019, 7, 28, 10, tzinfo=UTC), datetime(2019, 7, 28, 12, tzinfo=UTC)]
    table = pa.table({"t": pa.array(moments, pa.timestamp("us", "Europe/Berlin"))})
    for text in ("t = TIMESTAMP '2019-07-28 12:00+02:00'", "t = TIMESTAMP '2019-07-28 10:00'"):
        where = parse(text).bind(table.schema)
        assert ds.dataset(table).to_table(filter=where.expression()).num_rows == 1
        assert where.verdict({"t": moments[0].astimezone(timezone(timedelta(hours=2)))}) is True


def test_predicate_pushdown_of_unbound_predicate_raises_value_error() -> None:
    with pytest.raises(ValueError, match="not bound"):
        parse("a = 1").expression()
    assert TRUE.verdict({}) is True
    assert FALSE.verdict({"a": 1}) is False


@QUICK
@given(predicates(), rows(min_size=1), st.sets(st.sampled_from(SCHEMA.names)))
def test_verdict_on_ranges_holds_for_all_rows_within_ranges(
    predicate: Predicate, data: list[dict[str, Any]], columns: set[str]
) -> None:
    known = {column: range_of(column, [row[column] for row in data]) for column in columns}
    verdict = predicate.bind(SCHEMA).verdict_within(known)
    assert {naive(predicate, row) for row in data} <= ({True, False} if verdict is None else {verdict})


def range_of(column: str, values: list[Any]) -> Range:
    """As statistics have it: bounds of what is not NULL."""
    inside = sorted((value for value in values if value is not None), key=lambda value: place(column, value))
    low, high = (inside[0], inside[-1]) if inside else (None, None)
    return Range(low, high, nulls=len(inside) < len(values), values=bool(inside))


@pytest.mark.parametrize(
    ("text", "low_high", "verdict"),
    [
        ("i > 5", (1, 5), False),
        ("i > 5", (6, 9), True),
        ("i > 5", (5, 6), None),
        ("i != 5", (5, 5), False),
        ("i != 5", (6, None), True),
        ("i NOT IN (1, 2)", (1, 1), False),
        ("i NOT IN (1, 9)", (2, 8), True),
        ("i IN (1, 2)", (2, 2), True),
        ("i IN (1, 9)", (2, 8), False),
        ("i IS NULL", (1, 2), False),
        ("i IS NOT NULL", (1, 2), True),
        ("i < 5", (None, None), None),
    ],
)
def test_verdict_on_ranges_is_definite_where_ranges_decide(
    text: str, low_high: tuple[int | None, int | None], verdict: bool | None
) -> None:
    assert parse(text).bind(SCHEMA).verdict_within({"i": Range(*low_high, nulls=False)}) is verdict
    assert parse(text).bind(SCHEMA).verdict_within({"i": Range(*low_high)}) is not True


def test_verdict_of_long_value_list_is_fast_per_file() -> None:
    where = Predicate(((Term("i", Op.IN, tuple(range(200_000, 0, -2))),),)).bind(SCHEMA)
    start = time.process_time()
    found = [where.verdict_within({"i": Range(n, n, nulls=False)}) for n in range(10_000)]
    assert found == [n > 0 and n % 2 == 0 for n in range(10_000)]
    assert time.process_time() - start < 1
