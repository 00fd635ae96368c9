"""The content hash: as specified, of any type, whatever the order and the batches; and it notices every change."""

from __future__ import annotations

import struct
import time
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubothek.table.maintenance import content
from kubothek.table.maintenance.content import Content, row_hashes

WRAP = 1 << 64
FACTOR = 0xD6E8FEB86659FD93

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int64(), [0, 1, -1, None, 2**63 - 1, -(2**63)]),
    "uint": (pa.uint64(), [0, 1, 2, None, 2**64 - 1, 3]),
    "short": (pa.int16(), [0, 1, -1, None, 7, -7]),
    "real": (pa.float64(), [0.0, -0.0, 1.5, None, float("inf"), float("nan")]),
    "text": (pa.string(), ["", "a", "ab", None, "é\x00", "\x00"]),
    "long text": (pa.large_string(), ["", "a", "ab", None, "é\x00", "\x00"]),
    "bytes": (pa.binary(), [b"", b"\x00", b"\x00\x00", None, b"\xff", b"ab"]),
    "bool": (pa.bool_(), [True, False, True, None, False, True]),
    "day": (
        pa.date32(),
        [date(1960, 1, 1), date(2024, 2, 29), date(1970, 1, 1), None, date(1, 1, 1), date(9999, 1, 1)],
    ),
    "moment": (
        pa.timestamp("us"),
        [datetime(2024, 1, 1), datetime(1960, 1, 1), None, None, None, datetime(1970, 1, 1)],
    ),
    "decimal": (pa.decimal128(38, 2), [Decimal("0.00"), Decimal("-1.10"), Decimal(10) ** 30, None, Decimal(1), None]),
    "list": (pa.list_(pa.string()), [[], ["a", None], [None], None, ["ab"], ["a", "b"]]),
    "lists": (pa.list_(pa.list_(pa.int64())), [[], [[]], [[], []], None, [[1], [2]], [[1, 2]]]),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        [{"a": 1, "b": None}, {"a": None, "b": "1"}, *[None] * 4],
    ),
    "null": (pa.null(), [None] * 6),
}
TABLE = pa.RecordBatch.from_pydict({name: pa.array(values, data_type) for name, (data_type, values) in COLUMNS.items()})


def mixed(z: int) -> int:
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WRAP
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WRAP
    return z ^ (z >> 31)


def chained(values: list[int]) -> int:
    found = 0
    for value in values:
        found = mixed((found * FACTOR + value) % WRAP)
    return found


def sequence(words: list[int]) -> int:
    total = sum(word * pow(FACTOR, place, WRAP) for place, word in enumerate(words))
    return (total + (len(words) + 1) * 0xC2B2AE3D27D4EB4F) % WRAP


def naive(value: Any, data_type: pa.DataType) -> int:
    """One value at a time, as docs/maintenance.md says it."""
    types = pa.types
    if value is None:
        return 0x9E3779B97F4A7C15
    if types.is_list(data_type):
        return sequence([naive(element, data_type.value_type) for element in value])
    if types.is_struct(data_type):
        return chained([naive(value[field.name], field.type) for field in data_type])
    if isinstance(value, str):
        return sequence(list(value.encode()))
    if isinstance(value, bytes):
        return sequence(list(value))
    if types.is_decimal(data_type):
        unscaled = int(value.scaleb(data_type.scale)) % (1 << 128)
        return chained([unscaled % WRAP, unscaled >> 64])
    if isinstance(value, float):
        return int(struct.unpack("<Q", struct.pack("<d", value))[0])
    if isinstance(value, datetime):
        return round((value - datetime(1970, 1, 1)).total_seconds() * 1_000_000) % WRAP
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days % (1 << 32)
    return int(value % (1 << getattr(data_type, "bit_width", 64)))


@pytest.mark.parametrize("name", COLUMNS)
def test_row_hash_of_each_type_matches_specification(name: str) -> None:
    data_type, values = COLUMNS[name]
    assert row_hashes(TABLE.select([name])).tolist() == [chained([naive(v, data_type)]) for v in values]


def test_row_hash_matches_documented_vectors() -> None:
    rows = pa.RecordBatch.from_pydict({"n": pa.array([1, None], pa.int64()), "s": pa.array(["a", "ab"])})
    assert [f"{found:016x}" for found in row_hashes(rows).tolist()] == VECTORS
    assert Content.of([rows]) == Content(2, sum(int(found, 16) for found in VECTORS))


VECTORS = ["4f8cd4d9e24935c5", "edf6d44da19fb709"]


@pytest.mark.parametrize("start", range(6))
def test_row_hash_of_slice_equals_hash_of_copied_rows(start: int) -> None:
    assert row_hashes(TABLE.slice(start, 2)).tolist() == row_hashes(TABLE).tolist()[start : start + 2]


@given(order=st.permutations(range(6)), cut=st.integers(0, 6))
def test_content_hash_ignores_order_and_batching(order: list[int], cut: int) -> None:
    moved = TABLE.take(pa.array(order))
    assert Content.of([moved.slice(0, cut), moved.slice(cut)]) == Content.of([TABLE])
    assert Content.of([moved.slice(0, cut)]) + Content.of([moved.slice(cut)]) == Content.of([TABLE])


@given(
    values=st.lists(st.one_of(st.none(), st.text(max_size=3)), min_size=1, max_size=5),
    others=st.lists(st.one_of(st.none(), st.text(max_size=3)), min_size=1, max_size=5),
)
def test_content_hash_is_equal_only_for_equal_rows(values: list[str | None], others: list[str | None]) -> None:
    one, other = (Content.of([pa.record_batch({"s": pa.array(v, pa.string())})]) for v in (values, others))
    assert (one == other) == (sorted(values, key=repr) == sorted(others, key=repr))


def test_content_hash_detects_values_swapped_between_columns_or_rows() -> None:
    def total(a: list[Any], b: list[Any]) -> int:
        return Content.of([pa.record_batch({"a": pa.array(a, pa.int64()), "b": pa.array(b, pa.int64())})]).total

    found = [total([1, None], [2, 3]), total([2, None], [1, 3]), total([1, None], [3, 2]), total([2, 3], [1, None])]
    assert len(set(found)) == 4
    assert total([1, 1], [2, 2]) != 0


def test_row_hash_of_long_values_is_computed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = pa.record_batch({"s": pa.array(["x" * 100, "", "y" * 31, "abc" * 33, "z"])})
    expected = row_hashes(texts).tolist()
    content._powers.cache_clear()
    monkeypatch.setattr(content, "_BLOCK", 8)
    try:
        assert row_hashes(texts).tolist() == expected
    finally:
        content._powers.cache_clear()


def test_content_hash_of_ten_times_the_rows_costs_ten_times_the_work() -> None:
    def work(count: int) -> float:
        """Hash so many rows; return the CPU time in seconds."""
        numbers = np.arange(count)
        columns: dict[str, Any] = {"n": pa.array(numbers), "x": pa.array(numbers * 0.5)}
        rows = pa.record_batch({**columns, "s": columns["n"].cast(pa.string())})
        began = time.process_time()
        assert Content.of([rows]).rows == count
        return time.process_time() - began

    work(1_000)
    assert work(1_000_000) < 30 * work(100_000)


def test_content_hash_of_unknown_type_raises_type_error() -> None:
    with pytest.raises(TypeError, match="no content hash for string_view"):
        Content.of([pa.RecordBatch.from_arrays([pa.array(["a"], pa.string_view())], names=["v"])])
