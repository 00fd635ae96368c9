"""What became of an attempt: one pure function from what Kubernetes shows of a pod to a :class:`JobView`.

The phase of a pod is never enough: a pod that cannot pull its image is Pending for ever, one with a sidecar
is Running for ever, an evicted one is Failed without a single container status. So the order of evidence is:
the driver container's own end; the pod's end; why it does not start; else it runs.
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
"""Of what a source's container said last."""

_OWN_LIMIT = re.compile(r"exceed(s|ed) .*limit")
"""What the kubelet says of a pod that it evicts for what the pod may not have, in place of what the node lacks."""

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
    view = (
        end_of(pod)
        or unfinished.too_late(pod, now, events)
        or unfinished.stuck(pod, now, events)
        or unfinished.alive(pod)
    )
    return _with_progress(view, pod)


def ended_view(pod: Json) -> JobView | None:
    """The attempt of a pod whose job has ended; None if it has not. What it says changes no more."""
    ended = end_of(pod)
    return None if ended is None else _with_progress(ended, pod)


def _with_progress(view: JobView, pod: Json) -> JobView:
    return replace(view, progress=_progress((pod["metadata"].get("annotations") or {}).get(names.PROGRESS)))


def lost_view(pod: Json) -> JobView:
    """The attempt of a pod that is gone, given its last known state: its end if it had one, else lost."""
    ended = end_of(pod)
    if ended is not None:
        return ended
    reason, message = _disruption(pod) or ("PodDeleted", "the pod was deleted before its job ended")
    return failed_view(pod, FailureClass.INFRASTRUCTURE, reason, message)


def patience_left(pod: Json, now: datetime) -> timedelta | None:
    """When the view changes by the passing of time alone: how long until then, or None."""
    return None if end_of(pod) is not None else unfinished.patience_left(pod, now)


def wants_events(pod: Json, now: datetime) -> bool:
    """Whether only the pod's events can tell why it does not start (its volumes, its sandbox)."""
    return end_of(pod) is None and unfinished.wants_events(pod, now)


def end_of(pod: Json) -> JobView | None:
    """How the attempt of this pod ended; None if it has not."""
    terminated = terminated_of(pod)
    if terminated is not None:
        return _after_exit(pod, terminated)
    ended = told_end(pod)
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


def told_end(pod: Json) -> Ended | None:
    """The success that the job reported and signed; anything else in the annotation is ignored, as all who may patch
    pods can write it.

    Of a failure only the end of the container tells: the next attempt may not begin before that.
    """
    written, key = (pod["metadata"].get("annotations") or {}).get(names.RESULT), result_key_of(pod)
    text = verified(written, key) if written and key else None
    try:
        ended = Ended.model_validate_json(text) if text else None
    except ValidationError:
        return None
    return ended if ended is not None and ended.result.outcome == "Succeeded" else None


def _after_exit(pod: Json, terminated: Json) -> JobView:
    """The driver container ended. Its own word counts unless Kubernetes ended it."""
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
    """Phase Failed, and the driver container never ended in a way that was recorded: the node or an init container."""
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
    # What is left are refusals and losses of the kubelet: OutOfcpu, NodeAffinity, UnexpectedAdmissionError …
    reason = pod["status"].get("reason") or "PodFailed"
    message = pod["status"].get("message") or "the pod failed without running its container"
    return failed_view(pod, FailureClass.INFRASTRUCTURE, reason, shortened(message))


def _fetch_failed(pod: Json, image: str, terminated: Json) -> JobView:
    """The container of a source's own image ended with an error; only its code and the end of its log tell of it."""
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
    """Taken away: not the job's fault, unless it had more than it may have, as the next attempt will again."""
    if reason == "Evicted" and _OWN_LIMIT.search(message):
        return failed_view(pod, FailureClass.RETRY, "OutOfDisk", message)
    return failed_view(pod, FailureClass.INFRASTRUCTURE, reason, message)


def _failed_by_deadline(pod: Json) -> JobView:
    seconds = pod.get("spec", {}).get("activeDeadlineSeconds")
    limit = f" of {seconds} s" if seconds else ""
    return failed_view(pod, FailureClass.RETRY, "DeadlineExceeded", f"the job ran longer than its deadline{limit}")


def _result_lost(pod: Json) -> JobView:
    """Exit code 0 without a result. Trying again is right: a commit that happened is found by its id, and reported."""
    message = "the job ended well but its result is lost; the next attempt finds what it did"
    return failed_view(pod, FailureClass.INFRASTRUCTURE, "ResultLost", message)


def _disruption(pod: Json) -> tuple[str, str] | None:
    """Reason and message if the cluster, not the job, ended the pod."""
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
    """The job's result if the termination message is one; log lines (FallbackToLogsOnError) are not."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        return JobResult.model_validate_json(text)
    except ValidationError:
        return None


def _progress(text: str | None) -> Progress | None:
    """The job's progress annotation; whatever else stands there is ignored."""
    if not text:
        return None
    try:
        return Progress.model_validate_json(text)
    except ValidationError:
        return None
