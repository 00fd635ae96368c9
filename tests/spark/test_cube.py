"""A cube query in Spark: the rows that it gives without, joined in the tasks, with nothing shuffled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import redirect_stdout
from datetime import datetime
from io import StringIO
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kubothek
from kubothek.catalog import Lake
from kubothek.cube.query import assembling
from kubothek.errors import DatasetNotFound, FilterInvalid, QueryInvalid
from kubothek.spark.cube import frame, read
from tests.sparks import configured

pytestmark = pytest.mark.spark

PARTITIONS = 6


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    # The zone has no 2:30 on 31 March 2024: times without zone must not go through it.
    with configured(spark, {"spark.sql.session.timeZone": "Europe/Berlin"}):
        yield spark


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with a cube of two versions: the second writes over a cell in each partition."""
    lake = kubothek.open(tmp_path_factory.mktemp("a lake %41 ü").as_uri())
    cube = lake.create_cube("c", dimension_columns=["x", "at"], partition_columns=["p"], suppress_index_on=["at"])
    cube.build({"seed": seed(0), "names": names(), "days": days()}, partition_on={"names": ["p"], "days": []})
    cube.append({"seed": seed(100, each=1)})
    return lake


def seed(first: int, each: int = 4) -> pa.Table:
    cells = [(f"p/{p} ü", x) for p in range(PARTITIONS) for x in range(each)]
    return pa.table(
        {
            "p": pa.array([p for p, _ in cells]),
            "x": pa.array([x for _, x in cells], pa.int64()),
            "at": pa.array([datetime(2024, 3, 31, 2, 30, x) for _, x in cells], pa.timestamp("us")),
            "big": pa.array([2**64 - 1 - first - x for _, x in cells], pa.uint64()),
            "v": pa.array([None if x == 2 else first + x for _, x in cells], pa.float64()),
            "unknown": pa.nulls(len(cells)),
        }
    )


def names() -> pa.Table:
    cells = [(f"p/{p} ü", x) for p in range(PARTITIONS) for x in (0, 3, 9)]
    return pa.table({"p": [p for p, _ in cells], "x": [x for _, x in cells], "name": [f"{p}-{x}" for p, x in cells]})


def days() -> pa.Table:
    moments = pa.array([datetime(2024, 3, 31, 2, 30, n) for n in (1, 2, 8)], pa.timestamp("us"))
    return pa.table({"at": moments, "tags": pa.array([[n, None] for n in range(3)], pa.list_(pa.int64()))})


def plain(rows: pa.Table) -> list[dict[str, Any]]:
    """uint64 is a decimal in Spark."""
    return sorted(({**row, "big": int(row["big"])} if "big" in row else row for row in rows.to_pylist()), key=repr)


QUERIES: list[dict[str, Any]] = [
    {},
    {"conditions": "v > 1 AND v < 50", "payload_columns": ["v", "name"]},
    {"conditions": "name IS NULL OR tags IS NOT NULL"},
    {"conditions": "p = 'p/3 ü' AND x = 0"},
    {"conditions": "v = 7"},
    {"dimension_columns": ["x"], "payload_columns": ["name"]},
    {"conditions": "v = 0", "newest_only": True, "datasets": ["seed", "names"]},
    {"as_of": 1},
]


@pytest.mark.parametrize("asked", QUERIES, ids=str)
def test_spark_cube_query_returns_same_rows_as_query_in_process(
    session: SparkSession, lake: Lake, asked: dict[str, Any]
) -> None:
    expected = lake.cube("c").query(**asked)
    with patch.object(assembling, "UNIT_ROWS", 1):
        found = read(session, lake.store.url, "c", **asked)
    assert found.columns == expected.schema.names
    assert plain(found.toArrow()) == plain(expected.to_arrow())


def test_spark_cube_query_needs_no_shuffle_and_joins_per_task(session: SparkSession, lake: Lake) -> None:
    with patch.object(assembling, "UNIT_ROWS", 1):
        found = frame(session, lake.store.config, lake.cube("c").query().plan)
    text = StringIO()
    with redirect_stdout(text):
        found.explain()
    assert "Exchange" not in text.getvalue()
    assert "Join" not in text.getvalue()
    assert found.rdd.getNumPartitions() == PARTITIONS
    assert {name: kind for name, kind in found.dtypes if name in ("at", "big", "p")} == {
        "at": "timestamp_ntz",
        "big": "decimal(20,0)",
        "p": "string",
    }


def test_spark_cube_query_that_is_invalid_is_refused_before_job_starts(session: SparkSession, lake: Lake) -> None:
    url = lake.store.url
    with pytest.raises(DatasetNotFound):
        read(session, url, "nope")
    with pytest.raises(FilterInvalid):
        read(session, url, "c", conditions="nope = 1")
    with pytest.raises(QueryInvalid):
        read(session, url, "c", payload_columns=["nope"])


def test_spark_cube_query_with_missing_file_raises_version_incomplete(
    session: SparkSession, tmp_path_factory: Any
) -> None:
    lake = kubothek.open(tmp_path_factory.mktemp("gone").as_uri())
    cube = lake.create_cube("c", dimension_columns=["x", "at"], partition_columns=["p"])
    cube.build({"seed": seed(0)})
    found = frame(session, lake.store.config, (plan := cube.query().plan))
    lake.store.delete(plan.seed.files_of(0))
    with pytest.raises(PySparkException, match="VersionIncomplete"):
        found.collect()
