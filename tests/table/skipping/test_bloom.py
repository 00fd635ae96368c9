"""Bloom filters: Spark's bits, Java's bytes, and lookups in many of them at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubothek.errors import SkippingUnreadable
from kubothek.table.skipping.bloom import index_type, sketch
from kubothek.table.skipping.bloom.binary import HEAD, payload_of, render, wrapped
from kubothek.table.skipping.bloom.filters import Filters
from kubothek.table.skipping.entries import Describer, fields
from kubothek.table.skipping.model import IndexDefinition
from tests.table.skipping.golden import GOLDEN

SAMPLES = {v: (GOLDEN / "bloom" / f"{v}_ndv1000_fpp0.01.bin").read_bytes() for v in ("v1_spark40", "v2_spark43")}


def filter_of(values: pa.Array[Any], sizing: sketch.Sizing | None = None) -> bytes:
    hashes, words = sizing or sketch.lean_sizing(len(values), 0.01)
    bits = np.zeros(64 * words, np.bool_)
    found = sketch.pairs(values)
    assert found is not None
    sketch.fill(bits, found, hashes)
    return render(bits, hashes)


@given(texts=st.lists(st.text(max_size=40), min_size=2, max_size=9), seed=st.integers(-(2**31), 2**31 - 1))
def test_hashes_of_one_text_equal_hashes_among_others(texts: list[str], seed: int) -> None:
    array = pa.array(texts, pa.string())
    among_others = sketch.pairs(array, seed)
    assert among_others is not None
    for n in range(len(texts)):
        found = sketch.pairs(array[n : n + 1], seed)
        assert found is not None
        assert found.packed().tolist() == among_others.packed()[n : n + 1].tolist()


@pytest.mark.parametrize("count", [1, 2])
def test_text_too_long_to_hash_has_no_hashes(count: int) -> None:
    assert sketch.pairs(pa.array(["é" * (1 << 14)] * count)) is not None
    assert sketch.pairs(pa.array(["é" * (1 << 14) + "x"] * count)) is None


@pytest.mark.parametrize("sample", SAMPLES)
def test_bloom_filters_of_both_spark_versions_are_read(sample: str) -> None:
    """Both samples hold the same values, four of which are these."""
    filters = Filters.of(pa.array([SAMPLES[sample]], pa.binary()))
    for value in (-5, 0, 7, 2**63 - 1):
        assert filters.might_contain([value], pa.int64()).tolist() == [True]
    others = [bool(filters.might_contain([n], pa.int64())[0]) for n in range(8, 200)]
    assert sum(others) == 0
    assert not filters.might_contain(["not there"], pa.string())[0]


def test_bloom_filter_bytes_equal_bytes_of_spark_4() -> None:
    payload = payload_of(SAMPLES["v1_spark40"])
    assert wrapped(payload) == SAMPLES["v1_spark40"]
    assert SAMPLES["v1_spark40"].startswith(HEAD)
    assert sketch.spark_sizing(1000, 0.01) == (7, 150)
    assert sketch.spark_sizing(100_000, 0.01) == (7, 14977)


def test_bloom_filters_with_other_class_ids_and_large_block_are_read() -> None:
    """Of Spark 3.2 and of the days when the class was IBM's."""
    ours = filter_of(pa.array(["a", "b"]), sketch.Sizing(3, 300))
    payload = payload_of(ours)
    one_block = ours[: len(HEAD)] + b"\x7a" + len(payload).to_bytes(4, "big") + payload + b"\x78"
    other_id = one_block.replace(
        (4129084604229078036).to_bytes(8, "big"), (-9212564089060648935).to_bytes(8, "big", signed=True)
    )
    name, legacy = (
        b"io.xskipper.index.metadata.BloomFilterMetaData",
        b"com.ibm.metaindex.metadata.index.types.BloomFilterMetaData",
    )
    renamed = other_id.replace(len(name).to_bytes(2, "big") + name, len(legacy).to_bytes(2, "big") + legacy)
    filters = Filters.of(pa.array([ours, one_block, other_id, renamed], pa.binary()))
    assert filters.might_contain(["b"], pa.string()).all()
    assert not filters.might_contain(["c"], pa.string()).any()


