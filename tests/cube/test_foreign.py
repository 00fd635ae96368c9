"""Kartothek and plateau write to members blindly: what they did is checked and adopted, or reported and taken back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import orjson
import pyarrow as pa
import pytest

from kubothek.errors import Conflict, CubeBroken, DatasetExists
from kubothek.storage import Store
from kubothek.table import operations as operations_of
from kubothek.table.log import DatasetLog, Transaction
from kubothek.table.operations import write_rows
from tests.cube.foreign import Head, add_as_kartothek, append_as_kartothek, put_over
from tests.cube.small import (
    State,
    append,
    at_write,
    build,
    cube_in,
    extra,
    intent_left,
    operations,
    raw,
    seed,
    state,
    values_of,
    writes_of,
)
from tests.faultstore import Crash, Fault, FaultStore, every_crash
from tests.table.log.memory import MemoryStore

pytestmark = pytest.mark.slow

BUILT: State = {"seed": [1, 2], "extra": [1]}


def built() -> MemoryStore:
    store = MemoryStore()
    build(store)
    return store


def test_append_by_kartothek_is_visible_before_adoption() -> None:
    store = built()
    append_as_kartothek(store, "extra", extra([2], [20]))
    before = dict(store.objects)
    assert state(store) == {"seed": [1, 2], "extra": [1, 20]}
    assert values_of(store, DatasetLog(store, "geo++extra").snapshot()) == [1, 20]
    assert raw(store, "extra") == [1, 20]
    assert cube_in(store).snapshot(1).version == 1
    assert store.objects == before
    append(store)
    assert state(store) == {"seed": [1, 2, 3], "extra": [1, 20, 3]}
    assert operations(store) == ["Build", "External", "Append"]


def test_member_maintenance_adopts_foreign_append() -> None:
    store = built()
    append_as_kartothek(store, "extra", extra([2], [20]))
    DatasetLog(store, "geo++extra").tag("here")
    assert state(store) == {"seed": [1, 2], "extra": [1, 20]}
    assert operations(store) == ["Build", "External", "Tag"]


def test_dataset_added_by_kartothek_becomes_member() -> None:
    store = built()
    add_as_kartothek(store, "more", pa.table({"x": [1, 2], "m": [5, 6]}))
    assert list(state(store)) == ["seed", "extra"]
    append(store)
    assert state(store) == {"seed": [1, 2, 3], "extra": [1, 3], "more": [5, 6]}


def erase_metadata(head: Head) -> None:
    """Kartothek's index build (seen with plateau 4.6)."""
    del head["metadata"]


def test_metadata_erased_by_kartothek_is_restored() -> None:
    store = built()
    put_over(store, "seed", erase_metadata)
    append(store)
    assert state(store) == {"seed": [1, 2, 3], "extra": [1, 3]}
    assert cube_in(store).snapshot().seed.snapshot.head.metadata["ktk_cube_is_seed"] is True


def payload_twice(store: Store) -> None:
    add_as_kartothek(store, "more", pa.table({"x": [1], "v": [5]}))


def second_seed(store: Store) -> None:
    add_as_kartothek(store, "more", pa.table({"x": [1], "m": [5]}), is_seed=True)


def other_type(store: Store) -> None:
    add_as_kartothek(store, "more", pa.table({"x": ["a"], "m": [5]}))


def no_dimension(store: Store) -> None:
    add_as_kartothek(store, "more", pa.table({"m": [5]}))


def loose_partition_column(store: Store) -> None:
    add_as_kartothek(store, "more", pa.table({"x": [1], "p": [0], "m": [5]}))


@pytest.mark.parametrize(
    ("breaks", "why"),
    [
        (payload_twice, "'v' in the datasets 'more' and 'seed'"),
        (second_seed, "'more' says that it is the seed"),
        (other_type, "incompatible types for column 'x'"),
        (no_dimension, "'more' must have at least 1"),
        (loose_partition_column, "unspecified but provided partition columns in dataset 'more': 'p'"),
    ],
)
def test_foreign_change_that_breaks_cube_is_reported_and_discardable(breaks: Callable[[Store], None], why: str) -> None:
    store = built()
    breaks(store)
    append_as_kartothek(store, "extra", extra([2], [20]))
    for _ in range(2):
        with pytest.raises(CubeBroken, match=why):
            append(store)
        assert state(store) == BUILT
    assert cube_in(store).discard_foreign().members.keys() == BUILT.keys()
    assert state(store) == BUILT
    assert raw(store, "extra") == [1], "also for those who do not ask the cube"
    append(store)
    assert state(store) == {"seed": [1, 2, 3], "extra": [1, 3]}


