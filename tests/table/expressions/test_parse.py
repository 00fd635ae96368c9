"""The text of predicates: what it means, that it reads back, and what is said about text that means nothing."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubothek.errors import FilterInvalid
from kubothek.table.expressions import FALSE, TRUE, Op, Predicate, Term, from_dnf, parse
from tests.table.expressions.strategies import QUICK, predicates


def one(term: Term) -> Predicate:
    return Predicate(((term,),))


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("a = 1", Term("a", Op.EQ, 1)),
        ("a == -1", Term("a", Op.EQ, -1)),
        ("a <> +1", Term("a", Op.NE, 1)),
        ("1 < a", Term("a", Op.GT, 1)),
        ("'=' = a", Term("a", Op.EQ, "=")),
        ("a >= 0.10", Term("a", Op.GE, Decimal("0.10"))),
        ("a >= 1e-1", Term("a", Op.GE, 0.1)),
        ("a = 'it''s'", Term("a", Op.EQ, "it's")),
        ("a = '100%/ü'", Term("a", Op.EQ, "100%/ü")),
        ("a = x'00fF'", Term("a", Op.EQ, b"\x00\xff")),
        ("a = DATE '2019-07-28'", Term("a", Op.EQ, date(2019, 7, 28))),
        ("a = timestamp '2019-07-28 12:30'", Term("a", Op.EQ, datetime(2019, 7, 28, 12, 30))),
        ("a = TIMESTAMP '2019-07-28T12:30:01.5'", Term("a", Op.EQ, datetime(2019, 7, 28, 12, 30, 1, 500_000))),
        ("a = TIMESTAMP '2019-07-28 12:30:00Z'", Term("a", Op.EQ, datetime(2019, 7, 28, 12, 30, tzinfo=UTC))),
        ("a = DOUBLE '-Infinity'", Term("a", Op.EQ, -math.inf)),
        ("a IN (1, 2)", Term("a", Op.IN, (1, 2))),
        ("a NOT IN ('x')", Term("a", Op.NOT_IN, ("x",))),
        ("a is null", Term("a", Op.IS_NULL)),
        ("NOT a IS NULL", Term("a", Op.IS_NOT_NULL)),
        ("NOT NOT a = TRUE", Term("a", Op.EQ, True)),
        ('"a ""b"" AND" = 1', Term('a "b" AND', Op.EQ, 1)),
        ("date = 1", Term("date", Op.EQ, 1)),
        ("größe_1 = 1", Term("größe_1", Op.EQ, 1)),
        ("a LIKE 'abc'", Term("a", Op.EQ, "abc")),
        ("a LIKE '%'", Term("a", Op.GE, "")),
        ("(((a = 1)))", Term("a", Op.EQ, 1)),
    ],
)
def test_comparison_text_parses_to_term_with_typed_value(text: str, term: Term) -> None:
    assert parse(text) == one(term)
    assert type(parse(text).conjunctions[0][0].value) is type(term.value)


@pytest.mark.parametrize(
    ("text", "normal_form"),
    [
        ("a = 1 AND b = 2 OR c = 3", "(a = 1 AND b = 2) OR c = 3"),
        ("a = 1 AND (b = 2 OR c = 3)", "(a = 1 AND b = 2) OR (a = 1 AND c = 3)"),
        ("NOT (a = 1 AND b < 2)", "a != 1 OR b >= 2"),
        ("NOT (a = 1 OR NOT b IN (1, 2))", "a != 1 AND b IN (1, 2)"),
        ("a BETWEEN 1 AND 2 AND b = 1", "a >= 1 AND a <= 2 AND b = 1"),
        ("a NOT BETWEEN 1 AND 2", "a < 1 OR a > 2"),
        ("a LIKE 'ab%'", "a >= 'ab' AND a < 'ac'"),
        ("a NOT LIKE 'ab%'", "a < 'ab' OR a >= 'ac'"),
        ("a LIKE '%b'", "a LIKE '%b'"),
        ("a LIKE 'a_b%'", "a >= 'a' AND a < 'b' AND a LIKE 'a_b%'"),
        ("NOT a LIKE 'a_'", "a NOT LIKE 'a_'"),
        ("a = 1 AND TRUE", "a = 1"),
        ("a = 1 AND FALSE AND b = 2", "a = NULL AND b = NULL"),
        ("NOT (a = 1 OR TRUE)", "a = NULL"),
        ("a = 1 OR FALSE", "a = 1"),
        ("NOT TRUE", "FALSE"),
        ("a = 1 OR a = 1", "a = 1"),
        ("a = 1 AND a = TRUE", "a = 1 AND a = TRUE"),
    ],
)
def test_predicate_text_parses_to_disjunctive_normal_form(text: str, normal_form: str) -> None:
    assert parse(text).to_sql() == normal_form


def test_true_and_false_parse_to_empty_conjunction_and_disjunction() -> None:
    assert parse("TRUE") == TRUE == Predicate(((),))
    assert parse("false") == FALSE == Predicate(())


@pytest.mark.parametrize(
    "text",
    [
        "a = NULL",
        "NOT a = NULL",
        "a IN (NULL)",
        "a NOT IN (1, NULL)",
        "NOT a IN (NULL, 1)",
        "a < NULL",
        "NOT NULL >= a",
    ],
)
def test_comparison_with_null_matches_nothing_and_keeps_column_name(text: str) -> None:
    assert parse(text) == one(Term("a", Op.EQ, None))
    assert parse(text).columns == {"a"}


def test_in_list_with_null_matches_other_values() -> None:
    assert parse("a IN (1, NULL)") == one(Term("a", Op.IN, (1,)))


def test_like_prefix_ends_before_next_character() -> None:
    assert parse("a LIKE 'x\U0010ffff%'").to_sql() == "a >= 'x\U0010ffff' AND a < 'y'"
    assert parse("a LIKE '\ud7ff%'").to_sql() == "a >= '\ud7ff' AND a < '\ue000'"
    assert parse("a LIKE '\U0010ffff%'").to_sql() == "a >= '\U0010ffff'"


@QUICK
@given(predicates())
def test_predicate_rendered_as_sql_parses_to_same_predicate(predicate: Predicate) -> None:
    assert parse(predicate.to_sql()) == predicate
    assert parse(predicate.to_sql()).to_sql() == predicate.to_sql()


@QUICK
@given(st.text(alphabet="ab1.e'\"(),<>=! -NOTANDXINLIKE%\n", max_size=40))
def test_arbitrary_text_parses_as_predicate_or_raises_filter_invalid(text: str) -> None:
    try:
        found = parse(text)
    except FilterInvalid:
        return
    assert parse(found.to_sql()) == found


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("", 1, "expected a column, a literal, NOT or '\\(', found the end"),
        ("a", 2, "expected a comparison"),
        ("a =", 4, "expected a literal, found the end"),
        ("a = b", 5, "single quotes, found b"),
        ('a = "b"', 5, 'single quotes, found "b"'),
        ("1 = 1", 5, "one side of a comparison is a column"),
        ("a = 'x", 5, "no closing '"),
        ('"a = 1', 1, 'no closing "'),
        ("a = 1 b = 2", 7, "expected AND, OR or the end"),
        ("(a = 1", 7, "expected \\)"),
        ("a = 1)", 6, "expected AND, OR or the end"),
        ("a = 1; DROP", 6, "unexpected ';'"),
        ("a = 1 -- x", 7, "expected AND, OR or the end"),
        ("a = 1abc", 5, "unexpected '1'"),
        ("a = 1e999", 5, "largest double"),
        ("a = X'0'", 5, "hexadecimal"),
        ("a = DATE '2019-02-30'", 10, "day is out of range"),
        ("a = DATE '28.7.2019'", 10, "no date YYYY-MM-DD"),
        ("a = TIMESTAMP '2019-07-28 12:30:00.1234567'", 15, "no timestamp"),
        ("a = DOUBLE '1'", 12, "NaN, Infinity"),
        ("a LIKE 'x\\%'", 8, "backslash"),
        ("a LIKE 1", 8, "pattern"),
        ("a IN 1", 6, "expected \\("),
        ("a IN ()", 7, "expected a literal"),
        ("a IS 1", 6, "expected NULL"),
        ("a BETWEEN 1 OR 2", 13, "expected AND"),
        ("lower(a) = 'x'", 6, "expected a comparison"),
        ("a = 1\n  OR b ! 2", 14, "unexpected '!'"),
        ("a = -'x'", 6, "expected a number"),
    ],
)
def test_filter_with_syntax_error_is_refused_with_position(text: str, place: int, problem: str) -> None:
    with pytest.raises(FilterInvalid, match=problem) as refused:
        parse(text)
    first, line, caret = str(refused.value).splitlines()
    assert first.startswith(f"filter, character {place}:")
    assert text[place - 1 : place] == line[caret.index("^") :][:1]


def test_filter_that_expands_beyond_comparison_limit_is_refused() -> None:
    exploding = " AND ".join(f"(a{n} = 1 OR b{n} = 2)" for n in range(60))
    for text in (exploding, f"NOT ({exploding.replace('AND', '+').replace('OR', 'AND').replace('+', 'OR')})"):
        with pytest.raises(FilterInvalid, match="more than 4096 comparisons"):
            parse(text)


def test_filter_nested_too_deeply_is_refused() -> None:
    assert parse("(" * 50 + "a = 1" + ")" * 50) == parse("a = 1")
    with pytest.raises(FilterInvalid, match="more than 50 parentheses deep"):
        parse("(" * 5000 + "a = 1" + ")" * 5000)
    assert parse("NOT " * 5000 + "a = 1") == parse("a = 1")


def test_in_list_of_ten_thousand_values_is_parsed() -> None:
    values = tuple(range(10_000))
    assert parse(f"a IN ({', '.join(map(str, values))})") == one(Term("a", Op.IN, values))


@pytest.mark.parametrize("digits", ["1" * 401, "1" * 5000, "0." + "1" * 500])
def test_number_with_too_many_digits_is_refused(digits: str) -> None:
    with pytest.raises(FilterInvalid, match="more than 400 digits"):
        parse(f"a = {digits}")


def test_timestamp_with_offset_survives_text_roundtrip() -> None:
    moment = datetime(2019, 7, 28, 12, 30, tzinfo=timezone(timedelta(hours=-3, minutes=-30)))
    assert parse(one(Term("a", Op.GT, moment)).to_sql()) == one(Term("a", Op.GT, moment))


# --- lists ----------------------------------------------------------------------------------------------------


def test_kartothek_predicate_lists_convert_to_predicate() -> None:
    found = from_dnf(
        [[("a", "==", 1), ("b", "in", ["x", "y"])], [["c", "!=", 0.5]], [("d", "is null"), ("e", "<>", b"")]]
    )
    assert found.to_sql() == "(a = 1 AND b IN ('x', 'y')) OR c != 0.5e0 OR (d IS NULL AND e != X'')"


def test_scalars_of_numpy_pandas_and_arrow_convert_to_literals() -> None:
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    row = [
        ("a", "=", np.int8(3)),
        ("a", "=", np.float64("nan")),
        ("a", "=", np.bool_(True)),
        ("a", "=", np.str_("x")),
        ("a", "=", np.datetime64("2019-07-28T12:30:00", "ns")),
        ("a", "=", pd.Timestamp("2019-07-28 12:30", tz="UTC")),
        ("a", "in", np.array([1, 2])),
        ("a", "=", pa.scalar(Decimal("1.50"))),
    ]
    assert from_dnf([row]).to_sql() == (
        "a = 3 AND a = DOUBLE 'NaN' AND a = TRUE AND a = 'x' AND a = TIMESTAMP '2019-07-28 12:30:00' AND "
        "a = TIMESTAMP '2019-07-28 12:30:00+00:00' AND a IN (1, 2) AND a = 1.50"
    )


@pytest.mark.parametrize(
    ("lists", "problem"),
    [
        ([], "expected a list of lists"),
        ([[]], "for all rows write the filter TRUE"),
        ("a = 1", "expected a list of lists"),
        ([("a", "==", 1)], "the filter is a list"),
        ([[("a",)]], "expected \\(column, operator, literal\\)"),
        ([[("a", "~", 1)]], "the operator is one of"),
        ([[(1, "=", 1)]], "the operator is one of"),
        ([[("a", "==", None)]], "use \\('a', 'is null'\\)"),
        ([[("a", "in", [1, None])]], "use \\('a', 'is null'\\)"),
        ([[("a", "in", "xy")]], "takes a list"),
        ([[("a", "in", 1)]], "takes a list"),
        ([[("a", "not in", [])]], "nothing to exclude"),
        ([[("a", "is null", 1)]], "takes no literal"),
        ([[("a", "=", [1])]], "no literal"),
        ([[("a", "=", object())]], "no literal"),
    ],
)
def test_predicate_lists_of_wrong_shape_are_refused(lists: list[list[tuple[object, ...]]], problem: str) -> None:
    with pytest.raises(FilterInvalid, match=problem):
        from_dnf(lists)


def test_timestamp_literal_with_nanoseconds_is_refused() -> None:
    import numpy as np
    import pandas as pd

    for moment in (pd.Timestamp(1), np.datetime64(1, "ns")):
        with pytest.raises(FilterInvalid, match=r"has nanoseconds|would lose data"):
            from_dnf([[("a", "=", moment)]])


def test_in_list_without_values_matches_nothing() -> None:
    assert from_dnf([[("a", "in", [])]]) == parse("a = NULL")
