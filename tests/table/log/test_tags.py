"""Tags: versions by name, in the head; what they do beside other writers and crashes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from plateau.io.eager import garbage_collect_dataset

from kubothek.errors import (
    DatasetDeleted,
    DatasetNotFound,
    InputError,
    OwnedByAnother,
    StoreUnavailable,
    VersionIncomplete,
    VersionNotFound,
    VersionTagged,
)
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import Change, Claim, DatasetLog, Everything, Nothing, Operation, Version
from kubothek.table.log.history.tags import MOST_TAGS
from kubothek.table.log.model import keys
from kubothek.table.operations import rollback
from tests.faultstore import WRITES, Crash, Fault, FaultStore, every_crash
from tests.table.log.memory import MemoryStore
from tests.table.log.plateaulike import ForeignWriter
from tests.table.log.table import CLAIM, SCHEMA, UUID, append, ids, operations, present, started, values_of, write
from tests.table.log.test_plateau import Plateau


@pytest.fixture
def store() -> MemoryStore:
    """Versions 1 to 3; each adds its number."""
    made = MemoryStore()
    for n in (1, 2, 3):
        append(log_of(made), made, f"v{n}", [n])
    return made


def log_of(store: Store) -> DatasetLog:
    return DatasetLog(store, UUID, claim=CLAIM)


def expire(store: Store, horizon: int, *, spares: frozenset[str] = frozenset()) -> int:
    change = Change(operation=Operation.EXPIRE, horizon=horizon, spares=spares)
    return log_of(store).begin_new("expire").commit(change).version


def overwriting(store: Store, values: list[int]) -> Change:
    """One file in the place of all that are there now."""
    return Change(
        operation=Operation.OVERWRITE,
        added=(write(store, "new", values),),
        removed=tuple(log_of(store).snapshot().head.partitions),
        reads=Everything(),
        schema=SCHEMA,
    )


def test_tagged_version_is_read_by_name(store: MemoryStore) -> None:
    log = log_of(store)
    assert log.set_tags({"audit": 2, "start": 1}) == 4
    assert log.tags() == log.inspect().tags == {"audit": 2, "start": 1}
    assert values_of(store, log.snapshot("audit")) == [1, 2]
    assert log.snapshot("audit").version == 2
    assert operations(log)[-1] == "Tag"
    assert present(store) == [1, 2, 3]
    with pytest.raises(VersionNotFound, match="no tag 'audits'; its tags: audit, start"):
        log.snapshot("audits")


def test_set_tags_replaces_all_tags(store: MemoryStore) -> None:
    log = log_of(store)
    log.set_tags({"a": 1, "b": 2})
    log.set_tags({"b": 3, "c": 1})
    assert log.tags() == {"b": 3, "c": 1}
    log.set_tags({})
    assert log.tags() == {}
    assert "kubothek_tags" not in log.snapshot().head.metadata


def test_tags_already_set_make_no_commit(store: MemoryStore) -> None:
    log = log_of(store)
    log.set_tags({"a": 1})
    version = log.snapshot().version
    assert log.set_tags({"a": 1}) == version
    assert log.tag("a", 1) == 1
    log.untag("b")
    assert log.snapshot().version == version


def test_tag_and_untag_keep_other_tags(store: MemoryStore) -> None:
    log = log_of(store)
    assert log.tag("now") == 3
    assert log.tag("audit", 1) == 1
    assert log.tag("now") == 5  # the head is the commit that tagged
    log.untag("audit")
    assert log.tags() == {"now": 5}
    assert values_of(store, log.snapshot("now")) == [1, 2, 3]


@pytest.mark.parametrize("name", ["", "1a", "a b", "-a", "a-", "a.", "ä", "a/b", "a'b", "a" * 64, "v1\n"])
def test_invalid_tag_name_is_refused(store: MemoryStore, name: str) -> None:
    with pytest.raises(InputError, match="a name is a letter"):
        log_of(store).tag(name, 1)
    assert log_of(store).tags() == {}


@pytest.mark.parametrize("name", ["a", "A", "a1", "v1.2-rc_3", "a" * 63])
def test_valid_tag_name_is_accepted(store: MemoryStore, name: str) -> None:
    log_of(store).tag(name, 1)
    assert log_of(store).tags() == {name: 1}


@pytest.mark.parametrize("version", [0, -1, 4, 99])
def test_tag_of_nonexistent_version_is_refused(store: MemoryStore, version: int) -> None:
    with pytest.raises(VersionNotFound, match=f"no version {version}"):
        log_of(store).set_tags({"good": 1, "bad": version})
    assert log_of(store).tags() == {}


def test_too_many_tags_are_refused(store: MemoryStore) -> None:
    wanted = {f"t{n}": 1 for n in range(MOST_TAGS)}
    log_of(store).set_tags(wanted)
    with pytest.raises(InputError, match="65 tags: a dataset has at most 64"):
        log_of(store).tag("more", 1)


def test_tag_of_incomplete_version_is_refused(store: MemoryStore) -> None:
    transaction = started(log_of(store), "all")
    removed = tuple(transaction.snapshot.head.partitions)
    old = [transaction.snapshot.head.file(label) for label in removed]
    transaction.commit(Change(operation=Operation.DELETE, removed=removed, reads=Everything()))
    store.delete(old[:1])
    with pytest.raises(VersionIncomplete, match="1 of its files no longer exist"):
        log_of(store).tag("audit", 3)
    assert log_of(store).tags() == {}


def test_tag_on_missing_foreign_or_deleted_dataset_is_refused(store: MemoryStore) -> None:
    with pytest.raises(DatasetNotFound):
        DatasetLog(store, "other").tag("a", 1)
    with pytest.raises(OwnedByAnother):
        DatasetLog(store, UUID, claim=Claim("another/ns/flights", "i")).tag("a", 1)
    log_of(store).delete()
    with pytest.raises(DatasetDeleted):
        log_of(store).tag("a", 1)
    with pytest.raises(DatasetNotFound, match="was deleted"):
        DatasetLog(store, UUID, claim=Claim(CLAIM.owner, "incarnation-2")).tag("a", 1)


def test_new_dataset_over_deleted_one_has_no_tags(store: MemoryStore) -> None:
    log_of(store).tag("old", 1)
    log_of(store).delete()
    heir = DatasetLog(store, UUID, claim=Claim(CLAIM.owner, "incarnation-2"))
    append(heir, store, "anew", [7])
    assert heir.tags() == {}
    with pytest.raises(VersionNotFound, match="its tags: none"):
        heir.snapshot("old")


def test_restored_dataset_keeps_tags(store: MemoryStore) -> None:
    log_of(store).tag("old", 1)
    log_of(store).delete()
    log_of(store).restore()
    assert values_of(store, log_of(store).snapshot("old")) == [1]


def test_malformed_foreign_tags_are_ignored(store: MemoryStore) -> None:
    """A head may have been written by anybody."""
    document = json.loads(store.get(keys.head(UUID)))
    record = document["metadata"]["kubothek_commit"]
    document["metadata"]["kubothek_tags"] = {"a": 1, "b": [2], "c": [1, "x"], "d": [1, None], "e": [3, record]}
    store.put(keys.head(UUID), json.dumps(document).encode())
    assert log_of(store).tags() == {"e": 3}
    log_of(store).settle()
    assert log_of(store).tags() == {}


# --- expiry ---------------------------------------------------------------------------------------------------------


def test_expiry_of_tagged_version_is_refused_unless_spared(store: MemoryStore) -> None:
    log_of(store).tag("audit", 2)
    with pytest.raises(VersionTagged, match=r"'audit' \(version 2\).*kubothek tag flights NAME --delete"):
        expire(store, 3)
    assert expire(store, 2) == 5
    record = log_of(store).snapshot().head.tags["audit"].record
    expire(store, 4, spares=frozenset({record}))
    assert values_of(store, log_of(store).snapshot(2)) == [1, 2]
    with pytest.raises(VersionNotFound, match="has expired"):
        log_of(store).snapshot(3)


def test_expired_version_is_taggable_only_while_another_tag_keeps_version(store: MemoryStore) -> None:
    log = log_of(store)
    log.tag("audit", 2)
    expire(store, 4, spares=frozenset({log.snapshot().head.tags["audit"].record}))
    with pytest.raises(VersionNotFound, match="has expired"):
        log.tag("other", 1)
    log.tag("other", 2)
    log.untag("audit")
    assert values_of(store, log.snapshot("other")) == [1, 2]
    log.untag("other")
    with pytest.raises(VersionNotFound, match="has expired"):
        log.tag("other", 2)


def test_concurrent_tag_and_expiry_exclude_each_other(store: MemoryStore) -> None:
    """Whichever comes second sees the first, at whatever call it comes."""
    ends = set()
    for nth in range(1, 60):
        raced = store.copy()
        done = at_call(raced, nth, partial(expire, raced, 3), lambda log: log.tag("audit", 2))
        head = log_of(raced).snapshot().head
        assert (head.horizon, bool(head.tags)) in {(3, False), (0, True)}
        ends.add(bool(head.tags))
        if not done:
            break
    assert ends == {True, False}


def at_call(store: Store, nth: int, event: Callable[[], object], act: Callable[[DatasetLog], object]) -> bool:
    """Do something, and let an event happen ahead of its n-th call; whether it came to that."""
    faulty = FaultStore(store)
    rang: list[bool] = []

    def ring(_name: str, _key: str) -> None:
        if len(faulty.calls) >= nth and not rang:
            rang.append(True)
            try_to(event)

    faulty.before_call = ring
    try_to(lambda: act(log_of(faulty)))
    return bool(rang)


def try_to(act: Callable[[], object]) -> None:
    with suppress(VersionNotFound, VersionTagged):
        act()


def test_rollback_to_tagged_version_below_horizon_restores_rows(store: MemoryStore) -> None:
    log = log_of(store)
    log.tag("audit", 1)
    expire(store, 4, spares=frozenset({log.snapshot().head.tags["audit"].record}))
    asked: tuple[Version, ...] = (1, "audit")
    for number, to in enumerate(asked):
        transaction = started(log, f"back-{number}")
        transaction.commit(rollback(store, log, transaction.snapshot, to))
        assert present(store) == [1]
        append(log, store, f"more-{number}", [9])


# --- crashes and others ---------------------------------------------------------------------------------------------


def test_tagging_that_crashes_is_applied_once_on_rerun(store: MemoryStore) -> None:
    def tag(on: Store) -> None:
        log_of(on).set_tags({"audit": 2})

    counting = FaultStore(store.copy())
    tag(counting)
    for fault in every_crash(counting.calls):
        crashed = store.copy()
        with pytest.raises(Crash):
            tag(FaultStore(crashed, fault))
        assert log_of(crashed).tags() in ({}, {"audit": 2})
        assert present(crashed) == [1, 2, 3]
        tag(crashed)
        assert log_of(crashed).tags() == {"audit": 2}
        assert operations(log_of(crashed)).count("Tag") == 1


def test_tagging_with_lost_response_is_applied_once(store: MemoryStore) -> None:
    lost = Fault(("put_if_match",), 1, key=UUID, after=True, error=StoreUnavailable("lost"))
    log_of(FaultStore(store, lost)).tag("audit", 2)
    assert log_of(store).tags() == {"audit": 2}
    assert operations(log_of(store)).count("Tag") == 1


def test_concurrent_taggers_and_writer_lose_nothing(store: MemoryStore) -> None:
    locked = Locked(store)

    def tag(number: int) -> None:
        for n in range(5):
            log_of(locked).tag(f"t{number}-{n}", n % 3 + 1)

    def write_on() -> None:
        for n in range(10):
            append(log_of(locked), locked, f"w{n}", [100 + n])

    threads = [threading.Thread(target=tag, args=(n,)) for n in range(3)] + [threading.Thread(target=write_on)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert log_of(store).tags() == {f"t{number}-{n}": n % 3 + 1 for number in range(3) for n in range(5)}
    assert len(present(store)) == 13


class Locked(FaultStore):
    """A store in memory for several threads."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._one = threading.Lock()

    def put_if_absent(self, key: str, data: bytes | memoryview) -> str:
        with self._one:
            return super().put_if_absent(key, data)

    def put_if_match(self, key: str, data: bytes | memoryview, etag: str) -> str:
        with self._one:
            return super().put_if_match(key, data, etag)


