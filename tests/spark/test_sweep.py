"""Garbage collection with Spark: the same as in one process; what a task finds wrong arrives as it was raised."""

from __future__ import annotations

import os
import shutil
import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kubothek.catalog import Lake
from kubothek.errors import ObjectNotFound, StoreError
from kubothek.gc import Collection, Kind, Mode, Retention, collect
from kubothek.gc.areas import Turn
from kubothek.gc.plan import Part, Sweep
from kubothek.spark.sweep import spread_with_spark
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.storage.parallel import Spread
from kubothek.table.log import DatasetLog, StoreSettings

pytestmark = pytest.mark.spark


def aged(root: Path) -> Store:
    """Five versions of a table of three partitions and an index, and litter; three days old."""
    root.mkdir()
    store = open_store(StoreConfig(root.as_uri()))
    letters = Lake(store).create_dataset("letters", ["part"], indices=["n"])
    for n in range(4):
        letters.overwrite(pa.table({"part": [1, 2, 3], "n": [n, n + 10, n + 20]}))
    for n in range(20):
        store.put(f"letters/table/part={n % 5}/litter-{n}.parquet", b"x" * n)
    grow_old(root)
    return store


def grow_old(root: Path) -> None:
    before = time.time() - timedelta(days=3).total_seconds()
    for path in root.rglob("*"):
        if path.is_file():
            os.utime(path, (before, before))


def swept(store: Store, spread: Spread | None = None) -> Collection:
    log = DatasetLog(store, "letters")
    return collect(store, log, [Retention(versions=2)], mode=Mode.ENFORCE, spread=spread)


def names(store: Store) -> list[str]:
    """Everything but what a collection itself leaves, whose names are random."""
    own = (".kubothek/letters/gc/", ".kubothek/letters/commits/", ".kubothek/letters/applied/")
    return [info.key for info in store.list("") if not info.key.startswith(own)]


def test_spark_collection_equals_collection_in_process(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubothek.gc.listing.RANGE_KEYS", 4)
    first = aged(tmp_path / "first")
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    grow_old(tmp_path / "second")
    second = open_store(StoreConfig((tmp_path / "second").as_uri()))
    heard: list[tuple[int, int]] = []
    here = swept(first)
    there = swept(second, spread_with_spark(session, second.config, lambda done, total: heard.append((done, total))))
    assert there.deleted == here.deleted == here.found
    assert there.deleted[Kind.DATA].objects == 20 + 6
    assert names(second) == names(first)
    table = Lake(second).dataset("letters")
    assert table.scan(where="n = 13").read_all()["n"].to_pylist() == [13]
    assert set(table.scan(as_of=4).read_all()["n"].to_pylist()) == {2, 12, 22}
    assert all(done <= total for done, total in heard)
    assert not swept(second, spread_with_spark(session, second.config)).found


def test_spark_sweep_tasks_check_head_and_grace_period_before_deleting(session: SparkSession, tmp_path: Path) -> None:
    """The head is another one, and the store's grace period is not what it was."""
    store = aged(tmp_path / "lake")
    plan = collect(store, DatasetLog(store, "letters"), [Retention(versions=2)], keeps_plan=True).plan
    assert plan is not None
    parts = [Part(info.key, Turn.FILES) for info in store.list(plan.removesuffix(".json") + "-3-")]
    etag = store.stat("letters.by-dataset-metadata.json").etag
    spread = spread_with_spark(session, store.config)
    longer = StoreSettings(timedelta(days=2))
    assert [each.moved for each in spread(Sweep("letters", etag, False, longer, frozenset()), parts, "")] == [True]
    Lake(store).dataset("letters").append(pa.table({"part": [1], "n": [5]}))
    before = names(store)
    final = Sweep("letters", etag, True, StoreSettings(), frozenset())
    assert [(each.moved, each.deleted) for each in spread(final, parts, "")] == [(True, {})]
    assert names(store) == before
    ours = Sweep("letters", etag, False, StoreSettings(), frozenset())
    assert [each.moved for each in spread(ours, parts, "")] == [False]
    assert len(names(store)) < len(before)


def test_spark_sweep_raises_error_of_task(session: SparkSession, tmp_path: Path) -> None:
    store = aged(tmp_path / "lake")
    sweep = Sweep("letters", "", False, StoreSettings(), frozenset())
    with pytest.raises(ObjectNotFound, match="absent"):
        spread_with_spark(session, store.config)(sweep, [Part("absent", Turn.FILES)], "sweep")
    gone = StoreConfig((tmp_path / "gone").as_uri())
    with pytest.raises(StoreError, match="gone"):
        swept(store, spread_with_spark(session, gone))
    assert len(names(store)) == len(names(aged(tmp_path / "again")))


def test_spark_sweep_without_parts_needs_no_store(session: SparkSession, tmp_path: Path) -> None:
    sweep = Sweep("letters", "", False, StoreSettings(), frozenset())
    assert spread_with_spark(session, StoreConfig((tmp_path / "gone").as_uri()))(sweep, [], "sweep") == []
