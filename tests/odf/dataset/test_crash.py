"""A push dies before or after any call that changes the store; then the job runs again, as another process would.

CO-02, REQ-05, REQ-06: no fork, no gap in offsets or sequence numbers, nothing taken twice.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kubothek.errors import StoreUnavailable
from kubothek.odf.dataset import Root, create
from kubothek.odf.spec.events import SetInfo
from kubothek.storage import Store
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys
from tests.faultstore import WRITES, Crash, Fault, FaultStore, every_crash
from tests.odf.dataset.planes import APPEND, OWNER, UUID, begun, planes, sound, source
from tests.table.log.memory import MemoryStore

pytestmark = pytest.mark.slow

Operate = Callable[[Store], object]


def creating(store: Store) -> object:
    return create(store, DatasetLog(store, UUID), begun(source(APPEND)), OWNER, commit_id="create")


def pushing(store: Store) -> object:
    return Root(store, DatasetLog(store, UUID)).push(planes({1: "A", 2: "B"}), commit_id="push-1")


def again_pushing(store: Store) -> object:
    return Root(store, DatasetLog(store, UUID)).push(planes({3: "C"}), commit_id="push-2")


def describing(store: Store) -> object:
    return Root(store, DatasetLog(store, UUID)).append_events([SetInfo(description="new")], commit_id="info")


OPERATIONS: list[Operate] = [creating, pushing, again_pushing, describing]


def before(number: int) -> MemoryStore:
    store = MemoryStore()
    for operate in OPERATIONS[:number]:
        operate(store)
    return store


@pytest.mark.requirement("CO-02", "REQ-06")
@pytest.mark.parametrize("number", range(len(OPERATIONS)), ids=[each.__name__ for each in OPERATIONS])
def test_ledger_commit_after_crash_at_any_call_is_applied_once(number: int) -> None:
    ground, operate = before(number), OPERATIONS[number]
    counting = FaultStore(ground.copy())
    operate(counting)
    expected = sound(counting.inner)
    faults = list(every_crash(counting.calls))
    assert len(faults) > 8
    for fault in faults:
        store = ground.copy()
        with pytest.raises(Crash):
            operate(FaultStore(store, fault))
        operate(store)
        found = sound(store)
        assert (found.blocks, found.records) == (expected.blocks, expected.records), fault
        ids = [record.id for record in DatasetLog(store, UUID).history()][::-1]
        assert ids == ["create", "push-1", "push-2", "info"][: number + 1]
        assert store.get(keys.chain_ref(UUID)).decode() == str(found.head), fault


@pytest.mark.requirement("REQ-05")
def test_other_writer_after_crash_at_any_call_continues_chain() -> None:
    """The one who died does not come back: what is there at that moment is sound, and the chain goes on from it."""
    ground = before(1)
    counting = FaultStore(ground.copy())
    pushing(counting)
    for fault in every_crash(counting.calls):
        store = ground.copy()
        with pytest.raises(Crash):
            pushing(FaultStore(store, fault))
        describing(store)
        found = sound(store)
        assert found.records in (0, 2)
        assert store.get(keys.chain_ref(UUID)).decode() == str(found.head), fault


@pytest.mark.requirement("REQ-05")
def test_push_with_lost_responses_commits_once() -> None:
    ground = before(1)
    counting = FaultStore(ground.copy())
    pushing(counting)
    for nth in range(1, sum(call.name in WRITES for call in counting.calls) + 1):
        store = ground.copy()
        try:
            pushing(FaultStore(store, Fault(WRITES, nth, after=True, error=StoreUnavailable("lost"))))
        except StoreUnavailable:
            pushing(store)
        found = sound(store)
        assert found.records == 2
        assert store.get(keys.chain_ref(UUID)).decode() == str(found.head)


def compacting(store: Store) -> object:
    return Root(store, DatasetLog(store, UUID)).compact()


def resetting(store: Store) -> object:
    root = Root(store, DatasetLog(store, UUID))
    target = next(block for block in root.blocks() if block.content.sequence_number == 4)
    return root.reset(target.hash)


@pytest.mark.requirement("CO-02")
def test_chain_compaction_or_reset_after_crash_is_atomic() -> None:
    ground = MemoryStore()
    create(ground, DatasetLog(ground, UUID), begun(source(APPEND)), OWNER, table=None)
    for number in range(3):
        Root(ground, DatasetLog(ground, UUID)).push(planes({number: "x"}))
    old = sound(ground)
    for operate in (compacting, resetting):
        counting = FaultStore(ground.copy())
        operate(counting)
        expected = sound(counting.inner)
        for fault in every_crash(counting.calls):
            store = ground.copy()
            with pytest.raises(Crash):
                operate(FaultStore(store, fault))
            found = sound(store)
            assert (found.blocks, found.records) in {(each.blocks, each.records) for each in (old, expected)}, fault
            operate(store)
            found = sound(store)
            assert (found.blocks, found.records) == (expected.blocks, expected.records), fault
            assert store.get(keys.chain_ref(UUID)).decode() == str(found.head), fault
