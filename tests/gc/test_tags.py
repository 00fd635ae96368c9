"""Tagged versions stay, whatever policies say, beside whom and whenever they were tagged; untagged ones go."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubothek.errors import LakeError, StoreUnavailable, VersionIncomplete, VersionNotFound, VersionTagged
from kubothek.gc import Kind, Mode, Retention, collect, collection, mark, references
from kubothek.gc.mark import TaggedVersions
from kubothek.storage import Store
from kubothek.table.indexes import IndexKind
from kubothek.table.indexes.report import IndexHealth, report
from kubothek.table.log import Change, Everything, Head, Operation
from kubothek.table.log.history.rebuild import rebuild
from kubothek.table.log.model import keys
from kubothek.table.log.prepare import draft
from kubothek.table.log.update_indexes import reindex
from kubothek.table.operations import rollback
from tests.faultstore import ALL, Crash, Fault, FaultStore
from tests.gc.aging import GRACE, AgingStore, contents, dangling, log_of
from tests.gc.test_collect import four_versions, overwrite, sweep
from tests.gc.test_crash import expired
from tests.gc.test_races import at_each_call
from tests.table.log.plateaulike import ForeignWriter
from tests.table.log.table import UUID, append, keys_below, present, started, values_of, write

pytestmark = pytest.mark.slow

ONE = [Retention(versions=1)]


@pytest.fixture
def store() -> AgingStore:
    """Versions 1 to 4 with the number as their only value, all but the last due; version 2 is called ``audit``."""
    return tagged().copy()


@cache
def tagged() -> AgingStore:
    made = four_versions()
    log_of(made).set_tags({"audit": 2})
    made.pass_by(3 * GRACE)
    return made


def read(store: Store, version: int | str) -> list[int]:
    return values_of(store, log_of(store).snapshot(version))


def assert_kept(store: AgingStore) -> None:
    """Version 2 by name and number, the present one, and nothing that names what is gone."""
    assert read(store, "audit") == read(store, 2) == [2]
    assert present(store) == [4]
    contents(store)
    assert not dangling(store)


def test_tagged_version_stays_and_adjacent_versions_expire(store: AgingStore) -> None:
    assert sweep(store) == {Kind.DATA: 2, Kind.RECORDS: 2}
    assert_kept(store)
    for version in (1, 3):
        with pytest.raises(VersionNotFound, match="has expired"):
            read(store, version)
    assert sorted(contents(store)) == [4, 5, 6]


def test_tagged_version_stays_after_repeated_collections(store: AgingStore) -> None:
    for n in range(3):
        sweep(store)
        overwrite(store, f"more-{n}", [4])
        store.pass_by(3 * GRACE)
    assert sweep(store)[Kind.DATA] == 1
    assert_kept(store)


def test_rollback_to_tagged_version_below_horizon_succeeds(store: AgingStore) -> None:
    sweep(store)
    transaction = started(log_of(store), "back")
    transaction.commit(rollback(store, log_of(store), transaction.snapshot, "audit"))
    store.pass_by(3 * GRACE)
    log_of(store).untag("audit")
    store.pass_by(3 * GRACE)
    sweep(store)
    assert present(store) == [2]
    assert not dangling(store)


def test_rollback_decided_before_untagging_is_refused(store: AgingStore) -> None:
    sweep(store)
    transaction = started(log_of(store), "back")
    change = rollback(store, log_of(store), transaction.snapshot, 2)
    log_of(store).untag("audit")
    with pytest.raises(VersionNotFound, match="has expired"):
        transaction.commit(change)
    assert present(store) == [4]


def test_untagged_version_expires_after_grace_period(store: AgingStore) -> None:
    """Somebody may be reading it, as any version that was there within the grace period."""
    sweep(store)
    snapshot = log_of(store).snapshot("audit")
    log_of(store).untag("audit")
    with pytest.raises(VersionNotFound, match="has expired"):
        read(store, 2)
    store.pass_by(GRACE)
    sweep(store)
    assert values_of(store, snapshot) == [2]
    store.pass_by(GRACE)
    assert sweep(store)[Kind.DATA] == 1
    left = [key for key in keys_below(store, f"{UUID}/table/") if key.endswith(".parquet")]
    assert len(left) == 1
    assert [key for key in keys_below(store, keys.checkpoints(UUID)) if keys.checkpoint_version(key) == 2] == []


def test_recently_removed_tags_each_delay_expiry(store: AgingStore) -> None:
    log = log_of(store)
    log.set_tags({"audit": 2, "first": 1})
    store.pass_by(3 * GRACE)
    sweep(store)
    first = log.snapshot("first")
    log.set_tags({"audit": 2, "third": 4})
    log.set_tags({"audit": 2})
    store.pass_by(0.9 * GRACE)
    sweep(store)
    assert values_of(store, first) == [1]
    assert_kept(store)


def test_collection_with_longer_grace_accepts_deleted_untagged_version(store: AgingStore) -> None:
    sweep(store)
    log_of(store).untag("audit")
    store.pass_by(2 * GRACE)
    sweep(store)
    write(store, "litter")
    store.pass_by(2 * GRACE)
    collect(store, log_of(store), ONE, mode=Mode.ENFORCE, grace=30 * GRACE)
    assert present(store) == [4]
    assert not dangling(store)


def test_tagging_creates_no_version(store: AgingStore) -> None:
    log = log_of(store)
    for n in range(5):
        log.tag(f"t{n}", 4)
    log.set_tags({})
    store.pass_by(3 * GRACE)
    sweep(store, [Retention(versions=2)])
    assert read(store, 3) == [3]


def test_tagged_version_without_checkpoint_is_incomplete(store: AgingStore) -> None:
    """Its record and checkpoint are all that is left of its time: nobody takes it for whole without them."""
    sweep(store)
    store.delete([keys.checkpoint(UUID, 2)])
    with pytest.raises(VersionIncomplete):
        read(store, "audit")
    write(store, "litter")
    store.pass_by(3 * GRACE)
    before = set(keys_below(store, f"{UUID}/"))
    with pytest.raises(VersionIncomplete):
        sweep(store)
    assert set(keys_below(store, f"{UUID}/")) == before
    log_of(store).untag("audit")
    store.pass_by(3 * GRACE)
    assert sweep(store)[Kind.DATA] == 2


def test_indices_of_tagged_version_stay() -> None:
    """Kartothek's file, and the manifests and sorted files of a native one."""
    for kind in IndexKind:
        store = expired()
        reindex(store, log_of(store), {"x": kind})
        append(log_of(store), store, "fifth", [5])
        indexed = log_of(store).tag("audit")
        for n in (6, 7, 8):
            overwrite(store, f"v{n}", [n])
        store.pass_by(3 * GRACE)
        sweep(store)
        snapshot = log_of(store).snapshot("audit")
        assert (snapshot.version, values_of(store, snapshot)) == (indexed, [3, 4, 5])
        state = snapshot.head.index_state
        assert [each.health for each in report(store, state)] == [IndexHealth.READY]
        assert {*references.of_head(snapshot.head)}.isdisjoint(references.of_head(log_of(store).snapshot().head))
        assert not dangling(store)


