"""Every interleaving of a commit, a foreign writer, another writer and a crash; the model of the protocol.

One commit is walked through call by call. At one call the foreign writer reads the head, at the same or a later
one it puts its own over whatever is there; at any call another writer comes and goes; and at any call, or at
none, the commit's process dies. Whatever happens, in the end, after the commit ran once more, each writer's
rows are in the table exactly once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import TypeVar

import orjson
import pytest

from kubothek.errors import VersionNotFound
from kubothek.storage import Store
from kubothek.table.log import AlreadyApplied, Committed, DatasetLog, Transaction, records, settle
from kubothek.table.log.journal import Journal, system_clock
from tests.faultstore import Crash, Fault, FaultStore
from tests.sampling import SOAK, sampled
from tests.table.log.memory import MemoryStore
from tests.table.log.plateaulike import ForeignWriter
from tests.table.log.table import CLAIM, UUID, append, appending, operations, present, started, values_of, write

pytestmark = pytest.mark.slow

T = TypeVar("T")
R = TypeVar("R")

ALL_CALLS = (
    "get",
    "get_with_info",
    "stat",
    "open",
    "put",
    "put_if_absent",
    "put_if_match",
    "list",
)


@dataclass(frozen=True)
class Schedule:
    """At which call of the commit what happens; None = never."""

    foreign_reads: int
    foreign_writes: int
    other_appends: int | None
    dies: int | None


def at_calls(store: FaultStore, events: Iterable[tuple[int | None, Callable[[], object]]]) -> None:
    """Let each event happen ahead of its call, once."""
    waiting = [(at, event) for at, event in events if at is not None]

    def before_call(name: str, key: str) -> None:
        count = len(store.calls)
        due = [event for at, event in waiting if at <= count]
        waiting[:] = [(at, event) for at, event in waiting if at > count]
        for event in due:
            event()

    store.before_call = before_call


def log_of(store: Store, seed: int) -> DatasetLog:
    return DatasetLog(store, UUID, claim=CLAIM, rng=random.Random(seed))


class InTurn:
    """Stands for a pool of threads: one call after the other, so that a schedule or a seed is one interleaving."""

    def __init__(self, workers: int) -> None:
        pass

    def __enter__(self) -> InTurn:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def map(self, act: Callable[[T], R], items: Iterable[T]) -> Iterable[R]:
        return map(act, items)


@pytest.fixture(autouse=True)
def in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits, as there is nobody to wait for.

    Only the settler's clock is replaced: the process's other threads (py4j's, of an earlier test) go on sleeping.
    """
    monkeypatch.setattr(settle, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: None))
    monkeypatch.setattr(records, "ThreadPoolExecutor", InTurn)


@pytest.fixture(scope="module")
def prepared() -> MemoryStore:
    store = MemoryStore()
    append(log_of(store, 0), store, "first", [1])
    return store


@pytest.fixture(scope="module")
def calls(prepared: MemoryStore) -> int:
    """How many calls the commit makes undisturbed."""
    counting = FaultStore(prepared.copy())
    commit(counting)
    return len(counting.calls)


def commit(store: Store) -> Committed | AlreadyApplied:
    """The commit that is walked through."""
    begun = log_of(store, 1).begin("ours", "d")
    if not isinstance(begun, Transaction):
        return begun
    attempt = f"ours-{len(list(store.list(f'{UUID}/table/ours')))}"
    return begun.commit(appending(write(store, attempt, [2])))


def run(prepared: MemoryStore, schedule: Schedule, *, removes: Sequence[str] = (), erases: bool = False) -> MemoryStore:
    store = prepared.copy()
    foreign = ForeignWriter(store, "foreign", [3], removes=removes, erases=erases)
    fault = None if schedule.dies is None else Fault(ALL_CALLS, schedule.dies)
    walked = FaultStore(store, fault)
    events = [
        (schedule.foreign_reads, foreign.read),
        (schedule.foreign_writes, foreign.write),
        (schedule.other_appends, lambda: append(log_of(store, 2), store, "other", [4])),
    ]
    at_calls(walked, events)
    with suppress(Crash):
        commit(walked)
    return store


