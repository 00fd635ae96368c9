"""Compaction with Spark: the same as in one process; what a task finds wrong arrives as it was raised."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kubothek.catalog import Dataset, Lake
from kubothek.errors import VersionIncomplete
from kubothek.spark.compact import compact_with_spark
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.clustering import Clustering
from kubothek.table.log import DatasetLog
from kubothek.table.maintenance import CompactionRequest, compact
from tests.table.log.hashes import require_hashes
from tests.table.maintenance.table import ROWS, files_of, filled
from tests.table.operations.table import labels, rows

pytestmark = pytest.mark.spark


@pytest.fixture
def store(tmp_path: Path) -> Store:
    root = tmp_path / "lake"
    root.mkdir()
    return open_store(StoreConfig(root.as_uri()))


def test_spark_compaction_equals_compaction_in_process(session: SparkSession, store: Store) -> None:
    table = filled(Lake(store), indices={"carrier": "Native"})
    heard: list[tuple[int, int]] = []
    compactor = compact_with_spark(session, lambda done, total: heard.append((done, total)))
    log = DatasetLog(store, "flights")
    done = compact(store, log, CompactionRequest(), commit_id="one", digest="", compactor=compactor)
    assert (done.version, done.removed.files, done.added.files) == (6, 8, 2)
    assert set(files_of(table).values()) == {1}
    assert rows(table) == ROWS
    assert dict(table.plan("carrier = 'A2'").steps)["secondary indices"] == 1
    assert not log.inspect().problem
    require_hashes(log)
    assert all(total == 2 for _, total in heard)


def test_spark_compaction_with_clustering_sorts_rows(session: SparkSession, store: Store) -> None:
    table = filled(Lake(store))
    request = CompactionRequest(clustering=Clustering(("delay", "carrier"), curve=True))
    log = DatasetLog(store, "flights")
    compactor = compact_with_spark(session)
    done = compact(store, log, request, commit_id="one", digest="", compactor=compactor)
    assert (done.removed.files, done.added.files) == (8, 2)
    assert rows(table) == ROWS
    assert compact(store, log, request, commit_id="two", digest="", compactor=compactor).version is None


def test_spark_compaction_raises_error_of_task(session: SparkSession, store: Store) -> None:
    table = filled(Lake(store))
    store.delete([next(key for label, key in labels(table).items() if label.startswith("month=2"))])
    with pytest.raises(VersionIncomplete, match="a file that the version needs no longer exists"):
        compact(
            store,
            DatasetLog(store, "flights"),
            CompactionRequest(),
            commit_id="one",
            digest="",
            compactor=compact_with_spark(session),
        )
    assert Dataset(Lake(store), "flights").version == 5