def test_tags_of_deleted_dataset_stay_while_restorable(store: AgingStore) -> None:
    sweep(store)
    log = log_of(store)
    log.delete()
    store.pass_by(GRACE)
    sweep(store)
    log.restore()
    assert_kept(store)
    log.delete()
    store.pass_by(3 * GRACE)
    sweep(store)
    assert [key for key in keys_below(store, f"{UUID}/table/") if key.endswith(".parquet")] == []


# --- beside others --------------------------------------------------------------------------------------------------


def plain() -> AgingStore:
    return _plain().copy()


@cache
def _plain() -> AgingStore:
    made = four_versions()
    made.pass_by(3 * GRACE)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("version", [1, 2])
def test_tagging_at_any_call_of_collection_succeeds_or_is_refused(version: int) -> None:
    """Either the tag was first, and the version stays; or the expiry was, and the tag is refused."""
    ends = set()

    def prepare() -> tuple[AgingStore, Callable[[], object]]:
        store = plain()

        def tag() -> None:
            try:
                log_of(store).tag("late", version)
                ends.add("tagged")
            except VersionNotFound:
                ends.add("expired")

        return store, tag

    for store in at_each_call(prepare):
        with suppress(VersionNotFound):
            assert read(store, "late") == [version]
        assert ("late" in log_of(store).tags()) == (version in _readable(store))
        store.pass_by(3 * GRACE)
        sweep(store, ONE)
        assert present(store) == [4]
        contents(store)
        assert not dangling(store)
        assert ("late" in log_of(store).tags()) == (version in _readable(store))
    assert ends == {"tagged", "expired"}


