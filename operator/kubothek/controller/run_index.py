"""Index of the runs that change each Dataset or Cube, which a runtime updates while it watches.

The cost of a decision about a Dataset or Cube depends only on the runs queued for it, not on other runs or ended ones.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple, Protocol, TypeVar

from kubothek.api.commit import Commit
from kubothek.api.compaction import Compaction
from kubothek.api.meta import Resource
from kubothek.api.query import Query

Run = Commit | Query | Compaction
R = TypeVar("R", Commit, Query, Compaction)

KINDS = ("Commit", "Query", "Compaction")
_NEVER = datetime.max.replace(tzinfo=UTC)


class Change(NamedTuple):
    """Index fields of a run: kind and name of what it changes, creation, whether it has finished, and completion."""

    subject: tuple[str, str]
    created: datetime | None
    finished: bool
    completed: datetime | None


class _Place(NamedTuple):
    """Position of a run in the index: its list, and its entry there."""

    queue: tuple[str, str, str, str]
    ended: bool
    entry: tuple[datetime, str]


class RunIndex:
    """Names of runs by kind, namespace and what they change: the unfinished ones, and the completed ones."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str, str, str], list[tuple[datetime, str]]] = {}
        """Sorted by creation, then name: the order in which they run."""
        self._ended: dict[tuple[str, str, str, str], list[tuple[datetime, str]]] = {}
        """Sorted by completion."""
        self._locations: dict[tuple[str, str, str], _Place] = {}

    def put(self, kind: str, namespace: str, name: str, change: Change | None) -> None:
        """Add or update a run; None removes it: it was deleted, or changes nothing."""
        place = None if change is None else _place(kind, namespace, name, change)
        known = self._locations.get((kind, namespace, name))
        if place == known:
            return
        if known is not None:
            del self._locations[kind, namespace, name]
            lists = self._ended if known.ended else self._open
            there = lists[known.queue]
            del there[bisect_left(there, known.entry)]
            if not there:
                del lists[known.queue]
        if place is not None:
            self._locations[kind, namespace, name] = place
            insort((self._ended if place.ended else self._open).setdefault(place.queue, []), place.entry)

    def unfinished(self, kind: str, namespace: str, subject: tuple[str, str]) -> Iterator[str]:
        """Yield the names of unfinished runs, in the order of their creation."""
        yield from (name for _, name in self._open.get((kind, namespace, *subject), ()))

    def completed(self, kind: str, namespace: str, subject: tuple[str, str], since: datetime | None) -> Iterator[str]:
        """Yield the names of runs that were completed at ``since`` or later, the latest first."""
        for ended, name in reversed(self._ended.get((kind, namespace, *subject), ())):
            if since is not None and ended < since:
                return
            yield name


class Runs(Protocol):
    """Lookup of runs: the part of :class:`~kubothek.controller.context.Context` that this index needs."""

    @property
    def run_index(self) -> RunIndex: ...

    def get(self, kind: type[R], namespace: str, name: str) -> R | None: ...


def _place(kind: str, namespace: str, name: str, change: Change) -> _Place | None:
    queue = (kind, namespace, *change.subject)
    if not change.finished:
        return _Place(queue, False, (change.created or _NEVER, name))
    return None if change.completed is None else _Place(queue, True, (change.completed, name))


def change_of(run: Resource) -> Change | None:
    """Return the index fields of a run; None for another resource, or for a run that changes nothing."""
    if not isinstance(run, Run):
        return None
    if isinstance(run, Commit):
        subject: tuple[str, str] = run.subject
    else:
        target = run.spec.result.dataset_ref if isinstance(run, Query) else run.spec.dataset_ref
        if target is None:
            return None
        subject = ("Dataset", target.name)
    return Change(subject, run.metadata.creation_timestamp, run.finished, run.status.completion_time)


def unfinished(kind: type[R], namespace: str, subject: tuple[str, str], runs: Runs) -> Iterator[R]:
    """Yield the unfinished runs of a kind that change ``subject``, in the order of their creation."""
    for name in runs.run_index.unfinished(kind.__name__, namespace, subject):
        run = runs.get(kind, namespace, name)
        if run is not None:
            yield run


def completed(
    kind: type[R], namespace: str, subject: tuple[str, str], since: datetime | None, runs: Runs
) -> Iterator[R]:
    """Yield the runs of a kind that change ``subject`` and were completed at ``since`` or later, the latest first."""
    for name in runs.run_index.completed(kind.__name__, namespace, subject, since):
        run = runs.get(kind, namespace, name)
        if run is not None:
            yield run
