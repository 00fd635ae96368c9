"""Concurrency limits: how many jobs run at the same time, and which one is next.

Jobs that read data take a *slot*. Inspections, deletions, restorations and taggings touch only a few objects:
they take none, and are never held back. The operator's limits set the number of slots: in all, for one namespace, and
for one ObjectStore.

* Maintenance leaves one slot of each limit to user work, and takes none that user work waits for. With a limit of one,
  it takes the slot only if no user work waits for it.
* While others wait for the last slots, a namespace gets at most its share. That is the number of slots divided by the
  number of namespaces that hold or want some, and at least one.

A job that could not start anyway holds back no other one: if its own namespace or store is full, the remaining slots
go to other jobs. So whenever a slot is free and user work that may have it waits, one of these jobs is admitted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from kubothek.api.conditions import waiting
from kubothek.controller.context import JobSlot, Limits, Load
from kubothek.controller.references import Blocked

RECHECK_INTERVAL = timedelta(minutes=1)
"""Requeue interval of a job that waits for a slot, in case no change wakes it earlier."""

_USER_WORK = frozenset({"commit", "cube", "intake", "poll", "query", "sync", "transform"})
_MAINTENANCE = frozenset({"index", "skip", "skip-files", "compact", "heal", "collect", "verify"})

_Scope = tuple[str, ...]
"""Scope of a limit: everything, a namespace, or a namespace and an ObjectStore in it."""
_Tally = Counter[_Scope]


def job_slot_of(verb: str, namespace: str, store: str) -> JobSlot | None:
    """Return the slot that a job with this verb takes on an ObjectStore of a namespace; None if it takes none."""
    if verb not in _USER_WORK | _MAINTENANCE:
        return None
    return JobSlot(namespace, store, maintenance=verb in _MAINTENANCE)


def admit(slot: JobSlot, limits: Limits, load: Load) -> Blocked | None:
    """Return what a job that wants this slot has to wait for; None if it may start now."""
    if limits == Limits():
        return None
    return _held_back(slot, _Case.of(limits, load))


def admitted(limits: Limits, load: Load) -> set[JobSlot]:
    """Return the wanted slots that a job may have now, each judged alone: one admission may exclude another."""
    if limits == Limits():
        return set(load.wanted)
    case = _Case.of(limits, load)
    if limits.jobs and case.held[()] >= limits.jobs:
        return set()
    return {slot for slot in load.wanted if _held_back(slot, case) is None}


def spare(limits: Limits, load: Load) -> int | None:
    """Return how many more jobs may run in all; None: any number."""
    return max(limits.jobs - sum(load.held.values()), 0) if limits.jobs else None


@dataclass(frozen=True, slots=True)
class _Case:
    """Held and wanted slots, counted by scope."""

    limits: Limits
    load: Load
    held: _Tally
    by_maintenance: _Tally
    """The part of ``taken`` that maintenance holds."""
    due: _Tally
    """Slots that user work waits for and that no limit holds back."""

    @classmethod
    def of(cls, limits: Limits, load: Load) -> _Case:
        held = _tally(load.held.items())
        by_maintenance = _tally((slot, count) for slot, count in load.held.items() if slot.maintenance)
        case = cls(limits, load, held, by_maintenance, Counter())
        users = [(slot, count) for slot, count in load.wanted.items() if not slot.maintenance]
        case.due.update(_tally((slot, count) for slot, count in users if case.full_for(slot) is None))
        return case

    def full_for(self, slot: JobSlot) -> _Scope | None:
        """Return the scope whose limit holds back a job that wants this slot, or None."""
        for scope in _scopes(slot):
            limit = _limit(scope, self.limits)
            if not limit:
                continue
            free = limit - self.held[scope]
            if free < 1:
                return scope
            if slot.maintenance and (self.by_maintenance[scope] >= max(1, limit - 1) or self.due[scope] >= free):
                return scope
        return None


def _held_back(slot: JobSlot, case: _Case) -> Blocked | None:
    full = case.full_for(slot)
    if full is not None:
        return _blocked(_message(full, slot, case.limits))
    if case.limits.jobs and _has_its_share(slot, case):
        return _blocked("other namespaces hold fewer places, and wait for those that are left")
    return None


def _has_its_share(slot: JobSlot, case: _Case) -> bool:
    """Return whether other namespaces want all free slots, and this namespace has its share."""
    held, wanted, jobs = case.held, case.load.wanted, case.limits.jobs
    namespaces = {other.namespace for other in (slot, *case.load.held, *wanted)}
    share = max(1, jobs // len(namespaces))
    if held[slot.namespace,] < share:
        return False
    rivals = (
        count
        for other, count in wanted.items()
        if held[other.namespace,] < share
        and (slot.maintenance or not other.maintenance)
        and case.full_for(other) is None
    )
    return sum(rivals) >= jobs - held[()]


def _tally(slots: Iterable[tuple[JobSlot, int]]) -> _Tally:
    tally: _Tally = Counter()
    for slot, count in slots:
        for scope in _scopes(slot):
            tally[scope] += count
    return tally


def _scopes(slot: JobSlot) -> tuple[_Scope, ...]:
    return (), (slot.namespace,), (slot.namespace, slot.store)


def _limit(scope: _Scope, limits: Limits) -> int:
    return (limits.jobs, limits.jobs_per_namespace, limits.jobs_per_store)[len(scope)]


def _message(scope: _Scope, slot: JobSlot, limits: Limits) -> str:
    whose = ("", " of a namespace", f" on ObjectStore {slot.store!r}")[len(scope)]
    last = ", maintenance after all others" if slot.maintenance else ""
    return f"the operator runs at most {_limit(scope, limits)} jobs{whose} at a time{last}"


def _blocked(why: str) -> Blocked:
    return Blocked(
        waiting("ConcurrencyLimit", f"{why}: this one starts automatically when it is its turn"), RECHECK_INTERVAL
    )
