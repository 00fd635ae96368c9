"""The state of a pod whose job has not ended: it runs, is about to, or never will without help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from kubothek.api.values import parse_time
from kubothek.cluster.pod_status.pod_facts import condition_of, driver_of, failed_view, scheduled_at, shortened, view_of
from kubothek.cluster.pods import deadlines
from kubothek.controller.context import FailureClass, JobPhase, JobView
from kubothek.controller.scheduling.attempts import ENGINE_FAULTS

Json = Mapping[str, Any]

# How long a pod may show a symptom that often passes before it is reported.
IMAGE_PATIENCE = timedelta(minutes=2)
CONFIG_PATIENCE = timedelta(minutes=1)
MOUNT_PATIENCE = timedelta(seconds=30)
NODE_PATIENCE = timedelta(minutes=1)
"""How long a deleted pod may exist after its grace period before its node counts as lost."""

_HOPELESS_IMAGE = {"InvalidImageName", "ErrImageNeverPull"}
_IMAGE = {"ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable"}
_CONFIG = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
_NOT_STARTED = {"ContainerCreating", "PodInitializing"}
_EVENT_REASONS = {
    "FailedMount": "VolumeMountFailed",
    "FailedAttachVolume": "VolumeMountFailed",
    "FailedCreatePodSandBox": "SandboxFailed",
}


def patience_left(pod: Json, now: datetime) -> timedelta | None:
    """Return the time until the view changes without any event; None if it does not."""
    age = now - scheduled_at(pod)
    waits = [limit - age for reason, _ in _waiting(pod) if (limit := _patience(reason) or _mount(reason)) is not None]
    if (due := deadlines.deadline(pod)) is not None:
        waits.append(due.moment - now)
    if (silent := _node_silent_in(pod, now)) is not None:
        waits.append(silent)
    return min((left for left in waits if left > timedelta(0)), default=None)


def wants_events(pod: Json, now: datetime) -> bool:
    """Return whether only the pod's events can show why it does not start (its volumes, its sandbox)."""
    if pod["status"].get("phase") != "Pending":
        return False
    waiting = [reason for reason, _ in _waiting(pod)]
    return any(reason in _NOT_STARTED for reason in waiting) and now - scheduled_at(pod) >= MOUNT_PATIENCE


def too_late(pod: Json, now: datetime, events: Sequence[Json]) -> JobView | None:
    """Return the failed attempt of a pod that was not scheduled, or did not start, by its Engine's deadline.

    None if only an edit of the Engine helps: a new pod would fail too, so this one waits for the edit.
    """
    due = deadlines.deadline(pod)
    if due is None or now < due.moment:
        return None
    why = stuck(pod, now, events)
    if why is not None and why.reason in ENGINE_FAULTS:
        return None
    text = f"{due.message}: {why.message}" if why is not None and why.message else due.message
    return replace(failed_view(pod, FailureClass.RETRY, due.reason, shortened(text)), lingers=True)


def stuck(pod: Json, now: datetime, events: Sequence[Json]) -> JobView | None:
    """Return the attempt of a pod that will not start without help, or whose node does not answer; else None."""
    if pod["status"].get("phase") == "Unknown":
        return view_of(pod, JobPhase.RUNNING, "NodeLost", "the node does not answer; waiting until the pod is deleted")
    if (left := _node_silent_in(pod, now)) is not None and left <= timedelta(0):
        phase = JobPhase.RUNNING if (driver_of(pod).get("state") or {}).get("running") else JobPhase.PENDING
        node = pod.get("spec", {}).get("nodeName") or "of the pod"
        message = (
            f"the node {node} does not report that the pod has ended; another attempt starts when it does: restart "
            f"the node, or, if it no longer exists, delete the Node {node}"
        )
        return view_of(pod, phase, "NodeLost", message)
    scheduled = condition_of(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return view_of(
            pod, JobPhase.PENDING, "Unschedulable", shortened(scheduled.get("message") or "no node fits the pod")
        )
    age = now - scheduled_at(pod)
    for reason, message in _waiting(pod):
        patience = _patience(reason)
        if patience is None or age < patience:
            continue
        name = "ImagePullFailed" if reason in _IMAGE | _HOPELESS_IMAGE else "ConfigError"
        return view_of(pod, JobPhase.PENDING, name, shortened(message or reason))
    if wants_events(pod, now):
        for event in sorted(events, key=_event_time, reverse=True):
            if event.get("reason") in _EVENT_REASONS:
                reason, message = (
                    _EVENT_REASONS[event["reason"]],
                    event.get("message") or event.get("note") or "",
                )
                return view_of(pod, JobPhase.PENDING, reason, shortened(message))
    return None


def _node_silent_in(pod: Json, now: datetime) -> timedelta | None:
    """Return the time until the node of a deleted pod counts as lost; None if the pod is not being deleted."""
    deletion_time = parse_time(pod["metadata"].get("deletionTimestamp"))  # includes the grace period
    return None if deletion_time is None else deletion_time + NODE_PATIENCE - now


def alive(pod: Json) -> JobView:
    """Return the attempt of a pod that runs, or is about to."""
    running = (driver_of(pod).get("state") or {}).get("running")
    leaving = "Terminating" if pod["metadata"].get("deletionTimestamp") else ""
    if running is not None:
        return replace(view_of(pod, JobPhase.RUNNING, leaving, ""), since=parse_time(running.get("startedAt")))
    return view_of(pod, JobPhase.PENDING, leaving, "")


def _patience(reason: str) -> timedelta | None:
    """Return how long a waiting reason is tolerated; None if it is not a problem."""
    if reason in _HOPELESS_IMAGE:
        return timedelta(0)
    if reason in _IMAGE:
        return IMAGE_PATIENCE
    if reason in _CONFIG:
        return CONFIG_PATIENCE
    return None


def _mount(reason: str) -> timedelta | None:
    return MOUNT_PATIENCE if reason in _NOT_STARTED else None


def _waiting(pod: Json) -> Iterator[tuple[str, str]]:
    status = pod["status"]
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting")
        if waiting is not None:
            yield waiting.get("reason") or "", waiting.get("message") or ""


def _event_time(event: Json) -> str:
    """Return the time of an event, in RFC 3339 and UTC: it sorts as text."""
    series = event.get("series") or {}
    return str(series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or "")
