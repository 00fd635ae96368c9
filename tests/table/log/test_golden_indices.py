"""Indices that kartothek 5.3 and plateau 4.6 wrote say what the data files do, and go on doing so after our commits."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.indexes import IndexKind, lookup
from kubothek.table.indexes.types import indexable, is_indexable
from kubothek.table.log import Change, DatasetLog, Head, Operation
from kubothek.table.log.update_indexes import reindex

GOLDEN = Path(__file__).parents[2] / "golden" / "kartothek"
DATASETS = [
    ("k53-table", "sales"),
    ("k53-table", "sales-2"),
    ("p46-table", "sales"),
    ("p46-table", "sales-2"),
    ("k53-empty", "emptied"),
    ("k53-msgpack", "packed"),
    ("k53-cube", "geo++seed"),
    ("k53-cube", "geo++population"),
]


@pytest.fixture(params=DATASETS, ids=lambda names: "/".join(names))
def dataset(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Store, DatasetLog]:
    name, uuid = request.param
    shutil.copytree(GOLDEN / name / "store", tmp_path / "store")
    store = open_store(StoreConfig((tmp_path / "store").as_uri()))
    return store, DatasetLog(store, uuid)


def columns(store: Store, head: Head, schema: pa.Schema, column: str) -> Iterator[tuple[str, set[Any]]]:
    """The values of a column by file."""
    for label, key in head.files().items():
        values = pq.read_table(io.BytesIO(store.get(key)), columns=[column]).column(column)
        yield label, set(indexable(values, schema.field(column).type).to_pylist())


def assert_exact(store: Store, log: DatasetLog) -> int:
    """How many values were looked up."""
    snapshot = log.snapshot()
    head, schema = snapshot.head, snapshot.schema
    assert schema is not None
    count = 0
    for column in head.index_state.kinds():
        held = dict(columns(store, head, schema, column))
        for value in set().union(*held.values()):
            expected = {label for label, values in held.items() if value in values}
            found = lookup(store, head, schema, column, "=", [value])
            assert found is not None
            assert found & head.partitions.keys() == expected, (column, value)
            count += 1
    return count


def test_golden_indices_of_both_libraries_stay_exact_after_commits(dataset: tuple[Store, DatasetLog]) -> None:
    store, log = dataset
    before = assert_exact(store, log)
    assert log.snapshot().head.indices, "there are some"
    log.settle()
    assert assert_exact(store, log) == before
    label = next(iter(log.snapshot().head.partitions), None)
    if label is not None:
        begun: Any = log.begin("delete", "d")
        begun.commit(Change(operation=Operation.DELETE, removed=(label,)))
        assert assert_exact(store, log) <= before


@pytest.mark.slow
def test_golden_dataset_columns_accept_either_index_kind(dataset: tuple[Store, DatasetLog]) -> None:
    store, log = dataset
    schema, partition_keys = log.snapshot().schema, log.snapshot().head.partition_keys
    assert schema is not None
    indexable = [f.name for f in schema if is_indexable(f.type) and f.name not in partition_keys]
    for kind in IndexKind:
        reindex(store, log, dict.fromkeys(indexable, kind))
        assert set(log.snapshot().head.index_state.kinds().values()) == {kind}
        assert_exact(store, log)
