"""When an attempt of a Compaction starts, what its end means, and what it gives way to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kubothek.api.compaction import Compaction
from kubothek.api.jobs import Clustering, CompactJob, CompactOutcome, Progress
from kubothek.controller.context import FailureClass, JobPhase
from tests.controller.fake import COMMIT_SPEC, Fake, committed, seen, with_dataset, with_running_commit

KEY = ("Compaction", "tidy")
JOB = "tidy-compaction-1"
SPEC: dict[str, Any] = {"datasetRef": {"name": "flights"}}
OUTCOME = CompactOutcome(
    version=4, partitions=2, files_before=90, files_after=3, bytes_before=1000, bytes_after=800, given_way=1
)


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


def compaction(context: Fake, name: str = "tidy") -> Compaction:
    found = context.resources["Compaction", name]
    assert isinstance(found, Compaction)
    return found


def compact_jobs(context: Fake) -> list[CompactJob]:
    return [launch.job for launch in context.launches if isinstance(launch.job, CompactJob)]


def names(context: Fake) -> list[str]:
    return [job.job for job in compact_jobs(context)]


# --- the job ---------------------------------------------------------------------------------------------------------


def test_compaction_attempt_passes_all_inputs_to_job(context: Fake) -> None:
    context.create("Engine", "big", {"sparkFrom": "1Mi", "sparkConf": {"spark.sql.ansi.enabled": "true"}})
    wishes = {"targetFileSize": "1Gi", "minFiles": 5, "minSmallPercent": 30, "where": "month = 1", "dryRun": True}
    context.create(*KEY, SPEC | wishes | {"engineRef": {"name": "big"}})
    context.settle(*KEY)
    launch = context.launches[-1]
    job = launch.job
    assert isinstance(job, CompactJob)
    assert (job.job, job.uid, job.attempt) == (JOB, compaction(context).metadata.uid, 1)
    assert (job.target_file_bytes, job.min_files, job.min_small_percent) == (2**30, 5, 30)
    assert (job.where, job.dry_run) == ("month = 1", True)
    assert (job.dataset.uuid, job.dataset.claim.owner) == ("flights", "cluster/team/flights")
    assert job.commit_id == f"compaction:team/tidy:{compaction(context).metadata.uid}"
    assert (job.spark.from_bytes, job.spark.conf) == (2**20, {"spark.sql.ansi.enabled": "true"})
    assert launch.engine is context.resources["Engine", "big"]
    assert compaction(context).status.start_time == context.now


def test_compaction_without_thresholds_uses_defaults_and_dataset_engine(context: Fake) -> None:
    context.create("Engine", "big", {})
    context.edit("Dataset", "flights", engineRef={"name": "big"})
    context.settle("Dataset", "flights")
    context.create(*KEY, SPEC)
    context.settle(*KEY)
    (job,) = compact_jobs(context)
    assert (job.target_file_bytes, job.min_files, job.where, job.dry_run) == (None, 2, None, False)
    assert context.launches[-1].engine is context.resources["Engine", "big"]


def test_compaction_job_gets_clustering_of_run_and_of_dataset(context: Fake) -> None:
    context.edit("Dataset", "flights", maintenance={"compaction": {"sortBy": ["carrier"]}})
    context.settle("Dataset", "flights")
    context.create(*KEY, SPEC | {"zOrderBy": ["carrier", "delay"]})
    context.settle(*KEY)
    (job,) = compact_jobs(context)
    assert job.clustering == Clustering(by=("carrier", "delay"), curve=True)
    assert job.dataset.clustering == Clustering(by=("carrier",))


def test_compaction_status_shows_progress_while_job_runs(running: Fake) -> None:
    running.job_runs(JOB, Progress(stage="Rewriting", tasks_done=3, tasks_total=8))
    running.settle(*KEY)
    progress = compaction(running).status.progress
    assert progress is not None
    assert (progress.stage, progress.tasks_done, progress.tasks_total) == ("Rewriting", 3, 8)
    assert running.kstatus(*KEY) == "InProgress"


# --- the end ---------------------------------------------------------------------------------------------------------


def test_compaction_that_succeeds_updates_own_and_dataset_status(running: Fake) -> None:
    running.job_ends(JOB, compact=OUTCOME, dataset=seen(4))
    running.settle(*KEY)
    status = compaction(running).status
    assert running.condition(*KEY) == ("True", "Succeeded")
    assert running.kstatus(*KEY) == "Current"
    assert status.completion_time == running.now
    assert (status.version, status.partitions, status.given_way) == (4, 2, 1)
    assert (status.files_before, status.files_after, status.bytes_before, status.bytes_after) == (90, 3, 1000, 800)
    running.settle("Dataset", "flights")
    assert running.dataset.status.version == 4


def test_compaction_dry_run_keeps_dataset_version(running: Fake) -> None:
    running.job_ends(JOB, compact=CompactOutcome(files_before=90, bytes_before=1000), dataset=seen(3))
    running.settle(*KEY)
    status = compaction(running).status
    assert (status.version, status.files_before) == (None, 90)
    assert running.condition(*KEY) == ("True", "Succeeded")


def test_compaction_retries_transient_and_fails_on_permanent_failures(running: Fake) -> None:
    running.job_fails(JOB, FailureClass.RETRY, "StoreUnavailable")
    outcome = running.settle(*KEY)
    assert outcome.requeue_after is not None
    running.pass_time(outcome.requeue_after)
    running.settle(*KEY)
    assert names(running) == [JOB, "tidy-compaction-2"]
    first, second = compact_jobs(running)
    assert first.commit_id == second.commit_id, "the second finds what the first has done"
    running.job_fails("tidy-compaction-2", FailureClass.REPORT, "VersionIncomplete", "x.parquet is missing")
    running.settle(*KEY)
    assert running.condition(*KEY) == ("False", "VersionIncomplete")
    assert compaction(running).finished
    assert "x.parquet is missing" in running.message(*KEY)


def test_compaction_with_raised_retry_limit_resumes(context: Fake) -> None:
    context.create(*KEY, SPEC | {"retryLimit": 0})
    context.settle(*KEY)
    context.job_fails(JOB, FailureClass.RETRY, "OutOfMemory")
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "RetryLimitReached")
    context.edit(*KEY, retryLimit=1)
    context.pass_time(timedelta(minutes=1))
    context.settle(*KEY)
    assert names(context) == [JOB, "tidy-compaction-2"]


def test_compaction_with_lost_pod_retries_immediately(running: Fake) -> None:
    running.job_vanishes(JOB)
    running.settle(*KEY)
    assert names(running) == [JOB, "tidy-compaction-2"]


def test_compaction_that_ended_keeps_status(running: Fake) -> None:
    running.job_ends(JOB, compact=OUTCOME, dataset=seen(4))
    running.settle(*KEY)
    running.job_vanishes(JOB)
    running.delete("Dataset", "flights")
    before = compaction(running).status
    running.settle(*KEY)
    assert compaction(running).status == before


# --- what has to be there --------------------------------------------------------------------------------------------


def test_compaction_without_dataset_waits_and_resumes() -> None:
    context = Fake()
    context.create(*KEY, SPEC)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "DatasetNotFound")
    with_dataset(context, seen(3))
    context.settle(*KEY)
    assert names(context) == [JOB]


@pytest.mark.parametrize("who", [KEY, ("Dataset", "flights"), ("ObjectStore", "lake")])
def test_compaction_with_suspended_run_dataset_or_store_starts_no_job(context: Fake, who: tuple[str, str]) -> None:
    context.create(*KEY, SPEC)
    context.edit(*who, suspend=True)
    context.settle(*who)
    context.settle(*KEY)
    assert names(context) == []
    context.edit(*who, suspend=False)
    context.settle(*who)
    context.settle(*KEY)
    assert names(context) == [JOB]


def test_compaction_suspended_while_running_completes(running: Fake) -> None:
    running.edit(*KEY, suspend=True)
    running.settle(*KEY)
    assert running.cancelled == []
    running.job_ends(JOB, compact=OUTCOME, dataset=seen(4))
    running.settle(*KEY)
    assert running.condition(*KEY) == ("True", "Succeeded")


# --- what it gives way to --------------------------------------------------------------------------------------------


def test_compaction_waits_for_running_and_runnable_commits(context: Fake) -> None:
    job = with_running_commit(context)
    context.create("Commit", "february", COMMIT_SPEC)
    context.settle("Commit", "february")
    context.create(*KEY, SPEC)
    outcome = context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "Waiting")
    assert outcome.requeue_after is not None, "it asks again by itself"
    context.job_ends(job, **committed(4))
    context.settle("Commit", "january")
    context.settle(*KEY)
    assert names(context) == [], "february could run now"
    context.settle("Commit", "february")
    context.job_ends("february-1", **committed(5))
    context.settle("Commit", "february")
    context.settle(*KEY)
    assert names(context) == [JOB]


def test_compaction_skips_waiting_for_commit_that_cannot_run(context: Fake) -> None:
    context.create("Commit", "later", COMMIT_SPEC | {"suspend": True})
    context.settle("Commit", "later")
    context.create("Commit", "after", COMMIT_SPEC | {"dependsOn": [{"name": "later"}]})
    context.settle("Commit", "after")
    context.create(*KEY, SPEC)
    context.settle(*KEY)
    assert names(context) == [JOB]


def test_commit_starts_during_running_compaction(running: Fake) -> None:
    with_running_commit(running)
    assert [launch.job.job for launch in running.launches][-1] == "january-1"


def test_compaction_waits_for_query_into_its_dataset_only(context: Fake) -> None:
    query = {"sql": "SELECT 1", "storeRef": {"name": "lake"}}
    context.create("Query", "report", query | {"result": {"location": {"path": "reports"}}})
    context.settle("Query", "report")
    context.create("Query", "fill", query | {"result": {"datasetRef": {"name": "flights"}}})
    context.settle("Query", "fill")
    context.create(*KEY, SPEC)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "Waiting")
    assert "Query 'fill'" in context.message(*KEY)
    context.job_ends("fill-query-1", dataset=seen(4))
    context.settle("Query", "fill")
    context.settle(*KEY)
    assert names(context) == [JOB]


def test_compaction_waits_for_ingestion_poll(context: Fake) -> None:
    context.edit("Dataset", "flights", sources=[{"name": "landing", "prefix": "in/", "format": "CSV"}])
    context.settle("Dataset", "flights")
    assert context.jobs["flights-intake-1"].phase is JobPhase.PENDING
    context.create(*KEY, SPEC)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "Waiting")


def test_compactions_of_one_dataset_run_one_by_one(running: Fake) -> None:
    running.pass_time(timedelta(seconds=1))
    running.create("Compaction", "next", SPEC)
    running.settle("Compaction", "next")
    assert running.condition("Compaction", "next") == ("False", "Waiting")
    assert "Compaction 'tidy'" in running.message("Compaction", "next")
    running.job_ends(JOB, compact=OUTCOME, dataset=seen(4))
    running.settle(*KEY)
    running.settle("Compaction", "next")
    assert names(running) == [JOB, "next-compaction-1"]


def test_compactions_of_one_dataset_run_oldest_first(context: Fake) -> None:
    context.create("Compaction", "z-first", SPEC)
    context.pass_time(timedelta(seconds=1))
    context.create("Compaction", "a-second", SPEC)
    context.settle("Compaction", "a-second")
    assert names(context) == []
    context.settle("Compaction", "z-first")
    assert names(context) == ["z-first-compaction-1"]


def test_compaction_behind_continuous_commits_starts_after_one_hour(context: Fake) -> None:
    with_running_commit(context)
    context.create(*KEY, SPEC)
    context.settle(*KEY)
    context.pass_time(timedelta(minutes=59))
    context.settle(*KEY)
    assert names(context) == []
    context.pass_time(timedelta(minutes=1))
    context.settle(*KEY)
    assert names(context) == [JOB]