@pytest.mark.slow
def test_interleaved_commits_neither_lose_nor_duplicate_rows(prepared: MemoryStore, calls: int) -> None:
    points = range(1, calls + 1)
    schedules = [
        Schedule(reads, writes, other, dies)
        for reads, writes, other, dies in product(points, points, (None, *points), (None, *points))
        if writes >= reads and (dies is None or dies >= max(writes, other or 0))
    ]
    assert len(schedules) > 500
    for schedule in sampled(schedules, 4):
        store = run(prepared, schedule)
        commit(store)
        log = log_of(store, 3)
        assert log.settle().problem is None, schedule
        expected = [1, 2, 3] + [4] * (schedule.other_appends is not None)
        assert sorted(present(store)) == expected, schedule
        assert log.snapshot().totals is not None


@pytest.mark.parametrize("erases", [False, True])
def test_interleavings_with_foreign_removals_keep_all_other_rows(
    prepared: MemoryStore, calls: int, erases: bool
) -> None:
    """``second`` was there all along, ``first`` is taken away by the foreign writer."""
    store = prepared.copy()
    append(log_of(store, 0), store, "second", [9])
    first = next(iter(store_labels(store)))
    for reads, writes, dies in product(range(1, calls + 1), range(1, calls + 1), (None, *range(1, calls + 1))):
        if reads <= writes and (dies is None or dies >= writes):
            schedule = Schedule(reads, writes, None, dies)
            after = run(store, schedule, removes=[first], erases=erases)
            commit(after)
            assert log_of(after, 3).settle().problem is None, schedule
            assert sorted(present(after)) == [2, 3, 9], schedule


def store_labels(store: Store) -> list[str]:
    return list(log_of(store, 0).snapshot().head.partitions)


def test_reported_success_implies_that_commit_survived(prepared: MemoryStore, calls: int) -> None:
    """A foreign head put over ours before the last call is settled by the commit itself."""
    for reads, writes in product(range(1, calls + 1), range(1, calls + 1)):
        if reads <= writes:
            store = run(prepared, Schedule(reads, writes, None, None))
            assert sorted(present(store)) == [1, 2, 3], (reads, writes)
            assert log_of(store, 3).inspect().totals is not None


def test_foreign_overwrite_after_success_is_recovered_by_next_commit(prepared: MemoryStore) -> None:
    store = prepared.copy()
    foreign = ForeignWriter(store, "foreign", [3])
    foreign.read()
    commit(store)
    foreign.write()
    log = log_of(store, 5)
    append(log, store, "next", [4])
    assert operations(log) == ["Append", "External", "Recovered", "Append"]
    assert sorted(present(store)) == [1, 2, 3, 4]


def test_two_concurrent_settlers_settle_once(prepared: MemoryStore) -> None:
    """Another settler comes at every call of the first."""
    lost = prepared.copy()
    foreign = ForeignWriter(lost, "foreign", [3])
    foreign.read()
    commit(lost)
    foreign.write()
    counting = FaultStore(lost.copy())
    log_of(counting, 6).settle()
    for at in range(1, len(counting.calls) + 1):
        store = lost.copy()
        walked = FaultStore(store)
        at_calls(walked, [(at, lambda store=store: log_of(store, 7).settle())])  # type: ignore[misc]
        log_of(walked, 8).settle()
        assert sorted(present(store)) == [1, 2, 3], at
        assert operations(log_of(store, 9)) == ["Append", "External", "Recovered"], at


def test_settler_that_crashes_loses_no_rows(prepared: MemoryStore) -> None:
    lost = prepared.copy()
    foreign = ForeignWriter(lost, "foreign", [3])
    foreign.read()
    commit(lost)
    append(log_of(lost, 1), lost, "second", [4])
    foreign.write()
    counting = FaultStore(lost.copy())
    log_of(counting, 6).settle()
    for at, after in product(range(1, len(counting.calls) + 1), (False, True)):
        store = lost.copy()
        with suppress(Crash):
            log_of(FaultStore(store, Fault(ALL_CALLS, at, after=after)), 6).settle()
        assert_readers_see_the_history(store)
        assert isinstance(log_of(store, 7).begin("ours", "d"), AlreadyApplied), at
        assert sorted(present(store)) == [1, 2, 3, 4], at


def test_repeated_foreign_overwrites_lose_no_rows(prepared: MemoryStore) -> None:
    """Two foreign writers on the same base, one after the other, overwrite even what was settled in between."""
    store = prepared.copy()
    one, other = ForeignWriter(store, "one", [3]), ForeignWriter(store, "other", [5])
    one.read()
    other.read()
    commit(store)
    one.write()
    append(log_of(store, 2), store, "between", [4])
    other.write()
    state = log_of(store, 3).settle()
    assert sorted(present(store)) == [1, 2, 3, 4, 5]
    assert state.totals is not None
    assert state.totals.rows == 5
    started(log_of(store, 4), "new")