@pytest.mark.parametrize("erases", [False, True], ids=["plateau", "kartothek"])
def test_foreign_writer_keeps_tags(store: MemoryStore, erases: bool) -> None:
    log_of(store).tag("audit", 2)
    foreign = ForeignWriter(store, "foreign", [7], erases=erases)
    foreign.read()
    foreign.write()
    log_of(store).settle()
    assert log_of(store).tags() == {"audit": 2}
    assert present(store) == [1, 2, 3, 7]


def test_tags_overwritten_by_foreign_writer_are_recovered(store: MemoryStore) -> None:
    """Also of a version that it overwrote too: its record tells what it was."""
    foreign = ForeignWriter(store, "foreign", [7])
    foreign.read()
    log_of(store).tag("audit", 2)
    append(log_of(store), store, "ours", [5])
    log_of(store).tag("ours", 5)
    log_of(store).untag("audit")
    foreign.write()
    log_of(store).settle()
    assert log_of(store).tags() == {"ours": 5}
    assert values_of(store, log_of(store).snapshot("ours")) == [1, 2, 3, 5]
    assert sorted(present(store)) == [1, 2, 3, 5, 7]


def merged_again_out_of_order(store: MemoryStore, *lost: Callable[[], object]) -> None:
    """Two commits are overwritten; the first is merged again, and overwritten again, before the second is."""
    first, second = (ForeignWriter(store, f"foreign-{n}", [70 + n]) for n in (1, 2))
    first.read()
    second.read()
    for commit in lost:
        commit()
    first.write()
    merging_the_second = Fault(("put_if_absent",), 3, key="/commits/")
    with pytest.raises(Crash):
        log_of(FaultStore(store, merging_the_second)).settle()
    assert len(log_of(store).snapshot().head.lost) == 1
    second.write()
    log_of(store).settle()