def test_null_or_damaged_bloom_filter_matches_everything() -> None:
    good = filter_of(pa.array(["a"]), sketch.Sizing(5, 100))
    damaged = [
        None,
        b"",
        b"x",
        HEAD,
        good[:-20],
        good[:400],
        SAMPLES["v2_spark43"][:700],
        HEAD + b"\x77\x0c" + b"\xff" * 12 + b"\x78",
    ]
    filters = Filters.of(pa.chunked_array([pa.array([*damaged, good], pa.binary())]))
    assert filters.might_contain(["zzz"], pa.string()).tolist() == [True] * len(damaged) + [False]
    assert filters.might_contain([1], pa.date32()).all()
    assert Filters.of(pa.array([], pa.binary())).might_contain(["a"], pa.string()).tolist() == []
    assert Filters.of(pa.array([None], pa.binary())).might_contain(["a"], pa.string()).tolist() == [True]
    with pytest.raises(SkippingUnreadable, match="no sketch"):
        payload_of(b"something else")


def test_bloom_filter_with_each_last_block_size_is_read() -> None:
    """Around 255 and 1024 bytes the headers change."""
    value = pa.array(["x", "yy", "a rather longer value, with ünïcödé and 日本"])
    sizes = [1, 28, 29, 30, 31, 32, 126, 127, 128, 129, 130, 157, 158, 255, 256, 257, 300]
    filters = Filters.of(pa.array([filter_of(value, sketch.Sizing(5, n)) for n in sizes], pa.binary()))
    for each in map(str, value.to_pylist()):
        assert filters.might_contain([each], pa.string()).all()
    found = filters.might_contain(["other"], pa.string())
    assert not found[5:].any()


@pytest.mark.parametrize(
    ("count", "ndv", "held"),
    [
        (0, None, 1 << 21),
        (1, None, 1 << 21),
        (20_000, None, 1 << 21),
        (400_000, None, 1 << 21),
        (400_000, None, 1 << 19),
        (0, "5000", 1 << 21),
        (9000, "5000", 1 << 21),
    ],
)
def test_bloom_filter_of_described_file_has_no_false_negatives(
    count: int, ndv: str | None, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None misses a value; without ``ndv`` they are as small as their values allow, and as exact as asked.

    ``held``: with more values a filter is begun before their number is known.
    """
    monkeypatch.setattr(index_type, "_HELD", held)
    definition = IndexDefinition("BloomFilter", ("n",), {"fpp": "0.01"} | ({} if ndv is None else {"ndv": ndv}))
    schema = fields([definition], pa.schema([("n", pa.int64())]))
    describer = Describer(schema)
    for start in range(0, count, 10_000):
        stop = min(count, start + 10_000)
        for _ in range(2):
            describer.update(pa.record_batch({"n": pa.array([*range(3 * start, 3 * stop, 3), None])}))
    entry = describer.finish()
    assert entry is not None
    assert entry[0] is not None
    filters = Filters.of(entry[0])
    step = max(1, count // 20)
    assert all(filters.might_contain([3 * n], pa.int64())[0] for n in range(0, count, step))
    size = len(entry[0][0].as_py())
    if ndv is not None:
        assert size == len(filter_of(pa.array([1]), sketch.spark_sizing(5000, 0.01)))
    else:
        assert size < 400 + 3 * count
        wrong = sum(bool(filters.might_contain([3 * n + 1], pa.int64())[0]) for n in range(200))
        assert wrong <= 9


@pytest.mark.parametrize("count", [0, 1, 300_000, 1_000_000])
def test_distinct_count_estimate_is_within_two_percent(count: int) -> None:
    """Of many about a hundredth more or less, of few exactly; each comes up to three times."""
    values = np.arange(count)
    hashed = sketch.pairs(pa.array(np.concatenate([values, values[: count // 2], values[: count // 3]])))
    assert hashed is not None
    assert abs(sketch.count_distinct(hashed.packed()) - count) <= count / 50
    assert len(sketch.distinct(hashed.packed())) == len({*hashed.packed().tolist()})


@pytest.mark.parametrize("distinct", [1, 1_000, 200_000])
def test_bloom_filter_of_column_with_varying_cardinality_has_all_values(distinct: int) -> None:
    numbers = np.random.default_rng(1).integers(0, distinct, 200_000) * 7
    schema = fields([IndexDefinition("BloomFilter", ("n",))], pa.schema([("n", pa.int32())]))
    describer = Describer(schema)
    for part in np.split(numbers, 4):
        describer.update(pa.record_batch({"n": pa.array(part, pa.int32())}))
    entry = describer.finish()
    assert entry is not None
    assert entry[0] is not None
    there = np.unique(numbers)
    assert len(entry[0][0].as_py()) < 400 + 2 * len(there)
    filters = Filters.of(entry[0])
    assert all(filters.might_contain([int(n)], pa.int32())[0] for n in there[:: max(1, len(there) // 50)])
