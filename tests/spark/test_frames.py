"""Datasets as DataFrames, by Spark's own reader and by the format in Python: the same rows as our own scan gives."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import kubothek
from kubothek.catalog import Lake
from kubothek.errors import DatasetNotFound, FilterInvalid, InputError, VersionIncomplete
from kubothek.spark.frames import read, s3a_settings
from kubothek.spark.options import ReadOptions
from kubothek.storage import StoreConfig
from tests.sparks import configured

pytestmark = pytest.mark.spark

REGIONS = ["Zürich", "a/b", "50%25", "x=y z", "", "東京", "null", "__HIVE_DEFAULT_PARTITION__"]
SCHEMA = pa.schema(
    [  # type: ignore[arg-type] # the stubs want all types to be one
        ("region", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("big", pa.uint64()),
        ("id", pa.int64()),
        ("name", pa.string()),
        ("share", pa.float64()),
        ("tags", pa.list_(pa.int64())),
        ("unknown", pa.null()),
    ]
)


def rows(first: int = 0, count: int = 64) -> pa.Table:
    ids = range(first, first + count)
    values: dict[str, list[Any]] = {
        "region": [REGIONS[n % len(REGIONS)] for n in ids],
        "day": [date(2024, 2, 28 + n % 2) for n in ids],
        "at": [None if n % 5 == 0 else datetime(2024, 3, 31, 2, 30, n % 60, 7) for n in ids],
        "big": [2**64 - 1 - n for n in ids],
        "id": list(ids),
        "name": [None if n % 3 == 0 else f"näme '{n}'" for n in ids],
        "share": [None if n % 7 == 0 else float("nan") if n % 7 == 1 else n / 8 for n in ids],
        "tags": [None if n % 4 == 0 else [n, n + 1] for n in ids],
        "unknown": [None] * count,
    }
    return pa.table(values, schema=SCHEMA)


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    # The zone has no 2:30 on 31 March 2024: times without zone must not go through it.
    with configured(spark, {"spark.sql.session.timeZone": "Europe/Berlin", "spark.sql.shuffle.partitions": "1"}):
        yield spark


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with a dataset ``t`` of two versions of rows, 64 and 80."""
    lake = kubothek.open(tmp_path_factory.mktemp("a lake %41 ü").as_uri())
    dataset = lake.create_dataset("t", ["region", "day"], SCHEMA)
    dataset.append(rows())
    dataset.append(rows(64, 16))
    return lake


def by_format(session: SparkSession, lake: Lake, **options: Any) -> DataFrame:
    return session.read.format("kubothek").options(path=lake.store.url, uuid="t", **options).load()


def found(frame: DataFrame) -> list[dict[str, Any]]:
    return sorted((plain(row.asDict()) for row in frame.collect()), key=repr)


def expected(lake: Lake, where: str | None = None, columns: list[str] | None = None) -> list[dict[str, Any]]:
    batches = lake.dataset("t").scan(columns=columns, where=where).read_all()
    return sorted((plain(row) for row in batches.to_pylist()), key=repr)


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """uint64 is a decimal in Spark, and NaN is not equal to itself."""
    return {
        name: int(value) if isinstance(value, Decimal) else "NaN" if value != value else value
        for name, value in row.items()
    }


def files_read(frame: DataFrame) -> int:
    """The number of files behind the rows that come out."""
    return int(frame.select("_metadata.file_path").distinct().count())


FILTERS = [
    "region = 'Zürich'",
    "region IN ('a/b', '') AND day = DATE '2024-02-28'",
    "region != '50%25' OR id < 10",
    "name IS NULL",
    "name = 'näme ''5'''",
    "name NOT IN ('näme ''5''')",
    "share > 1",
    "NOT share <= 1",
    "at >= TIMESTAMP '2024-03-31 02:30:10'",
    "at IS NULL AND id > 20",
    "big > 18446744073709551600",
    "region = '__HIVE_DEFAULT_PARTITION__'",
    "name LIKE '%_5%'",
    "name NOT LIKE 'n%1%'",
    "id = 1000",
    "FALSE",
]


def test_spark_frame_has_all_rows_with_stored_types(session: SparkSession, lake: Lake) -> None:
    frame = read(session, lake.store.url, "t")
    assert frame.columns == lake.dataset("t").schema.names
    assert dict(frame.dtypes)["at"] == "timestamp_ntz"
    assert dict(frame.dtypes)["day"] == "date"
    assert dict(frame.dtypes)["big"] == "decimal(20,0)"
    assert found(frame) == expected(lake)
    assert found(by_format(session, lake)) == expected(lake)


@pytest.mark.parametrize("where", FILTERS)
def test_spark_frame_filter_selects_same_rows_as_scan(session: SparkSession, lake: Lake, where: str) -> None:
    assert found(read(session, lake.store.url, "t", where=where)) == expected(lake, where)


def test_spark_view_queries_keep_separate_filters(session: SparkSession, lake: Lake) -> None:
    by_format(session, lake, columns="id, at,share,name").createOrReplaceTempView("t")
    for where in ["at IS NULL AND share > 1", "name NOT IN ('x') OR share > 1"]:
        chosen = session.sql(f"SELECT * FROM t WHERE {where}")
        assert found(chosen) == expected(lake, where, ["id", "at", "share", "name"]), where


def test_spark_format_filter_selects_same_rows_from_planned_files(session: SparkSession, lake: Lake) -> None:
    where = "region = 'a/b' AND share > 1 OR region = ''"
    frame = by_format(session, lake, where=where)
    assert found(frame) == expected(lake, where)
    assert frame.rdd.getNumPartitions() == 4


