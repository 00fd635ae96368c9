"""When an attempt of a Verification starts, and what its verdict means."""

from __future__ import annotations

from typing import Any

import pytest

from kubothek.api.jobs import FindingState, Progress, VerifyJob, VerifyOutcome
from kubothek.api.verification import Verification
from kubothek.controller.context import FailureClass
from tests.controller.fake import Fake, seen, with_dataset, with_running_commit

KEY = ("Verification", "check")
JOB = "check-verification-1"
SPEC: dict[str, Any] = {"datasetRef": {"name": "flights"}}
SOUND = VerifyOutcome(version=3, files=2, unproven=0, rows=70, bytes=1000)
FOUND = FindingState(code="FileHash", message="its bytes are others", object="flights/table/a.parquet")
CORRUPT = SOUND.model_copy(update={"wrong": 2, "first": FOUND})


@pytest.fixture
def context() -> Fake:
    fake = Fake()
    with_dataset(fake, seen(3))
    return fake


@pytest.fixture
def running(context: Fake) -> Fake:
    context.create(*KEY, SPEC)
    context.reconcile(*KEY)
    context.job_runs(JOB)
    context.settle(*KEY)
    return context


def verification(context: Fake) -> Verification:
    found = context.resources[KEY]
    assert isinstance(found, Verification)
    return found


def verify_jobs(context: Fake) -> list[VerifyJob]:
    return [launch.job for launch in context.launches if isinstance(launch.job, VerifyJob)]


def test_verification_attempt_passes_all_inputs_to_job(context: Fake) -> None:
    context.create("Engine", "big", {"sparkFrom": "1Mi"})
    bounds = {"since": {"version": 2}, "until": {"block": 9}}
    context.create(*KEY, SPEC | bounds | {"level": "Physical", "engineRef": {"name": "big"}})
    context.settle(*KEY)
    (job,) = verify_jobs(context)
    assert (job.job, job.uid, job.attempt) == (JOB, verification(context).metadata.uid, 1)
    assert (job.level, job.since_version, job.since_block) == ("Physical", 2, None)
    assert (job.until_version, job.until_block) == (None, 9)
    assert (job.dataset.uuid, job.spark.from_bytes) == ("flights", 2**20)
    assert context.launches[-1].engine is context.resources["Engine", "big"]


def test_verification_status_shows_progress_while_job_runs(running: Fake) -> None:
    running.job_runs(JOB, Progress(stage="Verifying", tasks_done=3, tasks_total=8))
    running.settle(*KEY)
    progress = verification(running).status.progress
    assert progress is not None
    assert (progress.stage, progress.tasks_done, progress.tasks_total) == ("Verifying", 3, 8)
    assert running.kstatus(*KEY) == "InProgress"


def test_verification_of_valid_dataset_reports_coverage(running: Fake) -> None:
    running.job_ends(JOB, verify=SOUND)
    running.settle(*KEY)
    status = verification(running).status
    assert running.condition(*KEY) == ("True", "Succeeded")
    assert running.kstatus(*KEY) == "Current"
    assert status.completion_time == running.now
    assert (status.verdict, status.version, status.files, status.slices) == ("Sound", 3, 2, None)
    assert (status.rows, status.bytes, status.wrong, status.first) == (70, 1000, 0, None)
    assert status.holds("Complete")


def test_verification_of_corrupt_dataset_fails_and_names_location(running: Fake) -> None:
    running.job_ends(JOB, verify=CORRUPT)
    running.settle(*KEY)
    status = verification(running).status
    assert running.condition(*KEY) == ("False", "Corrupt")
    assert running.kstatus(*KEY) == "Failed"
    assert (status.holds("Failed"), status.holds("Corrupt"), status.holds("Complete")) == (True, True, False)
    assert (status.verdict, status.wrong) == ("Corrupt", 2)
    assert status.first is not None
    assert (status.first.code, status.first.object) == ("FileHash", "flights/table/a.parquet")
    running.edit(*KEY, retryLimit=9)
    running.settle(*KEY)
    assert len(verify_jobs(running)) == 1, "looking again is another Verification"
    assert verification(running).status.first == status.first


def test_verification_retries_transient_and_fails_on_permanent_failures(running: Fake) -> None:
    running.job_fails(JOB, FailureClass.RETRY, "StoreUnavailable")
    outcome = running.settle(*KEY)
    assert outcome.requeue_after is not None
    running.pass_time(outcome.requeue_after)
    running.settle(*KEY)
    assert [job.attempt for job in verify_jobs(running)] == [1, 2]
    running.job_fails("check-verification-2", FailureClass.REPORT, "VersionNotFound", "there is no version 9")
    running.settle(*KEY)
    assert running.condition(*KEY) == ("False", "VersionNotFound")
    assert verification(running).finished
    assert verification(running).status.verdict is None


def test_verification_without_dataset_waits_and_resumes() -> None:
    context = Fake()
    context.create(*KEY, SPEC)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "DatasetNotFound")
    with_dataset(context, seen(3))
    context.settle(*KEY)
    assert len(verify_jobs(context)) == 1


def test_verification_waits_for_first_commit_but_not_for_missing_head() -> None:
    context = Fake()
    with_dataset(context, seen(None))
    context.create(*KEY, SPEC)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "Waiting")
    assert verify_jobs(context) == []
    other = Fake()
    with_dataset(other, seen(None, problem="HeadMissing: there are records"))
    other.create(*KEY, SPEC)
    other.settle(*KEY)
    assert len(verify_jobs(other)) == 1


@pytest.mark.parametrize("who", [KEY, ("Dataset", "flights"), ("ObjectStore", "lake")])
def test_verification_with_suspended_run_dataset_or_store_starts_no_job(context: Fake, who: tuple[str, str]) -> None:
    context.create(*KEY, SPEC)
    context.edit(*who, suspend=True)
    context.settle(*who)
    context.settle(*KEY)
    assert verify_jobs(context) == []
    context.edit(*who, suspend=False)
    context.settle(*who)
    context.settle(*KEY)
    assert len(verify_jobs(context)) == 1


def test_verification_starts_during_running_commit(context: Fake) -> None:
    with_running_commit(context)
    context.create(*KEY, SPEC)
    context.settle(*KEY)
    assert len(verify_jobs(context)) == 1


def test_verification_of_dataset_marked_corrupt_starts() -> None:
    context = Fake()
    with_dataset(context, seen(3, corrupt="a.parquet is lost"))
    context.create(*KEY, SPEC)
    context.settle(*KEY)
    assert context.condition("Dataset", "flights") == ("False", "Corrupt")
    assert len(verify_jobs(context)) == 1


def test_verification_with_recursive_names_corrupt_input(context: Fake) -> None:
    context.create(*KEY, SPEC | {"recursive": True})
    context.reconcile(*KEY)
    assert verify_jobs(context)[0].recursive
    context.job_ends(JOB, verify=CORRUPT.model_copy(update={"datasets": 3, "dataset": "planes"}))
    context.settle(*KEY)
    status = verification(context).status
    assert (status.verdict, status.datasets, status.dataset) == ("Corrupt", 3, "planes")
