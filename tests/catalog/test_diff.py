"""What lies between two versions."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import kubothek
from kubothek.catalog import Dataset, Lake
from kubothek.errors import VersionNotFound
from kubothek.table.log import Change, DatasetLog, Operation, Transaction, compare
from kubothek.table.log.compare import Difference, PartitionChange


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return kubothek.open(tmp_path.as_uri())


@pytest.fixture
def flights(lake: Lake) -> Dataset:
    """Versions: 1 empty, 2 months 1 and 2, 3 month 2 again, 4 without month 1."""
    flights = lake.create_dataset("flights", ["month"], {"month": "int64", "delay": "int64"})
    flights.append(pa.table({"month": [1, 1, 2], "delay": [1, 2, 3]}))
    flights.append(pa.table({"month": [2, 2], "delay": [4, 5]}))
    remove(flights, "month=1")
    return flights


def remove(dataset: Dataset, directory: str) -> None:
    """Commit that the files below a directory are gone."""
    started = DatasetLog(dataset._store, dataset.name).begin(f"remove {directory}", "digest")
    assert isinstance(started, Transaction)
    labels = [label for label, key in started.snapshot.head.files().items() if f"/{directory}/" in key]
    started.commit(Change(operation=Operation.DELETE, removed=tuple(labels)))


def partitions(dataset: Dataset, before: int, after: int | None = None) -> list[tuple[str, int, int, object, object]]:
    found = dataset.diff(before, after).partitions
    return [(c.path, c.files_added, c.files_removed, c.rows_added, c.rows_removed) for c in found]


def test_diff_lists_added_and_removed_files_and_rows_per_partition(flights: Dataset) -> None:
    assert partitions(flights, 1, 2) == [("month=1", 1, 0, 2, 0), ("month=2", 1, 0, 1, 0)]
    assert partitions(flights, 2, 3) == [("month=2", 1, 0, 2, 0)]
    assert partitions(flights, 3) == [("month=1", 0, 1, 0, 2)]
    assert partitions(flights, 2, 4) == [("month=1", 0, 1, 0, 2), ("month=2", 1, 0, 2, 0)]
    assert flights.diff(1, 4).rows == (0, 3)


def test_diff_omits_files_added_and_removed_between_versions(flights: Dataset) -> None:
    assert partitions(flights, 1, 4) == [("month=2", 2, 0, 3, 0)]


def test_diff_backwards_swaps_added_and_removed(flights: Dataset) -> None:
    forwards, backwards = flights.diff(2, 4), flights.diff(4, 2)
    assert (backwards.before, backwards.after, backwards.rows) == (4, 2, (3, 3))
    assert [(c.rows_added, c.rows_removed) for c in backwards.partitions] == [
        (c.rows_removed, c.rows_added) for c in forwards.partitions
    ]


def test_diff_of_version_with_itself_is_empty(flights: Dataset) -> None:
    assert flights.diff(3, 3).empty
    assert not flights.diff(2, 3).empty


def test_diff_lists_changed_columns(lake: Lake) -> None:
    table = lake.create_dataset("t", schema={"a": "int64"})
    other = lake.create_dataset("u")
    other.append(pa.table({"a": [1], "b": pa.nulls(1)}))
    other.append(pa.table({"a": [1], "b": ["x"]}))
    table.append(pa.table({"a": [1]}))
    assert table.diff(1, 2).columns == ()
    assert other.diff(1, 2).columns == (Difference("a", None, "int64"), Difference("b", None, "null"))
    assert other.diff(2, 3).columns == (Difference("b", "null", "string"),)
    assert other.diff(3, 2).columns == (Difference("b", "string", "null"),)


def test_diff_of_unpartitioned_table_has_one_entry(lake: Lake) -> None:
    table = lake.create_dataset("t", schema={"a": "int64"})
    table.append(pa.table({"a": [1, 2]}))
    assert table.diff(1).partitions == (PartitionChange("", 1, 0, 2, 0),)


def test_diff_omits_row_counts_that_need_too_many_footers(flights: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of files that went, and had come before the older version: no record between tells."""
    monkeypatch.setattr(compare, "MOST_FOOTERS", 0)
    assert partitions(flights, 2, 4) == [("month=1", 0, 1, 0, None), ("month=2", 1, 0, 2, 0)]


def test_diff_with_nonexistent_version_is_refused(flights: Dataset) -> None:
    with pytest.raises(VersionNotFound):
        flights.diff(2, 9)
