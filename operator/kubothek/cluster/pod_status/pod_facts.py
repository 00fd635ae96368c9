"""Facts from the status of a driver pod, and its :class:`JobView`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from kubothek.api.jobs import JobResult
from kubothek.api.values import parse_time
from kubothek.cluster import names
from kubothek.controller.context import FailureClass, JobPhase, JobView

Json = Mapping[str, Any]

MESSAGE_LIMIT = 512


def driver_of(pod: Json) -> Json:
    """Return the status of the driver's container; empty if there is none."""
    for status in pod["status"].get("containerStatuses") or ():
        if status.get("name") == names.DRIVER_CONTAINER:
            return dict(status)
    return {}


def result_key_of(pod: Json) -> str | None:
    """Return the public key of the driver's result; None if its results are not signed."""
    for container in (pod.get("spec") or {}).get("containers") or ():
        if container.get("name") == names.DRIVER_CONTAINER:
            keys = (each.get("value") for each in container.get("env") or () if each["name"] == names.RESULT_KEY)
            return next(keys, None)
    return None


def terminated_of(pod: Json) -> Json | None:
    """Return the terminated state of the driver's container; None if it has not ended."""
    return (driver_of(pod).get("state") or {}).get("terminated")


def condition_of(pod: Json, kind: str) -> Json | None:
    """Return the condition of this type."""
    for condition in pod["status"].get("conditions") or ():
        if condition.get("type") == kind:
            return dict(condition)
    return None


def scheduled_at(pod: Json) -> datetime:
    """Return when the pod was scheduled, else when it was created."""
    condition = condition_of(pod, "PodScheduled")
    stamp = condition.get("lastTransitionTime") if condition and condition.get("status") == "True" else None
    created = parse_time(stamp or pod["metadata"].get("creationTimestamp"))
    assert created is not None, "every pod has a creation time"
    return created


def view_of(pod: Json, phase: JobPhase, reason: str, message: str) -> JobView:
    """Return the attempt of this pod in this phase; advice for the reason follows the message."""
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
    """Return the failed attempt of this pod."""
    return replace(view_of(pod, JobPhase.FAILED, reason, message), failure=failure, result=result)


def shortened(text: str) -> str:
    """Return the text on one line of at most ``MESSAGE_LIMIT`` characters."""
    text = " ".join(text.split())
    return text if len(text) <= MESSAGE_LIMIT else f"{text[: MESSAGE_LIMIT - 1]}…"


_ADVICE: Mapping[str, str] = {
    "ConfigError": "correct the Engine's podTemplate, or create what it names",
    "DeadlineExceeded": "raise deadlines.total of its Engine, or give it more or larger executors",
    "ExecutorsFailing": "the logs of its executors tell why; give them more memory if they were killed for it",
    "ImagePullFailed": "correct the image of its Engine or source, or imagePullSecrets, or make the registry answer",
    "OutOfDisk": "raise the limit on local storage (a LimitRange, or the Engine's podTemplate)",
    "OutOfMemory": "raise driver.memory of its Engine",
    "SandboxFailed": "the node has a fault (network plug-in, container runtime): cordon it, and delete the pod",
    "Unschedulable": "add a node, or ask for less in its Engine",
    "VolumeMountFailed": "create what is missing; then the pod continues",
}
"""What a user can do about a failed or pending attempt, by reason. Other reasons pass, or the job gives advice."""


def advised(reason: str, message: str, limit: int) -> str:
    """Return the message with the advice for the reason, the message cut so that both fit ``limit`` characters."""
    advice = _ADVICE.get(reason)
    if advice is None:
        return message
    room = limit - len(advice) - 2
    text = message.rstrip(" .") if len(message) <= room else f"{message[: room - 1]}…"
    return f"{text}; {advice}" if text else advice
