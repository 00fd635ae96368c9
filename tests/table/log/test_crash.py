"""The process dies before or after any single call that changes the store; then the job runs again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import orjson
import pyarrow as pa
import pytest

from kubothek.errors import HeadMissing
from kubothek.storage import Store
from kubothek.table.log import Change, DatasetLog, Operation, Transaction
from kubothek.table.schema import render_common_metadata
from tests.faultstore import Crash, FaultStore, every_crash
from tests.table.log.memory import MemoryStore
from tests.table.log.table import (
    CLAIM,
    SCHEMA,
    UUID,
    append,
    appending,
    ids,
    keys_below,
    present,
    started,
    values_of,
    write,
)

Operate = Callable[[Store], object]


def log_of(store: Store) -> DatasetLog:
    return DatasetLog(store, UUID, claim=CLAIM)


def first(store: Store) -> object:
    return append(log_of(store), store, "first", [1])


def second(store: Store) -> object:
    return append(log_of(store), store, "second", [2])


def upgrade(store: Store) -> object:
    """Changes the schema, so that ``_common_metadata`` follows."""
    return append(log_of(store), store, "upgrade", [3])


def nothing(store: Store) -> None:
    """An empty store."""


def created(store: Store) -> None:
    first(store)


def untyped(store: Store) -> None:
    started(log_of(store), "create").commit(Change(operation=Operation.CREATE, schema=pa.schema([("x", pa.null())])))


def almost_a_checkpoint(store: Store) -> None:
    for n in range(98):
        started(log_of(store), str(n)).commit(Change(operation=Operation.APPEND, schema=SCHEMA))
    first(store)


@pytest.mark.parametrize(
    ("before", "operate", "expected"),
    [
        (nothing, first, [1]),
        (created, second, [1, 2]),
        (untyped, upgrade, [3]),
        (almost_a_checkpoint, second, [1, 2]),
    ],
    ids=["first commit", "append", "schema change", "checkpoint"],
)
def test_commit_rerun_after_crash_is_applied_once(before: Operate, operate: Operate, expected: list[int]) -> None:
    prepared = MemoryStore()
    before(prepared)
    counting = FaultStore(prepared.copy())
    operate(counting)
    for fault in every_crash(counting.calls):
        store = prepared.copy()
        with pytest.raises(Crash):
            operate(FaultStore(store, fault))
        begun = log_of(store).begin(operate.__name__, "d")
        if isinstance(begun, Transaction):
            begun.commit(appending(write(store, "again", expected[-1:])))
        assert present(store) == expected, fault
        assert ids(log_of(store)).count(operate.__name__) == 1, fault
        assert_whole(store)
        assert_leftovers_are_attributable(store)


def test_version_after_many_crashed_commits_can_be_rebuilt() -> None:
    """One crash after the other on the same dataset, with one attempt each."""
    store = MemoryStore()
    counting = FaultStore(store.copy())
    first(counting)
    for number, fault in enumerate(every_crash(counting.calls)):
        faulty = FaultStore(store, fault)
        with suppress(Crash):
            append(log_of(faulty), faulty, f"crash-{number}", [number])
    append(log_of(store), store, "last", [99])
    log = log_of(store)
    states = [values_of(store, log.snapshot(record.version)) for record in log.history()]
    assert states[0][-1] == 99
    assert all(older == newer[: len(older)] for newer, older in pairwise(states))


@pytest.mark.parametrize("operate", ["delete", "restore"])
def test_deletion_or_restore_that_crashes_completes_on_rerun(operate: str) -> None:
    prepared = MemoryStore()
    first(prepared)
    if operate == "restore":
        log_of(prepared).delete()
    counting = FaultStore(prepared.copy())
    getattr(log_of(counting), operate)()
    for fault in every_crash(counting.calls):
        store = prepared.copy()
        with pytest.raises(Crash):
            getattr(log_of(FaultStore(store, fault)), operate)()
        getattr(log_of(store), operate)()
        assert log_of(store).inspect().deleted is (operate == "delete"), fault
        if operate == "restore":
            assert present(store) == [1]
            assert_whole(store)


def test_record_of_first_commit_without_swap_is_not_missing_head() -> None:
    store = MemoryStore()
    counting = FaultStore(store.copy())
    first(counting)
    for fault in every_crash(counting.calls):
        store = MemoryStore()
        with pytest.raises(Crash):
            first(FaultStore(store, fault))
        append(log_of(store), store, "another", [5])
        assert 5 in present(store)


def test_missing_head_is_reported_and_never_recreated() -> None:
    store = MemoryStore()
    first(store)
    store.delete([f"{UUID}.by-dataset-metadata.json"])
    before = keys_below(store)
    with pytest.raises(HeadMissing):
        log_of(store).begin("second", "d")
    with pytest.raises(HeadMissing):
        log_of(store).snapshot()
    assert (log_of(store).inspect().problem or "").startswith("HeadMissing")
    assert keys_below(store) == before


@pytest.mark.parametrize("ask", [DatasetLog.inspect, DatasetLog.snapshot])
def test_head_created_during_record_listing_is_not_missing(
    ask: Callable[[DatasetLog], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    listed = store.list

    def late(prefix: str) -> object:
        monkeypatch.undo()
        first(store)
        return listed(prefix)

    monkeypatch.setattr(store, "list", late)
    ask(log_of(store))
    assert log_of(store).inspect().problem is None
    assert present(store) == [1]


def assert_whole(store: Store) -> None:
    """The head's commit is marked, and the copy of the schema is the head's."""
    log = log_of(store)
    schema = log.snapshot().schema
    assert schema is not None
    assert store.get(f"{UUID}/table/_common_metadata") == render_common_metadata(schema)
    newest = next(iter(log.history()))
    markers = [orjson.loads(store.get(key)) for key in keys_below(store, f".kubothek/{UUID}/applied/")]
    assert newest.key in [marker.get("record") for marker in markers]


def assert_leftovers_are_attributable(store: Store) -> None:
    """What no version references is: data files, records that are not on the chain, schemas."""
    log = log_of(store)
    records = list(log.history())
    referenced = {file.key for record in records for file in record.delta.added}
    referenced |= {record.key for record in records}
    referenced |= {f".kubothek/{UUID}/schemas/{log.snapshot().head.schema_hash}"}
    leftovers = set(keys_below(store)) - referenced
    for key in leftovers:
        assert key.startswith(
            (
                f"{UUID}/table/",
                f"{UUID}.by-dataset-metadata.json",
                f".kubothek/{UUID}/commits/",
                f".kubothek/{UUID}/schemas/",
                f".kubothek/{UUID}/applied/",
                f".kubothek/{UUID}/checkpoints/",
                f".kubothek/{UUID}/owner.json",
            )
        ), key
