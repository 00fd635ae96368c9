"""The bucket hash: the same everywhere and for ever, and files that say which bucket they are."""

from __future__ import annotations

import json
import struct
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubothek.table.bucketing import Bucketing
from kubothek.table.layout import Layout
from kubothek.table.schema import parse_type

COUNT = 1 << 16
VECTORS = json.loads((Path(__file__).parents[1] / "golden" / "bucket-hash.json").read_text())


def batch_of(*columns: pa.Array[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns), names=[f"c{n}" for n in range(len(columns))])


def bucketing_of(batch: pa.RecordBatch, count: int = COUNT) -> Bucketing:
    return Bucketing(tuple(zip(batch.schema.names, batch.schema.types, strict=True)), count)


def buckets(*columns: pa.Array[Any], count: int = COUNT) -> list[int | None]:
    batch = batch_of(*columns)
    return bucketing_of(batch, count).buckets(batch).to_pylist()


# --- the specification, written a second time ---------------------------------------------------------------


def mixed(hashed: int, word: int) -> int:
    word = rotated(word * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
    return (rotated(hashed ^ word, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF


def rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & 0xFFFFFFFF


def finished(hashed: int, length: int) -> int:
    hashed ^= length
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return hashed ^ hashed >> 16


def hash_of(seed: int, data: bytes) -> int:
    """docs/layout.md: whole words, then each byte left as a signed word of its own."""
    whole = len(data) - len(data) % 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        seed = mixed(seed, word)
    for byte in data[whole:]:
        seed = mixed(seed, (byte - 256 if byte > 127 else byte) & 0xFFFFFFFF)
    return finished(seed, len(data))


def bucket_of(*values: bytes | None, count: int = COUNT) -> int:
    hashed = 42
    for value in values:
        hashed = hashed if value is None else hash_of(hashed, value)
    return (hashed - (hashed >> 31 << 32)) % count


@given(
    st.lists(st.tuples(st.one_of(st.none(), st.binary(max_size=70)), st.one_of(st.none(), st.text(max_size=20)))),
    st.integers(1, COUNT),
)
@pytest.mark.slow
def test_bucket_hash_of_text_and_binary_matches_specification(
    rows: list[tuple[bytes | None, str | None]], count: int
) -> None:
    found = buckets(
        pa.array([a for a, _ in rows], pa.binary()), pa.array([b for _, b in rows], pa.string()), count=count
    )
    assert found == [bucket_of(a, None if b is None else b.encode(), count=count) for a, b in rows]


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))))
def test_bucket_hash_of_integers_matches_specification(values: list[int | None]) -> None:
    expected = [bucket_of(None if v is None else v.to_bytes(8, "little", signed=True)) for v in values]
    assert buckets(pa.array(values, pa.int64())) == expected
    assert buckets(pa.array(values, pa.timestamp("us"))) == expected


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True)))
def test_bucket_hash_of_equal_numbers_is_equal(values: list[float]) -> None:
    canonical = [0.0 if v == 0 else float("nan") if v != v else v for v in values]
    assert buckets(pa.array(values, pa.float64())) == [bucket_of(struct.pack("<d", v)) for v in canonical]


# --- vectors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector['type']} {str(vector['value'])[:20]}")
def test_bucket_hash_matches_recorded_vectors_of_each_type(vector: dict[str, Any]) -> None:
    """Written down once; what was bucketed by any version must be found by all later ones."""
    data_type = parse_type(vector["type"])
    values = [decoded(vector["value"], data_type)]
    assert buckets(pa.array(values, data_type)) == [vector["hash"] % COUNT]


def decoded(value: Any, data_type: pa.DataType) -> Any:
    """What JSON cannot say, as it stands in the vectors."""
    types = pa.types
    if types.is_binary(data_type):
        return bytes.fromhex(value)
    if types.is_floating(data_type):
        return float(value)
    if types.is_decimal(data_type):
        return Decimal(value)
    if types.is_date(data_type):
        return date.fromisoformat(value)
    if types.is_timestamp(data_type):
        return datetime.fromisoformat(value)
    if types.is_time(data_type):
        return time.fromisoformat(value)
    return timedelta(microseconds=value) if types.is_duration(data_type) else value


def test_bucket_hash_vectors_cover_every_supported_type() -> None:
    kinds = {vector["type"].partition("(")[0] for vector in VECTORS}
    assert kinds == {
        *("bool", "int64", "uint64", "double", "string", "binary", "date32", "timestamp[us]", "decimal128"),
        *("time32[s]", "time32[ms]", "time64[us]", "duration[us]"),
    }


def test_bucket_hash_ignores_null_column() -> None:
    assert buckets(pa.nulls(2), pa.array([1, 2])) == buckets(pa.array([1, 2]))
    assert buckets(pa.array([None, None], pa.string()), pa.array([1, 2])) == buckets(pa.array([1, 2]))


def test_bucket_hash_of_slice_equals_hash_of_rows() -> None:
    columns = [pa.array([*range(50), None]), pa.array([*(str(n) * n for n in range(50)), None]), pa.array([True] * 51)]
    decimals = pa.array([Decimal(n) for n in range(51)], pa.decimal128(20, 2))
    whole = buckets(*columns, decimals)
    assert buckets(*(column[13:40] for column in (*columns, decimals))) == whole[13:40]


def test_bucket_hash_of_huge_text_uses_bounded_prefix() -> None:
    """One such value would hold a writer up for minutes otherwise."""
    huge = "x" * 5_000_000
    assert buckets(pa.array([huge, "x" * 1024, "x" * 1023])) == [bucket_of(b"x" * n) for n in (1024, 1024, 1023)]


def test_bucket_hash_spreads_rows_evenly() -> None:
    found = buckets(pa.array(range(100_000)), count=16)
    assert all(5500 < found.count(bucket) < 7000 for bucket in range(16))


# --- names --------------------------------------------------------------------------------------------------


def test_bucket_lookup_of_value_equals_bucket_of_row() -> None:
    batch = batch_of(pa.array([1, None, 3]), pa.array(["a", "b", None]))
    bucketing = bucketing_of(batch, 7)
    rows = [bucketing.bucket_of({"c0": a, "c1": b, "other": 0}) for a, b in [(1, "a"), (None, "b"), (3, None)]]
    assert rows == bucketing.buckets(batch).to_pylist()


def test_bucket_of_file_with_other_bucketing_is_none() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    one = Bucketing.of(Layout(bucket_by=("a",), num_buckets=16), schema)
    more = Bucketing.of(Layout(bucket_by=("a",), num_buckets=32), schema)
    other = Bucketing.of(Layout(bucket_by=("b",), num_buckets=16), schema)
    wider = Bucketing.of(Layout(bucket_by=("a",), num_buckets=16), schema.set(0, pa.field("a", pa.string())))
    assert one
    labels = [f"p=1/{'0' * 32}{each.mark(11)}" for each in (one, more, other, wider) if each]
    assert one.read(pa.array([*labels, "p=1/plain", ""])).to_pylist() == [11, None, None, None, None, None]


def test_layout_without_buckets_has_no_bucketing() -> None:
    assert Bucketing.of(Layout(), pa.schema([])) is None


def test_bucket_mark_is_stable() -> None:
    assert Bucketing((("carrier", pa.string()), ("n", pa.int64())), 16).mark(3) == "-c9681eb69bfc-3"
