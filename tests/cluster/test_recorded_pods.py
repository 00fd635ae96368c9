"""What a real cluster showed (tests/golden/pods, made by tests.e2e.recording): each case has its class, its budget, and
a message that says what to do.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kubothek.cluster.api import ApiError
from kubothek.cluster.launch import refused
from kubothek.cluster.pod_status import outcome, unfinished
from kubothek.controller.context import FailureClass, JobPhase
from kubothek.controller.scheduling.launching import REFUSALS

GOLDEN = Path(__file__).parents[1] / "golden/pods"
RETRY, INFRASTRUCTURE, REPORT = FailureClass.RETRY, FailureClass.INFRASTRUCTURE, FailureClass.REPORT
PENDING, RUNNING, FAILED = JobPhase.PENDING, JobPhase.RUNNING, JobPhase.FAILED
TEN_MINUTES = timedelta(minutes=10)


@dataclass(frozen=True)
class Meaning:
    """``failure`` decides the budget: RETRY draws on retry.limit, INFRASTRUCTURE on one of its own, REPORT ends the
    run, and None waits and costs nothing.
    """

    phase: JobPhase
    reason: str
    failure: FailureClass | None
    says: str = ""
    lost: tuple[FailureClass, str] | None = None
    """What it is if the pod is gone after that; default: what it was."""


def waits(reason: str, says: str) -> Meaning:
    return Meaning(PENDING, reason, None, says, (INFRASTRUCTURE, "PodDeleted"))


MEANINGS = {
    "oom-killed": Meaning(FAILED, "OutOfMemory", RETRY, "raise driver.memory"),
    "killed": Meaning(FAILED, "Killed", RETRY, "137"),
    "deadline": Meaning(FAILED, "DeadlineExceeded", RETRY, "deadline of 5 s; raise deadlines.total"),
    "evicted-by-the-node": Meaning(FAILED, "OutOfDisk", RETRY, 'exceeds the limit "8Mi"; raise the limit'),
    "no-such-command": Meaning(FAILED, "ConfigError", REPORT, "/no/such/command"),
    "evicted-by-the-api": Meaning(FAILED, "Disrupted", INFRASTRUCTURE, "EvictionByEvictionAPI"),
    "deleted": Meaning(FAILED, "PodDeleted", INFRASTRUCTURE),
    "refused-by-the-kubelet": Meaning(FAILED, "OutOfcpu", INFRASTRUCTURE, "enough resource"),
    "node-deleted": Meaning(FAILED, "NodeLost", INFRASTRUCTURE, "node no longer exists"),
    "node-unreachable": Meaning(RUNNING, "NodeLost", None, "delete the Node ghost", lost=(INFRASTRUCTURE, "Disrupted")),
    "preempted": Meaning(RUNNING, "NodeLost", None, lost=(INFRASTRUCTURE, "Disrupted")),
    "image-pull": waits("ImagePullFailed", "registry.invalid"),
    "image-name": waits("ImagePullFailed", "correct the image"),
    "image-never": waits("ImagePullFailed", "not present with pull policy of Never"),
    "config-error": waits("ConfigError", 'secret "nowhere" not found'),
    "volume": waits("VolumeMountFailed", 'secret "nowhere" not found'),
    "unschedulable": waits("Unschedulable", "Insufficient cpu"),
    "gated": waits("", ""),
}
REFUSED = {
    "quota": ("QuotaExceeded", False),
    "limit-range": ("PodInvalid", True),
    "service-account": ("ServiceAccountNotFound", False),
    "priority-class": ("AdmissionDenied", True),
    "invalid": ("PodInvalid", True),
    "pod-security": ("AdmissionDenied", True),
}
"""Reason, and whether only a person can mend it. The API server made no pod, so no attempt is spent."""


def recorded(case: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / f"{case}.json").read_text())
    return found


def test_recorded_cases_are_all_tested() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == {*MEANINGS, "refusals"}
    assert set(recorded("refusals")) == set(REFUSED)


@pytest.mark.parametrize("case", MEANINGS)
def test_recorded_pod_maps_to_phase_reason_and_failure(case: str) -> None:
    found, meaning = recorded(case), MEANINGS[case]
    pod = found["pod"]
    now = datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) + TEN_MINUTES
    view = outcome.job_view(pod, now, found["events"])
    assert (view.phase, view.reason, view.failure) == (meaning.phase, meaning.reason, meaning.failure)
    assert meaning.says in view.message
    lost = outcome.lost_view(pod)
    assert (lost.failure, lost.reason) == (meaning.lost or (meaning.failure, meaning.reason))


def test_recorded_pod_in_termination_is_not_lost_node() -> None:
    pod = recorded("node-unreachable")["pod"]
    asked = datetime.fromisoformat(pod["metadata"]["deletionTimestamp"])
    assert outcome.job_view(pod, asked).reason == "Terminating"
    assert outcome.patience_left(pod, asked) == unfinished.NODE_PATIENCE


@pytest.mark.parametrize("case", REFUSED)
def test_recorded_refusal_maps_to_reason(case: str) -> None:
    status = recorded("refusals")[case]
    refusal = refused(ApiError(status["code"], status["reason"], status["message"], "POST pods"))
    reason, for_good = REFUSED[case]
    assert refusal.reason == reason
    assert REFUSALS[reason][0] == for_good