def test_spark_frame_reads_only_planned_files(session: SparkSession, lake: Lake) -> None:
    one = read(session, lake.store.url, "t", where="region = 'Zürich' AND day = DATE '2024-02-28'")
    assert len(one.inputFiles()) == 2
    assert files_read(read(session, lake.store.url, "t")) == 16


def test_spark_frame_filter_on_partition_column_skips_files(session: SparkSession, lake: Lake) -> None:
    frame = read(session, lake.store.url, "t").where("region = '東京'").select("id")
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "PartitionFilters: [isnotnull(region" in plan
    assert "ReadSchema: struct<id:bigint>" in plan
    assert files_read(read(session, lake.store.url, "t").where("region = '東京'")) == 2


def test_spark_frame_has_columns_in_requested_order(session: SparkSession, lake: Lake) -> None:
    assert read(session, lake.store.url, "t", columns=["id", "region"], where="day = DATE '2024-02-29'").columns == [
        "id",
        "region",
    ]
    cut = session.read.format("kubothek").schema("share double").options(path=lake.store.url, uuid="t").load()
    assert found(cut) == expected(lake, columns=["share"])


def test_spark_frame_reads_earlier_version_by_number_and_time(session: SparkSession, lake: Lake) -> None:
    second = next(iter(lake.dataset("t").history())).time
    url = lake.store.url
    assert [read(session, url, "t", as_of=version).count() for version in (1, 2, 3)] == [0, 64, 80]
    assert read(session, url, "t", as_of=second).count() == 80
    assert by_format(session, lake, versionAsOf=2).count() == 64
    given = {"path": url, "uuid": "t"}
    assert ReadOptions.of({**given, "timestampAsOf": second.isoformat()}).as_of == second
    assert ReadOptions.of({**given, "tagAsOf": "audit"}).as_of == "audit"
    assert ReadOptions.of(given).as_of is None


def test_spark_frame_reads_unpartitioned_table_and_foreign_files(
    session: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    other = kubothek.open(tmp_path.as_uri())
    dataset = other.create_dataset("t", (), pa.table({"a": [0], "b": [""], "c": [0.0]}).schema)
    dataset.append(pa.table({"a": [1], "b": ["x"], "c": [0.5]}))
    (key,) = dataset.snapshot().head.files().values()
    pq.write_table(pa.table({"extra": [1], "b": ["y"], "a": pa.array([7], pa.int32())}), tmp_path / key)
    assert found(read(session, other.store.url, "t")) == [{"a": 7, "b": "y", "c": None}]
    (tmp_path / key).unlink()
    with pytest.raises(VersionIncomplete, match="1 of 1 files"):
        read(session, other.store.url, "t")


def test_spark_frame_keeps_partition_values_of_every_type(session: SparkSession, tmp_path: Path) -> None:
    other = kubothek.open(tmp_path.as_uri())
    given = pa.table(
        {
            "u": pa.array([2**64 - 1, 0], pa.uint64()),
            "f": [float("inf"), -1e-300],
            "at": [datetime(2024, 3, 31, 2, 30, 0, 7), datetime(1969, 1, 1)],
            "i": [-1, 2**63 - 1],
            "x": ["a", "b"],
        }
    )
    other.create_dataset("t", ["u", "f", "at", "i"]).append(given)
    assert found(read(session, other.store.url, "t")) == sorted(given.to_pylist(), key=repr)
    late = read(session, other.store.url, "t", columns=["x"], where="u > 1 AND at > TIMESTAMP '2024-03-31 02:30:00'")
    assert found(late) == [{"x": "a"}]


def test_spark_frame_of_missing_dataset_or_column_is_refused_by_name(session: SparkSession, lake: Lake) -> None:
    with pytest.raises(DatasetNotFound):
        read(session, lake.store.url, "nothing")
    with pytest.raises(FilterInvalid, match="did you mean 'region'"):
        read(session, lake.store.url, "t", where="regoin = 'x'")
    with pytest.raises(PySparkException, match="nothing"):
        read(session, lake.store.url, "t", columns=["nothing"])
    with pytest.raises(PySparkException, match="no column 'nothing'"):
        by_format(session, lake, columns="nothing")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"version": "3"}, "unknown option 'version'; there are path, uuid"),
        ({"versionAsOf": "3", "timestampAsOf": "2026-01-01"}, "not both"),
        ({"tagAsOf": "audit", "timestampAsOf": "2026-01-01"}, "not both"),
        ({"versionAsOf": "three"}, "it is the number of a version"),
        ({"timestampAsOf": "yesterday"}, "it is a time in ISO 8601"),
        ({"uuid": ""}, "'uuid' is missing"),
        ({"where": "id ="}, "id ="),
    ],
)
def test_spark_format_with_invalid_options_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        ReadOptions.of({"path": "file:///lake", "uuid": "t", **options})


def test_spark_s3a_settings_match_store_configuration(tmp_path: Path) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t"}.items():
        (tmp_path / name).write_text(value)
    config = StoreConfig("s3://lake/x", "http://s3:7070", "eu-central-1", str(tmp_path))
    assert s3a_settings(config) == {
        "endpoint": "http://s3:7070",
        "path.style.access": "true",
        "endpoint.region": "eu-central-1",
        "access.key": "a",
        "secret.key": "s",
        "session.token": "t",
    }
    assert s3a_settings(StoreConfig("s3://lake/x")) == {}
