"""The cache: the last observed state of every object that the operator watches, trimmed.

Watches, listings and the answers to our own writes feed it, in any order. It keeps the newest state by resource
version and never goes back. So a reconciler reads its own writes before the watch delivers them. Resource versions of
one kind are comparable numbers (KEP-5504); the uid distinguishes a re-created object from its predecessor.
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
    """Return the object without what only the API server and kubectl use (``managedFields``, last-applied)."""
    meta = {k: v for k, v in obj.get("metadata", {}).items() if k not in ("managedFields", "selfLink")}
    annotations = meta.get("annotations")
    if annotations:
        meta["annotations"] = {
            k: v for k, v in annotations.items() if k != "kubectl.kubernetes.io/last-applied-configuration"
        }
    return {**obj, "metadata": meta}


def trimmed_pod(pod: Object) -> Object:
    """Return the pod reduced to metadata without the job spec, node, deadline, status, and the key of its result."""
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
    """The objects of one kind, by namespace and name, each with its model, which is parsed on first use."""

    def __init__(
        self,
        parse: Callable[[Object], M],
        trim: Callable[[Object], Object] = trimmed,
        follow: Callable[[str, str, Object | None], None] | None = None,
    ) -> None:
        """``follow`` is called with namespace, name and new state of each changed object; None: it is gone."""
        self._parse = parse
        self._trim = trim
        self._follow = follow
        self._namespaces: dict[str, dict[str, _Entry[M]]] = {}
        self._deleted: OrderedDict[str, None] = OrderedDict()

    def put(self, obj: Object) -> bool:
        """Store a state of an object. Return False if it is not new: older, the same, or of a deleted object."""
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
        """Remove the object of this uid for good. Return its last state, or None if it was not cached."""
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
        """Return the object as the API server shows it, trimmed."""
        entry = self._namespaces.get(namespace, {}).get(name)
        return entry.obj if entry else None

    def model(self, namespace: str, name: str) -> M | None:
        """Return the object, parsed."""
        entry = self._namespaces.get(namespace, {}).get(name)
        return self._parsed(entry) if entry else None

    def models(self, namespace: str) -> list[M]:
        """Return all objects of a namespace, parsed."""
        return [self._parsed(entry) for entry in self._namespaces.get(namespace, {}).values()]

    def objects(self, namespace: str | None = None) -> Iterator[Object]:
        """Yield the objects of one namespace or of all. The cache may change during the iteration."""
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
