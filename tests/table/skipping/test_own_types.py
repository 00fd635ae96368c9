"""Index types of our own: a file that holds a match is never skipped, and files that cannot hold one are."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kubothek.errors import SkippingInvalid
from kubothek.table.expressions import Op, Predicate, Term, parse
from kubothek.table.skipping.extensions.boxes import GeometryBox
from kubothek.table.skipping.extensions.parts import MOST_VALUES, Prefix, Suffix
from kubothek.table.skipping.extensions.tokens import MOST_TOKENS, TokenList
from kubothek.table.skipping.indexes import Values
from kubothek.table.skipping.model import IndexDefinition
from kubothek.table.skipping.prune.clauses import clause_of
from kubothek.table.skipping.prune.implied import implied, is_prefix

STRINGS = pa.schema([("s", pa.string())])
POINTS = pa.schema([("x", pa.float64()), ("y", pa.float64())])
KINDS = {each.name: each for each in (Prefix(), Suffix(), TokenList(), GeometryBox())}


def entries(definition: IndexDefinition, schema: pa.Schema, files: Sequence[Sequence[Sequence[Any]]]) -> Any:
    """The entries of files, each of which is a row list for every column, added in two batches."""
    kind = KINDS[definition.type]
    types = [schema.field(column).type for column in definition.columns]
    kind.check(definition, types)
    described = []
    for columns in files:
        collector = kind.collector(definition, types)
        half = len(columns[0]) // 2
        for part in (slice(0, half), slice(half, None)):
            arrays = [pa.array(column[part], data_type) for column, data_type in zip(columns, types, strict=True)]
            if len(arrays[0]):
                collector.update([Values(array) for array in arrays])
        entry = collector.finish()
        entry_type: Any = kind.entry_type(definition, types)
        described.append(pa.nulls(1, entry_type) if entry is None else entry)
    return pa.concat_arrays(described)


def on(kind: str, *columns: str, **params: str) -> IndexDefinition:
    return IndexDefinition(kind, columns or ("s",), params)


def opened(definition: IndexDefinition, found: Any, predicate: Predicate) -> list[bool]:
    """Which files are opened, as the planner works it out: a conjunction at a time."""
    kept, clause = [False] * len(found), clause_of(definition)
    assert clause is not None
    for terms in predicate.conjunctions:
        masks = [clause(term, definition, found) for term in implied(terms) if term.column in definition.columns]
        told = [mask for mask in masks if mask is not None]
        kept = [one or all(mask[number] for mask in told) for number, one in enumerate(kept)]
    return kept


def holds(rows: Sequence[Sequence[Any]], schema: pa.Schema, predicate: Predicate) -> bool:
    table = pa.table([pa.array(c, f.type) for c, f in zip(rows, schema, strict=True)], schema=schema)
    return bool(table.filter(predicate.expression()).num_rows)


def asked(definition: IndexDefinition, schema: pa.Schema, files: Any, where: str) -> list[bool]:
    return opened(definition, entries(definition, schema, files), parse(where).bind(schema))


# --- what is skipped -------------------------------------------------------------------------------------------------

URLS = [
    [["/api/users/1", "/api/users/2", None]],
    [["/static/a.css", "/zoo"]],
    [["/api/v", "/static/x.js"]],
    [[None, None]],
]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("s LIKE '/api/%'", [True, False, True, False]),
        ("s LIKE '/api/users/3%'", [True, False, False, False]),  # longer than what is kept
        ("s LIKE '/b%'", [False, False, False, False]),  # between the bounds of the second and the third
        ("s LIKE '/static/%.js'", [False, True, True, False]),
        ("s = '/zoo'", [False, True, False, False]),
        ("s = '/zoology'", [False, False, False, False]),  # a short value is a whole one
        ("s IN ('/api/v', 'x')", [False, False, True, False]),
        ("s > '/t'", [False, True, False, False]),
        ("s IS NOT NULL", [True, True, True, False]),
        ("s IS NULL", [True, True, True, True]),
        ("s != '/zoo'", [True, True, True, True]),
        ("s LIKE '/b%' OR s = '/zoo'", [False, True, False, False]),
    ],
)
def test_prefix_index_skips_files_without_match(where: str, expected: list[bool]) -> None:
    assert asked(on("Prefix", length="8"), STRINGS, URLS, where) == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("s LIKE '%.css'", [False, True, False, False]),
        ("s LIKE '%.js'", [False, False, True, False]),
        ("s LIKE '%/users/2'", [True, False, False, False]),
        ("s LIKE '%oo'", [False, True, False, False]),
        ("s = '/zoo'", [False, True, False, False]),
        ("s > '/t'", [True, True, True, True]),
    ],
)
def test_suffix_index_skips_files_without_match(where: str, expected: list[bool]) -> None:
    assert asked(on("Suffix", length="4"), STRINGS, URLS, where) == expected


LOGS = [[["disk full: /dev/sda1", "retry"]], [["connection timeout", "größer"]], [[None]]]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("s LIKE '%timeout%'", [False, True, False]),
        ("s LIKE '%imeou%'", [False, True, False]),
        ("s LIKE '%full: /dev%'", [True, False, False]),
        ("s LIKE '%ull%sda1'", [True, False, False]),
        ("s LIKE '%connection t%'", [False, True, False]),
        ("s LIKE '%röß%'", [False, True, False]),
        ("s LIKE '%, %'", [True, True, True]),  # no word in it
        ("s = 'retry disk'", [True, False, False]),
        ("s IN ('retry', 'timeout')", [True, True, False]),
    ],
)
def test_token_list_index_skips_files_without_match(where: str, expected: list[bool]) -> None:
    assert asked(on("TokenList"), STRINGS, LOGS, where) == expected


def test_index_with_too_many_values_is_shortened_or_file_is_opened() -> None:
    many = [[f"{number:06}" for number in range(3 * MOST_VALUES)]]
    found = entries(on("Prefix", length="6"), STRINGS, [many])
    (entry,) = found.to_pylist()
    assert entry["length"] < 6
    assert len(entry["values"]) <= MOST_VALUES
    where = parse("s = '007777'").bind(STRINGS)
    assert opened(on("Prefix", length="6"), found, where) == [True]
    assert opened(on("Prefix", length="6"), found, parse("s = '999999'").bind(STRINGS)) == [False]
    words = [[" ".join(str(number) for number in range(MOST_TOKENS + 1))]]
    assert asked(on("TokenList"), STRINGS, [words], "s LIKE '%nothing%'") == [True]


# --- never too much --------------------------------------------------------------------------------------------------

texts = st.text(st.sampled_from("ab_ /ä\U0001f600\uff5e"), max_size=7)
patterns = st.text(st.sampled_from("ab% _ä/\U0001f600"), max_size=6).map(lambda text: Term("s", Op.LIKE, text))
terms = st.one_of(
    patterns,
    st.builds(lambda op, text: Term("s", op, text), st.sampled_from([Op.EQ, Op.LT, Op.LE, Op.GT, Op.GE, Op.NE]), texts),
    st.builds(lambda found: Term("s", Op.IN, tuple(found)), st.lists(texts, min_size=1, max_size=3)),
)


@pytest.mark.parametrize("kind", ["Prefix", "Suffix", "TokenList"])
@settings(max_examples=60, deadline=None)
@given(
    files=st.lists(st.lists(st.none() | texts, max_size=5), min_size=1, max_size=4),
    asked_for=st.lists(terms, min_size=1, max_size=2),
    length=st.integers(1, 4),
)
@example(files=[["\uff5ea"]], asked_for=[Term("s", Op.GE, "\U0001f600")], length=1)
def test_string_index_never_skips_matching_file(
    kind: str, files: list[list[str | None]], asked_for: list[Term], length: int
) -> None:
    params = {} if kind == "TokenList" else {"length": str(length)}
    definition = IndexDefinition(kind, ("s",), params)
    predicate = Predicate((tuple(asked_for),)).bind(STRINGS)
    kept = opened(definition, entries(definition, STRINGS, [[rows] for rows in files]), predicate)
    for rows, open_ in zip(files, kept, strict=True):
        assert open_ or not holds([rows], STRINGS, predicate)


numbers = st.none() | st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 2.0, math.inf, math.nan])
comparisons = st.builds(
    lambda column, op, value: Term(column, op, value),
    st.sampled_from("xy"),
    st.sampled_from([Op.EQ, Op.LT, Op.LE, Op.GT, Op.GE, Op.NE, Op.IN]),
    numbers.filter(lambda value: value is not None),
).map(lambda term: Term(term.column, term.op, (term.value,)) if term.op is Op.IN else term)


@settings(max_examples=80, deadline=None)
@given(
    files=st.lists(st.lists(st.tuples(numbers, numbers), max_size=4), min_size=1, max_size=3),
    asked_for=st.lists(comparisons, min_size=1, max_size=3),
)
def test_geometry_box_index_never_skips_matching_file(
    files: list[list[tuple[Any, Any]]], asked_for: list[Term]
) -> None:
    columns = [[list(found) for found in zip(*rows, strict=True)] or [[], []] for rows in files]
    definition = on("GeometryBox", "x", "y")
    predicate = Predicate((tuple(asked_for),)).bind(POINTS)
    kept = opened(definition, entries(definition, POINTS, columns), predicate)
    for rows, open_ in zip(columns, kept, strict=True):
        assert open_ or not holds(rows, POINTS, predicate)


CITIES = [[[8.5, 9.9], [47.4, 53.6]], [[-74.0], [40.7]], [[None], [None]]]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("x BETWEEN 8 AND 9 AND y BETWEEN 47 AND 48", [True, False, False]),
        ("x < 0", [False, True, False]),
        ("y > 60", [False, False, False]),
        ("x = 9.0", [True, False, False]),
        ("x IS NOT NULL", [True, True, False]),
        ("x IS NULL", [True, True, True]),
    ],
)
def test_geometry_box_of_two_columns_skips_files_without_match(where: str, expected: list[bool]) -> None:
    assert asked(on("GeometryBox", "x", "y"), POINTS, CITIES, where) == expected


def wkb(x: float, y: float, *, order: str = "<", srid: int | None = None) -> bytes:
    head = struct.pack(f"{order}BI", 1 if order == "<" else 0, 1 if srid is None else 1 | 0x20000000)
    return head + (b"" if srid is None else struct.pack(f"{order}I", srid)) + struct.pack(f"{order}2d", x, y)


def test_geometry_box_of_wkb_points_covers_points_and_ignores_lines() -> None:
    schema = pa.schema([("g", pa.binary())])
    line = struct.pack("<BII4d", 1, 2, 2, 0, 0, 1, 1)
    files: list[list[list[bytes | None]]] = [
        [[wkb(8.5, 47.4), wkb(9.9, 53.6, order=">", srid=4326), None]],
        [[wkb(-74.0, 40.7)]],
        [[wkb(-74.0, 40.7), line]],
        [[None]],
    ]
    definition = on("GeometryBox", "g")
    found = entries(definition, schema, files)
    edges = [None if entry is None else tuple(entry.values()) for entry in found.to_pylist()]
    assert edges == [(8.5, 47.4, 9.9, 53.6), (-74.0, 40.7, -74.0, 40.7), None, (None, None, None, None)]
    term = Term("g", Op.EQ, wkb(9.0, 50.0))
    assert opened(definition, found, Predicate(((term,),)).bind(schema)) == [True, False, True, False]


@pytest.mark.parametrize(
    ("definition", "types", "why"),
    [
        (on("Prefix"), [pa.int64()], "int64"),
        (on("Suffix", length="0"), [pa.string()], "length '0'"),
        (on("TokenList"), [pa.binary()], "binary"),
        (on("GeometryBox"), [pa.string()], "WKB"),
        (on("GeometryBox", "x", "y"), [pa.float64(), pa.int64()], "at most 32 bits"),
        (on("GeometryBox", "x", "y", "z"), [pa.float64()] * 3, "two for x and y"),
    ],
)
def test_invalid_index_definition_is_refused(definition: IndexDefinition, types: list[pa.DataType], why: str) -> None:
    with pytest.raises(SkippingInvalid, match=why):
        KINDS[definition.type].check(definition, types)


@pytest.mark.parametrize("prefix", ["a", "/api", "a\ud7ff", "a\U0010ffff", "ä"])
def test_prefix_filter_is_recognized_from_its_bounds(prefix: str) -> None:
    low, high = parse(f"s LIKE '{prefix}%'").conjunctions[0]
    assert is_prefix(low.value, high.value)
    assert not is_prefix(low.value, high.value + "x")
    assert not is_prefix(low.value + "x", high.value)
    assert [term.op for term in implied([low, high])] == [Op.GE, Op.LT, Op.LIKE]
