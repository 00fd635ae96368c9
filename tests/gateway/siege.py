"""A gateway under attack in a process that holds nothing else, so that what stays behind is the attack's."""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import psutil

from kubothek.gateway.limits import Limits
from kubothek.storage import StoreConfig, open_store
from tests.gateway.hostile import LARGEST, Attack, Target
from tests.gateway.running import Running, running
from tests.gateway.wire import LONG, open_files, request, told
from tests.odf.dataset.planes import UUID

AT_ONCE: Final = 8
LIMITS: Final = Limits(
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


@dataclass(frozen=True)
class Held:
    """What the process holds: of the gateway and of those who attack it. ``threads`` are names, but for those of the
    gateway's pool, which stay; ``pool`` is how many these are.
    """

    tasks: int
    threads: tuple[str, ...]
    pool: int
    files: int
    objects: int
    memory: int

    @classmethod
    def now(cls, gateway: Running) -> Held:
        gateway.lines.clear()
        gc.collect()
        names = sorted(each.name for each in threading.enumerate())
        others = tuple(name for name in names if not name.startswith("gateway"))
        return cls(
            tasks=gateway.tasks(),
            threads=others,
            pool=len(names) - len(others),
            files=open_files(),
            objects=len(gc.get_objects()),
            memory=psutil.Process().memory_info().rss,
        )

    def within(self, other: Held) -> bool:
        """Whether this is no more of what goes away as soon as it is done: tasks, threads, files."""
        fewer_threads = len(self.threads) <= len(other.threads)
        return self.tasks <= other.tasks and fewer_threads and self.files <= other.files


@dataclass(frozen=True)
class Outcome:
    """``seen`` counts kinds of attacks and the statuses of answers; ``head`` is what is still served of the public
    ledger.
    """

    before: Held
    after: Held
    seen: Counter[str]
    head: bytes


def besieged(config: StoreConfig, many: int) -> Outcome:
    """Attack a gateway over a store (``Target.of``) with so many requests, a third of them before it is looked what is
    held. Raises AssertionError for an answer that should not be.
    """
    store = open_store(config)
    with running(store, public=(UUID,), limits=LIMITS) as gateway:
        attack = Attack(Target.of(store), gateway.port)
        _assault(attack, gateway, 0, many // 3)
        before = _settled(gateway, None)
        _assault(attack, gateway, many // 3, many)
        after = _settled(gateway, before)
        return Outcome(before, after, attack.seen, _still_served(gateway))


def _assault(attack: Attack, gateway: Running, start: int, stop: int) -> None:
    """Send the requests of these numbers, some at a time; no answer of any is the gateway's fault."""
    with ThreadPoolExecutor(AT_ONCE) as attackers:
        for done in range(start, stop, 500):
            list(attackers.map(attack.one, range(done, min(done + 500, stop))))
            statuses = Counter(str(line["status"]) for line in gateway.lines)
            assert not statuses["500"], [line for line in gateway.lines if line["status"] == 500]
            gateway.lines.clear()


def _settled(gateway: Running, before: Held | None) -> Held:
    """What is held once nothing goes away any more, or no more than before is there."""
    deadline, last = time.monotonic() + LONG, Held.now(gateway)
    while time.monotonic() < deadline:
        time.sleep(0.3)
        found = Held.now(gateway)
        if found.within(before or last) and (before is not None or last.within(found)):
            return found
        last = found
    return last


def _still_served(gateway: Running) -> bytes:
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        answer = told(gateway.port, request("GET", f"/{UUID}/refs/head"))
        if answer.status == 200:  # who is slow on a busy machine is cut off as well
            return answer.body
    raise AssertionError("it is not served any more")
