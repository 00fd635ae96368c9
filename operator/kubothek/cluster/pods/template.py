"""Merge of a user's pod template into a pod of ours.

The user may set the placement of a pod and add containers. Image, command, identity, security and lifetime stay ours.
:mod:`kubothek.api.pod_templates` lists the fields that are merged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubothek.api.meta import GROUP
from kubothek.api.pod_templates import BESIDE, INSIDE, PLACEMENT

Object = dict[str, Any]
Template = Mapping[str, Any]


def merged(ours: Object, template: Template, container: str) -> Object:
    """Return the pod ``ours`` with the additions of ``template`` (a PodTemplateSpec) to it and the named container."""
    spec = template.get("spec") or {}
    pod = {**ours, "metadata": _metadata(ours["metadata"], template.get("metadata") or {})}
    pod["spec"] = {**ours["spec"], **{field: spec[field] for field in PLACEMENT if field in spec}}
    for field in BESIDE:
        added = [item for item in spec.get(field) or () if item.get("name") != container]
        items = _joined(added, ours["spec"].get(field) or [], "name")
        if items:
            pod["spec"][field] = items
    into: Template = next((c for c in spec.get("containers") or () if c.get("name") == container), {})
    pod["spec"]["containers"] = [
        _container(item, into) if item["name"] == container else item for item in pod["spec"]["containers"]
    ]
    return pod


def _metadata(ours: Object, theirs: Template) -> Object:
    result = dict(ours)
    for field in ("labels", "annotations"):
        added = {
            key: value for key, value in (theirs.get(field) or {}).items() if not key.split("/")[0].endswith(GROUP)
        }
        if added or field in ours:
            result[field] = {**added, **(ours.get(field) or {})}
    return result


def _container(ours: Object, theirs: Template) -> Object:
    result = dict(ours)
    for field, key in INSIDE.items():
        items = _joined(list(theirs.get(field) or ()), ours.get(field) or [], key)
        if items:
            result[field] = items
    return result


def _joined(theirs: list[Object], ours: list[Object], key: str | None) -> list[Object]:
    """Return both lists, ours first; of two entries with the same key ours wins."""
    taken = {item.get(key) for item in ours} if key else set()
    return [*ours, *(item for item in theirs if not key or item.get(key) not in taken)]