def _readable(store: Store) -> set[int]:
    found = set()
    for version in (1, 2, 3, 4):
        with suppress(VersionNotFound):
            if read(store, version) == [version]:
                found.add(version)
    return found


@pytest.mark.slow
def test_collection_at_any_call_of_tagging_loses_no_data() -> None:
    """The other way round: the tagger stands still while a whole collection runs."""
    ends = set()
    for nth in range(1, 100):
        store = plain()
        faulty = FaultStore(store)
        rang: list[int] = []

        def ring(*_: Any, store: AgingStore = store, nth: int = nth, rang: list[int] = rang) -> None:
            rang.append(1)
            if len(rang) == nth:
                sweep(store, ONE)

        faulty.before_call = ring
        try:
            log_of(faulty).tag("late", 2)
            ends.add("tagged")
            assert read(store, "late") == [2]
        except (VersionNotFound, VersionIncomplete):
            ends.add("expired")
            assert log_of(store).tags() == {}
        assert present(store) == [4]
        if len(rang) < nth:
            break
    assert ends == {"tagged", "expired"}


@pytest.mark.slow
def test_collection_crash_at_any_call_keeps_tagged_version() -> None:
    """Dead before a call is dead after the one before."""
    counting = FaultStore(tagged().copy())
    sweep(counting)
    for nth in range(1, len(counting.calls) + 1):
        store = tagged().copy()
        with pytest.raises(Crash):
            sweep(FaultStore(store, Fault(ALL, nth, after=True)))
        assert_kept(store)
        sweep(store)
        assert_kept(store)
        store.pass_by(GRACE)
        assert Kind.DATA not in sweep(store)


def test_store_failure_at_any_call_of_collection_keeps_tagged_version() -> None:
    counting = FaultStore(tagged().copy())
    sweep(counting)
    for nth in range(1, len(counting.calls) + 1, 2):
        store = tagged().copy()
        with suppress(StoreUnavailable):
            sweep(FaultStore(store, Fault(ALL, nth, error=StoreUnavailable("no answer"))))
        sweep(store)
        assert_kept(store)


@pytest.mark.slow
def test_untagging_at_any_call_of_collection_loses_no_data() -> None:
    def prepare() -> tuple[AgingStore, Callable[[], object]]:
        store = tagged().copy()
        return store, lambda: log_of(store).untag("audit")

    for store in at_each_call(prepare):
        assert present(store) == [4]
        contents(store)
        assert not dangling(store)


@pytest.mark.slow
def test_foreign_overwrite_of_tag_at_any_call_of_collection_keeps_version() -> None:
    """Its head was read before the tag: it knows of none. The tag is merged again, and was never in danger."""

    def prepare() -> tuple[AgingStore, Callable[[], object]]:
        store = plain()
        foreign = ForeignWriter(store, "foreign", [7])
        foreign.read()
        log_of(store).tag("audit", 2)
        return store, foreign.write

    for store in at_each_call(prepare):
        log_of(store).settle()
        assert sorted(present(store)) == [4, 7]
        assert log_of(store).tags() == {"audit": 2}
        assert read(store, "audit") == [2]
        assert not dangling(store)


