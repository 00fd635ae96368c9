"""What an adoption leaves for the collector: the grace period counts from the commit that unreferences an object."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from kubothek.gc import Mode, Retention, collect
from kubothek.table.indexes import IndexKind
from kubothek.table.log.model import keys
from tests.gc.aging import AgingStore, log_of
from tests.table.log.indexed import create
from tests.table.log.plateaulike import put_foreign_schema
from tests.table.log.table import UUID, append, write

pytestmark = pytest.mark.slow

LATER = timedelta(days=2)
THEIRS = f"{UUID}/indices/x/theirs.by-dataset-index.parquet"


def indexed_by_foreign(store: AgingStore) -> None:
    """A foreign writer appends a file and replaces the index by one that lacks this file, so adoption rewrites it."""
    create(store, IndexKind.KARTOTHEK, write(store, "a", [1]))
    document = json.loads(store.get(keys.head(UUID)))
    store.put(THEIRS, store.get(document["indices"]["x"]))
    document["indices"]["x"] = THEIRS
    document["partitions"]["b"] = {"files": {"table": write(store, "b", [2]).key}}
    put_foreign_schema(store)
    store.put(keys.head(UUID), json.dumps(document).encode())


def sweep(store: AgingStore) -> None:
    collect(store, log_of(store), [Retention(versions=1)], mode=Mode.ENFORCE)


def test_collector_keeps_index_of_live_foreign_head_for_grace_period() -> None:
    store = AgingStore()
    indexed_by_foreign(store)
    store.pass_by(LATER)
    sweep(store)
    assert THEIRS in store.objects
    store.pass_by(LATER)
    append(log_of(store), store, "more", [3])
    sweep(store)
    assert THEIRS not in store.objects


def test_collector_keeps_index_adopted_by_writer_just_before() -> None:
    store = AgingStore()
    indexed_by_foreign(store)
    store.pass_by(LATER)
    append(log_of(store), store, "more", [3])
    append(log_of(store), store, "still-more", [4])
    sweep(store)
    assert THEIRS in store.objects
