"""What became of an attempt: one pure function from what Kubernetes shows of a pod to a :class:`JobView`.

The phase of a pod is never enough: a pod that cannot pull its image is Pending for ever, one with a sidecar
is Running for ever, an evicted one is Failed without a single container status. So the order of evidence is:
the driver container's own end; the pod's end; why it does not start; else it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from kubothek.reconcile.world import FailureClass, JobPhase, JobView
from kubothek.resources.jobs import ExitCode, JobResult, Progress
from kubothek.runtime.kubernetes import names

Json = Mapping[str, Any]

_MESSAGE_LIMIT = 512
_SAID_LIMIT = 300
"""Of what a source's container said last."""

# How long a pod may show a symptom that often passes by itself before it is called a problem.
IMAGE_PATIENCE = timedelta(minutes=2)
CONFIG_PATIENCE = timedelta(minutes=1)
MOUNT_PATIENCE = timedelta(seconds=30)

_HOPELESS_IMAGE = {"InvalidImageName", "ErrImageNeverPull"}
_IMAGE = {"ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable"}
_CONFIG = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
_NOT_STARTED = {"ContainerCreating", "PodInitializing"}
_EVENT_REASONS = {
    "FailedMount": "VolumeMountFailed",
    "FailedAttachVolume": "VolumeMountFailed",
    "FailedCreatePodSandBox": "SandboxFailed",
}

_STOPPED = 143
"""Ended by SIGTERM, which only the cluster sends; whatever the job says of it, it was not the job's fault."""
_KILLED = 137
"""Ended by SIGKILL: by the kernel for its memory, or by the kubelet when the time to stop was over."""

# Spark's own exit codes (SparkExitCode, ExecutorExitCode) and the shell's, where ours are silent.
_EXIT_CODES: Mapping[int, tuple[FailureClass, str, str]] = {
    ExitCode.INVALID: (FailureClass.REPORT, "InvalidInput", "the job refused its input"),
    ExitCode.CONFLICT: (FailureClass.RETRY, "Conflict", "the commit conflicts with a concurrent one"),
    ExitCode.FENCED: (FailureClass.REPORT, "Fenced", "another owner holds the dataset"),
    ExitCode.TRANSIENT: (FailureClass.RETRY, "StoreUnavailable", "the object store did not answer"),
    ExitCode.INTERNAL: (FailureClass.RETRY, "JobFailed", "the job failed"),
    11: (FailureClass.RETRY, "ExecutorsFailing", "too many executors failed"),
    52: (FailureClass.RETRY, "OutOfMemory", "the JVM ran out of heap"),
    101: (FailureClass.REPORT, "ImageBroken", "the image lacks a class that the job needs"),
    126: (FailureClass.REPORT, "ImageBroken", "the image's command cannot be executed"),
    127: (FailureClass.REPORT, "ImageBroken", "the image lacks the job's command"),
    _KILLED: (FailureClass.RETRY, "Killed", "the container was killed"),
    _STOPPED: (FailureClass.INFRASTRUCTURE, "Terminated", "the container was asked to stop"),
}


def job_view(pod: Json, now: datetime, events: Sequence[Json] = ()) -> JobView:
    """The attempt that this pod is, as of ``now`` (aware). ``events`` are the Warning events about the pod,
    if known.
    """
    annotations = pod["metadata"].get("annotations") or {}
    view = end_of(pod) or _stuck(pod, now, events) or _alive(pod)
    return replace(view, progress=_progress(annotations.get(names.PROGRESS)))


def lost_view(pod: Json) -> JobView:
    """The attempt of a pod that is gone, given its last known state: its end if it had one, else lost."""
    ended = end_of(pod)
    if ended is not None:
        return ended
    reason, message = _disruption(pod) or ("PodDeleted", "the pod was deleted before its job ended")
    return _failed(pod, FailureClass.INFRASTRUCTURE, reason, message)


def patience_left(pod: Json, now: datetime) -> timedelta | None:
    """When the view changes by the passing of time alone: how long until then, or None."""
    if end_of(pod) is not None:
        return None
    age = now - _scheduled(pod)
    waits = [limit - age for reason, _ in _waiting(pod) if (limit := _patience(reason) or _mount(reason)) is not None]
    return min((left for left in waits if left > timedelta(0)), default=None)


def wants_events(pod: Json, now: datetime) -> bool:
    """Whether only the pod's events can tell why it does not start (its volumes, its sandbox)."""
    if end_of(pod) is not None or pod["status"].get("phase") != "Pending":
        return False
    waiting = [reason for reason, _ in _waiting(pod)]
    return any(reason in _NOT_STARTED for reason in waiting) and now - _scheduled(pod) >= MOUNT_PATIENCE


# --- the end -----------------------------------------------------------------------------------------------


def end_of(pod: Json) -> JobView | None:
    """How the attempt of this pod ended; None if it has not."""
    terminated = _terminated(pod)
    if terminated is not None:
        return _after_exit(pod, terminated)
    status = pod["status"]
    if status.get("phase") == "Succeeded":
        return _result_lost(pod)
    if status.get("phase") == "Failed":
        return _failed_without_exit(pod)
    return None


