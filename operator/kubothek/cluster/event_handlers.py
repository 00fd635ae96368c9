"""What is seen of the cluster, taken in: the caches follow, and what depends on it is queued."""

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
"""Metadata that none of our writes changes."""


class Observer:
    """Takes in states of objects, from watches, listings and the answers to our own writes, in any order."""

    def __init__(self, state: ClusterState, queue: WorkQueue, metrics: Metrics, traces: Traces) -> None:
        self._state = state
        self._queue = queue
        self._metrics = metrics
        self._traces = traces

    def observe(self, kind: str, obj: Object) -> bool:
        """A state of an object, from a watch or a listing. Whether it is news: then what depends on it is queued."""
        meta = obj["metadata"]
        if kind == "Pod":
            known = self._state.pods.get(meta["namespace"], meta["name"])
            news = self._state.put_pod(obj)
            if news:
                self._metrics.pod(known, obj)
                self._traces.pod(known, obj, self._owner_of(obj))
                self._wake_owner(obj)
                if known is not None and names.waits(known):  # maybe it does no longer
                    self._wake_owner(known)
            self.wake_waiting()
            return news
        if kind in BOUNDING:
            return self._bounded(meta["namespace"], lambda: self._state.bounds[kind].put(obj))
        before = self._state.resources[kind].get(meta["namespace"], meta["name"])
        if before is not None and _succeeds(meta, before["metadata"]):
            self.gone(kind, before)  # which nobody saw
            before = None
        news = self._state.resources[kind].put(obj)
        if news:
            self._metrics.resource(kind, before, obj)
            self._traces.resource(kind, before, obj)
            edited = before is not None and before["metadata"].get("generation") != meta.get("generation")
            self._queue.add(Key(kind, meta["namespace"], meta["name"]), urgent=edited)
            self.wake_dependants(kind, before, obj)
        return news

    def gone(self, kind: str, obj: Object) -> bool:
        """The object was deleted. Whether that is news."""
        meta = obj["metadata"]
        namespace, name, uid = meta["namespace"], meta["name"], meta["uid"]
        if kind == "Pod":
            known = self._state.pods.get(namespace, name)
            self._traces.pod(known, obj, self._owner_of(obj))
            self._state.put_pod(obj)  # the watch's last word on it may hold its end
            cancelled = self._state.is_cancelled(namespace, names.job_of(obj))
            last = self._state.remove_pod(namespace, name, uid)
            if last is not None:
                self._metrics.pod_gone(known, last, cancelled=cancelled)
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
            self._state.places.withdraw(Key(kind, namespace, name))
            self.wake_dependants(kind, obj, None)
            self.wake_waiting()
        return found

    def wrote(self, key: Key, before: Object, written: Object) -> None:
        """Our own write: known at once, and no reason to look at the resource again.

        Unless its answer tells what others did meanwhile: the watch will tell it as well, but as nothing new.
        """
        if self._state.resources[key.kind].put(written):
            self._metrics.resource(key.kind, before, written)
            self._traces.resource(key.kind, before, written)
            self.wake_dependants(key.kind, before, written)
            if any(written["metadata"].get(name) != before["metadata"].get(name) for name in _OF_OTHERS):
                self._queue.add(key)

    def _bounded(self, namespace: str, change: Callable[[], bool]) -> bool:
        """Take in a quota or a range. Most news of them are of what is used, which nobody looks at."""
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
        """The resource that a job is of; None if it is gone, or another one of its name is there."""
        reference, namespace = controller_of(pod), pod["metadata"]["namespace"]
        if reference is None or reference["kind"] not in KINDS:
            return None
        owner = self._state.resources[reference["kind"]].get(namespace, reference["name"])
        return owner if owner is not None and owner["metadata"]["uid"] == reference["uid"] else None

    def wake_dependants(self, kind: str, before: Object | None, after: Object | None) -> None:
        """Queue what may decide differently because an object changed."""
        if kind == "ObjectStore":
            for key in inspection_diff.told_of(self._state, before, after):
                self._queue.add(key, urgent=True)
        for key in dependants(self._state, kind, before, after):
            self._queue.add(key)

    def wake_waiting(self) -> None:
        """Places may have become free."""
        for key in self._state.places.woken():
            self._queue.add(key)


def _succeeds(meta: Object, before: Object) -> bool:
    """Whether an object was made after another one of its name, by their metadata."""
    return meta["uid"] != before["uid"] and int(meta["resourceVersion"]) > int(before["resourceVersion"])