# --- any order ------------------------------------------------------------------------------------------------------


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("tag"), st.sampled_from("abc"), st.integers(1, 12)),
        st.tuples(st.just("untag"), st.sampled_from("abc")),
        st.tuples(st.just("append")),
        st.tuples(st.just("overwrite")),
        st.tuples(st.just("sweep"), st.integers(1, 3)),
        st.tuples(st.just("wait"), st.sampled_from([0.3, 1.0, 2.5])),
        st.tuples(st.just("foreign")),
        st.tuples(st.just("back"), st.integers(1, 12)),
        st.tuples(st.just("purge")),
    ),
    max_size=14,
)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(steps=STEPS)
def test_tagged_version_stays_unchanged_in_any_history(steps: list[tuple[Any, ...]]) -> None:
    store = AgingStore()
    append(log_of(store), store, "first", [0])
    log, there = log_of(store), {1: [0]}
    tags: dict[str, int] = {}
    purged: set[int] = set()
    for n, (what, *details) in enumerate(steps, 1):
        match what, details:
            case "tag", [name, version]:
                with suppress(VersionNotFound):
                    log.tag(name, version)
                    tags[name] = version
            case "untag", [name]:
                log.untag(name)
                tags.pop(name, None)
            case "append", []:
                append(log, store, f"a{n}", [n])
            case "overwrite", []:
                overwrite(store, f"o{n}", [n])
            case "sweep", [versions]:
                sweep(store, [Retention(versions=versions)])
            case "wait", [graces]:
                store.pass_by(graces * GRACE)
            case "back", [version]:
                with suppress(VersionNotFound):
                    transaction = started(log, f"b{n}")
                    transaction.commit(rollback(store, log, transaction.snapshot, version))
            case "purge", []:
                purged |= _purge_the_first(store, tagged=bool(tags))
            case "foreign", []:
                foreign = ForeignWriter(store, f"f{n}", [n])
                foreign.read()
                foreign.write()
                log.settle()
        there[log.snapshot().version] = present(store)
        assert log.tags() == tags
        for name, version in tags.items():
            assert read(store, name) == read(store, version)
            assert version not in there or read(store, name) == there[version]
        assert purged.isdisjoint(value for values in contents(store).values() for value in values)
        assert not dangling(store)


def _purge_the_first(store: AgingStore, *, tagged: bool) -> set[int]:
    """Delete the first file of the table and purge what is in it; refused where there are tags."""
    head = log_of(store).snapshot().head
    values = values_of(store, log_of(store).snapshot())[:1]
    change = Change(operation=Operation.DELETE, removed=tuple(head.partitions)[:1], reads=Everything(), purges=True)
    if tagged:
        with pytest.raises(VersionTagged):
            log_of(store).begin_new("purge").commit(change)
        return set()
    log_of(store).begin_new("purge").commit(change)
    # A rollback may have brought the same file in twice over time, but never two of one value into the table.
    return set(values)


# --- no rule is there for nothing -----------------------------------------------------------------------------------


def _forgets_the_checkpoint(*found: Any) -> Head:
    journal, record, into, *_ = found
    head = rebuild(journal, record)
    into.add((record.key, *references.of_head(head)))
    return head


def _stays(store: AgingStore) -> None:
    test_tagged_version_stays_and_adjacent_versions_expire(store)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "name", "value", "notices"),
    [
        pytest.param(TaggedVersions, "apart", lambda _: [], _stays, id="tagged versions are not marked"),
        pytest.param(
            TaggedVersions,
            "lost_lately",
            lambda *_: [],
            lambda store: test_untagged_version_expires_after_grace_period(store),
            id="a version goes with its tag",
        ),
        pytest.param(
            draft,
            "require_untagged",
            lambda *_: None,
            lambda _: test_tagging_at_any_call_of_collection_succeeds_or_is_refused(1),
            id="an expiry does not look for new tags",
        ),
        pytest.param(
            mark,
            "_mark_complete",
            _forgets_the_checkpoint,
            lambda store: test_tagged_version_stays_after_repeated_collections(store),
            id="the checkpoint is not marked",
        ),
        pytest.param(
            collection._Run,
            "_anchor",
            lambda _: None,
            _stays,
            id="no checkpoint before the neighbours go",
        ),
        pytest.param(
            mark,
            "_NO_VERSIONS",
            (Operation.EXPIRE,),
            lambda store: test_tagging_creates_no_version(store),
            id="a tag counts as a version",
        ),
    ],
)
def test_planted_tag_bug_is_detected_by_tests(
    monkeypatch: pytest.MonkeyPatch, target: object, name: str, value: object, notices: Callable[[AgingStore], None]
) -> None:
    store = tagged().copy()
    monkeypatch.setattr(target, name, value)
    with pytest.raises((AssertionError, LakeError, LookupError)):
        notices(store)
