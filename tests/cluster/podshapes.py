"""Pods as a kubelet reports them, for tests: real shapes, reduced to what varies."""

from __future__ import annotations

from typing import Any

CREATED = "2026-11-21T12:00:00Z"
SCHEDULED = "2026-11-21T12:00:01Z"
STARTED = "2026-11-21T12:00:10Z"
FINISHED = "2026-11-21T12:05:00Z"


def pod(
    *,
    phase: str = "Pending",
    state: dict[str, Any] | None = None,
    conditions: list[dict[str, Any]] | None = None,
    status: dict[str, Any] | None = None,
    deleted: bool = False,
    annotations: dict[str, str] | None = None,
    sidecars: list[dict[str, Any]] | None = None,
    owner: str | None = None,
    result_key: str | None = None,
) -> dict[str, Any]:
    """A driver pod; ``state`` is that of its driver container, None = no container status at all.
    ``owner`` is the uid of its controller; ``result_key`` the public key of its result.
    """
    meta: dict[str, Any] = {
        "name": "orders-2",
        "namespace": "lake",
        "uid": "0d6b",
        "resourceVersion": "41",
        "creationTimestamp": CREATED,
        "labels": {"kubothek.io/attempt": "2", "kubothek.io/job": "orders-2"},
        "annotations": annotations or {},
    }
    if owner is not None:
        meta["ownerReferences"] = [{"uid": owner, "controller": True}]
    if deleted:
        meta["deletionTimestamp"] = FINISHED
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": SCHEDULED}
    shown: dict[str, Any] = {
        "phase": phase,
        "qosClass": "Burstable",
        "conditions": [scheduled] if conditions is None else conditions,
    }
    if state is not None:
        driver = {"name": "driver", "image": "x", "ready": False, "restartCount": 0, "state": state}
        shown["containerStatuses"] = [*(sidecars or []), driver]
    spec: dict[str, Any] = {"nodeName": "n1"}
    if result_key is not None:
        variable = {"name": "KUBOTHEK_RESULT_KEY", "value": result_key}
        spec["containers"] = [{"name": "driver", "env": [variable]}]
    return {"metadata": meta, "spec": spec, "status": {**shown, **(status or {})}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    """The state of a container that has not started."""
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def running() -> dict[str, Any]:
    """The state of a container that runs."""
    return {"running": {"startedAt": STARTED}}


def exited(code: int, message: str = "", reason: str = "") -> dict[str, Any]:
    """The state of a container that ended."""
    ended: dict[str, Any] = {
        "exitCode": code,
        "reason": reason or ("Completed" if code == 0 else "Error"),
        "startedAt": STARTED,
        "finishedAt": FINISHED,
        "containerID": "containerd://1",
    }
    return {"terminated": {**ended, **({"message": message} if message else {})}}


def condition(kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
    """A pod condition."""
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": SCHEDULED,
    }


def disrupted(reason: str) -> list[dict[str, Any]]:
    """Conditions of a pod that the cluster took away."""
    return [condition("DisruptionTarget", "True", reason, "the pod was taken away")]
