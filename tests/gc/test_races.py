"""Others at work at each single call of a collection: nobody loses anything to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import cache, partial
from itertools import count

import pytest

from kubothek.errors import CommitError, Conflict, DatasetDeleted, DatasetNotFound, TooSlow, VersionNotFound
from kubothek.gc import Mode, Retention, collect
from kubothek.storage import Store
from kubothek.table.log import Change, DatasetLog, Operation, StoreSettings, Transaction, read_settings, write_settings
from kubothek.table.log.update_indexes import reindex
from kubothek.table.operations import rollback
from tests.faultstore import FaultStore
from tests.gc.aging import GRACE, AgingStore, contents, dangling, log_of
from tests.gc.test_collect import died_at_its_head, overwrite
from tests.table.log.plateaulike import ForeignWriter
from tests.table.log.table import UUID, append, appending, present, started, write

pytestmark = pytest.mark.slow

TWO = [Retention(versions=2)]
Event = Callable[[], object]


def run(store: Store) -> object:
    return collect(store, log_of(store), TWO, mode=Mode.ENFORCE)


def aged() -> AgingStore:
    """A store of its own for each run."""
    return _aged().copy()


@cache
def _aged() -> AgingStore:
    """Versions 1 to 4 of a file each, of which 1 and 2 are due; and litter."""
    store = AgingStore()
    append(log_of(store), store, "first", [1])
    for n in (2, 3, 4):
        overwrite(store, f"v{n}", [n])
    write(store, "litter", [99])
    store.pass_by(3 * GRACE)
    return store


def at_each_call(
    prepare: Callable[[], tuple[AgingStore, Event]], *, never_ahead_of: str = "", step: int = 1
) -> Iterator[AgingStore]:
    """The store after a collection in which the event happened ahead of its n-th call, for each n."""
    for nth in count(1, step):
        store, event = prepare()
        faulty = FaultStore(store)
        alarm = Alarm(faulty, nth, event, never_ahead_of)
        run(faulty)
        if not alarm.rang:
            assert nth > 20, "a collection has that many calls"
            return
        yield store


class Alarm:
    """Lets the event happen ahead of the n-th call, once."""

    def __init__(self, store: FaultStore, nth: int, event: Event, never_ahead_of: str) -> None:
        self.rang = False
        self._never = never_ahead_of
        self._store, self._nth, self._event = store, nth, event
        store.before_call = self._before_call

    def _before_call(self, name: str, key: str) -> None:
        if len(self._store.calls) >= self._nth and name != self._never and not self.rang:
            self.rang = True
            self._event()


def assert_whole(store: AgingStore) -> None:
    """Every version that can be asked for can be read, and nothing names what is gone."""
    contents(store)
    assert not dangling(store)
    assert log_of(store).inspect().problem is None


@pytest.mark.slow
def test_commit_during_collection_loses_no_data() -> None:
    def prepare() -> tuple[AgingStore, Event]:
        store = aged()
        return store, lambda: append(log_of(store), store, "new", [5])

    for store in at_each_call(prepare):
        assert_whole(store)
        assert present(store) == [4, 5]
        run(store)
        assert_whole(store)


@pytest.mark.slow
def test_first_commit_during_collection_ignores_leftovers() -> None:
    def prepare() -> tuple[AgingStore, Event]:
        store = died_at_its_head()
        store.pass_by(3 * GRACE)
        return store, lambda: append(log_of(store), store, "new", [5])

    for store in at_each_call(prepare, step=5):
        assert present(store) == [5]
        run(store)
        assert present(store) == [5]
        assert not dangling(store)
        assert log_of(store).inspect().problem is None


@pytest.mark.slow
def test_writer_with_uploaded_files_commits_during_collection() -> None:
    def prepare() -> tuple[AgingStore, Event]:
        store = aged()
        transaction = started(log_of(store), "slow")
        file = write(store, "slow", [5])
        transaction.note_written(file.key)
        store.pass_by(0.4 * GRACE)
        return store, lambda: transaction.commit(appending(file))

    for store in at_each_call(prepare):
        assert_whole(store)
        assert present(store) == [4, 5]


def test_writer_slower_than_grace_period_commits_nothing() -> None:
    def prepare() -> tuple[AgingStore, Event]:
        store = aged()
        transaction = started(log_of(store), "slow")
        file = write(store, "slow", [5])
        transaction.note_written(file.key)
        store.pass_by(2 * GRACE)

        def commit() -> None:
            with pytest.raises(TooSlow):
                transaction.commit(appending(file))

        return store, commit

    for store in at_each_call(prepare):
        assert_whole(store)
        assert present(store) == [4]


@pytest.mark.slow
def test_swap_delayed_beyond_grace_period_loses_no_data() -> None:
    """Record and files are there and old, the writer passed its last check, and the PUT of the head comes late."""
    outcomes: set[str] = set()
    hanging: list[Hanging] = []

    def prepare() -> tuple[AgingStore, Event]:
        store = aged()
        hanging.append(Hanging(store))
        store.pass_by(2 * GRACE)
        return store, lambda: outcomes.add(hanging[-1].release())

    for store in at_each_call(prepare):
        assert_whole(store)
        assert present(store) in ([4], [4, 5])
    hanging[-1].release()  # which the last collection ended without
    assert outcomes == {"committed", "TooSlow"}


@pytest.mark.slow
def test_plateau_commit_during_collection_loses_no_data() -> None:
    """It read the head before ours moved on; its file is there, its head comes at any call."""

    def prepare() -> tuple[AgingStore, Event]:
        store = aged()
        foreign = ForeignWriter(store, "foreign", [7])
        foreign.read()
        store.pass_by(0.1 * GRACE)
        append(log_of(store), store, "ours", [5])
        store.pass_by(0.8 * GRACE)
        return store, foreign.write

    for store in at_each_call(prepare):
        log_of(store).settle()
        assert sorted(present(store)) == [4, 5, 7]
        assert_whole(store)


@pytest.mark.slow
def test_plateau_commit_on_expired_version_within_grace_loses_no_data() -> None:
    """Three commits later, but within the grace period: it writes what it read."""

    def prepare() -> tuple[AgingStore, Event]:
        store = aged()
        foreign = ForeignWriter(store, "foreign", [7])
        foreign.read()
        for n in (5, 6, 8):
            overwrite(store, f"v{n}", [n])
        store.pass_by(0.9 * GRACE)
        return store, foreign.write

    for store in at_each_call(prepare):
        with suppress(CommitError):  # an overwrite that cannot be merged again is reported, not forgotten
            log_of(store).settle()
        assert {4, 7} <= set(present(store))
        assert not dangling(store)
        contents(store)


@pytest.mark.slow
@pytest.mark.parametrize("to", [1, 3])
def test_rollback_during_collection_succeeds_or_is_refused(to: int) -> None:
    done = set()

    def prepare() -> tuple[AgingStore, Event]:
        store = aged()

        def roll_back() -> None:
            log = log_of(store)
            transaction = started(log, "back")
            try:
                transaction.commit(rollback(store, log, transaction.snapshot, to))
                done.add("committed")
            except VersionNotFound:
                done.add("expired")

        return store, roll_back

    for store in at_each_call(prepare):
        assert_whole(store)
        assert present(store) in ([to], [4])
    assert done == ({"committed", "expired"} if to == 1 else {"committed"})


@pytest.mark.slow
def test_rollback_decided_before_expiry_succeeds_or_is_refused() -> None:
    done = set()

    def prepare() -> tuple[AgingStore, Event]:
        store = aged()
        log = log_of(store)
        transaction = started(log, "back")
        change = rollback(store, log, transaction.snapshot, 1)

        def commit() -> None:
            try:
                transaction.commit(change)
                done.add("committed")
            except (Conflict, VersionNotFound):
                done.add("refused")

        return store, commit

    for store in at_each_call(prepare):
        assert_whole(store)
    assert done == {"committed", "refused"}


@pytest.mark.slow
def test_index_build_during_collection_loses_no_data() -> None:
    def prepare() -> tuple[AgingStore, Event]:
        from kubothek.table.indexes import IndexKind

        store = aged()
        wanted = {"x": IndexKind.NATIVE}
        return store, lambda: reindex(store, log_of(store), wanted)

    for store in at_each_call(prepare):
        assert_whole(store)
        run(store)
        assert_whole(store)


@pytest.mark.slow
def test_concurrent_collectors_lose_no_data() -> None:
    def prepare() -> tuple[AgingStore, Event]:
        store = aged()
        return store, lambda: run(store)

    for store in at_each_call(prepare):
        assert_whole(store)
        assert present(store) == [4]


@pytest.mark.slow
def test_dataset_deletion_during_collection_can_be_restored() -> None:
    def prepare() -> tuple[AgingStore, Event]:
        store = aged()
        return store, lambda: log_of(store).delete()

    for store in at_each_call(prepare):
        with pytest.raises((DatasetDeleted, DatasetNotFound)):
            log_of(store).snapshot()
        log_of(store).restore()
        assert present(store) == [4]
        assert_whole(store)


@pytest.mark.slow
def test_restore_at_end_of_grace_period_loses_no_data() -> None:
    def prepare() -> tuple[AgingStore, Event]:
        store = aged()
        log_of(store).delete()
        store.pass_by(GRACE)
        return store, lambda: log_of(store).restore()

    for store in at_each_call(prepare):
        assert present(store) == [4]
        assert_whole(store)


@pytest.mark.slow
def test_grace_period_extended_during_collection_is_respected() -> None:
    """Writers count on the new one at once: nothing is deleted by the old one but the batch that is on its way."""

    def prepare() -> tuple[AgingStore, Event]:
        store = aged()
        write_settings(store, StoreSettings(timedelta(hours=1)))
        transaction = started(log_of(store), "slow")
        file = write(store, "slow", [5])
        transaction.note_written(file.key)
        store.pass_by(timedelta(hours=2))

        def lengthen_and_commit() -> None:
            write_settings(store, StoreSettings(GRACE))
            with suppress(TooSlow):
                transaction.commit(appending(file))

        return store, lengthen_and_commit

    for store in at_each_call(prepare, never_ahead_of="delete"):
        assert read_settings(store).grace == GRACE
        assert_whole(store)


class Hanging:
    """A writer in a thread of its own, held right before it swaps the head."""

    def __init__(self, store: AgingStore) -> None:
        self._held, self._go = threading.Event(), threading.Event()
        self._outcome = ""
        faulty = FaultStore(store)
        faulty.before_call = self._hold
        self._thread = threading.Thread(target=partial(self._write, faulty, log_of(faulty)), daemon=True)
        self._thread.start()
        assert self._held.wait(10)

    def release(self) -> str:
        """Let it go on, and wait for its end."""
        self._go.set()
        self._thread.join(10)
        return self._outcome

    def _hold(self, name: str, key: str) -> None:
        if name == "put_if_match" and key == f"{UUID}.by-dataset-metadata.json" and not self._held.is_set():
            self._held.set()
            assert self._go.wait(30)

    def _write(self, store: Store, log: DatasetLog) -> None:
        transaction = log.begin("hanging", "d")
        assert isinstance(transaction, Transaction)
        file = write(store, "hanging", [5])
        transaction.note_written(file.key)
        try:
            transaction.commit(Change(operation=Operation.APPEND, added=(file,)))
            self._outcome = "committed"
        except TooSlow:
            self._outcome = "TooSlow"