def _after_exit(pod: Json, terminated: Json) -> JobView:
    """The driver container ended. Its own word counts unless Kubernetes ended it."""
    code, text = terminated.get("exitCode", 1), terminated.get("message") or ""
    result = _result(text)
    if code == 0:
        if result is None or result.outcome != "Succeeded":
            return _result_lost(pod)
        return replace(_view(pod, JobPhase.SUCCEEDED, result.reason, result.message), result=result)
    if result is not None and result.outcome == "Failed" and not result.retryable:
        return _failed(pod, FailureClass.REPORT, result.reason, result.message, result)
    disrupted = _disruption(pod)
    if disrupted is not None:
        return _failed(pod, FailureClass.INFRASTRUCTURE, *disrupted)
    if _deadline(pod):
        return _failed_by_deadline(pod)
    if terminated.get("reason") == "OOMKilled":
        return _failed(pod, FailureClass.RETRY, "OutOfMemory", "the driver exceeded its memory limit and was killed")
    if result is not None and result.outcome == "Failed" and code != _STOPPED:
        return _failed(pod, FailureClass.RETRY, result.reason, result.message, result)
    return _by_exit_code(pod, terminated, text)


def _by_exit_code(pod: Json, terminated: Json, text: str) -> JobView:
    code = terminated.get("exitCode", 1)
    if code in (_STOPPED, _KILLED) and pod["metadata"].get("deletionTimestamp"):
        return _failed(pod, FailureClass.INFRASTRUCTURE, "PodDeleted", "the pod was deleted before its job ended")
    if terminated.get("reason") in ("StartError", "ContainerCannotRun"):
        return _failed(pod, FailureClass.REPORT, "ConfigError", _cut(text or "the container cannot be started"))
    failure, reason, meaning = _EXIT_CODES.get(code, (FailureClass.RETRY, "JobFailed", "the job failed"))
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    detail = f": {last.strip()}" if last and not last.lstrip().startswith("{") else ""
    return _failed(pod, failure, reason, _cut(f"{meaning} (exit code {code}){detail}"))


def _failed_without_exit(pod: Json) -> JobView:
    """Phase Failed, and the driver container never ended in a way that was recorded: the node or an init container."""
    disrupted = _disruption(pod)
    if disrupted is not None:
        return _failed(pod, FailureClass.INFRASTRUCTURE, *disrupted)
    if _deadline(pod):
        return _failed_by_deadline(pod)
    for status in pod["status"].get("initContainerStatuses") or ():
        ended = status.get("state", {}).get("terminated") or {}
        if ended.get("exitCode", 0) == 0:
            continue
        if status["name"] == names.PREPARE_CONTAINER:
            return _after_exit(pod, ended)
        if status["name"] == names.FETCH_CONTAINER:
            return _fetch_failed(pod, status["image"], ended)
        message = f"init container {status['name']} ended with exit code {ended['exitCode']}"
        return _failed(pod, FailureClass.RETRY, "InitContainerFailed", message)
    # What is left are refusals and losses of the kubelet: OutOfcpu, NodeAffinity, UnexpectedAdmissionError …
    reason = pod["status"].get("reason") or "PodFailed"
    message = pod["status"].get("message") or "the pod failed without running its container"
    return _failed(pod, FailureClass.INFRASTRUCTURE, reason, _cut(message))


def _fetch_failed(pod: Json, image: str, terminated: Json) -> JobView:
    """The container of a source's own image ended with an error; only its code and the end of its log tell of it."""
    code, said = terminated["exitCode"], (terminated.get("message") or "").strip()[-_SAID_LIMIT:] or "it said nothing"
    what = f"the container of image {image!r}"
    if terminated.get("reason") == "OOMKilled":
        return _failed(pod, FailureClass.RETRY, "OutOfMemory", f"{what} exceeded the memory of the Engine's driver")
    if code in (_STOPPED, _KILLED):
        _, reason, _ = _EXIT_CODES[code]
        return _failed(pod, FailureClass.INFRASTRUCTURE, reason, _cut(f"{what} was ended (exit code {code}): {said}"))
    return _failed(pod, FailureClass.REPORT, "SourceFailed", _cut(f"{what} ended with {code}: {said}"))


def _failed_by_deadline(pod: Json) -> JobView:
    seconds = pod.get("spec", {}).get("activeDeadlineSeconds")
    limit = f" of {seconds} s" if seconds else ""
    return _failed(pod, FailureClass.RETRY, "DeadlineExceeded", f"the job ran longer than its deadline{limit}")


def _result_lost(pod: Json) -> JobView:
    """Exit code 0 without a result. Trying again is right: a commit that happened is found by its id, and reported."""
    message = "the job ended well but its result is lost; the next attempt finds what it did"
    return _failed(pod, FailureClass.INFRASTRUCTURE, "ResultLost", message)


