"""The work queue: the order in which resources are reconciled.

It is level-triggered: a key means "reconcile this", without a cause. A key is queued once however often it is added,
and one worker at a time has it. It returns after a failure (exponential backoff) or when its timer fires.

Urgent keys are those that a user waits for (an edit), or many resources (a store). They come first, but do not starve
others.
Namespaces alternate, so that one tenant's ten thousand resources do not delay another's single one.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

_AWAITED = frozenset({"ObjectStore", "Engine"})
"""Kinds on which many resources wait."""
_AHEAD = 3
"""Urgent keys in a row that precede the namespace whose turn it is."""


class Key(NamedTuple):
    """The key of a resource."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delay before the n-th try after n failures: ``initial`` × 2ⁿ⁻¹ up to ``limit`` seconds, each ± ``jitter``."""

    initial: float = 0.75
    limit: float = 15 * 60
    jitter: float = 0.05

    def delay(self, failures: int, rng: random.Random) -> float:
        """Return the seconds to wait after ``failures`` (1 or more) failures in a row."""
        exponent = min(failures - 1, 32)
        return float(min(self.initial * 2**exponent, self.limit) * rng.uniform(1 - self.jitter, 1 + self.jitter))


class _Lanes:
    """The ready keys of one namespace: urgent ones, and others. The lanes are dictionaries, as keys change lanes."""

    __slots__ = ("_others", "_urgent")

    def __init__(self) -> None:
        self._urgent: dict[Key, None] = {}
        self._others: dict[Key, None] = {}

    def __bool__(self) -> bool:
        return bool(self._urgent or self._others)

    def add(self, key: Key, *, urgent: bool) -> None:
        """Append the key to its lane."""
        (self._urgent if urgent or key.kind in _AWAITED else self._others)[key] = None

    def hurry(self, key: Key) -> None:
        """Move the key to the end of the urgent lane."""
        if key in self._others:
            del self._others[key]
            self._urgent[key] = None

    def pop(self) -> Key:
        """Remove and return the next key."""
        lane = self._urgent or self._others
        key = next(iter(lane))
        del lane[key]
        return key

    @property
    def is_urgent(self) -> bool:
        """Whether the next key is urgent."""
        return bool(self._urgent)

    def heads(self) -> Iterator[Key]:
        """Yield the first key of each lane."""
        for lane in (self._urgent, self._others):
            yield from islice(lane, 1)


class WorkQueue:
    """Keys to reconcile. Belongs to one event loop; every method but :meth:`get` returns at once."""

    def __init__(self, backoff: Backoff | None = None, rng: random.Random | None = None) -> None:
        self._backoff = backoff or Backoff()
        self._rng = rng or random.Random()
        self._ready: OrderedDict[str, _Lanes] = OrderedDict()
        """Ready keys by namespace, the next namespace first."""
        self._urgent: OrderedDict[str, None] = OrderedDict()
        """Namespaces whose next key is urgent, the next one first."""
        self._ahead = 0
        """Urgent keys in a row that preceded the namespace whose turn it was."""
        self._queued: dict[Key, float] = {}
        """Monotonic time at which each key became ready."""
        self._working: set[Key] = set()
        self._dirty: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._idle = 0
        self._wakeup = asyncio.Semaphore(0)

    def __len__(self) -> int:
        """Number of ready keys that no worker has."""
        return len(self._queued)

    @property
    def busy(self) -> int:
        """Number of keys that a worker has."""
        return len(self._working)

    @property
    def served(self) -> bool:
        """Whether there is a worker: an operator without its Lease has none."""
        return bool(self._idle or self._working)

    @property
    def failing(self) -> int:
        """Number of keys whose last reconciliation failed, to be retried."""
        return len(self._failures)

    @property
    def oldest(self) -> float:
        """Seconds for which the oldest ready key has waited; 0 if none is ready."""
        since = min((self._queued[key] for lanes in self._ready.values() for key in lanes.heads()), default=None)
        return 0.0 if since is None else time.monotonic() - since

    def add(self, key: Key, after: float = 0.0, *, urgent: bool = False) -> None:
        """Queue the key now, or after ``after`` seconds; of several pending times the earliest wins.

        ``urgent``  ahead of keys that are not urgent
        """
        if after > 0:
            self._schedule(key, after)
            return
        self._unschedule(key)
        if key in self._working:
            self._dirty.add(key)
        elif key not in self._queued:
            self._queued[key] = time.monotonic()
            self._ready.setdefault(key.namespace, _Lanes()).add(key, urgent=urgent)
            self._follow(key.namespace)
            self._wakeup.release()
        elif urgent:
            self._ready[key.namespace].hurry(key)
            self._follow(key.namespace)

    async def get(self) -> Key:
        """Wait for a key; no other worker gets it until the caller calls :meth:`done`."""
        self._idle += 1
        try:
            await self._wakeup.acquire()
        finally:
            self._idle -= 1
        namespace = self._next()
        lanes = self._ready.pop(namespace)
        self._urgent.pop(namespace, None)
        key = lanes.pop()
        if lanes:
            self._ready[namespace] = lanes
            self._follow(namespace)
        del self._queued[key]
        self._working.add(key)
        return key

    def _next(self) -> str:
        """Return the namespace of the next key."""
        if self._urgent and self._ahead < _AHEAD:
            self._ahead += 1
            return next(iter(self._urgent))
        self._ahead = 0
        return next(iter(self._ready))

    def _follow(self, namespace: str) -> None:
        if self._ready[namespace].is_urgent:
            self._urgent.setdefault(namespace)

    def done(self, key: Key, *, failed: bool = False, after: float | None = None) -> None:
        """Give the key back, after a success or a failure. A failure is retried after its backoff.

        ``after``: seconds until the key is queued again although nothing changed.
        """
        self._working.discard(key)
        if failed:
            self._failures[key] = self._failures.get(key, 0) + 1
            after = self._backoff.delay(self._failures[key], self._rng)
        else:
            self._failures.pop(key, None)
        if key in self._dirty:
            self._dirty.discard(key)
            # A failed key waits even if it changed meanwhile: refused writes must not become a busy loop.
            if not failed:
                self.add(key)
        if after is not None and key not in self._queued:
            self._schedule(key, max(after, 0.001))

    def forget(self, key: Key) -> None:
        """Drop the failures and timers of a resource that is gone. A worker that has the key keeps it."""
        self._failures.pop(key, None)
        self._dirty.discard(key)
        self._unschedule(key)

    def _schedule(self, key: Key, after: float) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + after
        pending = self._timers.get(key)
        if pending is not None and pending.when() <= due:
            return
        self._unschedule(key)
        self._timers[key] = loop.call_at(due, self._due, key)

    def _unschedule(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _due(self, key: Key) -> None:
        self._timers.pop(key, None)
        self.add(key)
