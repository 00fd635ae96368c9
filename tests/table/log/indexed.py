"""Indexed tables for tests of commits, and what their indices must say: computed from the data files themselves."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.storage import Store
from kubothek.table.indexes import IndexChange, IndexKind, kartothek, lookup, native
from kubothek.table.indexes.compact import stream
from kubothek.table.indexes.entries import LABEL, VALUE
from kubothek.table.log import Change, Committed, DatasetLog, Head, Operation, PartitionFile
from tests.table.log.table import CLAIM, SCHEMA, UUID, started

KINDS = (IndexKind.KARTOTHEK, IndexKind.NATIVE)


def log_of(store: Store) -> DatasetLog:
    return DatasetLog(store, UUID, claim=CLAIM)


def create(store: Store, kind: IndexKind, *files: PartitionFile, commit_id: str = "create") -> Committed:
    """A table with an index on ``x``."""
    change = Change(operation=Operation.CREATE, added=files, schema=SCHEMA, index=IndexChange(wanted={"x": kind}))
    return started(log_of(store), commit_id).commit(change)


def replacing(added: Sequence[PartitionFile], removed: Sequence[str]) -> Change:
    return Change(operation=Operation.REPLACE, added=tuple(added), removed=tuple(removed), schema=SCHEMA)


def truth(store: Store, head: Head) -> dict[int, set[str]]:
    """The labels by value, read from the data files."""
    found: dict[int, set[str]] = {}
    for label, key in head.files().items():
        for value in pq.read_table(io.BytesIO(store.get(key))).column("x").to_pylist():
            if value is not None:
                found.setdefault(value, set()).add(label)
    return found


def entries_of(store: Store, head: Head) -> dict[int, set[str]]:
    """The labels by value, as the index on ``x`` has them; of a native one only labels that the head has."""
    state = head.index_state
    if "x" in state.kartothek:
        tables = [kartothek.read(store, "x", state.kartothek["x"], pa.int64())[0]]
    else:
        manifest = native.read_manifest(store, state.native["x"])
        assert not manifest.uncovered
        tables = list(stream(store, manifest.files, pa.int64())()) if manifest.files else []
    found: dict[Any, set[Any]] = {}
    for table in tables:
        for value, label in zip(table.column(VALUE).to_pylist(), table.column(LABEL).to_pylist(), strict=True):
            if label in head.partitions or "x" in state.kartothek:
                found.setdefault(value, set()).add(label)
    return found


def assert_exact(store: Store, head: Head | None = None) -> Mapping[int, set[str]]:
    """The index on ``x`` says what the data files do, and lookups find it; what it says."""
    head = head or log_of(store).snapshot().head
    expected = truth(store, head)
    assert head.index_state.kinds(), "the table has an index"
    assert entries_of(store, head) == expected
    for value, labels in expected.items():
        found = lookup(store, head, SCHEMA, "x", "=", [value])
        assert found is not None
        assert found & head.partitions.keys() == labels
    return expected
