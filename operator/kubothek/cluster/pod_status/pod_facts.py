"""What Kubernetes shows of a driver pod, in one word each, and the :class:`JobView` that it makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from kubothek.api.jobs import JobResult
from kubothek.api.values import parse_time
from kubothek.cluster import names
from kubothek.cluster.pod_status.remedies import advised
from kubothek.controller.context import FailureClass, JobPhase, JobView

Json = Mapping[str, Any]

MESSAGE_LIMIT = 512


def driver_of(pod: Json) -> Json:
    """The status of the driver's container; empty if there is none."""
    for status in pod["status"].get("containerStatuses") or ():
        if status.get("name") == names.DRIVER_CONTAINER:
            return dict(status)
    return {}


def result_key_of(pod: Json) -> str | None:
    """The public key of the driver's result; None if its results are not signed."""
    for container in (pod.get("spec") or {}).get("containers") or ():
        if container.get("name") == names.DRIVER_CONTAINER:
            keys = (each.get("value") for each in container.get("env") or () if each["name"] == names.RESULT_KEY)
            return next(keys, None)
    return None


def terminated_of(pod: Json) -> Json | None:
    """How the driver's container ended; None if it has not."""
    return (driver_of(pod).get("state") or {}).get("terminated")


def condition_of(pod: Json, kind: str) -> Json | None:
    """The condition of this type."""
    for condition in pod["status"].get("conditions") or ():
        if condition.get("type") == kind:
            return dict(condition)
    return None


def scheduled_at(pod: Json) -> datetime:
    """When the kubelet could begin with the pod."""
    condition = condition_of(pod, "PodScheduled")
    stamp = condition.get("lastTransitionTime") if condition and condition.get("status") == "True" else None
    created = parse_time(stamp or pod["metadata"].get("creationTimestamp"))
    assert created is not None, "every pod has a creation time"
    return created


def view_of(pod: Json, phase: JobPhase, reason: str, message: str) -> JobView:
    """The attempt that this pod is, in this phase; what to do about the reason follows the message."""
    meta = pod["metadata"]
    labels = meta.get("labels") or {}
    owner = names.controller_of(pod)
    terminated = terminated_of(pod) or {}
    since = terminated.get("finishedAt") or meta.get("creationTimestamp")
    return JobView(
        name=names.job_of(pod),
        attempt=int(labels.get(names.ATTEMPT, "1")),
        phase=phase,
        reason=reason,
        message=advised(reason, message, MESSAGE_LIMIT),
        since=parse_time(since),
        owner_uid=owner["uid"] if owner else "",
    )


def failed_view(
    pod: Json, failure: FailureClass, reason: str, message: str, result: JobResult | None = None
) -> JobView:
    """The attempt that this pod is, and failed."""
    return replace(view_of(pod, JobPhase.FAILED, reason, message), failure=failure, result=result)


def shortened(text: str) -> str:
    """In one line that a condition has room for."""
    text = " ".join(text.split())
    return text if len(text) <= MESSAGE_LIMIT else f"{text[: MESSAGE_LIMIT - 1]}…"
