"""Merges by key with Spark: they give the rows of a merge in one process, once, or leave the dataset as it was."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import kubothek
from kubothek.api.jobs import ExitCode
from kubothek.catalog import Dataset, Lake
from kubothek.errors import Conflict, DuplicateKeys, InputError, OwnedByAnother, RowsLost, SchemaMismatch
from kubothek.spark import merge, merge_tasks, merging
from kubothek.storage import open_store
from kubothek.table.log import Change, Claim, DatasetLog, Operation
from kubothek.table.log.model.writers import Grant
from kubothek.table.skipping.model import IndexDefinition
from tests.faultstore import Crash, Fault, FaultStore
from tests.jobs.conftest import Here, with_spark
from tests.jobs.test_operations import FIRST, TABLE, job
from tests.sampling import SOAK, sampled
from tests.sparks import configured
from tests.table.operations.test_merge_histories import TYPES, clauses, counted, some_rows

pytestmark = pytest.mark.spark

HISTORIES, ONE_IN = 100, 50
FIELDS: dict[str, pa.DataType] = {"p": pa.int64(), "id": pa.int64(), "name": pa.string()}
SCHEMA = pa.schema(FIELDS)
UPSERT: dict[str, Any] = {"key": "id", "when_matched": "Update", "when_not_matched": "Insert"}


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    with configured(spark, {"spark.sql.shuffle.partitions": "2"}):
        yield spark


@pytest.fixture(autouse=True)
def _one_file_per_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tasks rewrite files of even a small table."""
    monkeypatch.setattr(merging, "FILES_A_TASK", 1)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return kubothek.open(tmp_path.as_uri())


@pytest.fixture
def dataset(lake: Lake) -> Dataset:
    """A dataset of 5 rows in two partitions, with an index and skipping metadata."""
    dataset = lake.create_dataset("t", ["p"], SCHEMA, indices=["name"], skipping=IndexDefinition("MinMax", ("id",)))
    dataset.append(rows((1, 1, "a"), (1, 2, "b"), (2, 3, "c"), (2, None, "d")))
    dataset.append(rows((2, 4, "e")))
    return dataset


def rows(*found: tuple[int, int | None, str]) -> pa.Table:
    p, ids, names = zip(*found, strict=True)
    columns: dict[str, Any] = {"p": p, "id": ids, "name": names}
    return pa.table(columns, schema=SCHEMA)


def there(dataset: Dataset) -> list[tuple[Any, ...]]:
    found = dataset.scan(["p", "id", "name"]).read_all().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def objects(lake: Lake) -> set[str]:
    return {info.key for info in lake.store.list("t/")}


def frame(session: SparkSession, table: pa.Table) -> DataFrame:
    """The rows of the table, in two tasks."""
    return session.createDataFrame(table).repartition(2)


NEW = rows((1, 2, "new"), (3, 3, "moved"), (4, 9, "added"), (2, None, "null"))
AFTER = [(1, 1, "a"), (1, 2, "new"), (2, 4, "e"), (2, None, "d"), (2, None, "null"), (3, 3, "moved"), (4, 9, "added")]


def test_spark_merge_updates_moves_and_inserts_rows_once(session: SparkSession, lake: Lake, dataset: Dataset) -> None:
    untouched = set(dataset.snapshot().head.files().values())
    done = merge(frame(session, NEW), lake.store.url, "t", id="load", **UPSERT)
    assert there(dataset) == AFTER
    record = next(iter(dataset.history()))
    assert (record.operation, record.by, record.version) == ("Merge", "spark", done.version)
    assert len(untouched - {key for _, key in record.delta.removed}) == 1, "the file of id 4 has no match"
    assert all(file.sha3 for file in record.delta.added)
    assert len(dataset.plan("name = 'moved'").files) == 1, "the index knows the new rows"
    assert len(dataset.plan("id = 9").files) == 1, "the skipping metadata, too"
    again = merge(frame(session, NEW), lake.store.url, "t", id="load", **UPSERT)
    assert again.version == done.version == dataset.merge(NEW, id="load", **UPSERT).version