class Fuzz:
    """Writers, settlers, foreign writers and crashes, each let in at random calls of the others, three deep."""

    def __init__(self, prepared: MemoryStore, seed: int) -> None:
        self.store = prepared.copy()
        self.rng = random.Random(seed)
        self.ids: list[int] = []
        self.read: list[tuple[int, ForeignWriter]] = []
        self.written: list[int] = []
        self.numbers: dict[int, str] = {}
        self.left = 14

    def act(self, depth: int = 0) -> None:
        self.left -= 1
        kind = self.rng.choice(["append", "append", "again", "foreign reads", "foreign writes", "settle"])
        if kind == "foreign reads":
            number = 1000 + self.left
            self.read.append((number, ForeignWriter(self.store, f"foreign-{number}", [number])))
            self.read[-1][1].read()
        elif kind == "foreign writes" and self.read:
            if self._log(self.store).snapshot().totals is None:
                return  # what foreign writers do to each other is theirs to lose
            number, foreign = self.read.pop(self.rng.randrange(len(self.read)))
            foreign.write()
            self.written.append(number)
        else:
            with suppress(Crash):
                self._walk(kind, depth)
        self.look()

    def look(self) -> None:
        """A version number stands for one state for ever, whatever became of it."""
        seen = Journal(self.store, UUID, clock=system_clock, rng=self.rng).observe()
        assert seen is not None
        if seen.marker:
            assert self.numbers.setdefault(seen.version, seen.marker.record) == seen.marker.record

    def _walk(self, kind: str, depth: int) -> None:
        dies = Fault(ALL_CALLS, self.rng.randrange(1, 30), after=self.rng.random() < 0.5)
        walked = FaultStore(self.store, dies if self.rng.random() < 0.4 else None)

        def before_call(name: str, key: str) -> None:
            self.look()
            if depth < 3 and self.left > 0 and self.rng.random() < 0.15:
                self.act(depth + 1)

        walked.before_call = before_call
        if kind == "settle":
            self._log(walked).settle()
            return
        if kind == "append" or not self.ids:
            self.ids.append(len(self.ids) + 10)
        self.commit(walked, self.rng.choice(self.ids) if kind == "again" else self.ids[-1])

    def commit(self, store: Store, number: int) -> None:
        begun = self._log(store).begin(str(number), "d")
        if isinstance(begun, Transaction):
            begun.commit(appending(write(store, f"{number}-{self.rng.random()}", [number])))

    def _log(self, store: Store) -> DatasetLog:
        return log_of(store, self.rng.randrange(1 << 30))


def reported(store: Store) -> set[int]:
    """What the head says may be missing: the rows of foreign changes whose adoption nobody can tell the end of."""
    notes = log_of(store, 0).snapshot().head.overwritten
    added = [label for key in notes for label, *_ in orjson.loads(store.get(key))["added"]]
    return {int(label.removeprefix("foreign-")) for label in added if label.startswith("foreign-")}


@pytest.mark.slow
def test_random_interleavings_neither_lose_nor_duplicate_rows_silently(prepared: MemoryStore) -> None:
    crowded, seeds = 0, 300 if SOAK else 150
    for seed in range(seeds):
        fuzz = Fuzz(prepared, seed)
        while fuzz.left > 0:
            fuzz.act()
        for number in fuzz.ids:
            fuzz.commit(fuzz.store, number)
        state = log_of(fuzz.store, seed).settle()
        values = present(fuzz.store)
        missing = {1, *fuzz.ids, *fuzz.written} - set(values)
        assert missing <= reported(fuzz.store), seed
        assert len(values) == len(set(values)), seed
        assert state.totals is not None
        assert state.totals.rows == state.totals.files == len(values), seed
        crowded += len(fuzz.written) > 1 and len(fuzz.ids) > 2 and not missing
    assert crowded > seeds // 10


def assert_readers_see_the_history(store: Store) -> None:
    """Every version of the chain can be asked for, by number and by time, and no other."""
    log = log_of(store, 0)
    on_chain = {record.version: record for record in log.history()}
    for version in range(1, max(on_chain) + 2):
        if version in on_chain:
            assert log.snapshot(version).head.commit == on_chain[version].key
            assert log.snapshot(on_chain[version].time).version >= version
        else:
            with pytest.raises(VersionNotFound):
                log.snapshot(version)