def test_foreign_change_that_overwrote_commit_is_hidden_until_adoption() -> None:
    store = built()
    stale = store.get("geo++extra.by-dataset-metadata.json")
    append(store)
    store.put("geo++extra.by-dataset-metadata.json", stale)
    append_as_kartothek(store, "extra", extra([2], [20]))
    assert state(store) == {"seed": [1, 2, 3], "extra": [1, 3]}
    append(store, "after", 4)
    assert state(store) == {"seed": [1, 2, 3, 4], "extra": [1, 20, 3, 4]}


def test_foreign_change_of_partition_keys_is_not_visible() -> None:
    store = built()
    put_over(store, "extra", lambda head: head.update(partition_keys=[]))
    assert state(store) == BUILT


@pytest.mark.parametrize("name", ["seed", "extra"])
def test_foreign_write_during_transaction_leaves_consistent_cube(name: str) -> None:
    """Its rows are never lost, the transaction happens once, and readers see a mix at no call of either."""
    counting = FaultStore(built())
    append(counting)
    for moment in range(writes_of(counting.calls)):
        inner = built()
        store = FaultStore(inner)

        def act(inner: Store = inner) -> None:
            append_as_kartothek(inner, name, extra([2], [20]) if name == "extra" else seed([9], [20]))

        at_write(store, moment, act, partial(assert_whole, inner))
        append(store)
        append(inner, "after", 4)
        assert not intent_left(inner)
        final = state(inner)
        assert sorted(final[name]) == sorted([*BUILT[name], 3, 4, 20]), moment
        other = "seed" if name == "extra" else "extra"
        assert final[other] == [*BUILT[other], 3, 4], moment
        assert operations(inner).count("Append") == 2


def assert_whole(store: Store) -> None:
    found = state(store)
    assert (3 in found["seed"]) == (3 in found["extra"]), "a mix"


def test_transaction_blocked_by_foreign_deletion_is_rolled_back() -> None:
    """The partition that an update replaces goes away under it, after its first member was committed."""
    store = built()
    faulty = FaultStore(store)

    def meanwhile(call: str, key: str) -> None:
        if call == "put_if_match" and key == "geo++extra.by-dataset-metadata.json" and raw(store, "extra") == [1]:
            put_over(store, "extra", lambda head: head["partitions"].clear())

    faulty.before_call = meanwhile
    with pytest.raises(Conflict):
        cube_in(faulty).update({"seed": seed([9]), "extra": extra([9])}, remove="p = 0", id="update")
    assert not intent_left(store)
    assert state(store) == {"seed": [1, 2], "extra": []}
    assert "Undone" in operations(store)
    assert "Update" not in operations(store)


def test_rollback_of_transaction_can_crash_and_rerun() -> None:
    begun = built()
    stuck = FaultStore(begun, Fault(("put_if_match",), 1, key="geo++extra.by-dataset-metadata.json"))
    with pytest.raises(Crash):
        cube_in(stuck).update({"seed": seed([9]), "extra": extra([9])}, remove="p = 0", id="update")
    put_over(begun, "extra", lambda head: head["partitions"].clear())
    counting = FaultStore(begun.copy())
    cube_in(counting).settle()
    for fault in every_crash(counting.calls):
        store = begun.copy()
        with suppress(Crash):
            cube_in(FaultStore(store, fault)).settle()
        assert state(store)["seed"] == [1, 2], fault
        append(store)
        assert state(store) == {"seed": [1, 2, 3], "extra": [3]}, fault
        assert not intent_left(store)


def extend(store: Store) -> object:
    return cube_in(store).extend({"more": pa.table({"x": [1], "p": [0], "m": [7]})}, id="extend")


