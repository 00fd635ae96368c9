"""Tasks of writes that run more than once: after failures, after their worker has died, and as speculative copies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

import kubothek
from kubothek.catalog import Dataset, Lake
from kubothek.spark.datasource import KubothekSource
from kubothek.spark.options import WriteOptions
from kubothek.spark.sink import BatchWriter, Wrote
from kubothek.spark.types import spark_schema

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64())])
OLD = datetime.now(UTC) - timedelta(days=30)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return kubothek.open(tmp_path.as_uri())


@pytest.fixture
def dataset(lake: Lake) -> Dataset:
    return lake.create_dataset("t", schema=SCHEMA)


def table(first: int, rows: int) -> pa.Table:
    return pa.table({"id": list(range(first, first + rows))}, schema=SCHEMA)


def ids(dataset: Dataset) -> list[Any]:
    return sorted(dataset.scan(columns=["id"]).read_all().column("id").to_pylist())


def collected(lake: Lake, dataset: Dataset) -> int:
    """The number of data files that a collection deletes when all that is there is old; the rows stay."""
    before = ids(dataset)
    for path in Path(urlsplit(lake.store.url).path, "t", "table").glob("*.parquet"):
        os.utime(path, (OLD.timestamp(), OLD.timestamp()))
    found = dataset.collect(enforce=True).deleted
    assert ids(dataset) == before
    return sum(count.objects for count in found.values())


class DyingWriter(BatchWriter):
    """A writer whose second task writes its file; its worker then dies before it answers, at the first attempt."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Wrote:
        wrote = super().write(iterator)
        task = TaskContext.get()
        if task is not None and task.partitionId() == 1 and task.attemptNumber() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return wrote


class DyingSource(KubothekSource):
    """The format with that writer."""

    @classmethod
    def name(cls) -> str:
        return "kubothek_dying"

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return DyingWriter(WriteOptions.of(self.options, overwrite=overwrite), schema)


def test_spark_tasks_that_fail_once_write_each_row_once(session: SparkSession, lake: Lake, dataset: Dataset) -> None:
    def fails_once(number: int) -> int:
        task = TaskContext.get()
        if number == 1 and task is not None and task.attemptNumber() == 0:
            raise ValueError("this attempt fails")
        return number

    session.dataSource.register(DyingSource)
    rows = session.range(0, 8, 1, 2).select(sf.udf(fails_once, "long")("id").alias("id"))  # 0 to 3 in the first task
    rows.write.format("kubothek_dying").mode("append").options(path=lake.store.url, uuid="t").save()
    assert ids(dataset) == list(range(8))
    assert dataset.version == 2
    assert collected(lake, dataset) == 1, "the file of the worker that died"


def test_spark_speculative_copies_of_a_task_count_once(lake: Lake, dataset: Dataset) -> None:
    options = WriteOptions.of({"path": lake.store.url, "uuid": "t"}, overwrite=False)
    writer = BatchWriter(options, spark_schema(SCHEMA))

    def attempt(first: int) -> Wrote:
        return writer.write(iter(table(first, 4).to_batches()))

    with ThreadPoolExecutor(3) as pool:
        one, copy, other = pool.map(attempt, (0, 0, 4))
    writer.commit([copy, other])
    late = attempt(4)  # one that ends after the commit
    assert {file.key for file in one.files}.isdisjoint(file.key for file in copy.files)
    assert ids(dataset) == list(range(8))
    assert collected(lake, dataset) == len(one.files) + len(late.files) == 2
