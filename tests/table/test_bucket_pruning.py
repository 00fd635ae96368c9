"""Filters on bucket columns: files of other buckets are not read, and no row is missed."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kubothek
from kubothek.catalog import Dataset, Lake
from kubothek.table.expressions import parse
from kubothek.table.layout import Layout
from kubothek.table.log import Change, DatasetLog, Operation, Transaction
from kubothek.table.scan.plan import plan

ROWS = pa.table(
    {
        "k": [n % 2 for n in range(200)],
        "a": [n % 40 if n % 40 else None for n in range(200)],
        "b": [f"b{n % 3}" for n in range(200)],
    }
)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return kubothek.open(tmp_path.as_uri())


@pytest.fixture
def table(lake: Lake) -> Dataset:
    dataset = lake.create_dataset("t", partition_on=["k"], bucket_by=["a", "b"], num_buckets=16)
    dataset.append(ROWS)
    return dataset


def files_left(lake: Lake, where: str) -> int:
    steps = {step.name: step.files_left for step in plan(lake.store, lake.dataset("t").snapshot(), parse(where)).steps}
    return steps["partition keys"]


def lay_out(lake: Lake, layout: dict[str, Any]) -> None:
    started = DatasetLog(lake.store, "t").begin(f"layout {layout}", "digest")
    assert isinstance(started, Transaction)
    started.commit(Change(operation=Operation.APPEND, layout=layout))


@pytest.mark.parametrize(
    ("where", "values", "matches"),
    [
        ("a = 5 AND b = 'b1'", 1, lambda a, b: a == 5 and b == "b1"),
        ("a IN (5, 6) AND b IN ('b1', 'b2')", 4, lambda a, b: a in (5, 6) and b in ("b1", "b2")),
        ("a IS NULL AND b = 'b0'", 1, lambda a, b: a is None and b == "b0"),
        ("(a = 5 AND b = 'b1') OR (a = 7 AND b = 'b2')", 2, lambda a, b: (a, b) in ((5, "b1"), (7, "b2"))),
        ("a = 5 AND b = 'b1' AND a > 7", 1, lambda a, b: False),
        ("a = NULL AND b = 'b1'", 0, lambda a, b: False),
    ],
)
def test_filter_on_all_bucket_columns_opens_only_matching_buckets(
    lake: Lake, table: Dataset, where: str, values: int, matches: Callable[[Any, Any], bool]
) -> None:
    assert files_left(lake, f"k = 1 AND ({where})") <= values
    assert files_left(lake, where) <= 2 * values
    found = table.scan(where=where).read_all()
    assert found.num_rows == sum(matches(row["a"], row["b"]) for row in ROWS.to_pylist())


@pytest.mark.parametrize("where", ["a = 5", "b = 'b1'", "a > 5 AND b = 'b1'", "a != 5 AND b = 'b1'", "TRUE"])
def test_filter_on_some_bucket_columns_prunes_nothing(lake: Lake, table: Dataset, where: str) -> None:
    assert files_left(lake, where) == len(table.snapshot().head.partitions)


def test_files_of_older_bucketing_are_read(lake: Lake, table: Dataset) -> None:
    before = len(table.snapshot().head.partitions)
    lay_out(lake, Layout(partition_on=("k",), bucket_by=("b",), num_buckets=7).to_json())
    table.append(ROWS)
    assert before < files_left(lake, "b = 'b1'") <= before + 2
    assert table.scan(where="b = 'b1'").read_all().num_rows == 2 * ROWS["b"].to_pylist().count("b1")


@pytest.mark.parametrize("layout", [{"numBuckets": "many"}, {"bucketBy": ["gone"], "numBuckets": 3}])
def test_invalid_stored_layout_does_not_prevent_reads(lake: Lake, table: Dataset, layout: dict[str, Any]) -> None:
    lay_out(lake, layout)
    assert table.scan(where="a = 5 AND b = 'b1'").read_all()["k"].to_pylist() == [1]


@pytest.mark.parametrize(
    ("values", "where", "matching"),
    [
        (pa.array([0.0, -0.0, 1.5]), "x = 0", 2),
        (pa.array([Decimal("1.50"), Decimal("2")], pa.decimal128(9, 2)), "x = 1.5", 1),
        (pa.array([Decimal("1.50"), Decimal("2")], pa.decimal128(9, 2)), "x = 1.505", 0),
        (pa.array([b"\x00\xff", b""]), "x = X'00ff'", 1),
        (pa.array([1, 2], pa.timestamp("us")), "x = TIMESTAMP '1970-01-01 00:00:00.000001'", 1),
        (pa.array([1, 2], pa.date32()), "x IN (DATE '1970-01-02', DATE '1970-01-05')", 1),
        (pa.array([True, False]), "x = TRUE", 1),
        (pa.array([2**64 - 1, 0], pa.uint64()), "x = 18446744073709551615", 1),
        (pa.array([2**63 - 1, 0], pa.int64()), "x = 99999999999999999999999", 0),
    ],
)
def test_bucket_of_literal_equals_bucket_of_row(lake: Lake, values: pa.Array[Any], where: str, matching: int) -> None:
    dataset = lake.create_dataset("t", bucket_by=["x"], num_buckets=64)
    dataset.append(pa.table({"x": values, "n": list(range(len(values)))}))
    assert dataset.scan(where=where).read_all().num_rows == matching
    assert files_left(lake, where) <= 2
