"""A run dies before or after any call that changes the store, or meets another one: its records are there once.

REQ-06, CO-02, EN-07. The engine is through before the first of these calls.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from kubothek.gc.areas import Kind, areas
from kubothek.odf.derived import Derivative, OnChange, Pulled, inputs_of
from kubothek.odf.derived.dividing import DividedEngine
from kubothek.odf.spec.events import SetInfo
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.storage.parallel import spread_here
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys
from tests.faultstore import Crash, Fault, FaultStore, every_crash
from tests.odf.derived.world import LATE, answer, derived, opened, pull, push, root, runs, sound, table, transform

pytestmark = pytest.mark.slow

Operate = Callable[[Store], object]


def on(store: Store) -> Pulled:
    return Derivative(store, DatasetLog(store, "late")).pull(inputs_of(store))


def divided(store: Store) -> Pulled:
    engine = DividedEngine("late", lambda: spread_here(store, 1), from_bytes=1, records=1)
    return Derivative(store, DatasetLog(store, "late")).pull(inputs_of(store), engine=engine)


def resetting(store: Store) -> object:
    late = Derivative(store, DatasetLog(store, "late"))
    return late.set_transform(transform(LATE.replace("> 10", "> 15")), inputs_of(store), on_change=OnChange.RESET)


@pytest.fixture
def copies(store: Store, tmp_path: Path) -> Callable[[], Store]:
    """Copies of the store as it is by then."""
    numbers = count()

    def copy() -> Store:
        target = tmp_path / f"copy-{next(numbers)}"
        shutil.copytree(tmp_path / "store", target)
        return open_store(StoreConfig(target.as_uri()))

    return copy


@pytest.mark.requirement("REQ-06")
@pytest.mark.parametrize("operate", [on, resetting])
def test_run_after_crash_at_any_call_is_committed_once(
    store: Store, copies: Callable[[], Store], operate: Operate
) -> None:
    root(store)
    push(store, {1: ("AA", 20), 2: ("BB", 12)})
    derived(store)
    if operate is resetting:
        pull(store)
    push(store, {1: ("AA", 30), 2: ("BB", 12)})
    counting = FaultStore(copies())
    operate(counting)
    expected = sound(counting.inner)
    faults = list(every_crash(counting.calls))
    assert len(faults) > 8
    for fault in faults:
        copy = copies()
        with pytest.raises(Crash):
            operate(FaultStore(copy, fault))
        operate(copy)
        found = sound(copy)
        assert (found.blocks, found.records) == (expected.blocks, expected.records), fault
        assert copy.get(keys.chain_ref("late")).decode() == str(found.head), fault
    on(copy)
    assert table(copy) == answer(copy, LATE if operate is on else LATE.replace("> 10", "> 15"))


@pytest.mark.parametrize("fault", [Fault(key="/parts/", nth=2, after=True), Fault(("delete",), key="/parts/")])
def test_divided_run_after_crash_leaves_garbage_and_is_committed_once(store: Store, fault: Fault) -> None:
    """Between its parts, and between the last part and the commit."""
    root(store)
    push(store, {1: ("AA", 20), 2: ("BB", 12), 3: ("AA", 1)})
    derived(store)
    with pytest.raises(Crash):
        divided(FaultStore(store, fault))
    left = [info.key for info in store.list(keys.parts("late"))]
    assert len(left) > 1
    (area,) = (area for area in areas("late", "table") if area.kind is Kind.PARTS)
    assert all(key.startswith(area.prefix) and area.owns(key) for key in left)
    assert opened(store).state.next_offset == 0
    divided(store)
    assert sound(store).records == 2
    assert table(store) == answer(store, LATE)
    assert [info.key for info in store.list(keys.parts("late"))] == left


def interrupted(store: Store, other: Callable[[], object]) -> Derivative:
    """One whose first swap of the head comes right after another writer's."""
    faulty, swaps = FaultStore(store), count()

    def before_call(name: str, key: str) -> None:
        if name == "put_if_match" and key == keys.head("late") and next(swaps) == 0:
            other()

    faulty.before_call = before_call
    return Derivative(faulty, DatasetLog(faulty, "late"))


@pytest.mark.requirement("REQ-06")
def test_concurrent_runs_are_committed_once(store: Store) -> None:
    root(store)
    push(store, {1: ("AA", 20)})
    derived(store)
    interrupted(store, lambda: pull(store)).pull(inputs_of(store))
    assert (len(runs(store)), sound(store).records) == (1, 1)

    def faster() -> None:
        push(store, {1: ("AA", 20), 2: ("BB", 20), 3: ("CC", 20)})
        pull(store)

    push(store, {1: ("AA", 20), 2: ("BB", 20)})
    slower = interrupted(store, faster).pull(inputs_of(store))
    assert slower.done.up_to_date
    assert slower.consumed == 0
    assert table(store) == answer(store, LATE)
    assert (len(runs(store)), sound(store).records) == (2, 3)


@pytest.mark.requirement("MB-06")
def test_run_conflicting_with_other_commit_is_rebased(store: Store) -> None:
    root(store)
    push(store, {1: ("AA", 20)})
    derived(store)
    done = interrupted(store, lambda: opened(store).append_events([SetInfo(description="x")])).pull(inputs_of(store))
    assert done.done.records == 1
    assert opened(store).info == SetInfo(description="x")
    assert table(store) == answer(store, LATE)
    sound(store)
