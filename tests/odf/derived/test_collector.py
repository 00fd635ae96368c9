"""What a collection takes of a derivative: slices and states that no block names, and never one that a block names.

Every run's state stays as long as its block does (CH-02): whoever has the chain can have all that it names, and replays
its runs beside each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import pytest

from kubothek.gc import Collection, Mode, Retention, collect
from kubothek.gc.areas import Kind
from kubothek.odf.dataset import Root, again
from kubothek.odf.dataset import create as create_root
from kubothek.odf.derived import Derivative, OnChange, create, inputs_of
from kubothek.odf.spec.events import DatasetKind, DatasetSnapshot
from kubothek.storage import Store, StoreConfig
from kubothek.table.log import DatasetLog, StoreSettings, write_settings
from kubothek.table.log.model import keys
from kubothek.verify import verify_dataset
from tests.faultstore import ALL, Crash, Fault, FaultStore
from tests.gc.aging import GRACE, AgingStore
from tests.odf.derived.world import PER_CARRIER, SNAPSHOT, layout, owner, rows, runs, source, transform

pytestmark = pytest.mark.slow


class DiskStore(AgingStore):
    """One whose objects lie on the disk as well, where slices are read."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory
        self.config = StoreConfig(directory.as_uri())

    def put(self, key: str, data: bytes | memoryview) -> str:
        file = self.directory / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return super().put(key, data)

    def delete(self, keys: Iterable[str]) -> int:
        gone = list(keys)
        for key in gone:
            (self.directory / key).unlink(missing_ok=True)
        return super().delete(gone)


def log_of(store: Store, name: str = "carriers") -> DatasetLog:
    """Writers' clocks are the store's."""
    aging = store.inner if isinstance(store, FaultStore) else store
    assert isinstance(aging, AgingStore)
    return DatasetLog(store, name, clock=lambda: aging.now)


def derivative(store: Store) -> Derivative:
    return Derivative(store, log_of(store))


def moved(store: AgingStore, delay: int) -> None:
    """Something new in the input, and much later the next thing."""
    Root(store, log_of(store, "flights")).push(again(rows({1: ("AA", delay), 2: ("BB", 5)})))
    store.pass_by(2 * GRACE)


@pytest.fixture
def store(tmp_path: Path) -> AgingStore:
    """Three runs with states."""
    store = DiskStore(tmp_path)
    write_settings(store, StoreSettings(grace=GRACE))
    root = DatasetSnapshot(name="flights", kind=DatasetKind.ROOT, metadata=(source(SNAPSHOT),))
    create_root(store, log_of(store, "flights"), root, owner("flights"))
    moved(store, 20)
    made = DatasetSnapshot(name="carriers", kind=DatasetKind.DERIVATIVE, metadata=(transform(PER_CARRIER),))
    create(store, log_of(store), made, owner("carriers"), inputs_of(store))
    for delay in (30, 40, 50):
        derivative(store).pull(inputs_of(store))
        moved(store, delay)
    return store


def named(store: Store) -> set[str]:
    """The slices and states that its blocks name."""
    where = layout("carriers")
    events = runs(store, "carriers")
    return {where.data(event.new_data.physical_hash) for event in events if event.new_data} | {
        where.checkpoint(event.new_checkpoint.physical_hash) for event in events if event.new_checkpoint
    }


def stored(store: Store) -> set[str]:
    where = layout("carriers")
    return {info.key for prefix in (where.slices, where.checkpoints) for info in store.list(prefix)}


def swept(store: Store) -> Collection:
    return collect(store, log_of(store), [Retention(versions=1)], mode=Mode.ENFORCE)


def assert_proven(store: Store) -> None:
    verdict = verify_dataset(store, log_of(store), inputs=inputs_of(store))
    assert verdict.sound, verdict.findings


def died(store: AgingStore) -> set[str]:
    """What a run left that died before its commit."""
    before = stored(store)
    faulty = FaultStore(store, Fault(("put_if_match",), key=keys.head("carriers")))
    with pytest.raises(Crash):
        derivative(faulty).pull(inputs_of(faulty))
    return stored(store) - before


def test_checkpoints_of_runs_are_kept_and_those_of_crashed_run_collected(store: AgingStore) -> None:
    assert len(named(store)) == 6
    left = died(store)
    assert len(left) == 2, "a slice and a state"
    store.pass_by(GRACE / 2)
    swept(store)
    assert stored(store) == named(store) | left
    store.pass_by(2 * GRACE)
    assert Kind.CHAIN in swept(store).deleted
    assert stored(store) == named(store)
    assert_proven(store)
    assert derivative(store).pull(inputs_of(store)).done.records
    assert_proven(store)


def test_derivative_reset_lets_collector_delete_old_checkpoints(store: AgingStore) -> None:
    before = stored(store)
    other = transform(PER_CARRIER.replace("sum(delay)", "max(delay)"))
    derivative(store).set_transform(other, inputs_of(store), on_change=OnChange.RESET)
    store.pass_by(timedelta(minutes=1))
    derivative(store).pull(inputs_of(store))
    for _ in range(2):
        store.pass_by(2 * GRACE)
        swept(store)
    assert stored(store) == named(store)
    assert not before & stored(store)
    assert_proven(store)


def test_collection_after_crash_at_any_call_keeps_referenced_objects(store: AgingStore) -> None:
    died(store)
    store.pass_by(2 * GRACE)
    kept = named(store)
    counting = FaultStore(store.copy())
    swept(counting)
    calls = sum(call.name in ALL for call in counting.calls)
    assert calls > 20
    for after in (False, True):
        for number in range(1, calls + 1):
            copy = store.copy()
            with pytest.raises(Crash):
                swept(FaultStore(copy, Fault(ALL, number, after=after)))
            assert kept <= stored(copy), number
            swept(copy)
            assert stored(copy) == kept, number
