"""Every way in which a job's pod can end or not start (the Kubernetes API conventions, "HTTP Status codes"), as a
table of real pod shapes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubothek.api.jobs import CommitOutcome, Ended, ExitCode, JobResult, Progress
from kubothek.cluster import names
from kubothek.cluster.pod_status import outcome, unfinished
from kubothek.controller.context import FailureClass, JobPhase
from tests.cluster.podshapes import FINISHED, STARTED, condition, disrupted, exited, pod, running, waiting

START = datetime(2026, 11, 21, 12, 0, 1, tzinfo=UTC)
SOON, LATER = START + timedelta(seconds=45), START + timedelta(minutes=10)
STOPPING = datetime.fromisoformat(FINISHED) + timedelta(seconds=50)

DONE = JobResult(
    outcome="Succeeded", reason="Committed", message="version 3", commit=CommitOutcome(version=3, rows=10)
).model_dump_json()
BAD_INPUT = JobResult(outcome="Failed", reason="DataTypeMismatch", message="row 7").model_dump_json()
STORE_DOWN = JobResult(
    outcome="Failed", reason="StoreUnavailable", message="no answer", retryable=True
).model_dump_json()
STOPPED = JobResult(outcome="Failed", reason="Terminated", message="SIGTERM", retryable=True).model_dump_json()
LOGS = "Traceback (most recent call last):\n  File x\nMemoryError: cannot allocate 3 GiB\n\n"


@dataclass(frozen=True)
class Row:
    """A pod and what it means; ``now`` is when it is looked at."""

    pod: dict[str, Any]
    phase: JobPhase
    reason: str
    failure: FailureClass | None = None
    says: str = ""
    now: datetime = LATER
    events: list[dict[str, Any]] = field(default_factory=list)


def failed(shape: dict[str, Any], failure: FailureClass, reason: str, says: str = "") -> Row:
    return Row(shape, JobPhase.FAILED, reason, failure, says)


def pending(shape: dict[str, Any], reason: str, says: str = "", now: datetime = LATER, **more: Any) -> Row:
    return Row(shape, JobPhase.PENDING, reason, None, says, now, **more)


def ended(code: int, message: str = "", reason: str = "", **more: Any) -> dict[str, Any]:
    return pod(phase="Succeeded" if code == 0 else "Failed", state=exited(code, message, reason), **more)


def _fetching(name: str, state: dict[str, Any], phase: str = "Failed", **more: Any) -> dict[str, Any]:
    status = {"initContainerStatuses": [{"name": name, "image": "x/fetch:1", "state": state}]}
    return pod(phase=phase, state=waiting("PodInitializing"), status=status, **more)


REPORT, RETRY, INFRASTRUCTURE = FailureClass.REPORT, FailureClass.RETRY, FailureClass.INFRASTRUCTURE
UNSCHEDULABLE = condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available: 3 Insufficient memory.")
GATED = condition("PodScheduled", "False", "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")
CREATING = pod(state=waiting("ContainerCreating"))
NO_SECRET = {
    "reason": "FailedMount",
    "message": 'MountVolume.SetUp failed for volume "store-0" : secret "lake-credentials" not found',
    "lastTimestamp": "2026-11-21T12:01:00Z",
}
NO_SANDBOX = {
    "reason": "FailedCreatePodSandBox",
    "message": "failed to set up sandbox",
    "eventTime": "2026-11-21T12:00:30.000000Z",
}

ROWS = {
    "new, not seen by the scheduler": pending(pod(conditions=[]), "", now=SOON),
    "being created": pending(CREATING, "", now=SOON),
    "queued by a scheduling gate": pending(pod(conditions=[GATED]), ""),
    "running": Row(pod(phase="Running", state=running()), JobPhase.RUNNING, ""),
    "asked to stop, still running": Row(
        pod(phase="Running", state=running(), deleted=True), JobPhase.RUNNING, "Terminating", now=STOPPING
    ),
    "asked to stop, and nobody answers": Row(
        pod(phase="Running", state=running(), deleted=True), JobPhase.RUNNING, "NodeLost", says="delete the Node n1"
    ),
    "asked to stop before it ran, and nobody answers": pending(
        pod(state=waiting("ContainerCreating"), deleted=True), "NodeLost", "restart the node"
    ),
    "evicted for what it may not have": failed(
        pod(
            phase="Failed",
            status={"reason": "Evicted", "message": 'Usage of EmptyDir volume "tmp" exceeds the limit "1Gi".'},
        ),
        RETRY,
        "OutOfDisk",
        "exceeds the limit",
    ),
    "node does not answer": Row(
        pod(phase="Unknown", state=running(), status={"reason": "NodeLost"}), JobPhase.RUNNING, "NodeLost"
    ),
    # the end, in the job's own words
    "succeeded": Row(ended(0, DONE), JobPhase.SUCCEEDED, "Committed", None, "version 3"),
    "succeeded, a sidecar keeps the pod running": Row(
        pod(
            phase="Running",
            state=exited(0, DONE),
            sidecars=[{"name": "mesh", "state": {"running": {"startedAt": STARTED}}}],
        ),
        JobPhase.SUCCEEDED,
        "Committed",
    ),
    "succeeded although the node was being drained": Row(
        ended(0, DONE, conditions=disrupted("EvictionByEvictionAPI")), JobPhase.SUCCEEDED, "Committed"
    ),
    "bad input": failed(ended(ExitCode.INVALID, BAD_INPUT), REPORT, "DataTypeMismatch", "row 7"),
    "bad input, on a node that then was drained": failed(
        ended(ExitCode.INVALID, BAD_INPUT, conditions=disrupted("TaintManager")), REPORT, "DataTypeMismatch"
    ),
    "store down": failed(ended(ExitCode.TRANSIENT, STORE_DOWN), RETRY, "StoreUnavailable", "no answer"),
    # the end, without a word
    "exit 0 without a result": failed(ended(0), INFRASTRUCTURE, "ResultLost", "finds what it did"),
    "exit 0 with logs instead of a result": failed(ended(0, LOGS), INFRASTRUCTURE, "ResultLost"),
    "succeeded without container statuses": failed(pod(phase="Succeeded"), INFRASTRUCTURE, "ResultLost"),
    "exit 1": failed(ended(ExitCode.INTERNAL), RETRY, "JobFailed", "exit code 1"),
    "exit 1 with logs": failed(ended(1, LOGS), RETRY, "JobFailed", "MemoryError: cannot allocate 3 GiB"),
    "exit 1 with a torn result": failed(ended(1, BAD_INPUT[:40]), RETRY, "JobFailed", "exit code 1"),
    "exit 1 with JSON of something else": failed(ended(1, '{"a": 1}'), RETRY, "JobFailed"),
    "exit 10": failed(ended(ExitCode.INVALID), REPORT, "InvalidInput"),
    "exit 20": failed(ended(ExitCode.CONFLICT), RETRY, "Conflict"),
    "exit 21": failed(ended(ExitCode.FENCED), REPORT, "Fenced"),
    "exit 30": failed(ended(ExitCode.TRANSIENT), RETRY, "StoreUnavailable"),
    "spark: too many executors failed": failed(ended(11), RETRY, "ExecutorsFailing"),
    "spark: heap exhausted": failed(ended(52, LOGS), RETRY, "OutOfMemory"),
    "no such command": failed(ended(127), REPORT, "ImageBroken"),
    "an unknown code": failed(ended(99), RETRY, "JobFailed", "exit code 99"),
    "cannot be started": failed(
        ended(128, "exec: no such file: python", "StartError"), REPORT, "ConfigError", "no such file"
    ),
    # the end, made by Kubernetes
    "out of memory": failed(ended(137, reason="OOMKilled"), RETRY, "OutOfMemory", "memory limit"),
    "out of memory, after it had spoken": failed(ended(137, STORE_DOWN, "OOMKilled"), RETRY, "OutOfMemory"),
    "killed": failed(ended(137), RETRY, "Killed"),
    "stopped by itself": failed(ended(143), INFRASTRUCTURE, "Terminated"),
    "stopped, and able to say so": failed(ended(143, STOPPED), INFRASTRUCTURE, "Terminated"),
    "deleted, and killed as it did not stop in time": failed(
        ended(137, LOGS, deleted=True), INFRASTRUCTURE, "PodDeleted"
    ),
    "stopped because it was deleted": failed(ended(143, deleted=True), INFRASTRUCTURE, "PodDeleted"),
    "deadline": failed(
        pod(phase="Failed", state=exited(143), status={"reason": "DeadlineExceeded"}),
        RETRY,
        "DeadlineExceeded",
    ),
    "deadline before any container ran": failed(
        pod(phase="Failed", status={"reason": "DeadlineExceeded"}), RETRY, "DeadlineExceeded"
    ),
    "evicted, empty container statuses": failed(
        pod(phase="Failed", status={"reason": "Evicted", "message": "The node was low on resource: memory."}),
        INFRASTRUCTURE,
        "Evicted",
        "low on resource",
    ),
    "evicted, with an exit": failed(
        pod(phase="Failed", state=exited(137), status={"reason": "Evicted"}), INFRASTRUCTURE, "Evicted"
    ),
    "preempted": failed(
        ended(143, conditions=disrupted("PreemptionByScheduler")),
        INFRASTRUCTURE,
        "Disrupted",
        "PreemptionByScheduler",
    ),
    "drained, the job said that it was stopped": failed(
        ended(143, STORE_DOWN, conditions=disrupted("EvictionByEvictionAPI")), INFRASTRUCTURE, "Disrupted"
    ),
    "node gone, collected": failed(
        pod(phase="Failed", conditions=disrupted("DeletionByPodGC")), INFRASTRUCTURE, "NodeLost"
    ),
    "node shut down": failed(
        pod(
            phase="Failed",
            status={"reason": "Terminated", "message": "Pod was terminated in response to shutdown"},
        ),
        INFRASTRUCTURE,
        "Disrupted",
    ),
    "refused by the kubelet": failed(
        pod(phase="Failed", status={"reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}),
        INFRASTRUCTURE,
        "OutOfcpu",
        "enough resource",
    ),
    "failed without any explanation": failed(pod(phase="Failed"), INFRASTRUCTURE, "PodFailed"),
    "init container failed": failed(
        pod(
            phase="Failed",
            state=waiting("PodInitializing"),
            status={"initContainerStatuses": [{"name": "proxy", "state": exited(2)}]},
        ),
        RETRY,
        "InitContainerFailed",
        "proxy",
    ),
    "a source's container could not be prepared": failed(
        _fetching("prepare", exited(10, BAD_INPUT)), REPORT, "DataTypeMismatch", "row 7"
    ),
    "a store was away before a source's container ran": failed(
        _fetching("prepare", exited(13, STORE_DOWN)), RETRY, "StoreUnavailable"
    ),
    "a source's container failed": failed(
        _fetching("fetch", exited(3, "no such table\n")),
        REPORT,
        "SourceFailed",
        "'x/fetch:1' ended with 3: no such table",
    ),
    "a source's container failed silently": failed(
        _fetching("fetch", exited(1)), REPORT, "SourceFailed", "said nothing"
    ),
    "a source's container took too much memory": failed(
        _fetching("fetch", exited(137, reason="OOMKilled")), RETRY, "OutOfMemory", "x/fetch:1"
    ),
    "a source's container was stopped": failed(
        _fetching("fetch", exited(143)), INFRASTRUCTURE, "Terminated", "x/fetch:1"
    ),
    "a source's container was on a node that was drained": failed(
        _fetching("fetch", exited(137), conditions=disrupted("TaintManager")), INFRASTRUCTURE, "Disrupted"
    ),
    "a source's container cannot be pulled": pending(
        _fetching("fetch", waiting("ImagePullBackOff", 'Back-off pulling image "x/fetch:1"'), phase="Pending"),
        "ImagePullFailed",
        "x/fetch:1",
    ),
    # never started
    "image cannot be pulled": pending(
        pod(state=waiting("ImagePullBackOff", 'Back-off pulling image "nope:1"')), "ImagePullFailed", "nope:1"
    ),
    "image cannot be pulled, perhaps only now": pending(pod(state=waiting("ErrImagePull")), "", now=SOON),
    "image has no valid name": pending(
        pod(state=waiting("InvalidImageName", "invalid reference")), "ImagePullFailed", now=SOON
    ),
    "image of an init container": pending(
        pod(
            state=waiting("PodInitializing"),
            status={"initContainerStatuses": [{"name": "i", "state": waiting("ImagePullBackOff", "no i")}]},
        ),
        "ImagePullFailed",
        "no i",
    ),
    "config error": pending(
        pod(state=waiting("CreateContainerConfigError", "couldn't find key x")), "ConfigError", "key x"
    ),
    "config error, perhaps only now": pending(pod(state=waiting("CreateContainerConfigError")), "", now=SOON),
    "unschedulable": pending(pod(conditions=[UNSCHEDULABLE]), "Unschedulable", "Insufficient memory"),
    "volume cannot be mounted": pending(
        CREATING, "VolumeMountFailed", 'secret "lake-credentials" not found', events=[NO_SANDBOX, NO_SECRET]
    ),
    "no network": pending(CREATING, "SandboxFailed", "sandbox", events=[NO_SANDBOX]),
    "creating for long, nobody knows why": pending(CREATING, ""),
    "events of a problem that is over": Row(
        pod(phase="Running", state=running()), JobPhase.RUNNING, "", events=[NO_SECRET]
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_pod_state_maps_to_phase_reason_and_failure(row: Row) -> None:
    view = outcome.job_view(row.pod, row.now, row.events)
    assert (view.phase, view.reason, view.failure) == (row.phase, row.reason, row.failure)
    assert row.says in view.message
    assert (view.name, view.attempt) == ("orders-2", 2)
    assert "\n" not in view.message
    assert len(view.message) <= 512


def test_job_result_is_returned_unchanged() -> None:
    view = outcome.job_view(ended(0, DONE), LATER)
    assert view.result is not None
    assert view.result.commit == CommitOutcome(version=3, rows=10)


def test_job_phase_has_start_time() -> None:
    def since(shape: dict[str, Any]) -> datetime | None:
        return outcome.job_view(shape, LATER).since

    assert since(CREATING) == datetime(2026, 11, 21, 12, tzinfo=UTC)
    assert since(pod(phase="Running", state=running())) == datetime.fromisoformat(STARTED)
    assert since(ended(0, DONE)) == datetime.fromisoformat(FINISHED)


def test_progress_annotation_is_parsed_and_garbage_is_ignored() -> None:
    progress = Progress(stage="Reading", tasks_done=1, tasks_total=4, rows=100)
    shape = pod(phase="Running", state=running(), annotations={"kubothek.io/progress": progress.model_dump_json()})
    assert outcome.job_view(shape, LATER).progress == progress
    shape = pod(phase="Running", state=running(), annotations={"kubothek.io/progress": "{"})
    assert outcome.job_view(shape, LATER).progress is None


def test_pod_message_above_limit_is_truncated() -> None:
    view = outcome.job_view(pod(state=waiting("ImagePullBackOff", "x" * 5000)), LATER)
    assert len(view.message) == 512


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (pod(phase="Running", state=running(), deleted=True), "PodDeleted"),
        (CREATING, "PodDeleted"),
        (
            pod(phase="Running", state=running(), conditions=disrupted("DeletionByPodGC"), deleted=True),
            "NodeLost",
        ),
        (pod(phase="Running", state=running(), conditions=disrupted("EvictionByEvictionAPI")), "Disrupted"),
    ],
)
def test_pod_that_disappeared_counts_as_lost_attempt(shape: dict[str, Any], reason: str) -> None:
    view = outcome.lost_view(shape)
    assert (view.phase, view.failure, view.reason) == (JobPhase.FAILED, INFRASTRUCTURE, reason)


def test_pod_that_disappeared_after_end_keeps_result() -> None:
    assert outcome.lost_view(ended(0, DONE)).phase is JobPhase.SUCCEEDED
    assert outcome.lost_view(ended(10, BAD_INPUT)).reason == "DataTypeMismatch"


def test_pod_is_polled_again_at_end_of_patience() -> None:
    pulling = pod(state=waiting("ErrImagePull"))
    assert outcome.patience_left(pulling, START + timedelta(seconds=30)) == timedelta(seconds=90)
    assert outcome.patience_left(pulling, LATER) is None
    assert outcome.patience_left(CREATING, START) == unfinished.MOUNT_PATIENCE
    assert outcome.patience_left(pod(phase="Running", state=running()), LATER) is None
    going = pod(phase="Running", state=running(), deleted=True)
    assert outcome.patience_left(going, STOPPING) == timedelta(seconds=10)
    assert outcome.patience_left(going, LATER) is None
    assert outcome.patience_left(ended(1), START) is None


def test_pod_events_are_requested_only_when_informative() -> None:
    assert outcome.wants_events(CREATING, LATER)
    assert not outcome.wants_events(CREATING, START + timedelta(seconds=5))
    assert not outcome.wants_events(pod(phase="Running", state=running()), LATER)
    assert not outcome.wants_events(pod(conditions=[UNSCHEDULABLE]), LATER)
    assert not outcome.wants_events(ended(1), LATER)


def test_exit_codes_all_have_reason_and_failure() -> None:
    codes = [value for name, value in vars(ExitCode).items() if name.isupper()]
    assert len(codes) == 6
    for code in codes:
        view = outcome.job_view(ended(code), LATER)
        assert json.dumps(view.reason) != '""'
        assert view.failure is not None


def test_result_claimed_by_annotation_only_is_ignored() -> None:
    """Every account that may patch pods can write one."""
    claim = JobResult(outcome="Succeeded", reason="Committed", message="version 999")
    text = Ended(finished=FINISHED, result=claim).model_dump_json()
    forged = pod(phase="Running", state=running(), annotations={names.RESULT: text})
    assert outcome.job_view(forged, LATER).phase is JobPhase.RUNNING
