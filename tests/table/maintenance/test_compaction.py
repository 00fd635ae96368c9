"""Compacting a table: fewer files, the same rows, in one commit that keeps indices, layout and totals right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import minimalkv
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plateau.io.eager import read_table

from kubothek.catalog import Dataset, Lake
from kubothek.errors import (
    DatasetNotFound,
    FilterInvalid,
    IdReused,
    OwnedByAnother,
    RowsChanged,
    StoreError,
    VersionIncomplete,
)
from kubothek.storage import Store
from kubothek.table.files import PartitionedWriter
from kubothek.table.log import Claim, DatasetLog, Operation, Totals
from kubothek.table.maintenance import rewriting
from kubothek.table.maintenance.content import Content
from kubothek.table.maintenance.reading import rows_of
from tests.faultstore import FaultStore
from tests.table.maintenance.table import ROWS, files_of, filled
from tests.table.operations.table import everything, flights, labels, rows


def test_compaction_merges_small_files_per_partition_and_keeps_rows(table: Dataset) -> None:
    before = labels(table)
    done = table.compact()
    assert rows(table) == ROWS
    assert files_of(table) == {"flights/table/month=1": 1, "flights/table/month=2": 1, "flights/table/month=3": 1}
    assert (done.version, done.removed.files, done.added.files, done.skipped) == (6, 8, 2, ())
    assert (done.removed.rows, done.added.rows) == (12, 12)
    (record, *_) = table.history()
    assert (record.operation, record.by) == (Operation.COMPACT, "python")
    assert rows(table, as_of=5) == ROWS
    kept = set(before) & set(labels(table))
    assert [label.rpartition("/")[0] for label in kept] == ["month=3"]


def test_compaction_keeps_totals_exact(table: Dataset, store: Store) -> None:
    table.compact()
    totals = table.snapshot().totals
    sizes = [store.stat(key).size for key in labels(table).values()]
    assert totals == Totals(rows=len(ROWS), files=3, bytes=sum(sizes), partitions=3)


def test_second_compaction_commits_nothing(table: Dataset, store: Store) -> None:
    table.compact()
    before = everything(store)
    assert table.compact().version is None
    assert table.plan_compaction().bundles == ()
    assert everything(store) == before


def test_compaction_plan_lists_bundles_and_writes_nothing(table: Dataset, store: Store) -> None:
    before = everything(store)
    planned = table.plan_compaction(where="month < 3")
    assert [(bundle.group.path, len(bundle.files)) for bundle in planned.bundles] == [("month=1", 4), ("month=2", 4)]
    assert (planned.files.files, planned.rewritten.files, planned.rewritten.rows) == (8, 8, 12)
    assert everything(store) == before


def test_compaction_filter_on_partition_columns_selects_partitions(table: Dataset) -> None:
    table.compact(where="month = 1 OR month = 3")
    assert files_of(table) == {"flights/table/month=1": 1, "flights/table/month=2": 4, "flights/table/month=3": 1}
    assert rows(table) == ROWS
    with pytest.raises(FilterInvalid, match=r"'carrier': a compaction takes whole partitions.*'month'"):
        table.compact(where="carrier = 'C'")
    with pytest.raises(FilterInvalid):
        table.compact(where="nope = 1")


def test_compaction_rewrites_only_small_files(table: Dataset) -> None:
    large = max(store_size(table, key) for key in labels(table).values())
    assert table.compact(target_file_size=large).version is None
    assert table.compact(min_files=5).version is None
    assert table.compact(min_files=4).version == 6


def store_size(table: Dataset, key: str) -> int:
    return table._store.stat(key).size


def test_compaction_beyond_target_size_writes_several_files(store: Store) -> None:
    dataset = Lake(store).create_dataset("numbers", target_file_size=24_000, row_group_rows=1000, compression="NONE")
    for start in range(0, 20_000, 500):
        dataset.append(pa.table({"n": range(start, start + 500)}))
    assert dataset.compact().removed.files == 40
    sizes = sorted(store_size(dataset, key) for key in labels(dataset).values())
    assert len(sizes) < 12
    assert all(size >= 24_000 for size in sizes[3:])
    numbers = dataset.scan().read_all()["n"].combine_chunks().sort()
    assert numbers.equals(pa.array(range(20_000)))


def test_indices_after_compaction_find_every_row(table: Dataset) -> None:
    table.compact()
    for where, expected in (("carrier = 'A2'", 1), ("delay = 13", 1), ("carrier = 'C'", 1), ("carrier = 'X'", 0)):
        planned = table.plan(where)
        assert dict(planned.steps)["secondary indices"] == expected, where
        assert table.scan(where=where).read_all().num_rows == expected
    assert [str(index.health) for index in DatasetLog(table._store, "flights").inspect().indices] == ["Ready"] * 2


def test_compaction_reads_each_file_once_and_collects_index_entries(table: Dataset, store: Store) -> None:
    before = [key for label, key in labels(table).items() if not label.startswith("month=3")]
    counting = FaultStore(store)
    Dataset(Lake(counting), "flights").compact()
    read = [call.key for call in counting.calls if call.name in ("open", "get") and "/table/month=" in call.key]
    after = [key for label, key in labels(table).items() if not label.startswith("month=3")]
    assert sorted(read) == sorted([*before, *after])


def test_compacted_files_follow_table_layout(store: Store) -> None:
    options: dict[str, Any] = {"sort_by": ["delay"], "bucket_by": ["carrier"], "num_buckets": 2, "compression": "GZIP"}
    table = filled(Lake(store), **options)
    before = len(labels(table))
    table.compact()
    after = labels(table)
    assert len(after) < before
    assert rows(table) == ROWS
    assert table.compact().version is None
    for key in after.values():
        with store.open(key) as source:
            found = pq.ParquetFile(pa.PythonFile(source, mode="r"))
            delays = found.read()["delay"].to_pylist()
            assert found.metadata.row_group(0).column(0).compression == "GZIP"
        assert delays == sorted(delays, key=lambda delay: (delay is None, delay))
        assert key.rpartition("-")[2] in ("0.parquet", "1.parquet")
    planned = table.plan("month = 1 AND carrier = 'A1'")
    assert dict(planned.steps)["partition keys"] == 1


def test_compaction_puts_files_from_before_bucketing_into_buckets(table: Dataset) -> None:
    table.set_layout(replace(table.layout, bucket_by=("carrier",), num_buckets=2))
    table.compact()
    assert files_of(table) == {"flights/table/month=1": 2, "flights/table/month=2": 2, "flights/table/month=3": 1}
    assert rows(table) == ROWS


def test_compaction_merges_files_of_older_schemas(store: Store) -> None:
    dataset = Lake(store).create_dataset("growing")
    dataset.append(pa.table({"n": [1], "gate": pa.nulls(1)}))
    dataset.append(pa.table({"n": [2], "gate": ["B"]}))
    dataset.append(pa.table({"n": [3], "seat": [["x", None]]}), evolve=True)
    dataset.append(pa.table({"n": [4], "gate": ["A"]}), evolve=True)
    before = sorted(dataset.scan().read_all().to_pylist(), key=lambda row: row["n"])
    assert dataset.compact().added.files == 1
    assert sorted(dataset.scan().read_all().to_pylist(), key=lambda row: row["n"]) == before


@pytest.mark.parametrize(("small", "fewest"), [(0, 1), (1 << 20, 100), (1 << 20, 1)])
def test_compaction_rows_are_equal_for_each_read_method(
    table: Dataset, store: Store, monkeypatch: pytest.MonkeyPatch, small: int, fewest: int
) -> None:
    monkeypatch.setattr("kubothek.table.maintenance.reading.SMALL_BYTES", small)
    monkeypatch.setattr("kubothek.table.maintenance.decoding.FEWEST", fewest)
    assert table.compact().added.files == 2
    assert rows(table) == ROWS
    table.append(flights((3, "D", 1)))
    store.put(next(key for label, key in labels(table).items() if label.startswith("month=3")), b"no Parquet")
    with pytest.raises(StoreError, match="cannot read the table"):
        table.compact()


def test_compaction_with_same_id_is_applied_once(table: Dataset) -> None:
    first = table.compact(id="nightly")
    table.append(flights((3, "D", 1)))
    again = table.compact(id="nightly")
    assert (again.version, again.added) == (first.version, first.added)
    assert table.version == 7
    with pytest.raises(IdReused):
        table.compact(id="nightly", where="month = 1")


def test_compacted_file_with_lost_row_is_not_committed(
    table: Dataset, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = store.get("flights.by-dataset-metadata.json")
    copy = rewriting._copy

    def forgetful(copying: Any, store: Any, bundle: Any, writer: Any) -> Any:
        found = copy(copying, store, bundle, writer)
        one = next(rows_of(copying, store, bundle.files))
        return found + Content.of([one.slice(0, 1)])

    monkeypatch.setattr(rewriting, "_copy", forgetful)
    with pytest.raises(RowsChanged, match="partition 'month=1' of 'flights': 4 files hold 9 rows of content"):
        table.compact()
    assert store.get("flights.by-dataset-metadata.json") == before


@pytest.mark.parametrize("change", [("carrier", "A0", "A9"), ("delay", 10, 11)])
def test_compacted_file_with_changed_value_raises_rows_changed(
    table: Dataset, monkeypatch: pytest.MonkeyPatch, change: tuple[str, Any, Any]
) -> None:
    column, value, other = change
    write = PartitionedWriter.write_group

    def faulty(self: Any, group: Any, data: Any) -> None:
        values = [other if found == value else found for found in data.column(column).to_pylist()]
        changed = pa.array(values, data.schema.field(column).type)
        write(self, group, data.set_column(data.schema.names.index(column), column, changed))

    monkeypatch.setattr(PartitionedWriter, "write_group", faulty)
    with pytest.raises(RowsChanged, match="8 rows of content"):
        table.compact()
    assert (table.version, rows(table)) == (5, ROWS)


def test_compaction_with_missing_file_raises_version_incomplete(table: Dataset, store: Store) -> None:
    lost = next(key for label, key in labels(table).items() if label.startswith("month=2"))
    store.delete([lost])
    with pytest.raises(VersionIncomplete, match="a file that the version needs no longer exists"):
        table.compact()
    assert table.version == 5
    assert table.compact(where="month = 1").version == 6


def test_compaction_of_owned_table_by_other_is_refused(table: Dataset, store: Store) -> None:
    DatasetLog(store, "flights", claim=Claim("cluster/ns/flights", "uid", adopts=True)).settle()
    with pytest.raises(OwnedByAnother):
        table.compact()
    assert table.plan_compaction().bundles


def test_compaction_of_empty_table_commits_nothing(store: Store) -> None:
    dataset = Lake(store).create_dataset("empty", schema={"n": "int64"})
    assert dataset.compact().version is None
    with pytest.raises(DatasetNotFound):
        Dataset(Lake(store), "nope").compact()


def test_plateau_reads_compacted_table(table: Dataset, tmp_path: Path) -> None:
    table.compact()
    found = read_table("flights", minimalkv.get_store_from_url(f"hfs://{tmp_path / 'lake'}"))
    assert len(found) == len(ROWS)
    assert sorted(found["month"]) == [row[0] for row in ROWS]
