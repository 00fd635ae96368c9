"""The outcome of an attempt: a pure function from the status of a pod to a :class:`JobView`.

The phase of a pod does not suffice: a pod that cannot pull its image stays Pending, one with a sidecar stays Running,
an evicted one is Failed without a container status. So the order of evidence is: the end of the driver's container; the
end of the pod; why it does not start; else it runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from kubothek.api.jobs import Ended, ExitCode, JobResult, Progress
from kubothek.api.jobs.signed import verified
from kubothek.api.values import parse_time
from kubothek.cluster import names
from kubothek.cluster.pod_status import unfinished
from kubothek.cluster.pod_status.pod_facts import (
    condition_of,
    failed_view,
    result_key_of,
    shortened,
    terminated_of,
    view_of,
)
from kubothek.controller.context import FailureClass, JobPhase, JobView

Json = Mapping[str, Any]

_SAID_LIMIT = 300
"""Maximum characters of the last output of a source's container in a message."""

_OWN_LIMIT = re.compile(r"exceed(s|ed) .*limit")
"""The kubelet's message for a pod evicted because it exceeded its own limit, not because the node ran short."""

_STOPPED = 143
"""Exit code after SIGTERM, which only the cluster sends: the job is not at fault, whatever it reports."""
_KILLED = 137
"""Exit code after SIGKILL: from the kernel for memory, or from the kubelet after the grace period."""

# Our exit codes, then those of Spark (SparkExitCode, ExecutorExitCode) and of the shell.
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
    """Return the attempt of this pod as of ``now`` (aware). ``events``: Warning events about the pod, if known."""
    view = (
        end_of(pod)
        or unfinished.too_late(pod, now, events)
        or unfinished.stuck(pod, now, events)
        or unfinished.alive(pod)
    )
    return _with_progress(view, pod)


def ended_view(pod: Json) -> JobView | None:
    """Return the attempt of a pod whose job has ended, which is final; None if it has not ended."""
    ended = end_of(pod)
    return None if ended is None else _with_progress(ended, pod)


def _with_progress(view: JobView, pod: Json) -> JobView:
    return replace(view, progress=_progress((pod["metadata"].get("annotations") or {}).get(names.PROGRESS)))


def lost_view(pod: Json) -> JobView:
    """Return the attempt of a deleted pod from its last known state: its outcome if it had ended, else lost."""
    ended = end_of(pod)
    if ended is not None:
        return ended
    reason, message = _disruption(pod) or ("PodDeleted", "the pod was deleted before its job ended")
    return failed_view(pod, FailureClass.INFRASTRUCTURE, reason, message)


def patience_left(pod: Json, now: datetime) -> timedelta | None:
    """Return the time until the view changes without any event; None if it does not."""
    return None if end_of(pod) is not None else unfinished.patience_left(pod, now)


def wants_events(pod: Json, now: datetime) -> bool:
    """Return whether only the pod's events can show why it does not start (its volumes, its sandbox)."""
    return end_of(pod) is None and unfinished.wants_events(pod, now)


def end_of(pod: Json) -> JobView | None:
    """Return the outcome of this pod's attempt; None if it has not ended."""
    terminated = terminated_of(pod)
    if terminated is not None:
        return _after_exit(pod, terminated)
    ended = reported_end(pod)
    if ended is not None:
        return replace(
            view_of(pod, JobPhase.SUCCEEDED, ended.result.reason, ended.result.message),
            result=ended.result,
            since=parse_time(ended.finished),
        )
    status = pod["status"]
    if status.get("phase") == "Succeeded":
        return _result_lost(pod)
    if status.get("phase") == "Failed":
        return _failed_without_exit(pod)
    return None


def reported_end(pod: Json) -> Ended | None:
    """Return the success that the job reported and signed.

    Anything else in the annotation is ignored, as any user with the right to patch pods can write it. A failure counts
    only when the container ends: the next attempt may not begin before that.
    """
    written, key = (pod["metadata"].get("annotations") or {}).get(names.RESULT), result_key_of(pod)
    text = verified(written, key) if written and key else None
    try:
        ended = Ended.model_validate_json(text) if text else None
    except ValidationError:
        return None
    return ended if ended is not None and ended.result.outcome == "Succeeded" else None


def _after_exit(pod: Json, terminated: Json) -> JobView:
    """Return the outcome after the driver's container ended. Its own result counts unless Kubernetes ended it."""
    code, text = terminated.get("exitCode", 1), terminated.get("message") or ""
    result = _result(text)
    if code == 0:
        if result is None or result.outcome != "Succeeded":
            return _result_lost(pod)
        return replace(view_of(pod, JobPhase.SUCCEEDED, result.reason, result.message), result=result)
    if result is not None and result.outcome == "Failed" and not result.retryable:
        return failed_view(pod, FailureClass.REPORT, result.reason, result.message, result)
    disrupted = _disruption(pod)
    if disrupted is not None:
        return _failed_by_cluster(pod, *disrupted)
    if _deadline(pod):
        return _failed_by_deadline(pod)
    if terminated.get("reason") == "OOMKilled":
        return failed_view(
            pod, FailureClass.RETRY, "OutOfMemory", "the driver exceeded its memory limit and was killed"
        )
    if result is not None and result.outcome == "Failed" and code != _STOPPED:
        return failed_view(pod, FailureClass.RETRY, result.reason, result.message, result)
    return _by_exit_code(pod, terminated, text)


