"""Which jobs hold a place under the operator's limits, and which resources wait for one.

A place is held from the moment in which a launch is decided, so that several workers cannot give the same one away, to
the end of the pod. Nothing here outlives the process: places are counted again from the pods, and who waits asks again.

Who waits is woken when :func:`kubothek.controller.scheduling.concurrency.admitted` says that a job of its may start:
the same rules by which it then decides. Counting what became free would not do: a job of one namespace takes nothing
from another where the limits are those of namespaces, and a launch may be what gives others their turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, zip_longest
from typing import Any, TypeVar

from kubothek.cluster import names
from kubothek.cluster.queue import Key
from kubothek.controller.context import ENDED, Action, AwaitPlace, LaunchJob, Limits, Load, Place
from kubothek.controller.scheduling.concurrency import admitted, place_of, spare

_AT_ONCE = 4
"""How many are woken together, if there are places for so many: what they decide tells whether others are to be asked.
"""


T = TypeVar("T")


class Places:
    """Counts places. Belongs to one event loop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held: dict[tuple[str, str], Place] = {}
        """By namespace and job."""
        self._pods: set[tuple[str, str]] = set()
        """Those of ``_held`` whose pod was seen."""
        self._waiting: dict[str, dict[Key, tuple[Place, ...]]] = {}
        """In the order in which they came, by namespace: those first that got a place the longest ago."""
        self._taken: Counter[Place] = Counter()
        self._wanted: Counter[Place] = Counter()
        self._held_by: Counter[str] = Counter()
        """Places by namespace."""
        self._open = False
        """Whether somebody may go on who has not been asked."""
        self._asked: set[Key] = set()
        """Who was woken since others last held, or wanted, other places."""
        self._deciding: set[Key] = set()
        """Those of ``_asked`` who have not decided yet."""

    @property
    def load(self) -> Load:
        """The places that are held and waited for. A view: it changes as they do."""
        return Load(self._taken, self._wanted)

    def follow(self, pod: dict[str, Any]) -> None:
        """Take in a state of a driver pod."""
        meta = pod["metadata"]
        labels, job = meta.get("labels") or {}, (meta["namespace"], names.job_of(pod))
        place = place_of(labels.get(names.VERB, ""), meta["namespace"], labels.get(names.STORE, ""))
        if place is None or (pod.get("status") or {}).get("phase") in ENDED:
            self.release(*job)
            return
        self._pods.add(job)
        self._hold(job, place)

    def release(self, namespace: str, job: str) -> None:
        """The job has ended, or its pod is gone."""
        self._pods.discard((namespace, job))
        place = self._held.pop((namespace, job), None)
        if place is not None:
            _subtract(self._taken, place)
            _subtract(self._held_by, place.namespace)
            self._ask_again()

    @contextmanager
    def decided(self, key: Key, actions: Sequence[Action]) -> Iterator[None]:
        """Hold the places of what is about to be launched; at the end those are free again that came to no pod."""
        launched: list[tuple[str, str]] = []
        for action in actions:
            if not isinstance(action, LaunchJob):
                continue
            job, place = action.job, place_of(action.job.verb, key.namespace, action.job.store.name)
            if place is not None and (key.namespace, job.job) not in self._held:
                launched.append((key.namespace, job.job))
                self._hold(launched[-1], place)
        awaited = tuple(action.place for action in actions if isinstance(action, AwaitPlace))
        self._wait(key, awaited)
        try:
            yield
        finally:
            for lost in launched:
                if lost not in self._pods:
                    self.release(*lost)

    def withdraw(self, key: Key) -> None:
        """The resource is gone, or its round failed: nothing is kept free for one that may never take it."""
        self._wait(key, ())

    def answered(self, key: Key) -> None:
        """A round over the resource is over, perhaps without a decision: nobody waits for it any more."""
        self._deciding.discard(key)

    def woken(self) -> Iterator[Key]:
        """Who may go on now: a few at a time, in turn by namespace, those first that hold least, and of these those
        that got a place the longest ago.

        As long as they leave places that others may have, the next few, until all of those were asked.
        """
        if not self._open or self._deciding:
            return
        free = spare(self._limits, self.load)
        following = list(islice(self._following(), _AT_ONCE if free is None else min(free, _AT_ONCE)))
        self._open = bool(following)
        self._asked.update(following)
        self._deciding.update(following)
        yield from following

    def _following(self) -> Iterator[Key]:
        places = admitted(self._limits, self.load)
        admissible = {place.namespace for place in places}
        waiting = (namespace for namespace in self._waiting if namespace in admissible)
        order = sorted(waiting, key=lambda namespace: self._held_by[namespace])
        heads = [list(islice(self._in(namespace, places), _AT_ONCE)) for namespace in order]
        for turn in zip_longest(*heads):
            yield from (key for key in turn if key is not None)

    def _in(self, namespace: str, places: set[Place]) -> Iterator[Key]:
        for key, wanted in self._waiting[namespace].items():
            if key not in self._asked and not places.isdisjoint(wanted):
                yield key

    def _ask_again(self) -> None:
        """What is held or wanted has changed: who could not go on before perhaps can."""
        self._open = True
        self._asked &= self._deciding

    def _hold(self, job: tuple[str, str], place: Place) -> None:
        if job not in self._held:
            self._held[job] = place
            self._taken[place] += 1
            self._held_by[place.namespace] += 1
            if waiting := self._waiting.pop(place.namespace, None):
                self._waiting[place.namespace] = waiting
            self._ask_again()

    def _wait(self, key: Key, places: tuple[Place, ...]) -> None:
        self._deciding.discard(key)
        waiting = self._waiting.get(key.namespace, {})
        before = waiting.get(key, ())
        if places == before:
            return
        for place in before:
            _subtract(self._wanted, place)
        self._wanted.update(places)
        if places:
            self._waiting.setdefault(key.namespace, waiting)[key] = places
        else:
            del waiting[key]
            if not waiting:
                del self._waiting[key.namespace]
        if before:  # others may have been held back for the sake of what is not wanted any more
            self._ask_again()


def _subtract(counter: Counter[T], what: T) -> None:
    counter[what] -= 1
    if not counter[what]:
        del counter[what]
