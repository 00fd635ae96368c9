"""Which jobs hold a place under the operator's limits, and which resources wait for one.

A place is held from the moment in which a launch is decided, so that several workers cannot give the same one away, to
the end of the pod. Nothing here outlives the process: places are counted again from the pods, and who waits asks again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kubothek.reconcile.load import place_of
from kubothek.reconcile.world import Action, AwaitPlace, LaunchJob, Load, Place
from kubothek.runtime.kubernetes import names
from kubothek.runtime.kubernetes.queue import Key

_HEADS = 4
"""How many resources of each namespace are woken when a place becomes free: the longest waiting, and some in case that
one cannot go on.
"""


class Places:
    """Counts places. Belongs to one event loop."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], Place] = {}
        """By namespace and job."""
        self._pods: set[tuple[str, str]] = set()
        """Those of ``_held`` whose pod was seen."""
        self._waiting: dict[Key, tuple[Place, ...]] = {}
        """In the order in which they came."""
        self._taken: Counter[Place] = Counter()
        self._wanted: Counter[Place] = Counter()
        self._stirred = False

    @property
    def load(self) -> Load:
        """The places that are held and waited for. A view: it changes as they do."""
        return Load(self._taken, self._wanted)

    def follow(self, pod: dict[str, Any]) -> None:
        """Take in a state of a driver pod."""
        meta = pod["metadata"]
        labels, job = meta.get("labels") or {}, (meta["namespace"], meta["name"])
        place = place_of(labels.get(names.VERB, ""), meta["namespace"], labels.get(names.STORE, ""))
        if place is None or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
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
            self._stirred = True

    @contextmanager
    def decided(self, key: Key, actions: Sequence[Action]) -> Iterator[None]:
        """Hold the places of what is about to be launched; at the end those are free again that came to no pod."""
        self._wait(key, tuple(action.place for action in actions if isinstance(action, AwaitPlace)))
        launched: list[tuple[str, str]] = []
        for action in actions:
            if not isinstance(action, LaunchJob):
                continue
            job, place = action.job, place_of(action.job.verb, key.namespace, action.job.store.name)
            if place is not None and (key.namespace, job.job) not in self._held:
                launched.append((key.namespace, job.job))
                self._hold(launched[-1], place)
        try:
            yield
        finally:
            for lost in launched:
                if lost not in self._pods:
                    self.release(*lost)

    def withdraw(self, key: Key) -> None:
        """The resource is gone."""
        self._wait(key, ())

    def woken(self) -> Iterator[Key]:
        """Who may go on now: the first few of each namespace, if places became free since this was last asked."""
        if not self._stirred:
            return
        self._stirred = False
        heads: Counter[str] = Counter()
        for key in list(self._waiting):
            heads[key.namespace] += 1
            if heads[key.namespace] <= _HEADS:
                yield key

    def _hold(self, job: tuple[str, str], place: Place) -> None:
        if job not in self._held:
            self._held[job] = place
            self._taken[place] += 1

    def _wait(self, key: Key, places: tuple[Place, ...]) -> None:
        before = self._waiting.get(key, ())
        if places == before:
            return
        for place in before:
            _subtract(self._wanted, place)
        self._wanted.update(places)
        if places:
            self._waiting[key] = places
        else:
            del self._waiting[key]
        # Others may have been held back for the sake of what is not wanted any more.
        self._stirred = self._stirred or bool(before)


def _subtract(counter: Counter[Place], place: Place) -> None:
    counter[place] -= 1
    if not counter[place]:
        del counter[place]