@pytest.mark.slow
@pytest.mark.parametrize("seed", sampled(range(HISTORIES), ONE_IN))
def test_spark_random_merges_equal_those_of_one_process(session: SparkSession, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    partition_on = draw.choice([["p"], []])
    lake = kubothek.open(tmp_path)
    here, there_ = (lake.create_dataset(name, partition_on) for name in ("here", "there"))
    before = some_rows(draw, 12, TYPES)
    for dataset in (here, there_):
        dataset.append(before.slice(0, 6))
        dataset.append(before.slice(6))
    for _ in range(3 if SOAK else 1):
        key = draw.choice([("id",), ("p", "id")])
        chosen = clauses(draw)
        source = some_rows(draw, draw.randrange(1, 10), TYPES, unique=True)
        here.merge(source, key=key, **chosen)
        merge(frame(session, source), lake.store.url, "there", key=key, **chosen)
        assert counted(here.scan().read_all()) == counted(there_.scan().read_all()), (key, chosen, source.to_pylist())


# Refusals, before any file.


def test_spark_merge_that_cannot_succeed_writes_no_object(session: SparkSession, lake: Lake, dataset: Dataset) -> None:
    DatasetLog(lake.store, "t").settle()
    before = objects(lake)
    twice = pa.concat_tables([NEW, rows((3, 2, "again"))])
    halves = NEW.set_column(1, "id", pa.array([1.0, 2.5, 3.0, None]))
    refused: list[tuple[pa.Table, dict[str, Any], type[Exception], str]] = [
        (twice, UPSERT, DuplicateKeys, "id = 2"),
        (halves, UPSERT, SchemaMismatch, r"2\.5"),
        (NEW, UPSERT | {"key": "none"}, InputError, "'none'"),
        (NEW, UPSERT | {"on_conflict": "Ignore"}, InputError, "on_conflict is 'Ignore'"),
    ]
    for source, fields, error, says in refused:
        with pytest.raises(error, match=says):
            merge(frame(session, source), lake.store.url, "t", **fields)
        assert not {key for key in objects(lake) - before if key.endswith(".parquet")}
    assert dataset.version == 3


def test_spark_merge_into_owned_dataset_needs_a_grant(session: SparkSession, lake: Lake, dataset: Dataset) -> None:
    claim = Claim("c/ns/t", "1", adopts=True)
    log = DatasetLog(lake.store, "t", claim=claim)
    log.settle()
    grant = Grant.of(claim.owner, claim.incarnation, {"etl": ["Merge"]}.items())
    log.begin_new("writers").commit(Change(operation=Operation.LAYOUT, grant=grant, by=claim.owner))
    before = objects(lake)
    with pytest.raises(OwnedByAnother, match="c/ns/t"):
        merge(frame(session, NEW), lake.store.url, "t", writer="other", **UPSERT)
    assert objects(lake) == before
    merge(frame(session, NEW), lake.store.url, "t", writer="etl", **UPSERT)
    assert there(dataset) == AFTER
    assert next(iter(dataset.history())).by == "etl"


# Failures and races.


class DiesOnce(merge_tasks.RewriteBundles):
    """The first attempt of each task writes its files, and then its process ends."""

    def run(self, batches: merge_tasks.Batches) -> Iterator[pa.RecordBatch]:
        for batch in super().run(batches):
            task = TaskContext.get()
            assert task is not None
            if task.attemptNumber() == 0:
                os._exit(1)
            yield batch


def test_spark_merge_repeats_tasks_of_processes_that_end(
    session: SparkSession, lake: Lake, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_tasks, "RewriteBundles", DiesOnce)
    merge(frame(session, NEW), lake.store.url, "t", **UPSERT)
    assert there(dataset) == AFTER
    named = {file.key for record in dataset.history() for file in record.delta.added}
    stored = {key for key in objects(lake) if key.startswith("t/table/") and key.endswith(".parquet")}
    assert stored - named, "files of the first attempts are left to the collector"


def test_spark_merge_that_loses_source_rows_commits_nothing(
    session: SparkSession, lake: Lake, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = merging.SparkSource.merge

    def merged(self: merging.SparkSource, *given: Any) -> Any:
        return real(replace(self, rows=self.rows.limit(1)), *given)

    monkeypatch.setattr(merging.SparkSource, "merge", merged)
    with pytest.raises(RowsLost, match="4 rows were read to merge into 't'"):
        merge(frame(session, NEW), lake.store.url, "t", **UPSERT)
    assert dataset.version == 3


def test_spark_merge_that_crashes_at_its_commit_is_made_once(
    session: SparkSession, lake: Lake, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(store: FaultStore, commit_id: str) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(kubothek, "open", lambda *_, **__: Lake(store))
            merge(frame(session, NEW), lake.store.url, "t", id=commit_id, **UPSERT)

    faults = [Fault(calls=("put_if_match",), key="by-dataset-metadata", after=after) for after in (False, True)]
    for number, fault in enumerate(faults):
        dataset.rollback(3)
        with pytest.raises(Crash):
            run(FaultStore(open_store(lake.store.config), fault), f"load-{number}")
        merge(frame(session, NEW), lake.store.url, "t", id=f"load-{number}", **UPSERT)
        assert there(dataset) == AFTER, fault
    assert [record.id for record in dataset.history() if record.operation is Operation.MERGE] == ["load-1", "load-0"]


def test_spark_merge_conflicts_with_commits_of_its_rows_only(
    session: SparkSession, lake: Lake, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = merging.SparkSource.merge

    def run(rival: pa.Table, **fields: Any) -> None:
        def merged(self: merging.SparkSource, *given: Any) -> Any:
            monkeypatch.setattr(merging.SparkSource, "merge", real)
            done = real(self, *given)
            dataset.upsert(rival, key="id")
            return done

        monkeypatch.setattr(merging.SparkSource, "merge", merged)
        merge(frame(session, NEW), lake.store.url, "t", **UPSERT, **fields)

    run(rows((1, 77, "other")))
    assert there(dataset) == sorted([*AFTER, (1, 77, "other")], key=repr)
    with pytest.raises(Conflict, match="changed while this Merge ran"):
        run(rows((1, 2, "rival")))
    assert (1, 2, "rival") in there(dataset)
    dataset.delete("id = 9", row_level=True)
    with pytest.raises(Conflict, match="rows were added or removed that have keys"):
        run(rows((1, 9, "rival")))
    run(rows((1, 2, "again")), on_conflict="Retry")
    assert {(1, 2, "new"), (4, 9, "added")} <= set(there(dataset))


# Jobs.


def test_merge_job_above_spark_from_gives_rows_of_small_one(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields: dict[str, Any] = {
        "key": ["v"],
        "when_matched": [{"action": "Update"}],
        "when_not_matched": [{"action": "Insert"}],
    }
    found = []
    for spark in (False, True):
        here = Here(tmp_path / str(spark))
        here.put("first.csv", FIRST)
        here.commit("first.csv", commit_id="first", table=TABLE)
        here.put("new.csv", "p,v,w\n1,10,new\n2,99,added\n")
        here.put("twice.csv", "p,v,w\n1,10,a\n1,10,b\n")
        here.put("wrong.csv", "p,v,w\n1,10,a\n1,x,b\n")
        if spark:
            with_spark(here, session, monkeypatch)
        result, code = here.run(job(here, "Merge", "new.csv", **fields))
        assert code == ExitCode.DONE, result
        refused = [here.run(job(here, "Merge", name, commit_id=name, **fields)) for name in ("twice.csv", "wrong.csv")]
        assert [code for _, code in refused] == [ExitCode.INVALID] * 2
        found.append((here.rows("v"), result.message, [(result.reason, result.message) for result, _ in refused]))
        assert here.sessions == (3 if spark else 0)
    assert found[0] == found[1]
    assert Counter(reason for reason, _ in found[1][2]) == Counter(["DuplicateKeys", "DataTypeMismatch"])
