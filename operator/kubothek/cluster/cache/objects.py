"""What the operator knows of the cluster: the last seen state of every object it watches, trimmed.

The cache never goes back in time. It is fed by watches, by listings and by the answers to our own writes, in
any order, and keeps the newest by resource version; so a reconciler that runs right after a write sees that
write (read-your-writes) although the watch has not delivered it yet. Resource versions of one kind are
comparable numbers (KEP-5504); the uid tells a re-created object from its predecessor.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from kubothek.cluster import names
from kubothek.cluster.pod_status.pod_facts import result_key_of

Object = dict[str, Any]
M = TypeVar("M")

_REMEMBERED_DELETIONS = 10_000


def trimmed(obj: Object) -> Object:
    """The object without what only the API server and kubectl care for (``managedFields``, last-applied)."""
    meta = {k: v for k, v in obj.get("metadata", {}).items() if k not in ("managedFields", "selfLink")}
    annotations = meta.get("annotations")
    if annotations:
        meta["annotations"] = {
            k: v for k, v in annotations.items() if k != "kubectl.kubernetes.io/last-applied-configuration"
        }
    return {**obj, "metadata": meta}


def trimmed_pod(pod: Object) -> Object:
    """A pod reduced to what tells how its job is doing: metadata but for the job itself, node, status, and the key of
    its result.
    """
    pod = trimmed(pod)
    annotations = pod["metadata"].get("annotations") or {}
    if names.JOB_SPEC in annotations:
        kept = {k: v for k, v in annotations.items() if k not in (names.JOB_SPEC, names.EXECUTOR_TEMPLATE)}
        pod = {**pod, "metadata": {**pod["metadata"], "annotations": kept}}
    spec = {k: v for k, v in pod.get("spec", {}).items() if k in ("nodeName", "activeDeadlineSeconds")}
    if (key := result_key_of(pod)) is not None:
        spec["containers"] = [
            {"name": names.DRIVER_CONTAINER, "env": [{"name": names.RESULT_KEY, "value": key}]},
        ]
    return {**pod, "spec": spec}


class _Entry(Generic[M]):
    __slots__ = ("model", "obj")

    def __init__(self, obj: Object) -> None:
        self.obj = obj
        self.model: M | None = None


class Cache(Generic[M]):
    """The objects of one kind, by namespace and name, each with its parsed model (parsed when first asked for)."""

    def __init__(
        self,
        parse: Callable[[Object], M],
        trim: Callable[[Object], Object] = trimmed,
        follow: Callable[[str, str, Object | None], None] | None = None,
    ) -> None:
        """``follow``  hears namespace, name and new state of each object that changes; None: it is gone"""
        self._parse = parse
        self._trim = trim
        self._follow = follow
        self._namespaces: dict[str, dict[str, _Entry[M]]] = {}
        self._deleted: OrderedDict[str, None] = OrderedDict()

    def put(self, obj: Object) -> bool:
        """Take over a state of an object. False if it is nothing new: older, the same, or of a deleted object."""
        meta = obj["metadata"]
        if meta["uid"] in self._deleted:
            return False
        names = self._namespaces.setdefault(meta.get("namespace", ""), {})
        known = names.get(meta["name"])
        if known is not None and _version(known.obj) >= _version(obj):
            return False
        names[meta["name"]] = _Entry(self._trim(obj))
        if self._follow is not None:
            self._follow(meta.get("namespace", ""), meta["name"], obj)
        return True

    def remove(self, namespace: str, name: str, uid: str) -> Object | None:
        """The object of this uid is gone, for good. Returns what was known of it, or None."""
        self._deleted[uid] = None
        if len(self._deleted) > _REMEMBERED_DELETIONS:
            self._deleted.popitem(last=False)
        entry = self._namespaces.get(namespace, {}).get(name)
        if entry is None or entry.obj["metadata"]["uid"] != uid:
            return None
        del self._namespaces[namespace][name]
        if not self._namespaces[namespace]:
            del self._namespaces[namespace]
        if self._follow is not None:
            self._follow(namespace, name, None)
        return entry.obj

    def get(self, namespace: str, name: str) -> Object | None:
        """The object as the API server shows it, trimmed."""
        entry = self._namespaces.get(namespace, {}).get(name)
        return entry.obj if entry else None

    def model(self, namespace: str, name: str) -> M | None:
        """The object, parsed."""
        entry = self._namespaces.get(namespace, {}).get(name)
        return self._parsed(entry) if entry else None

    def models(self, namespace: str) -> list[M]:
        """All objects of a namespace, parsed."""
        return [self._parsed(entry) for entry in self._namespaces.get(namespace, {}).values()]

    def objects(self, namespace: str | None = None) -> Iterator[Object]:
        """All objects, of one namespace or of all. A snapshot: the cache may change while it is read."""
        spaces = list(self._namespaces) if namespace is None else [namespace]
        for space in spaces:
            for entry in list(self._namespaces.get(space, {}).values()):
                yield entry.obj

    def __len__(self) -> int:
        return sum(len(names) for names in self._namespaces.values())

    def _parsed(self, entry: _Entry[M]) -> M:
        if entry.model is None:
            entry.model = self._parse(entry.obj)
        return entry.model


def _version(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])
