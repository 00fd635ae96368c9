"""Writing data files: what is in them, how large they get, and what it costs."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable, Sequence
from hashlib import sha3_256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.errors import DataTypeMismatch, LayoutInvalid, PartitionInvalid, SchemaMismatch, StoreUnavailable
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.files import PartitionedWriter
from kubothek.table.layout import MIB, Layout
from kubothek.table.partitioning import Group
from kubothek.table.schema import normalise
from tests.table.write_conformance import CASES, WriteCase, check

BY_K = Layout(partition_on=("k",))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(StoreConfig(tmp_path.as_uri()))


def stored(table: pa.Table, *keys: str) -> pa.Schema:
    return normalise(table.schema, keys)


def keys_in(store: Store) -> set[str]:
    return {info.key for info in store.list("")}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_writer_with_default_memory_meets_conformance_cases(case: WriteCase, store: Store) -> None:
    with PartitionedWriter(store, "ds", case.schema, Layout(partition_on=case.partition_on)) as writer:
        for table in case.tables:
            writer.write(table)
        files = writer.finish()
    check(case, store, "ds", files)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_writer_with_minimal_memory_meets_conformance_cases(case: WriteCase, store: Store) -> None:
    with PartitionedWriter(store, "ds", case.schema, Layout(partition_on=case.partition_on), memory_budget=1) as writer:
        for table in case.tables:
            writer.write(table)
        files = writer.finish()
    check(case, store, "ds", files)


def test_written_file_has_expected_key_schema_and_statistics(store: Store) -> None:
    table = pa.table({"k": ["a", "a"], "x": pa.array([1, 2], pa.int8()), "t": pa.array([0, 1], pa.timestamp("ms"))})
    with PartitionedWriter(store, "ds", stored(table, "k"), BY_K) as writer:
        writer.write(table)
        (file,) = writer.finish()
    assert file.key == f"ds/table/{file.label}.parquet"
    assert file.rows == 2
    assert file.bytes == store.stat(file.key).size
    assert file.sha3 == sha3_256(store.get(file.key)).hexdigest()
    assert keys_in(store) == {file.key}
    found = pq.ParquetFile(pa.BufferReader(store.get(file.key)))
    assert found.schema_arrow.remove_metadata() == pa.schema([("t", pa.timestamp("us")), ("x", pa.int64())])
    column = found.metadata.row_group(0).column(1)
    assert column.compression == "ZSTD"
    assert column.statistics is not None
    assert (column.statistics.min, column.statistics.max) == (1, 2)
    timestamp = found.schema.column(0).logical_type
    assert "isAdjustedToUTC=false" in str(timestamp)
    assert "microseconds" in str(timestamp)


def test_writer_closes_files_at_target_size(store: Store) -> None:
    values = [n * 0x9E3779B97F4A7C15 % 2**63 for n in range(400_000)]
    table = pa.table({"x": values})
    target = 256 * 1024
    with PartitionedWriter(store, "ds", stored(table), Layout(target_file_bytes=target, compression="NONE")) as writer:
        writer.write(table)
        files = writer.finish()
    assert len(files) > 4
    assert all(target <= file.bytes <= 3 * target for file in files[:-1])
    assert sum(file.rows for file in files) == table.num_rows
    assert pq.read_table(pa.BufferReader(store.get(files[0].key)))["x"].to_pylist() == values[: files[0].rows]


def test_writer_merges_small_writes_into_one_file_per_partition(store: Store) -> None:
    table = pa.table({"k": [1, 2], "x": [1, 2]})
    with PartitionedWriter(store, "ds", stored(table, "k"), BY_K) as writer:
        for _ in range(50):
            writer.write(table)
        files = writer.finish()
    assert [(file.label.split("/")[0], file.rows) for file in files] == [("k=1", 50), ("k=2", 50)]


def test_write_group_adds_rows_to_group_partition(store: Store) -> None:
    schema = pa.schema([("k", pa.int64()), ("x", pa.int64())])
    with PartitionedWriter(store, "ds", schema, BY_K) as writer:
        writer.write_group(Group("k=1"), pa.table({"x": [1, 2]}))
        writer.write_group(Group("k=2"), pa.record_batch({"x": [3]}))
        writer.write_group(Group("k=1"), pa.table({"k": [1], "x": [4]}))
        files = {file.label.split("/")[0]: file for file in writer.finish()}
    assert pq.read_table(pa.BufferReader(store.get(files["k=1"].key))).to_pydict() == {"x": [1, 2, 4]}
    assert files["k=2"].rows == 1


@pytest.mark.slow
def test_writer_memory_stays_within_budget(store: Store) -> None:
    """Arrow's own pool holds rows and unfinished files; each round brings 8 MiB, half a budget."""
    budget = 16 << 20
    keys = pa.array([n % 64 for n in range(1 << 19)])
    table = pa.table({"k": keys, "x": pa.array(range(1 << 19))})
    before = pa.total_allocated_bytes()
    peak = 0
    with PartitionedWriter(
        store, "ds", stored(table, "k"), Layout(partition_on=("k",), compression="NONE"), memory_budget=budget
    ) as writer:
        for _ in range(12):
            writer.write(table)
            peak = max(peak, pa.total_allocated_bytes() - before)
        files = writer.finish()
    assert sum(file.rows for file in files) == 12 * table.num_rows
    assert peak < 2 * budget


