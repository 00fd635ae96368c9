"""Streams into and out of datasets: each row once, also after a driver ends at any stage of a batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import kubothek
from kubothek.catalog import Dataset, Lake
from kubothek.errors import InputError, VersionIncomplete, VersionNotFound
from kubothek.spark.datasource import StreamReader
from kubothek.spark.options import ReadOptions
from kubothek.spark.stream import latest_version, new_files, require_no_loss
from kubothek.spark.types import spark_schema
from tests.sparks import configured

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])  # type: ignore[arg-type] # one type only


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    with configured(spark, {"spark.sql.shuffle.partitions": "1"}):
        yield spark


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return kubothek.open((tmp_path / "lake").as_uri())


@pytest.fixture
def dataset(lake: Lake) -> Dataset:
    dataset = lake.create_dataset("t", schema=SCHEMA)
    dataset.append(table(0, 4))
    return dataset


def table(first: int, rows: int) -> pa.Table:
    numbers = range(first, first + rows)
    return pa.table({"id": list(numbers), "name": [f"n{n}" for n in numbers]}, schema=SCHEMA)


def ids(dataset: Dataset) -> list[Any]:
    return sorted(dataset.scan(columns=["id"]).read_all().column("id").to_pylist())


def source(session: SparkSession, lake: Lake, uuid: str = "t", **options: Any) -> DataFrame:
    return session.readStream.format("kubothek").options(path=lake.store.url, uuid=uuid, **options).load()


def copy(rows: DataFrame, lake: Lake, checkpoint: Path, uuid: str = "copy") -> StreamingQuery:
    """Write one batch, and stop."""
    started = (
        rows.writeStream.format("kubothek")
        .options(path=lake.store.url, uuid=uuid, checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    started.awaitTermination()
    return started


# Through Spark.


def test_spark_stream_copies_each_row_once_after_crashes(
    session: SparkSession, lake: Lake, dataset: Dataset, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    first = copy(source(session, lake), lake, checkpoint)
    into = lake.dataset("copy")
    assert ids(into) == list(range(4))
    assert next(iter(into.history())).id == f"{first.id}:0"
    dataset.append(table(4, 2))
    copy(source(session, lake), lake, checkpoint)
    # The driver ends after the commit and before Spark notes it: the batch runs again.
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    dataset.append(table(6, 2))
    copy(source(session, lake), lake, checkpoint)
    assert ids(into) == list(range(6)), "this trigger makes one batch, and it was the one that runs again"
    copy(source(session, lake), lake, checkpoint)
    assert ids(into) == list(range(8))
    assert [record.id for record in into.history() if record.operation == "Append"] == [
        f"{first.id}:{batch}" for batch in (2, 1, 0)
    ]
    named = {file.key for record in into.history() for file in record.delta.added}
    stored = {info.key for info in lake.store.list("copy/table/") if info.key.endswith(".parquet")}
    assert stored == named, "the second try left no file"


def test_spark_stream_that_dies_before_its_commit_writes_batch_again(
    session: SparkSession, lake: Lake, dataset: Dataset, tmp_path: Path
) -> None:
    into = lake.create_dataset("copy", schema=pa.schema([("id", pa.string())]))
    with pytest.raises(StreamingQueryException, match="SchemaMismatch"):
        copy(source(session, lake), lake, tmp_path / "checkpoint")
    assert json.loads((tmp_path / "checkpoint/offsets/0").read_text().splitlines()[2]) == {"version": 2}
    dataset.append(table(4, 2))
    into.overwrite(pa.table({"id": [-1], "name": ["x"]}), allow_schema_change=True)
    for expected in ([-1, *range(4)], [-1, *range(6)]):  # this trigger makes one batch, first the one that failed
        copy(source(session, lake), lake, tmp_path / "checkpoint")
        assert ids(into) == expected


def test_spark_stream_in_complete_mode_replaces_all_rows(
    session: SparkSession, lake: Lake, dataset: Dataset, tmp_path: Path
) -> None:
    for more in (4, 8):
        counts = source(session, lake).groupBy().count()
        started = (
            counts.writeStream.format("kubothek")
            .options(path=lake.store.url, uuid="counts", checkpointLocation=str(tmp_path / "checkpoint"))
            .outputMode("complete")
            .trigger(availableNow=True)
            .start()
        )
        started.awaitTermination()
        assert lake.dataset("counts").scan().read_all().column("count").to_pylist() == [more]
        dataset.append(table(more, 4))


# The versions that a stream reads.


def files(dataset: Dataset, after: int) -> int:
    return len(new_files(dataset, after, dataset.version))


def reader(lake: Lake, **options: str) -> StreamReader:
    given = {"path": lake.store.url, "uuid": "t", **options}
    return StreamReader(ReadOptions.of(given, stream=True), spark_schema(SCHEMA))


def rows(reader: StreamReader, start: int, end: int) -> list[Any]:
    found = [batch for part in reader.partitions({"version": start}, {"version": end}) for batch in reader.read(part)]
    return sorted(number for batch in found for number in batch.column("id").to_pylist())


def test_spark_stream_begins_with_all_rows_or_a_version(lake: Lake, dataset: Dataset) -> None:
    dataset.delete("id < 2", row_level=True)
    dataset.append(table(4, 2))
    everything, later = reader(lake), reader(lake, startingVersion="4")
    assert everything.initialOffset() == {"version": 0}
    assert everything.latestOffset({"version": 0}, None) == {"version": 4}
    assert rows(everything, 0, 4) == [2, 3, 4, 5]
    assert rows(later, later.initialOffset()["version"], 4) == [4, 5]
    assert rows(later, 4, 4) == []
    assert rows(reader(lake, where="id = 5"), 3, 4) == [5]


def test_spark_stream_skips_compactions_and_reads_what_they_replaced(lake: Lake, dataset: Dataset) -> None:
    dataset.append(table(4, 2))
    dataset.append(table(6, 2))
    dataset.compact()
    dataset.tag("kept")
    dataset.append(table(8, 1))
    assert rows(reader(lake), 2, dataset.version) == [4, 5, 6, 7, 8]


def test_spark_stream_names_the_commit_that_removed_rows(lake: Lake, dataset: Dataset) -> None:
    dataset.overwrite(table(4, 2))
    with pytest.raises(InputError, match=r"version 3 of 't' removed rows.*startingVersion 4.*readChangeFeed"):
        reader(lake).partitions({"version": 2}, {"version": 3})


def test_spark_stream_behind_expired_versions_fails(lake: Lake, dataset: Dataset) -> None:
    for more in range(4):
        dataset.append(table(4 + more, 1))
    dataset.delete("id = 0", row_level=True, purge=True)
    dataset.append(table(20, 1))
    with pytest.raises(VersionNotFound, match=r"since version 2 have expired.*new checkpoint"):
        reader(lake).partitions({"version": 2}, {"version": dataset.version})
    assert files(dataset, dataset.version - 1) == 1


def test_spark_stream_names_files_that_are_gone(lake: Lake, dataset: Dataset) -> None:
    dataset.append(table(4, 2))
    added = new_files(dataset, 2, 3)
    dataset.compact()
    require_no_loss(dataset, added)
    lake.store.delete(added[:1])
    with pytest.raises(VersionIncomplete, match="1 files that commits added"):
        reader(lake).partitions({"version": 2}, {"version": dataset.version})


def test_spark_stream_of_a_dataset_made_again_fails(lake: Lake, dataset: Dataset) -> None:
    with pytest.raises(VersionNotFound, match="was deleted and made again"):
        latest_version(dataset, 7)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"versionAsOf": "2"}, "unknown option 'versionAsOf'"),
        ({"startingVersion": "0"}, "from 1"),
        ({"startingVersion": "first"}, "from 1"),
    ],
)
def test_spark_stream_options_that_do_not_fit_are_refused(lake: Lake, options: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        reader(lake, **options)
