"""Partition values in keys: round trips, refusals, and splitting without touching rows."""

from __future__ import annotations

import math
from datetime import date, datetime
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubothek.errors import PartitionInvalid, SchemaMismatch
from kubothek.table import partitioning as p
from kubothek.table.log.model.paths import PartitionValue, parse_path


def schema_of(types: dict[str, pa.DataType]) -> pa.Schema:
    return pa.schema(types)


SCHEMA = schema_of(
    {
        "i": pa.int64(),
        "u": pa.uint64(),
        "f": pa.float64(),
        "s": pa.string(),
        "d": pa.date32(),
        "t": pa.timestamp("us"),
        "ok": pa.bool_(),
        "raw": pa.binary(),
        "z": pa.timestamp("us", "UTC"),
        "x": pa.int64(),
    }
)


@pytest.mark.parametrize(
    ("column", "value", "path"),
    [
        ("i", -2, "i=-2"),
        ("u", 2**64 - 1, "u=18446744073709551615"),
        ("f", 1.0, "f=1.0"),
        ("f", 1e300, "f=1e%2B300"),
        ("f", -math.inf, "f=-inf"),
        ("f", 0.10000000149011612, "f=0.10000000149011612"),
        ("s", "", "s="),
        ("s", "None", "s=None"),
        ("s", "New York", "s=New%20York"),
        ("s", "Zürich", "s=Z%C3%BCrich"),
        ("s", "a/b=c+d&50%25~.-_", "s=a%2Fb%3Dc%2Bd%2650%2525~.-_"),
        ("d", date(2020, 1, 1), "d=2020-01-01"),
        ("t", datetime(2020, 1, 1), "t=2020-01-01%2000%3A00%3A00"),
        ("t", datetime(2020, 1, 1, 1, 2, 3, 500000), "t=2020-01-01%2001%3A02%3A03.500000"),
    ],
)
def test_partition_value_text_matches_kartothek(column: str, value: PartitionValue, path: str) -> None:
    """Kartothek specification, "Filenames", text form of partition values."""
    assert p.render_path({column: value}) == path
    assert parse_path(path, SCHEMA) == {column: value}


@given(
    st.fixed_dictionaries(
        {
            "i": st.integers(-(2**63), 2**63 - 1),
            "f": st.floats(allow_nan=False),
            "s": st.text(st.characters(exclude_categories=["Cs"]), max_size=15),
            "d": st.dates(),
            "t": st.datetimes(),
        }
    )
)
def test_partition_path_of_any_values_survives_roundtrip(values: dict[str, Any]) -> None:
    path = p.render_path(values)
    assert parse_path(path, SCHEMA) == values
    assert path.isascii()
    assert path.count("/") == len(values) - 1


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("ok=False/raw=%FF", {"ok": False, "raw": b"\xff"}),
        ("z=2020-01-01%2000%3A00%3A00%2B00%3A00", {"z": datetime.fromisoformat("2020-01-01T00:00:00+00:00")}),
        ("i=1/extra/s=a+b", {"i": 1, "s": "a+b"}),
        ("", {}),
    ],
)
def test_partition_paths_of_other_writers_are_parsed(path: str, values: dict[str, Any]) -> None:
    assert parse_path(path, SCHEMA) == values


@pytest.mark.parametrize("path", ["i=x", "d=2020-13-01", "ok=maybe", "nope=1", "s=%FF", "t=yesterday"])
def test_partition_path_that_mismatches_schema_is_refused(path: str) -> None:
    with pytest.raises(PartitionInvalid, match="path"):
        parse_path(path, SCHEMA)


@pytest.mark.parametrize("key", ["ok", "raw", "z"])
def test_partition_key_of_unsupported_type_is_refused(key: str) -> None:
    with pytest.raises(PartitionInvalid, match=f"'{key}' is .*; use one of int64"):
        p.check_partition_keys(SCHEMA, [key])


