"""What is known of the keys in a ledger's table, so that a Snapshot need not read what ever was (MS-04)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from kubothek.errors import VersionIncomplete
from kubothek.odf.dataset import Root, again, create
from kubothek.odf.spec.events import AddPushSource, DatasetKind, DatasetSnapshot
from kubothek.odf.spec.identity import OwnerKey
from kubothek.odf.spec.sources import (
    MergeStrategy,
    MergeStrategyAppend,
    MergeStrategyLedger,
    MergeStrategySnapshot,
    ReadStepParquet,
)
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.storage import Store
from kubothek.table.log import DatasetLog
from kubothek.table.log.model.ledgers import ChainNote
from tests.odf.merge.world import World, columns, moment

pytestmark = pytest.mark.slow

SNAPSHOT = MergeStrategySnapshot(primary_key=("k", "j"))
LEDGER = MergeStrategyLedger(primary_key=("j", "k"))


def rows(*keys: str, value: int = 1) -> list[dict[str, Any]]:
    return [{"event_time": moment(0), "j": 1, "k": key, "v": value} for key in keys]


def without_slices(world: World) -> World:
    world.store.delete([info.key for info in world.store.list(f"{world.uuid}-odf/data/")])
    return world


@pytest.mark.requirement("MS-04")
def test_snapshot_merge_with_single_key_reads_table_only(store: Store) -> None:
    world = World(store, columns(j=pa.int64(), k=pa.string(), v=pa.int64()))
    for strategy, given in ((SNAPSHOT, rows("a", "b")), (LEDGER, rows("b", "c")), (SNAPSHOT, rows("a", value=2))):
        world.ingest(strategy, given)
        assert world.keyed_by == ("j", "k")
        without_slices(world)
    assert [row["v"] for row in world.shown_by_table()] == [2]


@pytest.mark.requirement("MS-04")
@pytest.mark.parametrize("strategy", [MergeStrategyAppend(), MergeStrategyLedger(primary_key=("k",))])
def test_snapshot_merge_after_other_strategy_reads_all_records(store: Store, strategy: MergeStrategy) -> None:
    world = World(store, columns(j=pa.int64(), k=pa.string(), v=pa.int64()))
    world.ingest(SNAPSHOT, rows("a"))
    world.ingest(strategy, rows("b"))
    assert world.keyed_by is None
    without_slices(world)
    with pytest.raises(VersionIncomplete):
        world.ingest(SNAPSHOT, rows("a"))


@pytest.mark.requirement("MS-04")
def test_snapshot_merge_detects_unknown_or_duplicate_table_keys(store: Store) -> None:
    """A chain of a head that does not tell, as of before there was this, and one that has a key twice."""
    world = World(store, columns(j=pa.int64(), k=pa.string(), v=pa.int64()))
    world.ingest(SNAPSHOT, rows("a", "b"))
    world.keyed_by = None
    assert world.ingest(SNAPSHOT, rows("a", "b")) == 0
    assert world.keyed_by == ("j", "k")
    world.ingest(MergeStrategyAppend(), rows("a", value=2))
    world.ingest(SNAPSHOT, rows("b"))
    assert world.keyed_by is None  # one row of "a" is left, which is not of the state


@pytest.mark.requirement("MS-04")
def test_chain_note_in_head_records_merge_key(store: Store) -> None:
    sources = tuple(
        AddPushSource(source_name=name, read=ReadStepParquet(), merge=merge)
        for name, merge in (("all", SNAPSHOT), ("some", MergeStrategyAppend()))
    )
    snapshot = DatasetSnapshot(name="keyed", kind=DatasetKind.ROOT, metadata=sources)
    log = DatasetLog(store, "keyed")
    root = create(store, log, snapshot, OwnerKey(bytes(range(32))))
    first = root.push(again(pa.Table.from_pylist(rows("a", "b"))), "all")
    assert noted(log).keyed_by == ("j", "k")
    assert Root(store, log).chain.keyed_by == ("j", "k")
    root.set_watermark(Timestamp.of(datetime(2026, 1, 1, tzinfo=UTC)))
    assert noted(log).keyed_by == ("j", "k")
    root.push(again(pa.Table.from_pylist(rows("c"))), "some")
    assert noted(log).keyed_by is None
    root.reset(first.head)
    assert noted(log).keyed_by is None
    root.push(again(pa.Table.from_pylist(rows("a"))), "all")
    assert noted(log).keyed_by == ("j", "k")
    document = noted(log).to_json()
    del document["keyed_by"]
    assert ChainNote.of_json(document).keyed_by is None


def noted(log: DatasetLog) -> ChainNote:
    note = log.snapshot().head.chain
    assert note is not None
    return note
