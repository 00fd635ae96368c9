"""Skipping metadata made by Spark's tasks: as one process makes it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kubothek import tracing
from kubothek.catalog import Lake
from kubothek.ingest import Ingest, SourceReader
from kubothek.ingest.model import Format, Source
from kubothek.spark.compact import compact_with_spark
from kubothek.spark.skipping import describe_with_spark
from kubothek.spark.write import READ_TASK_BYTES, write_with_spark
from kubothek.storage import StoreConfig, open_store
from kubothek.table.layout import Layout
from kubothek.table.log import DatasetLog, Transaction
from kubothek.table.log.update_skipping import reskip, undescribed
from kubothek.table.maintenance import CompactionRequest, compact
from kubothek.table.operations import Written, append
from kubothek.table.operations.written import Gathering
from kubothek.table.skipping.model import IndexDefinition, SkippingState
from kubothek.tracing import Ended, RunTrace

pytestmark = pytest.mark.spark
TYPES: list[pa.Field[Any]] = [pa.field("part", pa.int64()), pa.field("n", pa.int64()), pa.field("word", pa.string())]
DEFINITIONS = SkippingState((IndexDefinition("MinMax", ("n",)), IndexDefinition("BloomFilter", ("word",))))


def test_spark_write_tasks_describe_written_files(session: SparkSession, tmp_path: Path) -> None:
    """More tasks than there shall be parts."""
    (tmp_path / "lake").mkdir()
    store = open_store(StoreConfig((tmp_path / "lake").as_uri()))
    table = Lake(store).create_dataset("t", ["part"], pa.schema(TYPES), skipping=DEFINITIONS.indices)
    for number in range(12):
        numbers = [number * 3 + row for row in range(3)]
        rows: dict[str, list[Any]] = {"part": [number] * 3, "n": numbers, "word": [f"w{number}"] * 3}
        pq.write_table(pa.table(rows), tmp_path / f"{number}.parquet")
    names = tuple(f"{number}.parquet" for number in range(12))
    source = Source(Format.PARQUET, StoreConfig(tmp_path.as_uri()), paths=names)
    started = DatasetLog(store, "t").begin("write", "")
    assert isinstance(started, Transaction)
    stored = pa.schema(TYPES)
    with SourceReader(source) as reader:
        ingest = Ingest(
            source=source,
            plan=reader.plan(),
            reading=stored,
            store=store.config,
            uuid="t",
            table="table",
            stored=stored,
            layout=Layout.of(started.snapshot.head),
            gathering=Gathering.of(started.snapshot, stored),
        )
        gatherer, told = ingest.gatherer(store), list[Ended]()
        with tracing.started(told.append), tracing.process("job", RunTrace("a run").attempt(1)):
            files = write_with_spark(session, ingest, reader, lambda done, tasks, rows: None, gatherer)
    *tasks, job = told
    assert {task.parent for task in tasks} == {job.place.span}, "tasks are parts of what is under way in the driver"
    assert Counter(task.name for task in tasks)["read"] == len(ingest.plan.bundles(READ_TASK_BYTES))
    assert {task.name for task in tasks} == {"read", "write"}
    assert all(job.begin <= task.begin <= task.end <= job.end for task in tasks)
    started.commit(append(Written(tuple(files), stored, ("part",), gathered=gatherer.finish())))
    assert len(table.snapshot().head.partitions) == 12
    assert undescribed(store, table.snapshot()) == 0
    assert len(table.snapshot().head.skipping.parts) <= 8
    for where in ("n = 17", "word = 'w5'"):
        assert dict(table.plan(where).steps)["skipping metadata"] == 1
    assert table.scan(["n"], "word = 'w5'").read_all()["n"].to_pylist() == [15, 16, 17]


def test_spark_tasks_describe_existing_and_compacted_files(session: SparkSession, tmp_path: Path) -> None:
    store = open_store(StoreConfig(tmp_path.as_uri()))
    table = Lake(store).create_dataset("t", partition_on=["part"])
    for number in range(3):
        parts = range(12)
        data = {"part": parts, "n": [number * 100 + part for part in parts], "word": [f"w{number}-{p}" for p in parts]}
        table.append(pa.table(data))
    log = DatasetLog(store, "t")
    done = reskip(store, log, DEFINITIONS, build=describe_with_spark(session))
    assert (done.described, done.missing) == (36, 0)
    for where in ("n = 105", "word = 'w2-7'"):
        assert dict(table.plan(where).steps)["skipping metadata"] == 1
    compact(store, log, CompactionRequest(), commit_id="one", digest="", compactor=compact_with_spark(session))
    assert len(table.snapshot().head.partitions) == 12
    assert undescribed(store, table.snapshot()) == 0
    assert dict(table.plan("word = 'w2-7'").steps)["skipping metadata"] == 1
    assert table.scan(["n"], "word = 'w2-7'").read_all()["n"].to_pylist() == [207]