@pytest.mark.slow
def test_rows_of_small_partitions_do_not_keep_those_of_large_ones_in_memory(store: Store) -> None:
    """Each round brings 4 MiB to one partition, whose files are complete soon, and a row to others."""
    budget = 16 << 20
    keys = np.where(np.arange(1 << 18) % (1 << 13), 0, np.arange(1 << 18))
    columns: dict[str, Any] = {"k": keys, "x": np.random.default_rng(1).random(1 << 18)}
    table = pa.table(columns)
    layout = Layout(partition_on=("k",), target_file_bytes=MIB, compression="NONE", dictionary_columns=())
    before = pa.total_allocated_bytes()
    peak = 0
    with PartitionedWriter(store, "ds", stored(table, "k"), layout, memory_budget=budget) as writer:
        for _ in range(24):
            writer.write(table)
            peak = max(peak, pa.total_allocated_bytes() - before)
        files = writer.finish()
    assert sum(file.rows for file in files) == 24 * table.num_rows
    assert peak < 2 * budget, "of 96 MiB that were divided"


@pytest.mark.slow
def test_writer_of_many_partitions_uses_little_python_memory(store: Store) -> None:
    table = pa.table({"k": list(range(2000)) * 2, "x": list(range(4000))})
    with PartitionedWriter(store, "ds", stored(table, "k"), BY_K) as writer:
        tracemalloc.start()
        writer.write(table)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(writer.finish()) == 2000
    assert peak < 2000 * 4096


@pytest.mark.parametrize("rows", [0, 1])
def test_writer_creates_file_only_for_rows(store: Store, rows: int) -> None:
    table = pa.table({"x": [1] * rows})
    with PartitionedWriter(store, "ds", stored(table), Layout()) as writer:
        writer.write(table)
        assert len(writer.finish()) == rows


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Layout(partition_on=("nope",)), PartitionInvalid),
        (lambda: Layout(partition_on=("ok",)), PartitionInvalid),
        (lambda: Layout(compression="zip"), LayoutInvalid),
        (lambda: Layout(target_file_bytes=0), LayoutInvalid),
    ],
)
def test_writer_with_wrong_layout_is_refused(store: Store, make: Callable[[], Layout], error: type[Exception]) -> None:
    schema = pa.table({"ok": [True], "x": [1]}).schema
    with pytest.raises(error):
        PartitionedWriter(store, "ds", schema, make())


@pytest.mark.parametrize(
    ("table", "error"),
    [
        (pa.table({"k": ["a", None], "x": [1, 2]}), PartitionInvalid),
        (pa.table({"k": ["a"]}), SchemaMismatch),
        (pa.table({"k": ["a"], "x": ["one"]}), DataTypeMismatch),
    ],
)
def test_writer_refuses_bad_rows_and_writes_nothing(store: Store, table: pa.Table, error: type[Exception]) -> None:
    schema = pa.table({"k": ["a"], "x": [1]}).schema
    with pytest.raises(error), PartitionedWriter(store, "ds", schema, BY_K) as writer:
        writer.write(table)
    assert keys_in(store) == set()


def test_failed_upload_fails_writer_and_cancels_remaining_uploads(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"k": list(range(100)), "x": list(range(100))})
    puts: list[tuple[str, bytes | memoryview]] = []

    def put_many(objects: Sequence[tuple[str, bytes | memoryview]]) -> None:
        puts.extend(objects)
        raise StoreUnavailable("the store is on fire")

    monkeypatch.setattr(store, "put_many", put_many)
    threads = set(threading.enumerate())
    writer = PartitionedWriter(store, "ds", stored(table, "k"), BY_K, memory_budget=100)

    def write() -> None:
        with writer:
            writer.write(table)
            writer.finish()

    with pytest.raises(StoreUnavailable, match="on fire"):
        write()
    assert len(puts) < 100
    assert set(threading.enumerate()) <= threads, "threads of others may end meanwhile"
