"""Handlers of observed objects: they update the caches and queue the resources that depend on a change."""

from __future__ import annotations

from collections.abc import Callable

from kubothek.api.bounds import BOUNDING
from kubothek.api.kinds import KINDS
from kubothek.cluster import names
from kubothek.cluster.api import Object
from kubothek.cluster.cache import inspection_diff
from kubothek.cluster.cache.dependents import dependants
from kubothek.cluster.cache.state import ClusterState
from kubothek.cluster.names import controller_of
from kubothek.cluster.queue import Key, WorkQueue
from kubothek.cluster.telemetry.metrics import Metrics
from kubothek.cluster.telemetry.traces import Traces

_OF_OTHERS = ("generation", "deletionTimestamp", "annotations", "labels")
"""Metadata that the operator's own writes do not change."""


class Observer:
    """Handler of object states from watches, listings and the answers to our own writes, in any order."""

    def __init__(self, state: ClusterState, queue: WorkQueue, metrics: Metrics, traces: Traces) -> None:
        self._state = state
        self._queue = queue
        self._metrics = metrics
        self._traces = traces

    def observe(self, kind: str, obj: Object) -> bool:
        """Store a state from a watch or a listing, and queue its dependents if it is new. Return whether it is."""
        meta = obj["metadata"]
        if kind == "Pod":
            known = self._state.pods.get(meta["namespace"], meta["name"])
            news = self._state.put_pod(obj)
            if news:
                self._metrics.pod(known, obj)
                self._traces.pod(known, obj, self._owner_of(obj))
                self._wake_owner(obj)
                if known is not None and names.waits(known):  # a job changes its owner: wake the Engine too
                    self._wake_owner(known)
            self.wake_waiting()
            return news
        if kind in BOUNDING:
            return self._bounded(meta["namespace"], lambda: self._state.bounds[kind].put(obj))
        before = self._state.resources[kind].get(meta["namespace"], meta["name"])
        if before is not None and _succeeds(meta, before["metadata"]):
            self.deleted(kind, before)  # its deletion was not observed
            before = None
        news = self._state.resources[kind].put(obj)
        if news:
            self._metrics.resource(kind, before, obj)
            self._traces.resource(kind, before, obj)
            edited = before is not None and before["metadata"].get("generation") != meta.get("generation")
            self._queue.add(Key(kind, meta["namespace"], meta["name"]), urgent=edited)
            self.wake_dependants(kind, before, obj)
        return news

    def deleted(self, kind: str, obj: Object) -> bool:
        """Remove an object that was deleted, and queue its dependents. Return whether it was known."""
        meta = obj["metadata"]
        namespace, name, uid = meta["namespace"], meta["name"], meta["uid"]
        if kind == "Pod":
            known = self._state.pods.get(namespace, name)
            self._traces.pod(known, obj, self._owner_of(obj))
            self._state.put_pod(obj)  # its last state may show how the job ended
            cancelled = self._state.is_cancelled(namespace, names.job_of(obj))
            last = self._state.remove_pod(namespace, name, uid)
            if last is not None:
                self._metrics.pod_deleted(known, last, cancelled=cancelled)
                self._wake_owner(obj)
            self.wake_waiting()
            return last is not None
        if kind in BOUNDING:
            cache = self._state.bounds[kind]
            return self._bounded(namespace, lambda: cache.remove(namespace, name, uid) is not None)
        found = self._state.resources[kind].remove(namespace, name, uid) is not None
        if found:
            self._state.forget_owner(uid)
            self._queue.forget(Key(kind, namespace, name))
            self._state.job_slots.withdraw(Key(kind, namespace, name))
            self.wake_dependants(kind, obj, None)
            self.wake_waiting()
        return found

    def wrote(self, key: Key, before: Object, written: Object) -> None:
        """Store the answer to our own write, without queueing the resource itself.

        Queue the resource all the same if the answer includes changes by others: the watch delivers them as not new.
        """
        if self._state.resources[key.kind].put(written):
            self._metrics.resource(key.kind, before, written)
            self._traces.resource(key.kind, before, written)
            self.wake_dependants(key.kind, before, written)
            if any(written["metadata"].get(name) != before["metadata"].get(name) for name in _OF_OTHERS):
                self._queue.add(key)

    def _bounded(self, namespace: str, change: Callable[[], bool]) -> bool:
        """Store a quota or limit range. Queue Engines only if a limit changed: most updates concern only usage."""
        before, news = self._state.bounds_in(namespace), change()
        if self._state.bounds_in(namespace) != before:
            for engine in self._state.resources["Engine"].objects(namespace):
                self._queue.add(Key("Engine", namespace, engine["metadata"]["name"]))
        return news

    def _wake_owner(self, pod: Object) -> None:
        reference, namespace = controller_of(pod), pod["metadata"]["namespace"]
        if reference is None or reference["kind"] not in KINDS:
            return
        if self._owner_of(pod) is None:
            self._state.forget_owner(reference["uid"])
            return
        self._queue.add(Key(reference["kind"], namespace, reference["name"]))

    def _owner_of(self, pod: Object) -> Object | None:
        """Return the resource that owns a job; None if it is gone or was re-created."""
        reference, namespace = controller_of(pod), pod["metadata"]["namespace"]
        if reference is None or reference["kind"] not in KINDS:
            return None
        owner = self._state.resources[reference["kind"]].get(namespace, reference["name"])
        return owner if owner is not None and owner["metadata"]["uid"] == reference["uid"] else None

    def wake_dependants(self, kind: str, before: Object | None, after: Object | None) -> None:
        """Queue the resources that depend on the change of an object."""
        if kind == "ObjectStore":
            for key in inspection_diff.reported_resources(self._state, before, after):
                self._queue.add(key, urgent=True)
        for key in dependants(self._state, kind, before, after):
            self._queue.add(key)

    def wake_waiting(self) -> None:
        """Queue the resources for which a job slot may be free."""
        for key in self._state.job_slots.woken():
            self._queue.add(key)


def _succeeds(meta: Object, before: Object) -> bool:
    """Return whether an object is a later one of the same name, by their metadata."""
    return meta["uid"] != before["uid"] and int(meta["resourceVersion"]) > int(before["resourceVersion"])
