"""Issue 10: requests that are malformed, truncated, oversized, slow or not allowed. No crash, no leak, nothing served.

300 of them; ``KUBOTHEK_SOAK=1`` (``make soak``) sends 10,000.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import psutil
import pytest

from kubothek.gateway.limits import Limits
from kubothek.lake.commits import DatasetLog
from kubothek.lake.commits.objects import keys
from kubothek.lake.exchange import StoreRepository, pull
from kubothek.lake.ledger import Layout, verify
from kubothek.lake.store import Store
from tests.gateway.hostile import KINDS, LARGEST, Attack, Target
from tests.gateway.running import Running, running
from tests.gateway.wire import LONG, open_files, request, told
from tests.ledger_root.planes import LEDGER, UUID, made, opened, push, sound

MANY: Final = 10_000 if os.environ.get("KUBOTHEK_SOAK") else 300
AT_ONCE: Final = 8
_THREADS: Final = 32
"""Of the gateway; they stay."""
_GROWTH: Final = 48 << 20
"""Bytes of memory within which a process that leaks nothing wavers: less than two answers of the largest kind."""


@dataclass(frozen=True)
class Held:
    """What the process holds: of the gateway and of those who attack it."""

    tasks: int
    threads: int
    files: int
    objects: int
    memory: int

    @classmethod
    def now(cls, gateway: Running) -> Held:
        gateway.lines.clear()
        gc.collect()
        named = [each for each in threading.enumerate() if not each.name.startswith("gateway")]
        return cls(
            tasks=gateway.tasks(),
            threads=len(named),
            files=open_files(),
            objects=len(gc.get_objects()),
            memory=psutil.Process().memory_info().rss,
        )


@pytest.fixture
def gateway(store: Store) -> Iterator[Running]:
    made(store, LEDGER)
    push(store, {1: "A", 2: "B"})
    pull(store, DatasetLog(store, "copy"), StoreRepository(store, Layout(keys.chain(UUID))))
    limits = Limits(
        message_bytes=LARGEST,
        object_bytes=LARGEST,
        ingest_bytes=LARGEST,
        patience=0.3,
        slowest=1 << 30,
        head_seconds=0.3,
        idle_seconds=1.0,
        burst=10**6,
        sessions_each=16,
    )
    with running(store, public=(UUID,), limits=limits) as gateway:
        yield gateway


@pytest.mark.timeout(7200 if os.environ.get("KUBOTHEK_SOAK") else 600)
def test_hostile_requests_end_nothing_leave_nothing_and_get_nothing(store: Store, gateway: Running) -> None:
    attack = Attack(Target.of(store), gateway.port)
    head = opened(store).state.head
    first = MANY // 3
    assault(attack, gateway, 0, first)
    before = settled(gateway, None)
    assault(attack, gateway, first, MANY)
    after = settled(gateway, before)
    print(f"\n{MANY:,} hostile requests: {dict(sorted(attack.seen.items()))}\nbefore {before}\nafter  {after}")
    for name in ("tasks", "threads", "files"):
        assert getattr(after, name) <= getattr(before, name), name
    assert after.objects < before.objects + 20_000
    assert after.memory < before.memory + _GROWTH
    assert sum(each.name.startswith("gateway") for each in threading.enumerate()) <= _THREADS
    assert min(attack.seen[kind.__name__] for kind in KINDS) >= MANY // len(KINDS)
    assert {"101", "200", "400", "401", "403", "413"} <= attack.seen.keys()
    assert still_served(gateway) == str(head).encode()
    sound(store)
    if DatasetLog(store, "fresh").settled() is not None:  # some changes of some bytes leave a sound chain
        assert verify(store, Layout(keys.chain("fresh"))).sound


def assault(attack: Attack, gateway: Running, start: int, stop: int) -> None:
    """Send the requests of these numbers, some at a time; no answer of any is the gateway's fault."""
    with ThreadPoolExecutor(AT_ONCE) as attackers:
        for done in range(start, stop, 500):
            list(attackers.map(attack.one, range(done, min(done + 500, stop))))
            statuses = Counter(str(line["status"]) for line in gateway.lines)
            assert not statuses["500"], [line for line in gateway.lines if line["status"] == 500]
            gateway.lines.clear()


def settled(gateway: Running, before: Held | None) -> Held:
    """What is held once nothing goes away any more, or no more than before is there."""
    deadline, last = time.monotonic() + LONG, Held.now(gateway)
    while time.monotonic() < deadline:
        time.sleep(0.3)
        found = Held.now(gateway)
        if before is None and (found.tasks, found.files) == (last.tasks, last.files):
            return found
        if before is not None and found.tasks <= before.tasks and found.files <= before.files:
            return found
        last = found
    return last


def still_served(gateway: Running) -> bytes:
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        answer = told(gateway.port, request("GET", f"/{UUID}/refs/head"))
        if answer.status == 200:  # who is slow on a busy machine is cut off as well
            return answer.body
    raise AssertionError("it is not served any more")
