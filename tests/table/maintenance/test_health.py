"""Health: counted right, from records, whatever became of the table."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from kubothek.catalog import Dataset, Lake
from kubothek.storage import Store
from kubothek.table.bucketing import Bucketing
from kubothek.table.log import PartitionFile
from kubothek.table.maintenance.grouping import Thresholds, bundles, most_small
from kubothek.table.maintenance.health import _histogram
from tests.faultstore import FaultStore
from tests.table.maintenance.table import ROWS
from tests.table.operations.table import flights, labels, rows


def test_health_counts_files_partitions_versions_and_bytes(table: Dataset, store: Store) -> None:
    found = table.health()
    sizes = [store.stat(key).size for key in labels(table).values()]
    assert (found.version, found.totals.rows, found.totals.files, found.totals.partitions) == (5, len(ROWS), 9, 3)
    assert found.totals.bytes == sum(sizes)
    assert (found.small.files, found.small_share, found.versions) == (9, 1.0, 5)
    assert (found.history.files, found.history.bytes) == (0, 0)
    assert [step.files for step in found.histogram] == [9, 0, 0, 0, 0, 0, 0]


def test_health_counts_compacted_files_as_history(table: Dataset, store: Store) -> None:
    before = labels(table)
    table.compact()
    gone = [key for label, key in before.items() if label not in labels(table)]
    found = table.health()
    assert (found.history.files, found.history.bytes) == (8, sum(store.stat(key).size for key in gone))
    assert (found.totals.files, found.versions) == (3, 6)
    table.rollback(5)
    found = table.health()
    assert (found.totals.files, found.history.files, found.versions) == (9, 2, 7)


def test_health_reads_no_data_and_lists_only_commit_records(table: Dataset, store: Store) -> None:
    counting = FaultStore(store)
    Dataset(Lake(counting), "flights").health()
    listed = {call.key for call in counting.calls if call.name.startswith("list")}
    assert listed <= {".kubothek/flights/commits/"}
    assert not [call for call in counting.calls if "/table/" in call.key]


def test_health_measures_files_without_record(table: Dataset, store: Store) -> None:
    expected = table.health()
    records = [record.key for record in table.history()]
    store.delete(records[2:])
    found = Dataset(Lake(store), "flights").health()
    assert (found.totals, found.small, found.versions) == (expected.totals, expected.small, 2)
    assert table.compact().removed.files == 8
    assert rows(table) == ROWS


def test_health_histogram_counts_each_file_once() -> None:
    sizes = [0, (64 << 10) - 1, 64 << 10, 1 << 20, 1 << 40]
    steps = list(_histogram(pa.array(sizes, pa.int64())))
    assert [step.files for step in steps] == [2, 1, 1, 0, 0, 0, 1]
    assert sum(step.bytes for step in steps) == sum(sizes)


def test_health_of_empty_table_has_no_small_files(store: Store) -> None:
    dataset = Lake(store).create_dataset("flights", ["month"])
    assert dataset.health().small_share == 0.0
    dataset.append(flights((1, "AA", 1)))
    assert dataset.health().small_share == 1.0


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("count", [None, 1, 3])
def test_health_count_of_small_files_equals_compaction_threshold(seed: int, count: int | None) -> None:
    chance = random.Random(seed)
    bucketing = None if count is None else Bucketing((("x", pa.int64()),), count)
    files = []
    for number in range(chance.randrange(30)):
        mark = bucketing.mark(chance.randrange(bucketing.count)) if bucketing and chance.random() < 0.9 else ""
        label = f"p={chance.randrange(4)}/{number}{mark}"
        files.append(PartitionFile(label, f"u/table/{label}.parquet", 1, chance.choice((1, 1, 1000))))
    labels = pa.array([file.label for file in files], pa.string())
    places = pa.array([file.key.rpartition("/")[0] for file in files], pa.string())
    found = most_small(labels, places, pa.array([file.bytes < 50 for file in files], pa.bool_()), bucketing)
    assert found == 0 or bundles(files, bucketing, Thresholds(target_bytes=100, min_files=found))
    assert not bundles(files, bucketing, Thresholds(target_bytes=100, min_files=max(2, found + 1)))
