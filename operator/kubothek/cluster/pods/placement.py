"""Where pods run, and in which queue they wait: what schedulers and queues other than the cluster's read off pods.

Labels, annotations and fields of pods only; nothing here is created for anybody. Sources: Kueue, "Run plain pods";
Volcano, annotation ``scheduling.volcano.sh/queue-name`` of normal pods; YuniKorn, "Labels and annotations in YuniKorn"
(canonical ones, 1.6 and later); of spot nodes the documentation of each cloud.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubothek.api.engine import EngineSpec

Object = dict[str, Any]

VOLCANO: Final = "volcano"
YUNIKORN: Final = "yunikorn"

SPOT_NODES: Final[Mapping[str, str]] = {
    "cloud.google.com/gke-spot": "true",
    "eks.amazonaws.com/capacityType": "SPOT",
    "karpenter.sh/capacity-type": "spot",
    "kubernetes.azure.com/scalesetpriority": "spot",
}
"""Labels of nodes that the cloud may take back: of GKE, EKS, Karpenter and AKS."""
_SPOT_TAINTS: Final = ("cloud.google.com/gke-spot", "kubernetes.azure.com/scalesetpriority")
"""Of those the ones that come with a taint of the same key, value and effect NoSchedule."""
SPOT_GRACE_SECONDS: Final = 90
"""Time for an executor to hand over what it shuffled: the image's preStop hook waits for a minute."""


def queue_labels(engine: EngineSpec, application: str) -> dict[str, str]:
    """Labels of the pods of one job, which is one application to YuniKorn.

    To Kueue each pod is a workload of its own: a group is admitted when all of its pods are there, and executors are
    only made once the driver runs.
    """
    if engine.scheduler_name == YUNIKORN:
        labels = {"yunikorn.apache.org/app-id": application}
        return labels | ({"yunikorn.apache.org/queue": engine.queue_name} if engine.queue_name else {})
    if engine.queue_name is None or engine.scheduler_name == VOLCANO:
        return {}
    return {"kueue.x-k8s.io/queue-name": engine.queue_name}


def queue_annotations(engine: EngineSpec) -> dict[str, str]:
    """Annotations of the pods of one job. Volcano makes a pod group for those of one owner by itself."""
    if engine.scheduler_name == VOLCANO and engine.queue_name is not None:
        return {"scheduling.volcano.sh/queue-name": engine.queue_name}
    return {}


def fields(engine: EngineSpec) -> Object:
    """Fields of a pod's spec."""
    named = {"schedulerName": engine.scheduler_name, "priorityClassName": engine.priority_class_name}
    return {field: value for field, value in named.items() if value is not None}


def spot(pod: Object, engine: EngineSpec, *, executor: bool) -> Object:
    """The pod, kept on spot nodes if it is an executor's, and away from them if it is a driver's, which has all to
    lose. What a pod template says of affinity to nodes comes first.
    """
    wish = engine.executor.spot
    if wish == "Any":
        return pod
    spec = dict(pod["spec"])
    spec["affinity"] = {"nodeAffinity": _affinity(wish, executor=executor)} | spec.get("affinity", {})
    if executor:
        taints = [{"key": key, "operator": "Equal", "value": SPOT_NODES[key]} for key in _SPOT_TAINTS]
        tolerations = [{**taint, "effect": "NoSchedule"} for taint in taints]
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *tolerations]
        spec["terminationGracePeriodSeconds"] = SPOT_GRACE_SECONDS
    return {**pod, "spec": spec}


def _affinity(wish: str, *, executor: bool) -> Object:
    if not executor:
        away = [{"key": key, "operator": "NotIn", "values": [value]} for key, value in SPOT_NODES.items()]
        return {"preferredDuringSchedulingIgnoredDuringExecution": [_preferred(away)]}
    each = [[{"key": key, "operator": "In", "values": [value]}] for key, value in SPOT_NODES.items()]
    if wish == "Prefer":
        return {"preferredDuringSchedulingIgnoredDuringExecution": [_preferred(terms) for terms in each]}
    any_of = [{"matchExpressions": terms} for terms in each]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": any_of}}


def _preferred(terms: list[Object]) -> Object:
    return {"weight": 100, "preference": {"matchExpressions": terms}}