def test_tags_recovered_out_of_order_are_complete(store: MemoryStore) -> None:
    log_of(store).tag("old", 2)
    merged_again_out_of_order(
        store, lambda: log_of(store).tag("a", 1), lambda: log_of(store).set_tags({"a": 1, "b": 3})
    )
    assert log_of(store).tags() == {"a": 1, "b": 3}


def test_horizon_of_expiries_recovered_out_of_order_never_decreases(store: MemoryStore) -> None:
    def purge() -> None:
        head = log_of(store).snapshot().head
        change = Change(operation=Operation.DELETE, removed=tuple(head.partitions)[:1], reads=Nothing(), purges=True)
        log_of(store).begin_new("purge").commit(change)

    merged_again_out_of_order(store, lambda: expire(store, 2), purge)
    log = log_of(store)
    assert 1 not in {value for record in log.history() for value in values_of(store, log.snapshot(record.version))}
    for version in range(1, log.snapshot().head.horizon):
        with pytest.raises(VersionNotFound):
            log.snapshot(version)


def test_tagged_dataset_is_read_and_written_by_plateau(config: StoreConfig) -> None:
    """Its garbage collection knows of no history: then the version is not whole, and that is said."""
    store, plateau = open_store(config), Plateau(Path(config.url.removeprefix("file://")))
    append(log_of(store), store, "1", [1])
    log_of(store).tag("audit")
    plateau.append(2)
    log_of(store).settle()
    assert log_of(store).tags() == {"audit": 1}
    assert plateau.values() == [1, 2]
    assert values_of(store, log_of(store).snapshot("audit")) == [1]
    started(log_of(store), "new").commit(overwriting(store, [9]))
    garbage_collect_dataset(UUID, store=lambda: plateau.store)
    with pytest.raises(VersionIncomplete, match="garbage collection"):
        log_of(store).snapshot("audit")


