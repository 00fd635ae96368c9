"""Indices are right at every version: whatever is committed, by whom, and wherever it crashes."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from kubothek.errors import IndexInvalid, IndexStale
from kubothek.storage import Store
from kubothek.table.indexes import Collected, IndexChange, IndexCollector, IndexKind, lookup, maintain, native
from kubothek.table.indexes.report import IndexHealth, report
from kubothek.table.log import Change, Operation, Transaction
from kubothek.table.log.update_indexes import reindex
from tests.faultstore import Crash, FaultStore, every_crash
from tests.table.log.indexed import KINDS, assert_exact, create, log_of, replacing
from tests.table.log.memory import MemoryStore
from tests.table.log.plateaulike import ForeignWriter
from tests.table.log.table import SCHEMA, UUID, append, appending, started, write

pytestmark = [pytest.mark.parametrize("kind", KINDS), pytest.mark.slow]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def test_commit_of_each_operation_keeps_index_exact(store: MemoryStore, kind: IndexKind) -> None:
    create(store, kind, write(store, "p=1/a", [1, 2, 2]))
    assert assert_exact(store) == {1: {"p=1/a"}, 2: {"p=1/a"}}
    append(log_of(store), store, "more", [2, 3])
    assert_exact(store)
    started(log_of(store), "replace").commit(replacing([write(store, "p=1/b", [7])], ["p=1/a"]))
    assert set(assert_exact(store)) == {2, 3, 7}
    labels = tuple(log_of(store).snapshot().head.partitions)
    started(log_of(store), "delete").commit(Change(operation=Operation.DELETE, removed=labels))
    assert assert_exact(store) == {}
    for record in log_of(store).history():
        assert_exact(store, log_of(store).snapshot(record.version).head)


def test_commit_without_file_change_keeps_index_object(store: MemoryStore, kind: IndexKind) -> None:
    create(store, kind, write(store, "a", [1]))
    before = log_of(store).snapshot().head.index_state
    started(log_of(store), "note").commit(Change(operation=Operation.APPEND, metadata={"note": 1}))
    assert log_of(store).snapshot().head.index_state == before


def test_concurrent_appends_both_land_without_rewriting_data(store: MemoryStore, kind: IndexKind) -> None:
    create(store, kind, write(store, "a", [1]))
    slow, fast = started(log_of(store), "slow"), started(log_of(store), "fast")
    ours, theirs = write(store, "slow", [5, 6]), write(store, "fast", [6, 7])
    fast.commit(appending(theirs))
    written = [key for key in store.objects if "/table/" in key]
    slow.commit(appending(ours))
    assert [key for key in store.objects if "/table/" in key] == written
    assert assert_exact(store)[6] == {"slow", "fast"}


def test_index_built_or_dropped_during_other_commits_stays_exact(store: MemoryStore, kind: IndexKind) -> None:
    """An index that is built for one head is right on the next; a commit that knew of none keeps it."""
    append(log_of(store), store, "1", [1])
    building, writing = started(log_of(store), "index"), started(log_of(store), "2")
    writing.commit(appending(write(store, "b", [2])))
    building.commit(Change(operation=Operation.INDEX, index=IndexChange(wanted={"x": kind})))
    assert set(assert_exact(store)) == {1, 2}
    late = started(log_of(store), "late")
    started(log_of(store), "drop").commit(Change(operation=Operation.INDEX, index=IndexChange(wanted={"x": None})))
    late.commit(appending(write(store, "c", [3])))
    assert log_of(store).snapshot().head.index_state.kinds() == {}


def test_index_entries_collected_while_writing_avoid_reading_files(store: MemoryStore, kind: IndexKind) -> None:
    create(store, kind, write(store, "a", [1]))
    file = write(store, "b", [4])
    collector = IndexCollector(store, UUID, {"x": pa.int64()})
    collector.observe("b", [pa.record_batch({"x": [4]})])
    watched = FaultStore(store)
    started(log_of(watched), "b").commit(replace(appending(file), index=IndexChange(collected=collector.finish())))
    assert not [call for call in watched.calls if call.name == "open" and call.key == file.key]
    assert_exact(store)


@pytest.mark.parametrize("rolled_back", [False, True])
def test_commit_that_crashes_is_atomic_and_keeps_index_exact(kind: IndexKind, rolled_back: bool) -> None:
    prepared = MemoryStore()
    create(prepared, kind, write(prepared, "a", [1, 2]))
    append(log_of(prepared), prepared, "b", [2, 3])

    def operate(store: Store) -> None:
        begun = log_of(store).begin("operate", "d")
        if isinstance(begun, Transaction):
            added = [] if rolled_back else [write(store, "c", [9])]
            begun.commit(replacing(added, ["a"]))

    counting = FaultStore(prepared.copy())
    operate(counting)
    for fault in every_crash(counting.calls):
        store = prepared.copy()
        with pytest.raises(Crash):
            operate(FaultStore(store, fault))
        values = set(assert_exact(store))
        assert values in ({1, 2, 3}, {2, 3} if rolled_back else {2, 3, 9}), fault
        operate(store)
        assert set(assert_exact(store)) == ({2, 3} if rolled_back else {2, 3, 9}), fault


def test_index_build_that_crashes_is_atomic_and_completes_on_rerun(kind: IndexKind) -> None:
    prepared = MemoryStore()
    append(log_of(prepared), prepared, "a", [1, 2])
    append(log_of(prepared), prepared, "b", [2, 3])
    counting = FaultStore(prepared.copy())

    def build(store: Store) -> None:
        reindex(store, log_of(store), {"x": kind})

    build(counting)
    for fault in every_crash(counting.calls):
        store = prepared.copy()
        with pytest.raises(Crash):
            build(FaultStore(store, fault))
        build(store)
        assert_exact(store)


def test_files_restored_by_rollback_are_indexed_again(store: MemoryStore, kind: IndexKind) -> None:
    """A rollback lists old labels once more."""
    first = write(store, "a", [1])
    create(store, kind, first)
    started(log_of(store), "replace").commit(replacing([write(store, "b", [2])], ["a"]))
    if kind is IndexKind.NATIVE:
        reindex(store, log_of(store), rebuild=True)  # drops the entries of what is gone
    started(log_of(store), "back").commit(replacing([first], ["b"]))
    assert assert_exact(store) == {1: {"a"}}


def test_file_that_only_changes_position_keeps_index_unchanged(store: MemoryStore, kind: IndexKind) -> None:
    file = write(store, "a", [1])
    create(store, kind, file, write(store, "b", [2]))
    before = log_of(store).snapshot().head.index_state
    started(log_of(store), "move").commit(replacing([file], ["a"]))
    assert log_of(store).snapshot().head.index_state == before
    assert list(log_of(store).snapshot().head.partitions) == ["b", "a"]
    assert_exact(store)


def test_index_on_untyped_column_is_built_with_first_values(store: MemoryStore, kind: IndexKind) -> None:
    untyped = pa.schema([("x", pa.null())])
    index = IndexChange(wanted={"x": kind})
    started(log_of(store), "1").commit(Change(operation=Operation.CREATE, schema=untyped, index=index))
    assert log_of(store).snapshot().head.index_state.pending == {"x": kind}
    assert [each.health for each in log_of(store).inspect().indices] == [IndexHealth.WAITING]
    append(log_of(store), store, "2", [5])
    assert log_of(store).snapshot().head.index_state.kinds() == {"x": kind}
    assert assert_exact(store) == {5: set(log_of(store).snapshot().head.partitions)}


def test_missing_index_blocks_commits_until_rebuilt(store: MemoryStore, kind: IndexKind) -> None:
    create(store, kind, write(store, "a", [1]))
    state = log_of(store).snapshot().head.index_state
    store.delete([*state.kartothek.values(), *state.native.values()])
    before = log_of(store).snapshot().version
    with pytest.raises(IndexStale, match="--rebuild"):
        append(log_of(store), store, "2", [2])
    assert log_of(store).snapshot().version == before
    assert [each.health for each in report(store, state)] == [IndexHealth.STALE]
    done = reindex(store, log_of(store))
    assert done.built == ("x",)
    append(log_of(store), store, "3", [3])
    assert set(assert_exact(store)) == {1, 3}


def test_reindex_builds_drops_and_converts_indices(store: MemoryStore, kind: IndexKind) -> None:
    append(log_of(store), store, "1", [1, 1, 2])
    append(log_of(store), store, "2", [2])
    assert reindex(store, log_of(store), {"x": kind}).built == ("x",)
    assert_exact(store)
    assert reindex(store, log_of(store), {"x": kind}).version is None, "nothing left to do"
    other = IndexKind.NATIVE if kind is IndexKind.KARTOTHEK else IndexKind.KARTOTHEK
    assert reindex(store, log_of(store), {"x": other}).built == ("x",)
    assert log_of(store).snapshot().head.index_state.kinds() == {"x": other}
    assert_exact(store)
    assert reindex(store, log_of(store), {}).dropped == ("x",)
    assert log_of(store).snapshot().head.index_state.kinds() == {}
    assert next(iter(log_of(store).history())).operation is Operation.INDEX


@pytest.mark.parametrize(
    ("column", "problem"),
    [("gone", "no such column"), ("p", "partition column"), ("list", "list<int64> cannot be indexed")],
)
def test_index_on_unsupported_column_is_refused_by_name(
    store: MemoryStore, kind: IndexKind, column: str, problem: str
) -> None:
    schema = pa.schema([("p", pa.int64()), ("list", pa.list_(pa.field("item", pa.int64()))), ("x", pa.int64())])
    create_ = Change(operation=Operation.CREATE, schema=schema, partition_keys=("p",))
    started(log_of(store), "1").commit(create_)
    before = dict(store.objects)
    with pytest.raises(IndexInvalid, match=f"'{column}'.*{problem}"):
        reindex(store, log_of(store), {column: kind})
    assert store.objects == before


# --- foreign writers ---


@pytest.mark.parametrize("erases", [False, True])
def test_lookup_after_adoption_finds_foreign_files(store: MemoryStore, kind: IndexKind, erases: bool) -> None:
    """This one leaves the index behind, which both libraries keep up; erasing is kartothek's index build."""
    create(store, kind, write(store, "a", [1]), write(store, "b", [2]))
    foreign = ForeignWriter(store, "theirs", [1, 8], removes=["b"], erases=erases)
    foreign.read()
    foreign.write()
    unadopted = log_of(store).snapshot().head
    if kind is IndexKind.NATIVE:
        assert lookup(store, unadopted, SCHEMA, "x", "=", [8]) is None, "not trusted before it is adopted"
    log_of(store).settle()
    assert set(assert_exact(store)) == {1, 8}


