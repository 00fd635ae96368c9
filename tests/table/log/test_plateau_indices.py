"""Real plateau on tables with our indices: it reads them, updates those of its dialect; what it leaves is mended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import minimalkv
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plateau.api.dataset import (
    build_dataset_indices,
    garbage_collect_dataset,
    read_table,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
)

from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.indexes import Dialect, IndexChange, IndexKind, lookup
from kubothek.table.indexes.report import IndexHealth
from kubothek.table.log import Change, DatasetLog, Head, Operation, PartitionFile
from kubothek.table.log.update_indexes import reindex
from tests.table.log.table import UUID, started

FIELDS: list[pa.Field[Any]] = [
    pa.field("p", pa.int64()),
    pa.field("day", pa.date32()),
    pa.field("s", pa.string()),
    pa.field("x", pa.int64()),
]
SCHEMA = pa.schema(FIELDS)
COLUMNS = ("day", "s", "x")


class Table:
    """A partitioned table with an index on columns of three types, and plateau on the same directory."""

    def __init__(self, config: StoreConfig) -> None:
        self.store: Store = open_store(config)
        self.plateau = minimalkv.get_store_from_url(f"hfs://{Path(config.url.removeprefix('file://'))}")

    @property
    def log(self) -> DatasetLog:
        return DatasetLog(self.store, UUID)

    @property
    def head(self) -> Head:
        return self.log.snapshot().head

    def create(self, kind: IndexKind, dialect: Dialect, *values: str) -> None:
        change = IndexChange(wanted=dict.fromkeys(COLUMNS, kind), dialect=dialect)
        started(self.log, "create").commit(
            Change(
                operation=Operation.CREATE,
                added=tuple(self.file(value) for value in values),
                schema=SCHEMA,
                partition_keys=("p",),
                index=change,
            )
        )

    def append(self, value: str) -> None:
        started(self.log, value).commit(Change(operation=Operation.APPEND, added=(self.file(value),), schema=SCHEMA))

    def file(self, value: str) -> PartitionFile:
        """A file with one row, of the partition of its first letter."""
        table = pa.Table.from_pandas(frame(value).drop(columns="p"), schema=SCHEMA.remove(0), preserve_index=False)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        label = f"p={ord(value[0])}/{value}"
        key = f"{UUID}/table/{label}.parquet"
        self.store.put(key, sink.getvalue().to_pybytes())
        return PartitionFile(label, key, 1, sink.getvalue().size)

    def plateau_finds(self, column: str, value: Any) -> list[str]:
        found = read_table(UUID, store=lambda: self.plateau, predicates=[[(column, "==", value)]])
        return sorted(found["s"])

    def plateau_appends(self, value: str, **options: Any) -> None:
        update_dataset_from_dataframes([frame(value)], store=lambda: self.plateau, dataset_uuid=UUID, **options)

    def we_find(self, column: str, value: Any) -> int:
        """How many files hold the value, as the index says."""
        head = self.head
        found = lookup(self.store, head, SCHEMA, column, "=", [value])
        assert found is not None
        return len(found & head.partitions.keys())


def frame(value: str) -> pd.DataFrame:
    number = ord(value[-1])
    day = (pd.Timestamp("2026-01-01") + pd.Timedelta(days=number)).date()
    return pd.DataFrame({"p": [ord(value[0])], "day": [day], "s": [value], "x": [number]})


@pytest.fixture
def table(config: StoreConfig) -> Table:
    return Table(config)


@pytest.mark.parametrize("dialect", Dialect)
def test_plateau_reads_and_filters_by_kubothek_indices(table: Table, dialect: Dialect) -> None:
    table.create(IndexKind.KARTOTHEK, dialect, "a1", "a2")
    table.append("b1")
    assert table.plateau_finds("s", "b1") == ["b1"]
    assert table.plateau_finds("x", ord("1")) == ["a1", "b1"]
    assert table.plateau_finds("day", frame("2")["day"][0]) == ["a2"]
    stored = pq.read_schema(pa.BufferReader(table.store.get(table.head.indices["s"])))
    assert stored.field("s").type == (pa.large_string() if dialect is Dialect.PLATEAU else pa.string())


@pytest.mark.slow
def test_string_index_updated_by_plateau_stays_exact_over_further_commits(table: Table) -> None:
    table.create(IndexKind.KARTOTHEK, Dialect.PLATEAU, "a1", "a2")
    table.plateau_appends("b1")
    table.plateau_appends("b2", delete_scope=[{"s": "a2"}])
    table.log.settle()
    assert table.head.index_state.dialect is Dialect.PLATEAU
    table.append("c1")
    table.plateau_appends("c2")
    table.log.settle()
    for value in ("a1", "b1", "b2", "c1", "c2"):
        assert table.we_find("s", value) == 1
        assert table.plateau_finds("s", value) == [value]
    assert table.we_find("s", "a2") == 0
    garbage_collect_dataset(UUID, store=lambda: table.plateau)
    table.append("d1")
    assert table.plateau_finds("x", ord("1")) == ["a1", "b1", "c1", "d1"]


def test_string_index_built_by_plateau_is_converted_to_table_dialect(table: Table) -> None:
    """Plateau made the index, in its own; kartothek could not update it."""
    table.create(IndexKind.KARTOTHEK, Dialect.KARTOTHEK, "a1")
    reindex(table.store, table.log, {})
    build_dataset_indices(lambda: table.plateau, UUID, ["s"])
    table.log.settle()
    stored = pq.read_schema(pa.BufferReader(table.store.get(table.head.indices["s"])))
    assert stored.field("s").type == pa.string()
    assert table.plateau_finds("s", "a1") == ["a1"]


def test_dialect_change_rewrites_string_indices(table: Table) -> None:
    table.create(IndexKind.KARTOTHEK, Dialect.KARTOTHEK, "a1")
    with pytest.raises(TypeError, match="different types"):
        table.plateau_appends("b1")
    table.log.settle()
    reindex(table.store, table.log, dialect=Dialect.PLATEAU)
    table.plateau_appends("b2")
    table.log.settle()
    assert table.we_find("s", "b2") == 1


def test_native_index_lookup_finds_files_of_plateau(table: Table) -> None:
    table.create(IndexKind.NATIVE, Dialect.KARTOTHEK, "a1")
    for number in range(3):
        table.plateau_appends(f"b{number}")
    table.log.settle()
    assert table.we_find("s", "b2") == 1
    assert table.we_find("x", ord("1")) == 2


def test_many_files_of_plateau_are_found_before_and_after_reindex(table: Table) -> None:
    table.create(IndexKind.NATIVE, Dialect.KARTOTHEK, "a1")
    rows = pd.concat([frame(f"{chr(n)}1") for n in range(ord("b"), ord("b") + 20)])
    update_dataset_from_dataframes([rows], store=lambda: table.plateau, dataset_uuid=UUID)
    table.log.settle()
    assert {each.health for each in table.log.inspect().indices} == {IndexHealth.PARTIAL}
    assert table.we_find("s", "c1") == 20, "each of them may hold it"
    done = reindex(table.store, table.log)
    assert set(done.tidied) == set(COLUMNS)
    assert {each.health for each in table.log.inspect().indices} == {IndexHealth.READY}
    assert table.we_find("s", "c1") == 1


def test_index_of_plateau_on_partition_column_is_dropped(table: Table) -> None:
    """It is not rejected, and later reads find nothing through it (seen with plateau 4.6)."""
    table.create(IndexKind.KARTOTHEK, Dialect.PLATEAU, "a1")
    build_dataset_indices(lambda: table.plateau, UUID, ["p"])
    assert "p" in table.head.indices
    table.log.settle()
    assert set(table.head.indices) == set(COLUMNS)
    assert table.plateau_finds("p", ord("a")) == ["a1"]


@pytest.mark.slow
def test_index_dropped_by_plateau_overwrite_is_restored(table: Table) -> None:
    table.create(IndexKind.KARTOTHEK, Dialect.PLATEAU, "a1")
    store_dataframes_as_dataset(
        dfs=[frame("b1")], store=lambda: table.plateau, dataset_uuid=UUID, overwrite=True, partition_on=["p"]
    )
    table.log.settle()
    assert set(table.head.indices) == set(COLUMNS)
    assert table.plateau_finds("s", "b1") == ["b1"]
    assert table.we_find("s", "a1") == 0
