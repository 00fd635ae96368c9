"""When an attempt of a Query starts, and what its end means."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kubothek.api.jobs import Progress, QueryJob, QueryOutcome, QueryRead, StoreState
from kubothek.api.query import Query
from kubothek.controller.context import FailureClass, JobPhase
from tests.controller.fake import COMMIT_SPEC, Fake, committed, seen, with_dataset, with_store

KEY = ("Query", "top")
JOB = "top-query-1"
SPEC: dict[str, Any] = {"sql": "SELECT 1", "storeRef": {"name": "lake"}, "result": {"location": {"path": "reports"}}}
INTO_FLIGHTS = SPEC | {"result": {"datasetRef": {"name": "flights"}}}
OUTCOME = QueryOutcome(
    location="reports/x.parquet", rows=2, files=1, bytes=99, reads=(QueryRead(dataset="flights", version=3, files=4),)
)


@pytest.fixture
def context() -> Fake:
    return Fake()


@pytest.fixture
def running(context: Fake) -> Fake:
    with_store(context)
    context.create(*KEY, SPEC)
    context.reconcile(*KEY)
    context.job_runs(JOB)
    context.settle(*KEY)
    return context


def query(context: Fake) -> Query:
    found = context.resources[KEY]
    assert isinstance(found, Query)
    return found


def query_jobs(context: Fake) -> list[QueryJob]:
    return [launch.job for launch in context.launches if isinstance(launch.job, QueryJob)]


def test_query_job_reports_lineage_under_name_of_query() -> None:
    context = Fake(open_lineage_url="http://marquez:5000")
    with_store(context)
    context.create(*KEY, SPEC)
    context.reconcile(*KEY)
    (job,) = query_jobs(context)
    assert job.lineage is not None
    assert (job.lineage.namespace, job.lineage.job) == ("cluster/team", "query/top")


# --- the job --------------------------------------------------------------------------------------------------------


def test_query_attempt_passes_all_inputs_to_job(context: Fake) -> None:
    context.create("ObjectStore", "out", {"url": "s3://out", "credentialsSecretRef": {"name": "writer"}})
    context.reconcile("ObjectStore", "out")
    context.job_ends("out-inspect-1", store=StoreState(conditional_writes=True))
    context.settle("ObjectStore", "out")
    with_store(context)
    context.create("Engine", "big", {"driver": {"memory": "3Gi"}})
    location = {"storeRef": {"name": "out"}, "path": "reports", "format": "CSV"}
    spec = SPEC | {"result": {"location": location}, "engineRef": {"name": "big"}, "timeLimit": "90s"}
    context.create(*KEY, spec | {"asOf": {"time": "2026-11-21T14:00:00Z"}})
    context.reconcile(*KEY)
    launch, job = context.launches[-1], query_jobs(context)[0]
    assert (job.job, job.uid, job.attempt, job.sql) == (JOB, query(context).metadata.uid, 1, "SELECT 1")
    assert (job.store.name, job.as_of_version, job.as_of_time) == ("lake", None, "2026-11-21T14:00:00Z")
    assert job.location is not None
    assert (job.location.store.url, job.location.path, job.location.format) == ("s3://out", "reports", "CSV")
    assert (job.memory_bytes, job.time_limit_seconds, job.becomes) == (3 * 2**30, 90.0, None)
    assert launch.secrets == {"out": "writer"}
    assert launch.engine is context.resources["Engine", "big"]
    assert query(context).status.start_time == context.now


def test_query_into_dataset_claims_dataset(context: Fake) -> None:
    with_dataset(context, table={"partitionOn": ["month"]})
    context.create(*KEY, INTO_FLIGHTS | {"asOf": {"version": 3}})
    context.reconcile(*KEY)
    (job,) = query_jobs(context)
    assert job.becomes is not None
    assert job.becomes.commit_id.startswith("query:team/")
    assert job.becomes.dataset.claim.owner == "cluster/team/flights"
    assert job.becomes.dataset.table.partition_on == ("month",)
    assert (job.as_of_version, job.location) == (3, None)


def test_query_as_of_tag_passes_tag_to_job(context: Fake) -> None:
    with_store(context)
    context.create(*KEY, SPEC | {"asOf": {"tag": "audit"}})
    context.reconcile(*KEY)
    (job,) = query_jobs(context)
    assert (job.as_of_tag, job.as_of_version, job.as_of_time) == ("audit", None, None)


def test_query_and_commit_of_same_name_have_separate_jobs(context: Fake) -> None:
    with_dataset(context)
    context.create("Commit", "top", COMMIT_SPEC)
    context.create(*KEY, SPEC)
    context.reconcile("Commit", "top")
    context.reconcile(*KEY)
    assert [launch.job.job for launch in context.launches[-2:]] == ["top-1", JOB]


# --- the end --------------------------------------------------------------------------------------------------------


def test_query_that_succeeds_is_ready_and_complete(running: Fake) -> None:
    running.job_ends(JOB, query=OUTCOME)
    running.settle(*KEY)
    status = query(running).status
    assert running.condition(*KEY) == ("True", "Succeeded")
    assert running.kstatus(*KEY) == "Current"
    assert (status.location, status.rows, status.files, status.bytes) == ("reports/x.parquet", 2, 1, 99)
    assert [(read.dataset, read.version, read.files) for read in status.reads] == [("flights", 3, 4)]
    assert status.completion_time == running.now
    assert status.progress is None


def test_query_success_survives_deletion_of_pod_and_store(running: Fake) -> None:
    running.job_ends(JOB, query=OUTCOME)
    running.settle(*KEY)
    running.job_vanishes(JOB)
    running.delete("ObjectStore", "lake")
    before = query(running).status
    running.settle(*KEY)
    assert query(running).status == before
    assert len(query_jobs(running)) == 1


def test_query_into_dataset_updates_dataset_version_immediately(context: Fake) -> None:
    with_dataset(context)
    context.create(*KEY, INTO_FLIGHTS)
    context.reconcile(*KEY)
    context.job_ends(JOB, query=QueryOutcome(version=5, rows=50), dataset=seen(5))
    context.settle(*KEY)
    context.settle("Dataset", "flights")
    assert query(context).status.version == 5
    assert (context.dataset.status.version, context.dataset.status.rows) == (5, 50)


def test_query_status_shows_progress_while_job_runs(running: Fake) -> None:
    running.job_runs(JOB, Progress(stage="Running", rows=7))
    running.settle(*KEY)
    assert running.condition(*KEY) == ("Unknown", "Progressing")
    progress = query(running).status.progress
    assert progress is not None
    assert (progress.stage, progress.rows) == ("Running", 7)


@pytest.mark.parametrize("reason", ["QueryInvalid", "VersionNotFound", "IdReused", "SchemaMismatch"])
def test_query_with_permanent_failure_fails_without_retry(running: Fake, reason: str) -> None:
    running.job_fails(JOB, FailureClass.REPORT, reason)
    running.settle(*KEY)
    running.pass_time(timedelta(days=1))
    running.settle(*KEY)
    assert running.condition(*KEY) == ("False", reason)
    assert running.kstatus(*KEY) == "Failed"
    assert len(query_jobs(running)) == 1


def test_query_with_transient_failure_retries_under_next_number(running: Fake) -> None:
    running.job_fails(JOB, FailureClass.RETRY, "StoreUnavailable")
    outcome = running.reconcile(*KEY)
    assert running.condition(*KEY) == ("False", "ProgressingWithRetry")
    assert outcome.requeue_after is not None
    running.pass_time(outcome.requeue_after)
    running.reconcile(*KEY)
    assert [job.job for job in query_jobs(running)] == [JOB, "top-query-2"]


def test_query_with_raised_retry_limit_resumes(running: Fake) -> None:
    running.edit(*KEY, retryLimit=0)
    running.job_fails(JOB, FailureClass.RETRY, "StoreUnavailable")
    running.settle(*KEY)
    assert running.condition(*KEY) == ("False", "RetryLimitReached")
    running.edit(*KEY, retryLimit=1)
    running.pass_time(timedelta(minutes=10))
    running.reconcile(*KEY)
    assert [job.job for job in query_jobs(running)] == [JOB, "top-query-2"]


def test_query_with_lost_pod_retries_immediately(running: Fake) -> None:
    running.job_vanishes(JOB)
    running.reconcile(*KEY)
    running.reconcile(*KEY)
    assert running.cancelled == [JOB]
    assert [job.job for job in query_jobs(running)] == [JOB, "top-query-2"]


def test_query_with_broken_engine_stalls(running: Fake) -> None:
    running.job_is(JOB, JobPhase.PENDING, "ImagePullFailed")
    running.settle(*KEY)
    assert running.condition(*KEY) == ("False", "ImagePullFailed")
    assert running.kstatus(*KEY) == "Failed"


# --- the start ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (SPEC | {"storeRef": {"name": "nowhere"}}, "ObjectStoreNotFound"),
        (SPEC | {"result": {"location": {"storeRef": {"name": "nowhere"}, "path": "x"}}}, "ObjectStoreNotFound"),
        (INTO_FLIGHTS, "DatasetNotFound"),
        (SPEC | {"engineRef": {"name": "nowhere"}}, "EngineNotFound"),
        (SPEC | {"dependsOn": [{"name": "nowhere"}]}, "CommitNotFound"),
    ],
)
def test_query_with_missing_dependency_reports_reason_and_waits(
    context: Fake, spec: dict[str, Any], reason: str
) -> None:
    with_store(context)
    context.create(*KEY, spec)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", reason)
    assert context.kstatus(*KEY) == "InProgress"
    context.pass_time(timedelta(minutes=6))
    context.settle(*KEY)
    assert context.kstatus(*KEY) == "Failed"
    assert query_jobs(context) == []


def test_query_waits_for_commits_in_depends_on(context: Fake) -> None:
    with_dataset(context)
    context.create("Commit", "january", COMMIT_SPEC)
    context.create(*KEY, SPEC | {"dependsOn": [{"name": "january"}]})
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "DependencyNotReady")
    context.reconcile("Commit", "january")
    context.job_ends("january-1", **committed(1))
    context.settle("Commit", "january")
    context.reconcile(*KEY)
    assert len(query_jobs(context)) == 1


def test_query_with_failed_dependency_is_reported(context: Fake) -> None:
    with_dataset(context)
    context.create("Commit", "january", COMMIT_SPEC)
    context.reconcile("Commit", "january")
    context.job_fails("january-1", FailureClass.REPORT, "SourceNotFound")
    context.settle("Commit", "january")
    context.create(*KEY, SPEC | {"dependsOn": [{"name": "january"}]})
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "DependencyFailed")
    assert query_jobs(context) == []


def test_query_suspended_starts_no_job_until_resumed(context: Fake) -> None:
    with_store(context)
    context.create(*KEY, SPEC | {"suspend": True})
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "Suspended")
    assert query_jobs(context) == []
    context.edit(*KEY, suspend=False)
    context.reconcile(*KEY)
    assert len(query_jobs(context)) == 1


def test_query_with_refused_launch_retries(context: Fake) -> None:
    with_store(context)
    context.create(*KEY, SPEC)
    context.refusals[JOB] = ("QuotaExceeded", "no room")
    context.reconcile(*KEY)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "QuotaExceeded")
    del context.refusals[JOB]
    context.reconcile(*KEY)
    assert context.jobs[JOB].phase is JobPhase.PENDING


def test_query_under_deletion_or_disabled_is_ignored(context: Fake) -> None:
    with_store(context)
    context.create(*KEY, SPEC, annotations={"kubothek.io/reconcile": "disabled"})
    assert context.reconcile(*KEY).actions == ()
    assert query_jobs(context) == []
