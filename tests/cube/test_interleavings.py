"""A transaction of a cube, a foreign writer of one member, and another writer that dies on its way: interleaved.

The transaction is walked through call by call. At one call the foreign writer reads the head of a member, at the same
or a later one it puts its own over whatever is there; at any call another writer comes, and goes or dies at any of its
writes; and at any call, or at none, the process of the transaction dies. At each call of each of them, readers see no
mix; in the end each writer's rows are in the cube exactly once. ``KUBOTHEK_SOAK=1`` tries thousands of schedules, new
ones each time.
"""

from __future__ import annotations

import os
import random
import time
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import orjson
import pytest

from kubothek.errors import Contended
from kubothek.storage import Store
from kubothek.table.log import DatasetLog, records, settle
from kubothek.table.log.model import keys
from tests.cube.foreign import parquet
from tests.cube.small import PREFIX, append, build, cube_in, extra, intent_left, raw, seed, state
from tests.faultstore import WRITES, Crash, Fault, FaultStore
from tests.table.log.memory import MemoryStore
from tests.table.log.test_interleavings import ALL_CALLS, InTurn

pytestmark = pytest.mark.slow

SOAK = bool(os.environ.get("KUBOTHEK_SOAK"))
SCHEDULES = 4000 if SOAK else 60
CALLS = 60
"""About as many as the transaction makes undisturbed."""


@pytest.fixture(autouse=True)
def in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call after the other, so that a schedule is one interleaving; and nobody waits."""
    monkeypatch.setattr(settle, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: None))
    monkeypatch.setattr(records, "ThreadPoolExecutor", InTurn)


@dataclass(frozen=True)
class Schedule:
    """At which call of the transaction what happens; None = never. ``other_dies``: at which of the other's writes."""

    foreign_member: str
    foreign_reads: int
    foreign_writes: int
    other: str
    other_comes: int | None
    other_dies: int | None
    dies: int | None

    @classmethod
    def drawn(cls, rng: random.Random) -> Schedule:
        reads, writes = sorted((rng.randint(0, CALLS), rng.randint(0, CALLS)))
        return cls(
            foreign_member=rng.choice(["seed", "extra"]),
            foreign_reads=reads,
            foreign_writes=writes,
            other=rng.choice(["settle", "append", "tag"]),
            other_comes=rng.choice([None, rng.randint(0, CALLS), rng.randint(0, CALLS)]),
            other_dies=rng.choice([None, rng.randint(1, 16)]),
            dies=rng.choice([None, None, rng.randint(0, CALLS)]),
        )


class Foreign:
    """Appends one file to a member, blindly."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._name = store, name
        self._head: dict[str, Any] = {}

    def read(self) -> None:
        self._head = orjson.loads(self._store.get(keys.head(f"{PREFIX}++{self._name}")))

    def write(self) -> None:
        rows = {"seed": seed, "extra": extra}[self._name]([9], [20])
        label = f"p=0/{uuid4().hex}"
        file = f"{PREFIX}++{self._name}/table/{label}.parquet"
        self._store.put(file, parquet(rows.drop_columns(["p"])))
        self._head["partitions"][label] = {"files": {"table": file}}
        self._store.put(keys.head(f"{PREFIX}++{self._name}"), orjson.dumps(self._head))


@pytest.fixture(scope="module")
def prepared() -> MemoryStore:
    store = MemoryStore()
    build(store)
    return store


@pytest.mark.timeout(0 if SOAK else 600)
def test_random_interleavings_of_cube_writers_keep_invariants(prepared: MemoryStore) -> None:
    rng = random.Random() if SOAK else random.Random(6)
    for _ in range(SCHEDULES):
        schedule = Schedule.drawn(rng)
        try:
            run(prepared, schedule)
        except AssertionError as error:
            raise AssertionError(f"{schedule}: {error}") from error


def run(prepared: MemoryStore, schedule: Schedule) -> None:
    inner = prepared.copy()
    foreign = Foreign(inner, schedule.foreign_member)
    walked = FaultStore(inner, None if schedule.dies is None else Fault(ALL_CALLS, schedule.dies + 1))
    waiting = [(schedule.foreign_reads, foreign.read), (schedule.foreign_writes, foreign.write)]
    came = False

    def other() -> None:
        nonlocal came
        came = True
        fault = None if schedule.other_dies is None else Fault(WRITES, schedule.other_dies)
        store = FaultStore(inner, fault)
        store.before_call = lambda *_: assert_no_mix(inner)
        with suppress(Crash):
            act(store, schedule.other)

    if schedule.other_comes is not None:
        waiting.append((schedule.other_comes, other))

    def before_call(*_: str) -> None:
        assert_no_mix(inner)
        count = len(walked.calls)
        due = [event for at, event in waiting if at <= count]
        waiting[:] = [(at, event) for at, event in waiting if at > count]
        for event in due:
            event()

    walked.before_call = before_call
    with suppress(Crash, Contended):
        append(walked)
    walked.before_call = None
    for _, event in sorted(waiting, key=lambda each: each[0]):
        event()
    append(inner)
    if came:
        act(inner, schedule.other)
    cube_in(inner).settle()
    assert_no_mix(inner)
    assert not intent_left(inner)
    expected = {"seed": [1, 2, 3], "extra": [1, 3]}
    if came and schedule.other == "append":
        expected = {name: [*cells, 4] for name, cells in expected.items()}
    expected[schedule.foreign_member] = [*expected[schedule.foreign_member], 20]
    assert {name: sorted(values) for name, values in state(inner).items()} == expected
    for name in expected:
        assert sorted(raw(inner, name)) == expected[name], "the cube's head follows its members"


def act(store: Store, what: str) -> None:
    if what == "settle":
        cube_in(store).settle()
    elif what == "append":
        append(store, "other", 4)
    else:
        DatasetLog(store, f"{PREFIX}++extra").tag("here", 1)


def assert_no_mix(store: Store) -> None:
    found = state(store)
    for cell in (3, 4):
        assert (cell in found["seed"]) == (cell in found["extra"]), f"a mix: {found}"
