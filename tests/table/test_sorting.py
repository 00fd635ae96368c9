"""Sorted runs and their merge: whatever came in, in whatever pieces, leaves in order and in bounded memory."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubothek.table.sorting import SortedRuns

BLOCK = 1 << 10

VALUES = st.one_of(st.none(), st.sampled_from([float("nan"), float("inf"), -0.0, 0.0, -1.5]), st.floats(width=16))
ROWS = st.lists(st.tuples(VALUES, st.one_of(st.none(), st.text("aé💾z", max_size=3))), min_size=1, max_size=60)


def table_of(rows: list[tuple[float | None, str | None]], first: int) -> pa.Table:
    return pa.table(
        {
            "a": pa.array([row[0] for row in rows], pa.float64()),
            "b": pa.array([row[1] for row in rows], pa.string()),
            "n": range(first, first + len(rows)),
        }
    )


def drained(runs: SortedRuns) -> pa.Table:
    popped = []
    while runs.rows:
        popped.append(runs.pop())
        assert popped[-1].num_rows > 0
    assert runs.size == 0
    return pa.concat_tables(popped)


def keys(table: pa.Table) -> list[Any]:
    """The rows as Arrow orders them, ties aside."""
    return [repr((a if a != 0 else 0.0, b)) for a, b in zip(*(table[name].to_pylist() for name in "ab"), strict=True)]


@pytest.mark.slow
@given(st.lists(ROWS, min_size=1, max_size=6), st.sampled_from([1, 100, 10_000]))
def test_sorted_runs_return_rows_in_arrow_order(
    pieces: list[list[tuple[float | None, str | None]]], block: int
) -> None:
    tables = [table_of(rows, 1000 * n) for n, rows in enumerate(pieces)]
    runs = SortedRuns(["a", "b"], block)
    for table in tables:
        runs.add(table.to_batches())
    found = drained(runs)
    whole = pa.concat_tables(tables)
    assert keys(found) == keys(whole.sort_by([("a", "ascending"), ("b", "ascending")]))
    assert found.sort_by("n")["n"].equals(whole.sort_by("n")["n"])


@pytest.mark.parametrize(
    "values",
    [
        pa.array([3, None, 1, 2], pa.int64()),
        pa.array([2**64 - 1, 0, None, 5], pa.uint64()),
        pa.array([True, None, False, True]),
        pa.array([b"\xff", b"", None, b"\x00"]),
        pa.array([Decimal("1.5"), Decimal("-2"), None, Decimal(0)], pa.decimal128(9, 1)),
        pa.array([datetime(2024, 1, 1), None, datetime(1, 1, 1), datetime(9999, 1, 1)], pa.timestamp("us")),
        pa.array([2**62, -(2**62), None, 0], pa.timestamp("us")),
        pa.array([3, None, 1, 2], pa.date32()),
        pa.array([3, None, 1, 2], pa.time64("us")),
        pa.array([3, None, 1, 2], pa.duration("us")),
        pa.nulls(4),
    ],
    ids=lambda values: str(values.type),
)
def test_sorted_runs_sort_every_plain_type(values: pa.Array[Any]) -> None:
    """Also times beyond what Python can say."""
    runs = SortedRuns(["x"], 1)
    for at in range(len(values)):
        runs.add(pa.table({"x": values[at : at + 1]}).to_batches())
    assert drained(runs)["x"].combine_chunks() == values.take(pc.sort_indices(values))


def test_sorted_runs_are_compressed_in_memory() -> None:
    table = pa.table({"x": pa.array(range(100_000)), "t": ["the same text"] * 100_000})
    runs = SortedRuns(["x"], table.nbytes // 50)
    runs.add(table.to_batches())
    assert runs.size < table.nbytes / 3


@pytest.mark.slow
def test_merge_of_sorted_runs_holds_one_block_per_run() -> None:
    runs = SortedRuns(["x"], 1 << 16)
    rows = 1 << 17
    for run in range(8):
        runs.add(pa.table({"x": pa.array(range(run, 8 * rows, 8))}).to_batches())
    before = pa.total_allocated_bytes()
    peak, popped = 0, 0
    while runs.rows:
        popped += runs.pop().num_rows
        peak = max(peak, pa.total_allocated_bytes() - before)
    assert popped == 8 * rows
    assert peak < 4 << 20, "of 8 MiB"


def test_interrupted_merge_continues_with_later_runs() -> None:
    runs = SortedRuns(["x"], 64)
    runs.add(pa.table({"x": list(range(0, 100, 2))}).to_batches())
    first = runs.pop()["x"].to_pylist()
    runs.add(pa.table({"x": list(range(1, 100, 2))}).to_batches())
    assert drained(runs)["x"].to_pylist() == sorted(set(range(100)) - set(first))
