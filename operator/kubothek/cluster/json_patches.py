"""JSON patches (RFC 6902) of the operator's own edits; each fails if the object is not as we know it."""

from __future__ import annotations

from kubothek.api.meta import FINALIZER
from kubothek.cluster.api import Object


def finalizer_patch(obj: Object, present: bool) -> list[Object] | None:
    """A JSON patch that adds or removes our finalizer if the object is still as we know it; None if nothing
    is to do.
    """
    meta = obj["metadata"]
    finalizers: list[str] = meta.get("finalizers") or []
    if present == (FINALIZER in finalizers):
        return None
    guard = {"op": "test", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]}
    if not present:
        return [guard, {"op": "remove", "path": f"/metadata/finalizers/{finalizers.index(FINALIZER)}"}]
    if finalizers:
        return [guard, {"op": "add", "path": "/metadata/finalizers/-", "value": FINALIZER}]
    return [guard, {"op": "add", "path": "/metadata/finalizers", "value": [FINALIZER]}]


def edit_patch(there: Object, wanted: Object) -> list[Object]:
    """A JSON patch that gives an object another spec, and more labels, if it is still as we know it."""
    labels = (there["metadata"].get("labels") or {}) | wanted["metadata"]["labels"]
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": there["metadata"]["resourceVersion"]},
        {"op": "add", "path": "/metadata/labels", "value": labels},
        {"op": "add", "path": "/spec", "value": wanted["spec"]},
    ]