@pytest.mark.parametrize(
    ("names", "keys", "error"),
    [
        (["a", "b"], ["c"], PartitionInvalid),
        (["a/b", "c"], ["a/b"], PartitionInvalid),
        (["", "c"], [""], PartitionInvalid),
        (["a", "b"], ["a", "a"], SchemaMismatch),
        (["a"], ["a"], PartitionInvalid),
        (["a", "partition"], ["a"], SchemaMismatch),
        (["a", "__index_level_0__"], [], SchemaMismatch),
    ],
)
def test_new_table_with_unreadable_columns_is_refused(
    names: list[str], keys: list[str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        p.check_new_table(pa.schema([pa.field(name, pa.int64()) for name in names]), keys)


def test_new_table_with_valid_columns_is_accepted() -> None:
    p.check_new_table(SCHEMA, ["i", "u", "f", "s", "d", "t"])
    p.check_new_table(schema_of({"odd name=%": pa.string(), "a\\b": pa.int64()}), ["odd name=%"])


def batch_of(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch(columns)


def test_split_groups_rows_in_order_and_drops_partition_columns() -> None:
    batch = batch_of(s=["b", "a", "b", "a"], i=[1, 1, 1, 2], x=[0, 1, 2, 3])
    parts = {group.path: part.to_pylist() for group, part in p.split(batch, ["s", "i"])}
    assert parts == {"s=b/i=1": [{"x": 0}, {"x": 2}], "s=a/i=1": [{"x": 1}], "s=a/i=2": [{"x": 3}]}


def test_split_without_keys_or_rows_returns_batch_or_nothing() -> None:
    batch = batch_of(x=[1, 2])
    assert list(p.split(batch, [])) == [(p.Group(""), batch)]
    assert list(p.split(batch.slice(0, 0), [])) == []


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 2))))
def test_split_keeps_every_row_once(rows: list[tuple[str, int, int]]) -> None:
    batch = pa.RecordBatch.from_pylist(
        [{"s": s, "i": i, "k": k, "x": n} for n, (s, i, k) in enumerate(rows)],
        schema_of({"s": pa.string(), "i": pa.int64(), "k": pa.int64(), "x": pa.int64()}),
    )
    expected: dict[str, list[int]] = {}
    for n, (s, i, k) in enumerate(rows):
        expected.setdefault(f"s={s}/i={i}/k={k}", []).append(n)
    assert {group.path: part["x"].to_pylist() for group, part in p.split(batch, ["s", "i", "k"])} == expected


def test_split_with_many_values_in_many_columns_does_not_overflow() -> None:
    rows = 3000
    columns: dict[str, list[int]] = {f"k{c}": [(row * (7 + c)) % rows for row in range(rows)] for c in range(8)}
    parts = list(p.split(batch_of(**columns, x=list(range(rows))), list(columns)))
    assert len(parts) == rows
    for group, part in parts:
        (row,) = part.to_pydict()["x"]
        assert group.path == "/".join(f"{name}={values[row]}" for name, values in columns.items())


def test_copied_part_does_not_keep_entire_batch_in_memory() -> None:
    batch = batch_of(k=[n % 100 for n in range(10_000)], x=["some text"] * 10_000)
    _, part = next(iter(p.split(batch, ["k"])))
    copy = p.copied([part])
    assert copy.equals(part)
    assert sum(buffer.size for buffer in copy["x"].buffers() if buffer) < 5000


def test_split_of_rows_in_order_of_their_groups_copies_none() -> None:
    batch = batch_of(k=[n // 100 for n in range(1000)], x=[float(n) for n in range(1000)])
    (_, first), *_ = p.split(batch, ["k"])
    assert [b and b.address for b in first["x"].buffers()] == [b and b.address for b in batch["x"].buffers()]


@pytest.mark.parametrize("values", [[1.0, None], [1.0, math.nan]])
def test_split_with_null_partition_value_is_refused_before_first_part(values: list[float | None]) -> None:
    with pytest.raises(PartitionInvalid, match="'f' has nulls"):
        next(iter(p.split(batch_of(f=values, x=[1, 2]), ["f"])))


def test_split_with_invalid_utf8_partition_value_is_refused() -> None:
    bad = pa.array([b"\xff", b"a"]).view(pa.string())
    with pytest.raises(PartitionInvalid, match="'s' has a value without a text form"):
        next(iter(p.split(batch_of(s=bad, x=[1, 2]), ["s"])))


def test_partition_value_too_long_for_file_name_is_refused() -> None:
    assert p.render_path({"s": "x" * 253}) == "s=" + "x" * 253
    with pytest.raises(PartitionInvalid, match="too long"):
        p.render_path({"s": "x" * 254})
    with pytest.raises(PartitionInvalid, match="too long"):
        p.render_path({"s": "東" * 30})


def test_partition_path_with_too_long_values_is_refused() -> None:
    with pytest.raises(PartitionInvalid, match="partition on fewer"):
        p.render_path({f"c{n}": "x" * 200 for n in range(4)})


def test_partition_values_are_quoted_like_kartothek_except_slash() -> None:
    text = "".join(chr(n) for n in range(1, 0x250))
    for character in text:
        expected = "%2F" if character == "/" else quote(character)
        assert p.render_path({"s": character}) == f"s={expected}"
