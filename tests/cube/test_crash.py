"""The process dies before or after any single call that changes the store; readers see one cube or the other.

What comes next finishes or undoes it: the same commit again, another commit, or the upkeep of one member.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from kubothek.cube.log import CubeAlreadyApplied
from kubothek.errors import DatasetNotFound, StoreUnavailable
from kubothek.storage import Store
from kubothek.table.log import DatasetLog
from tests.cube.small import State, append, build, cube_in, extra, intent_left, operations, seed, state
from tests.faultstore import Crash, Fault, FaultStore, every_crash
from tests.table.log.memory import MemoryStore

pytestmark = pytest.mark.slow

Operate = Callable[[Store], object]
NOTHING: State = {}
BUILT: State = {"seed": [1, 2], "extra": [1]}


def nothing(store: Store) -> None:
    """An empty store."""


def built(store: Store) -> None:
    build(store)


def in_two_partitions(store: Store) -> None:
    build(store)
    cube_in(store).append({"seed": seed([5], p=1), "extra": extra([5], p=1)}, id="more")


def update(store: Store) -> object:
    return cube_in(store).update({"seed": seed([9]), "extra": extra([9])}, remove="p = 0", id="update")


def remove(store: Store) -> object:
    return cube_in(store).remove_partitions("p = 0", id="remove")


def delete(store: Store) -> object:
    return cube_in(store).delete(id="delete")


def overwrite(store: Store) -> object:
    return cube_in(store).build({"seed": seed([7]), "extra": extra([7])}, overwrite=True, id="overwrite")


def seen(store: Store) -> State:
    try:
        return state(store)
    except DatasetNotFound:
        return NOTHING


CASES = [
    (nothing, build, NOTHING, BUILT),
    (built, append, BUILT, {"seed": [1, 2, 3], "extra": [1, 3]}),
    (built, overwrite, BUILT, {"seed": [7], "extra": [7]}),
    (in_two_partitions, update, {"seed": [1, 2, 5], "extra": [1, 5]}, {"seed": [5, 9], "extra": [5, 9]}),
    (in_two_partitions, remove, {"seed": [1, 2, 5], "extra": [1, 5]}, {"seed": [5], "extra": [5]}),
    (built, delete, BUILT, NOTHING),
]


@pytest.mark.parametrize(("before", "operate", "old", "new"), CASES, ids=lambda each: getattr(each, "__name__", ""))
def test_transaction_that_crashes_is_atomic_and_completes_on_next_attempt(
    before: Operate, operate: Operate, old: State, new: State
) -> None:
    prepared = MemoryStore()
    before(prepared)
    assert seen(prepared) == old
    counting = FaultStore(prepared.copy())
    operate(counting)
    assert seen(counting.inner) == new
    visited = set()
    for fault in every_crash(counting.calls):
        store = prepared.copy()
        with pytest.raises(Crash):
            operate(FaultStore(store, fault))
        found = seen(store)
        assert found in (old, new), fault
        again = operate(store)
        assert seen(store) == new, fault
        assert not intent_left(store)
        visited.add((found == new, isinstance(again, CubeAlreadyApplied)))
        assert isinstance(operate(store), CubeAlreadyApplied)
    assert visited >= {(False, False), (False, True), (True, True)}, "before it, on its way, and after it"


@pytest.mark.parametrize("after", ["tag", "append"])
def test_crashed_transaction_is_settled_by_next_commit(after: str) -> None:
    """The upkeep of a single member settles the cube first; another commit lies on top of the one that was begun."""
    prepared = MemoryStore()
    build(prepared)
    counting = FaultStore(prepared.copy())
    append(counting)
    found = []
    for fault in every_crash(counting.calls):
        store = prepared.copy()
        with pytest.raises(Crash):
            append(FaultStore(store, fault))
        if after == "tag":
            DatasetLog(store, "geo++extra").tag("here")
            rest: list[int] = []
        else:
            append(store, "other", 4)
            rest = [4]
        assert not intent_left(store)
        now = state(store)
        assert now in ({"seed": [1, 2, *rest], "extra": [1, *rest]}, {"seed": [1, 2, 3, *rest], "extra": [1, 3, *rest]})
        found.append(len(now["extra"]) > 1 + len(rest))
        versions = cube_in(store).snapshot().members
        assert all(
            DatasetLog(store, f"geo++{name}").snapshot(raw=True).version == member.snapshot.version
            for name, member in versions.items()
        ), "the cube's head follows its members"
    assert found == sorted(found), "from one call on it happens"
    assert set(found) == {False, True}


def test_settle_after_crash_can_itself_crash_and_rerun() -> None:
    prepared = MemoryStore()
    build(prepared)
    crashed = prepared.copy()
    with pytest.raises(Crash):
        append(FaultStore(crashed, Fault(("put_if_match",), 2, key="by-dataset-metadata", after=True)))
    assert intent_left(crashed)
    counting = FaultStore(crashed.copy())
    cube_in(counting).settle()
    for fault in every_crash(counting.calls):
        store = crashed.copy()
        with suppress(Crash):
            cube_in(FaultStore(store, fault)).settle()
        assert state(store) in (BUILT, {"seed": [1, 2, 3], "extra": [1, 3]})
        assert isinstance(append(store), CubeAlreadyApplied), fault
        assert operations(store) == ["Build", "Append"]


@pytest.mark.parametrize("key", ["head.json", "by-dataset-metadata"])
def test_transaction_with_lost_response_is_applied_once(key: str) -> None:
    for nth in (1, 2):
        store = MemoryStore()
        build(store)
        fault = Fault(("put_if_match",), nth, key=key, after=True, error=StoreUnavailable("lost"))
        append(FaultStore(store, fault))
        assert state(store) == {"seed": [1, 2, 3], "extra": [1, 3]}
        assert operations(store) == ["Build", "Append"]


def test_member_maintenance_that_crashes_is_applied_once_on_rerun() -> None:
    prepared = MemoryStore()
    build(prepared)
    counting = FaultStore(prepared.copy())
    DatasetLog(counting, "geo++seed").tag("here", 1)
    for fault in every_crash(counting.calls):
        store = prepared.copy()
        with pytest.raises(Crash):
            DatasetLog(FaultStore(store, fault), "geo++seed").tag("here", 1)
        assert state(store) == BUILT
        append(store)
        assert state(store) == {"seed": [1, 2, 3], "extra": [1, 3]}
        DatasetLog(store, "geo++seed").tag("here", 1)
        assert operations(store).count("Tag") == 1