def test_commit_overwritten_by_foreign_writer_is_indexed_again(store: MemoryStore, kind: IndexKind) -> None:
    create(store, kind, write(store, "a", [1]))
    foreign = ForeignWriter(store, "theirs", [3])
    foreign.read()
    append(log_of(store), store, "lost", [2])
    foreign.write()
    log_of(store).settle()
    assert set(assert_exact(store)) == {1, 2, 3}


def test_foreign_head_with_missing_index_is_adopted(store: MemoryStore, kind: IndexKind) -> None:
    create(store, kind, write(store, "a", [1]))
    state = log_of(store).snapshot().head.index_state
    foreign = ForeignWriter(store, "theirs", [3])
    foreign.read()
    foreign.write()
    store.delete([*state.kartothek.values(), *state.native.values()])
    log_of(store).settle()
    assert log_of(store).snapshot().head.index_state.kinds() == {}
    reindex(store, log_of(store), {"x": kind})
    assert set(assert_exact(store)) == {1, 3}


# --- the tests themselves ---


def test_planted_stale_index_is_detected(store: MemoryStore, kind: IndexKind, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: new files do not enter the index."""
    create(store, kind, write(store, "a", [1]))
    monkeypatch.setattr(maintain._Maintenance, "_missing", lambda *_args, **_named: {})
    append(log_of(store), store, "b", [2])
    with pytest.raises(AssertionError):
        assert_exact(store)


def test_planted_entries_of_deleted_file_are_detected(
    store: MemoryStore, kind: IndexKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted fault: entries of what is gone stay. No harm in a native index, forbidden in Kartothek's."""
    create(store, kind, write(store, "a", [1]))
    monkeypatch.setattr(maintain, "with_labels", lambda table, _labels: table)
    started(log_of(store), "replace").commit(replacing([write(store, "b", [2])], ["a"]))
    if kind is IndexKind.KARTOTHEK:
        with pytest.raises(AssertionError):
            assert_exact(store)
    else:
        assert_exact(store)


def test_many_small_commits_keep_index_file_count_low(store: MemoryStore, kind: IndexKind) -> None:
    if kind is IndexKind.KARTOTHEK:
        create(store, kind)
        assert isinstance(log_of(store).snapshot().head.indices["x"], str), "always one file"
        return
    create(store, kind)
    for n in range(20):
        append(log_of(store), store, f"{n}", [n])
    manifest = native.read_manifest(store, log_of(store).snapshot().head.index_state.native["x"])
    assert len(manifest.files) < 8
    assert set(assert_exact(store)) == set(range(20))


def test_joined_entries_cover_only_columns_present_in_every_part(kind: IndexKind) -> None:
    both = Collected(frozenset({"a"}), {"x": (), "y": ()})
    one = Collected(frozenset({"b"}), {"x": ()})
    joined = Collected.joined([both, Collected(), one])
    assert joined.of("x") == {"a", "b"}
    assert joined.of("y") == frozenset(), f"{kind}: b has entries for y that nobody gathered"
