"""Placement and queueing of pods: labels, annotations and fields that spot nodes, schedulers and queue managers read;
and what a user's pod template adds.

Sources: Kueue, "Run plain pods"; Volcano, annotation ``scheduling.volcano.sh/queue-name`` of normal pods; YuniKorn,
"Labels and annotations in YuniKorn" (canonical ones, 1.6 and later); for spot nodes the documentation of each cloud.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubothek.api.engine import EngineSpec
from kubothek.api.meta import GROUP
from kubothek.api.pod_templates import BESIDE, INSIDE, PLACEMENT

Object = dict[str, Any]

VOLCANO: Final = "volcano"
YUNIKORN: Final = "yunikorn"

SPOT_NODES: Final[Mapping[str, str]] = {
    "cloud.google.com/gke-spot": "true",
    "eks.amazonaws.com/capacityType": "SPOT",
    "karpenter.sh/capacity-type": "spot",
    "kubernetes.azure.com/scalesetpriority": "spot",
}
"""Labels of spot nodes: of GKE, EKS, Karpenter and AKS."""
_SPOT_TAINTS: Final = ("cloud.google.com/gke-spot", "kubernetes.azure.com/scalesetpriority")
"""Those of :data:`SPOT_NODES` that come with a taint of the same key and value, and the effect NoSchedule."""
SPOT_GRACE_SECONDS: Final = 90
"""Time for an executor to migrate its shuffle blocks: the image's preStop hook waits for a minute."""


def queue_labels(engine: EngineSpec, application: str) -> dict[str, str]:
    """Return the labels of the pods of one job, which is one application to YuniKorn.

    To Kueue each pod is a workload of its own: Kueue admits a group only when all of its pods exist, but executors are
    created once the driver runs.
    """
    if engine.scheduler_name == YUNIKORN:
        labels = {"yunikorn.apache.org/app-id": application}
        return labels | ({"yunikorn.apache.org/queue": engine.queue_name} if engine.queue_name else {})
    if engine.queue_name is None or engine.scheduler_name == VOLCANO:
        return {}
    return {"kueue.x-k8s.io/queue-name": engine.queue_name}


def queue_annotations(engine: EngineSpec) -> dict[str, str]:
    """Return the annotations of the pods of one job. Volcano groups the pods of one owner automatically."""
    if engine.scheduler_name == VOLCANO and engine.queue_name is not None:
        return {"scheduling.volcano.sh/queue-name": engine.queue_name}
    return {}


def fields(engine: EngineSpec) -> Object:
    """Return fields of a pod's spec."""
    named = {"schedulerName": engine.scheduler_name, "priorityClassName": engine.priority_class_name}
    return {field: value for field, value in named.items() if value is not None}


def spot(pod: Object, engine: EngineSpec, *, executor: bool) -> Object:
    """Return the pod with affinity: executors to spot nodes, drivers away from them.

    The loss of a driver would lose the whole job. Node affinity from the pod template has precedence.
    """
    mode = engine.executor.spot
    if mode == "Any":
        return pod
    spec = dict(pod["spec"])
    spec["affinity"] = {"nodeAffinity": _affinity(mode, executor=executor)} | spec.get("affinity", {})
    if executor:
        taints = [{"key": key, "operator": "Equal", "value": SPOT_NODES[key]} for key in _SPOT_TAINTS]
        tolerations = [{**taint, "effect": "NoSchedule"} for taint in taints]
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *tolerations]
        spec["terminationGracePeriodSeconds"] = SPOT_GRACE_SECONDS
    return {**pod, "spec": spec}


def _affinity(mode: str, *, executor: bool) -> Object:
    if not executor:
        away = [{"key": key, "operator": "NotIn", "values": [value]} for key, value in SPOT_NODES.items()]
        return {"preferredDuringSchedulingIgnoredDuringExecution": [_preferred(away)]}
    each = [[{"key": key, "operator": "In", "values": [value]}] for key, value in SPOT_NODES.items()]
    if mode == "Prefer":
        return {"preferredDuringSchedulingIgnoredDuringExecution": [_preferred(terms) for terms in each]}
    any_of = [{"matchExpressions": terms} for terms in each]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": any_of}}


def _preferred(terms: list[Object]) -> Object:
    return {"weight": 100, "preference": {"matchExpressions": terms}}


# Merge of a user's pod template into a pod of ours.
#
# The user may set the placement of a pod and add containers. Image, command, identity, security and lifetime stay ours.
# :mod:`kubothek.api.pod_templates` lists the fields that are merged.


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
    used_keys = {item.get(key) for item in ours} if key else set()
    return [*ours, *(item for item in theirs if not key or item.get(key) not in used_keys)]