def _disruption(pod: Json) -> tuple[str, str] | None:
    """Reason and message if the cluster, not the job, ended the pod."""
    status = pod["status"]
    if status.get("reason") == "Evicted":
        return "Evicted", _cut(status.get("message") or "the node evicted the pod")
    condition = _condition(pod, "DisruptionTarget")
    if condition is not None and condition.get("status") == "True":
        reason = "NodeLost" if condition.get("reason") == "DeletionByPodGC" else "Disrupted"
        return reason, _cut(f"{condition.get('reason', 'Disruption')}: {condition.get('message', '')}".rstrip(": "))
    if status.get("reason") in ("Shutdown", "NodeShutdown", "Terminated", "Preempting"):
        return "Disrupted", _cut(status.get("message") or "the node is shutting down")
    if status.get("reason") == "NodeLost":
        return "NodeLost", _cut(status.get("message") or "the node does not answer")
    return None


def _deadline(pod: Json) -> bool:
    return bool(pod["status"].get("reason") == "DeadlineExceeded")


def _result(text: str) -> JobResult | None:
    """The job's result if the termination message is one; log lines (FallbackToLogsOnError) are not."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        return JobResult.model_validate_json(text)
    except ValidationError:
        return None


# --- before the end ----------------------------------------------------------------------------------------


def _stuck(pod: Json, now: datetime, events: Sequence[Json]) -> JobView | None:
    """A Pending that will not move by itself, or a node that does not answer."""
    if pod["status"].get("phase") == "Unknown":
        return _view(pod, JobPhase.RUNNING, "NodeLost", "the node does not answer; waiting for the pod to be given up")
    scheduled = _condition(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return _view(pod, JobPhase.PENDING, "Unschedulable", _cut(scheduled.get("message") or "no node fits the pod"))
    age = now - _scheduled(pod)
    for reason, message in _waiting(pod):
        patience = _patience(reason)
        if patience is None or age < patience:
            continue
        name = "ImagePullFailed" if reason in _IMAGE | _HOPELESS_IMAGE else "ConfigError"
        return _view(pod, JobPhase.PENDING, name, _cut(message or reason))
    if wants_events(pod, now):
        for event in sorted(events, key=_event_time, reverse=True):
            if event.get("reason") in _EVENT_REASONS:
                reason, message = (
                    _EVENT_REASONS[event["reason"]],
                    event.get("message") or event.get("note") or "",
                )
                return _view(pod, JobPhase.PENDING, reason, _cut(message))
    return None


def _alive(pod: Json) -> JobView:
    running = (_driver(pod).get("state") or {}).get("running")
    leaving = "Terminating" if pod["metadata"].get("deletionTimestamp") else ""
    if running is not None:
        return replace(_view(pod, JobPhase.RUNNING, leaving, ""), since=_time(running.get("startedAt")))
    return _view(pod, JobPhase.PENDING, leaving, "")


def _patience(reason: str) -> timedelta | None:
    """How long a waiting reason is tolerated; None if it is not a problem."""
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


# --- reading a pod -----------------------------------------------------------------------------------------


def _driver(pod: Json) -> Json:
    for status in pod["status"].get("containerStatuses") or ():
        if status.get("name") == names.DRIVER_CONTAINER:
            return dict(status)
    return {}


def _terminated(pod: Json) -> Json | None:
    return (_driver(pod).get("state") or {}).get("terminated")


def _condition(pod: Json, kind: str) -> Json | None:
    for condition in pod["status"].get("conditions") or ():
        if condition.get("type") == kind:
            return dict(condition)
    return None


def _scheduled(pod: Json) -> datetime:
    """When the kubelet could begin with the pod."""
    condition = _condition(pod, "PodScheduled")
    stamp = condition.get("lastTransitionTime") if condition and condition.get("status") == "True" else None
    created = _time(stamp or pod["metadata"].get("creationTimestamp"))
    assert created is not None, "every pod has a creation time"
    return created


def _event_time(event: Json) -> str:
    """RFC 3339 in UTC, hence ordered as text."""
    series = event.get("series") or {}
    return str(series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or "")


def _progress(text: str | None) -> Progress | None:
    """The job's progress annotation; whatever else stands there is ignored."""
    if not text:
        return None
    try:
        return Progress.model_validate_json(text)
    except ValidationError:
        return None


def _view(pod: Json, phase: JobPhase, reason: str, message: str) -> JobView:
    meta = pod["metadata"]
    labels = meta.get("labels") or {}
    owner = names.controller_of(pod)
    terminated = _terminated(pod) or {}
    since = terminated.get("finishedAt") or meta.get("creationTimestamp")
    return JobView(
        name=meta["name"],
        attempt=int(labels.get(names.ATTEMPT, "1")),
        phase=phase,
        reason=reason,
        message=message,
        since=_time(since),
        owner_uid=owner["uid"] if owner else "",
    )


def _failed(pod: Json, failure: FailureClass, reason: str, message: str, result: JobResult | None = None) -> JobView:
    return replace(_view(pod, JobPhase.FAILED, reason, message), failure=failure, result=result)


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MESSAGE_LIMIT else f"{text[: _MESSAGE_LIMIT - 1]}…"
