"""Concurrency limits: how many jobs run at the same time, and which one is next.

Jobs that read data take a *place* (a slot). Inspections, deletions, restorations and taggings touch only a few objects:
they take none, and are never held back. The operator's limits set the number of places: in all, for one namespace, and
for one ObjectStore.

* Maintenance leaves one place of each limit to user work, and takes none that user work waits for. With a limit of one,
  it takes the place only if no user work waits for it.
* While others wait for the last places, a namespace gets at most its share. That is the number of places divided by the
  number of namespaces that hold or want some, and at least one.

A job that could not start anyway holds back no other one: if its own namespace or store is full, the remaining places
go to other jobs. So whenever a place is free and user work that may have it waits, one of these jobs is admitted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from kubothek.api.conditions import waiting
from kubothek.controller.context import Limits, Load, Place
from kubothek.controller.references import Blocked

RECHECK_INTERVAL = timedelta(minutes=1)
"""Requeue interval of a job that waits for a place, in case no change wakes it earlier."""

_USER_WORK = frozenset({"commit", "cube", "intake", "poll", "query", "sync", "transform"})
_MAINTENANCE = frozenset({"index", "skip", "skip-files", "compact", "heal", "collect", "verify"})

_Scope = tuple[str, ...]
"""Scope of a limit: everything, a namespace, or a namespace and an ObjectStore in it."""
_Tally = Counter[_Scope]


def place_of(verb: str, namespace: str, store: str) -> Place | None:
    """Return the place that a job with this verb takes on an ObjectStore of a namespace; None if it takes none."""
    if verb not in _USER_WORK | _MAINTENANCE:
        return None
    return Place(namespace, store, maintenance=verb in _MAINTENANCE)


def admit(place: Place, limits: Limits, load: Load) -> Blocked | None:
    """Return what a job that wants this place has to wait for; None if it may start now."""
    if limits == Limits():
        return None
    return _held_back(place, _Case.of(limits, load))


def admitted(limits: Limits, load: Load) -> set[Place]:
    """Return the wanted places that a job may have now, each judged alone: one admission may exclude another."""
    if limits == Limits():
        return set(load.wanted)
    case = _Case.of(limits, load)
    if limits.jobs and case.taken[()] >= limits.jobs:
        return set()
    return {place for place in load.wanted if _held_back(place, case) is None}


def spare(limits: Limits, load: Load) -> int | None:
    """Return how many more jobs may run in all; None: any number."""
    return max(limits.jobs - sum(load.taken.values()), 0) if limits.jobs else None


@dataclass(frozen=True, slots=True)
class _Case:
    """Held and wanted places, counted by scope."""

    limits: Limits
    load: Load
    taken: _Tally
    by_maintenance: _Tally
    """The part of ``taken`` that maintenance holds."""
    due: _Tally
    """Places that user work waits for and that no limit holds back."""

    @classmethod
    def of(cls, limits: Limits, load: Load) -> _Case:
        taken = _tally(load.taken.items())
        by_maintenance = _tally((place, count) for place, count in load.taken.items() if place.maintenance)
        case = cls(limits, load, taken, by_maintenance, Counter())
        users = [(place, count) for place, count in load.wanted.items() if not place.maintenance]
        case.due.update(_tally((place, count) for place, count in users if case.full_for(place) is None))
        return case

    def full_for(self, place: Place) -> _Scope | None:
        """Return the scope whose limit holds back a job that wants this place, or None."""
        for scope in _scopes(place):
            limit = _limit(scope, self.limits)
            if not limit:
                continue
            free = limit - self.taken[scope]
            if free < 1:
                return scope
            if place.maintenance and (self.by_maintenance[scope] >= max(1, limit - 1) or self.due[scope] >= free):
                return scope
        return None


def _held_back(place: Place, case: _Case) -> Blocked | None:
    full = case.full_for(place)
    if full is not None:
        return _blocked(_message(full, place, case.limits))
    if case.limits.jobs and _has_its_share(place, case):
        return _blocked("other namespaces hold fewer places, and wait for those that are left")
    return None


def _has_its_share(place: Place, case: _Case) -> bool:
    """Return whether other namespaces want all free places, and this namespace has its share."""
    taken, wanted, jobs = case.taken, case.load.wanted, case.limits.jobs
    namespaces = {other.namespace for other in (place, *case.load.taken, *wanted)}
    share = max(1, jobs // len(namespaces))
    if taken[place.namespace,] < share:
        return False
    rivals = (
        count
        for other, count in wanted.items()
        if taken[other.namespace,] < share
        and (place.maintenance or not other.maintenance)
        and case.full_for(other) is None
    )
    return sum(rivals) >= jobs - taken[()]


def _tally(places: Iterable[tuple[Place, int]]) -> _Tally:
    tally: _Tally = Counter()
    for place, count in places:
        for scope in _scopes(place):
            tally[scope] += count
    return tally


def _scopes(place: Place) -> tuple[_Scope, ...]:
    return (), (place.namespace,), (place.namespace, place.store)


def _limit(scope: _Scope, limits: Limits) -> int:
    return (limits.jobs, limits.jobs_per_namespace, limits.jobs_per_store)[len(scope)]


def _message(scope: _Scope, place: Place, limits: Limits) -> str:
    whose = ("", " of a namespace", f" on ObjectStore {place.store!r}")[len(scope)]
    last = ", maintenance after all others" if place.maintenance else ""
    return f"the operator runs at most {_limit(scope, limits)} jobs{whose} at a time{last}"


def _blocked(why: str) -> Blocked:
    return Blocked(
        waiting("ConcurrencyLimit", f"{why}: this one starts automatically when it is its turn"), RECHECK_INTERVAL
    )