@pytest.mark.s3
def test_concurrent_tag_and_expiry_on_s3_exclude_each_other(bucket_config: StoreConfig) -> None:
    store = open_store(bucket_config)
    for n in (1, 2, 3):
        append(log_of(store), store, f"v{n}", [n])
    late = log_of(store).begin_new("expire")
    log_of(store).tag("audit", 2)
    with pytest.raises(VersionTagged, match="audit"):
        late.commit(Change(operation=Operation.EXPIRE, horizon=3))
    record = log_of(store).snapshot().head.tags["audit"].record
    expire(store, 3, spares=frozenset({record}))
    assert values_of(store, log_of(store).snapshot("audit")) == [1, 2]
    with pytest.raises(VersionNotFound, match="has expired"):
        log_of(store).tag("start", 1)


def test_commit_started_before_tag_is_rebased_onto_tag(store: MemoryStore) -> None:
    transaction = started(log_of(store), "overwrite")
    change = overwriting(store, [9])
    log_of(store).tag("audit", 2)
    transaction.commit(change)
    assert present(store) == [9]
    assert log_of(store).tags() == {"audit": 2}
    assert len(ids(log_of(store))) == 5


def test_tagging_of_current_version_costs_few_requests(store: MemoryStore) -> None:
    """For the present version, whatever lies below it."""
    for n in range(40):
        append(log_of(store), store, f"more-{n}", [n])
    counting = FaultStore(store)
    log_of(counting).tag("now")
    assert sum(call.name in WRITES for call in counting.calls) == 3
    assert len(counting.calls) < 16