@pytest.mark.slow
def test_history_after_random_faults_lists_exactly_readable_versions(prepared: MemoryStore) -> None:
    for seed in range(100 if SOAK else 50):
        fuzz = Fuzz(prepared, seed)
        while fuzz.left > 0:
            fuzz.act()
        assert_readers_see_the_history(fuzz.store)


def overwritten(prepared: MemoryStore, *, covered: bool = False) -> tuple[MemoryStore, ForeignWriter]:
    """Version 2 (and 3, if it was ``covered``) is overwritten; another foreign writer read it, and writes later."""
    store = prepared.copy()
    one, other = ForeignWriter(store, "one", [100]), ForeignWriter(store, "other", [200])
    one.read()
    commit(store)
    if covered:
        append(log_of(store, 2), store, "cover", [4])
    other.read()
    one.write()
    return store, other


def test_two_foreign_overwrites_of_one_commit_become_separate_versions(prepared: MemoryStore) -> None:
    store, other = overwritten(prepared)
    log = log_of(store, 3)
    assert log.settle().version == 4
    assert sorted(values_of(store, log.snapshot(4))) == [1, 2, 100]
    other.write()
    assert log.settle().version == 6
    assert [record.version for record in log.history()] == [6, 5, 2, 1]
    assert sorted(present(store)) == [1, 2, 100, 200]
    assert_readers_see_the_history(store)


def calls_of_settling(store: MemoryStore) -> range:
    counting = FaultStore(store.copy())
    log_of(counting, 6).settle()
    return range(1, len(counting.calls) + 1)


@pytest.mark.slow
@pytest.mark.parametrize(("covered", "late"), [(False, False), (True, False), (False, True)])
def test_markers_point_into_history_in_all_settler_interleavings(
    prepared: MemoryStore, covered: bool, late: bool
) -> None:
    """At one call of a settler the foreign writer comes, at the same or a later one another settler.

    The foreign writer read what was overwritten or, if it is ``late``, what overwrote it, before that was adopted.
    """
    points = calls_of_settling(overwritten(prepared, covered=covered)[0])
    meetings = [(writes, settles) for writes, settles in product(points, points) if writes <= settles]
    for writes, settles in sampled(meetings, 4):
        store, other = overwritten(prepared, covered=covered)
        if late:
            other.read()
        walked = FaultStore(store)
        at_calls(walked, [(writes, other.write), (settles, log_of(store, 7).settle)])
        log_of(walked, 6).settle()
        log_of(store, 8).settle()
        assert_readers_see_the_history(store)
        assert isinstance(log_of(store, 9).begin("ours", "d"), AlreadyApplied), (writes, settles)
        values = present(store)
        assert len(values) == len(set(values)), (writes, settles)
        assert {1, 2, 200} <= set(values), (writes, settles)
        assert 4 in values or not covered, (writes, settles)
        assert 100 in values or not late, (writes, settles)


def test_overtaken_settler_writes_no_marker_outside_history(prepared: MemoryStore) -> None:
    """While it adopts a head, another adopts it, and a third head, from elsewhere, is put over that and adopted."""

    def merged_again_and_overwritten() -> tuple[MemoryStore, ForeignWriter]:
        store, other = overwritten(prepared)
        log_of(store, 5).settle()
        third = ForeignWriter(store, "third", [300])
        third.read()
        other.write()
        return store, third

    for at in calls_of_settling(merged_again_and_overwritten()[0]):
        store, third = merged_again_and_overwritten()
        walked = FaultStore(store)
        at_calls(walked, [(at, log_of(store, 7).settle), (at, third.write), (at, log_of(store, 8).settle)])
        log_of(walked, 6).settle()
        assert_readers_see_the_history(store)
        assert sorted(present(store)) == [1, 2, 100, 200, 300], at


def test_unrecorded_adoption_that_was_overwritten_is_reported(prepared: MemoryStore) -> None:
    store = prepared.copy()
    one, other = ForeignWriter(store, "foreign-7", [7]), ForeignWriter(store, "foreign-8", [8])
    one.read()
    other.read()
    one.write()
    with suppress(Crash):
        log_of(FaultStore(store, Fault(("put_if_match",), key="by-dataset-metadata", after=True)), 1).settle()
    other.write()
    state = log_of(store, 2).settle()
    assert (state.problem or "").startswith("ForeignOverwrite: another program overwrote version 2 (")
    assert sorted(present(store)) == [1, 8]
    assert reported(store) == {7}