@pytest.mark.parametrize("valid", [True, False])
def test_foreign_dataset_with_name_of_new_member_is_adopted_or_discarded(valid: bool) -> None:
    """It crashed between the intent and the member's first head; kartothek was faster then."""
    begun = built()
    with pytest.raises(Crash):
        extend(FaultStore(begun, Fault(("put_if_absent",), 1, key="geo++more.by-dataset-metadata.json")))
    add_as_kartothek(begun, "more", pa.table({"x": [1], "m" if valid else "v": [5]}))
    counting = FaultStore(begun.copy())
    with suppress(CubeBroken):
        cube_in(counting).settle()
    for fault in every_crash(counting.calls):
        store = begun.copy()
        with suppress(Crash, CubeBroken):
            cube_in(FaultStore(store, fault)).settle()
        assert {name: values for name, values in state(store).items() if name != "more"} == BUILT
        if valid:
            append(store)
            assert state(store) == {"seed": [1, 2, 3], "extra": [1, 3], "more": [5]}, fault
            with pytest.raises(DatasetExists):
                extend(store)
        else:
            with pytest.raises(CubeBroken):
                append(store)
            cube_in(store).discard_foreign()
            extend(store)
            assert state(store) == {**BUILT, "more": [7]}, fault
        assert not intent_left(store)


def test_foreign_invalid_change_is_excluded_from_recovery_and_rollback() -> None:
    """Its head takes the place of one that a transaction had committed, or was to commit."""

    def loosen(head: Head) -> None:
        head["partition_keys"] = []

    for nth, after in ((1, False), (1, True), (2, False), (2, True)):
        store = built()
        stale = store.get("geo++extra.by-dataset-metadata.json")
        fault = Fault(("put_if_match",), nth, key="by-dataset-metadata.json", after=after)
        with suppress(Crash):
            append(FaultStore(store, fault))
        if nth == 2 and after:
            store.put("geo++extra.by-dataset-metadata.json", stale)
        put_over(store, "extra", loosen)
        with pytest.raises(CubeBroken, match="unspecified but provided partition columns in dataset 'extra'"):
            cube_in(store).settle()
        assert state(store) in (BUILT, {"seed": [1, 2, 3], "extra": [1, 3]})
        cube_in(store).discard_foreign()
        append(store)
        assert state(store) == {"seed": [1, 2, 3], "extra": [1, 3]}
        assert not intent_left(store)


def test_transaction_being_rolled_back_cannot_be_marked_applied() -> None:
    """All members were swapped, when a foreign head takes one away for good. Who notices it dies while he undoes the
    other; and whoever swapped them only now comes to say that it is done.
    """
    store = built()
    stale = orjson.loads(store.get("geo++extra.by-dataset-metadata.json"))
    walked, puts = FaultStore(store), 0

    def meanwhile(call: str, key: str) -> None:
        nonlocal puts
        puts += call == "put_if_match" and key.endswith("head.json")
        if call == "put_if_match" and key.endswith("head.json") and puts == 2:
            store.put("geo++extra.by-dataset-metadata.json", orjson.dumps({**stale, "partitions": {}}))
            dying = FaultStore(store, Fault(("put_if_absent",), key="geo++seed/applied/kubothek%3Acube-undo"))
            with pytest.raises(Crash):
                cube_in(dying).settle()

    walked.before_call = meanwhile
    with pytest.raises(Conflict):
        cube_in(walked).update({"seed": seed([9]), "extra": extra([9])}, remove="p = 0", id="update")
    cube_in(store).settle()
    assert state(store) == {"seed": [1, 2], "extra": []}
    assert operations(store)[:2] == ["Build", "Undone"]
    assert raw(store, "seed") == [1, 2]


def test_member_commit_that_was_discarded_can_be_committed_again() -> None:
    """It was the head once, and marked; a foreign head that breaks the rules took its place, and below it it stays."""
    store = built()
    stale = orjson.loads(store.get("geo++extra.by-dataset-metadata.json"))
    dying = FaultStore(store, Fault(("put_if_match",), 2, key="head.json"))
    with pytest.raises(Crash):
        append_alone(dying, "load", 5)
    assert raw(store, "extra") == [1, 5]
    store.put("geo++extra.by-dataset-metadata.json", orjson.dumps({**stale, "partition_keys": []}))
    with pytest.raises(CubeBroken):
        cube_in(store).settle()
    assert state(store) == BUILT
    cube_in(store).discard_foreign()
    assert state(store) == BUILT
    append_alone(store, "load", 5)
    assert state(store) == {"seed": [1, 2], "extra": [1, 5]}
    append_alone(store, "load", 5)
    assert state(store) == {"seed": [1, 2], "extra": [1, 5]}


def append_alone(store: Store, commit_id: str, cell: int) -> None:
    """As a program appends to the member itself."""
    started = DatasetLog(store, "geo++extra").begin(commit_id, "d")
    if isinstance(started, Transaction):
        base = started.snapshot
        started.commit(operations_of.append(write_rows(store, base, extra([cell]), table=base.schema)))