def _by_exit_code(pod: Json, terminated: Json, text: str) -> JobView:
    code = terminated.get("exitCode", 1)
    if code in (_STOPPED, _KILLED) and pod["metadata"].get("deletionTimestamp"):
        return failed_view(pod, FailureClass.INFRASTRUCTURE, "PodDeleted", "the pod was deleted before its job ended")
    if terminated.get("reason") in ("StartError", "ContainerCannotRun"):
        return failed_view(
            pod, FailureClass.REPORT, "ConfigError", shortened(text or "the container cannot be started")
        )
    failure, reason, meaning = _EXIT_CODES.get(code, (FailureClass.RETRY, "JobFailed", "the job failed"))
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    detail = f": {last.strip()}" if last and not last.lstrip().startswith("{") else ""
    return failed_view(pod, failure, reason, shortened(f"{meaning} (exit code {code}){detail}"))


def _failed_without_exit(pod: Json) -> JobView:
    """Return the outcome of a Failed pod without an exit of the driver: the node or an init container failed."""
    disrupted = _disruption(pod)
    if disrupted is not None:
        return _failed_by_cluster(pod, *disrupted)
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
        return failed_view(pod, FailureClass.RETRY, "InitContainerFailed", message)
    # The kubelet refused or lost the pod: OutOfcpu, NodeAffinity, UnexpectedAdmissionError …
    reason = pod["status"].get("reason") or "PodFailed"
    message = pod["status"].get("message") or "the pod failed without running its container"
    return failed_view(pod, FailureClass.INFRASTRUCTURE, reason, shortened(message))


def _fetch_failed(pod: Json, image: str, terminated: Json) -> JobView:
    """Return the outcome after a source's own container failed, from its exit code and the end of its log."""
    code, said = terminated["exitCode"], (terminated.get("message") or "").strip()[-_SAID_LIMIT:] or "it said nothing"
    what = f"the container of image {image!r}"
    if terminated.get("reason") == "OOMKilled":
        return failed_view(pod, FailureClass.RETRY, "OutOfMemory", f"{what} exceeded the memory of the Engine's driver")
    if code in (_STOPPED, _KILLED):
        _, reason, _ = _EXIT_CODES[code]
        return failed_view(
            pod, FailureClass.INFRASTRUCTURE, reason, shortened(f"{what} was ended (exit code {code}): {said}")
        )
    return failed_view(pod, FailureClass.REPORT, "SourceFailed", shortened(f"{what} ended with {code}: {said}"))


def _failed_by_cluster(pod: Json, reason: str, message: str) -> JobView:
    """Return the outcome after the cluster ended the pod: the job is at fault only if it exceeded its own limit."""
    if reason == "Evicted" and _OWN_LIMIT.search(message):
        return failed_view(pod, FailureClass.RETRY, "OutOfDisk", message)
    return failed_view(pod, FailureClass.INFRASTRUCTURE, reason, message)


def _failed_by_deadline(pod: Json) -> JobView:
    seconds = pod.get("spec", {}).get("activeDeadlineSeconds")
    limit = f" of {seconds} s" if seconds else ""
    return failed_view(pod, FailureClass.RETRY, "DeadlineExceeded", f"the job ran longer than its deadline{limit}")


def _result_lost(pod: Json) -> JobView:
    """Return the outcome of exit code 0 without a result. A retry is safe: it finds a finished commit by its id."""
    message = "the job ended well but its result is lost; the next attempt finds what it did"
    return failed_view(pod, FailureClass.INFRASTRUCTURE, "ResultLost", message)


def _disruption(pod: Json) -> tuple[str, str] | None:
    """Return reason and message if the cluster, not the job, ended the pod."""
    status = pod["status"]
    if status.get("reason") == "Evicted":
        return "Evicted", shortened(status.get("message") or "the node evicted the pod")
    condition = condition_of(pod, "DisruptionTarget")
    if condition is not None and condition.get("status") == "True":
        reason = "NodeLost" if condition.get("reason") == "DeletionByPodGC" else "Disrupted"
        return reason, shortened(
            f"{condition.get('reason', 'Disruption')}: {condition.get('message', '')}".rstrip(": ")
        )
    if status.get("reason") in ("Shutdown", "NodeShutdown", "Terminated", "Preempting"):
        return "Disrupted", shortened(status.get("message") or "the node is shutting down")
    if status.get("reason") == "NodeLost":
        return "NodeLost", shortened(status.get("message") or "the node does not answer")
    return None


def _deadline(pod: Json) -> bool:
    return bool(pod["status"].get("reason") == "DeadlineExceeded")


def _result(text: str) -> JobResult | None:
    """Return the job's result; None if the termination message is log lines (FallbackToLogsOnError)."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        return JobResult.model_validate_json(text)
    except ValidationError:
        return None


def _progress(text: str | None) -> Progress | None:
    """Return the job's progress annotation; None if it is invalid."""
    if not text:
        return None
    try:
        return Progress.model_validate_json(text)
    except ValidationError:
        return None
