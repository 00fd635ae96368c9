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
def world() -> Fake:
    fake = Fake()
    with_dataset(fake, seen(3))
    return fake


@pytest.fixture
def running(world: Fake) -> Fake:
    world.create(*KEY, SPEC)
    world.reconcile(*KEY)
    world.job_runs(JOB)
    world.settle(*KEY)
    return world


def compaction(world: Fake, name: str = "tidy") -> Compaction:
    found = world.resources["Compaction", name]
    assert isinstance(found, Compaction)
    return found


def compact_jobs(world: Fake) -> list[CompactJob]:
    return [launch.job for launch in world.launches if isinstance(launch.job, CompactJob)]


def names(world: Fake) -> list[str]:
    return [job.job for job in compact_jobs(world)]


# --- the job ---------------------------------------------------------------------------------------------------------


def test_an_attempt_carries_all_that_its_job_needs(world: Fake) -> None:
    world.create("Engine", "big", {"sparkFrom": "1Mi", "sparkConf": {"spark.sql.ansi.enabled": "true"}})
    wishes = {"targetFileSize": "1Gi", "minFiles": 5, "minSmallPercent": 30, "where": "month = 1", "dryRun": True}
    world.create(*KEY, SPEC | wishes | {"engineRef": {"name": "big"}})
    world.settle(*KEY)
    launch = world.launches[-1]
    job = launch.job
    assert isinstance(job, CompactJob)
    assert (job.job, job.uid, job.attempt) == (JOB, compaction(world).metadata.uid, 1)
    assert (job.target_file_bytes, job.min_files, job.min_small_percent) == (2**30, 5, 30)
    assert (job.where, job.dry_run) == ("month = 1", True)
    assert (job.dataset.uuid, job.dataset.claim.owner) == ("flights", "cluster/team/flights")
    assert job.commit_id == f"compaction:team/tidy:{compaction(world).metadata.uid}"
    assert (job.spark.from_bytes, job.spark.conf) == (2**20, {"spark.sql.ansi.enabled": "true"})
    assert launch.engine is world.resources["Engine", "big"]
    assert compaction(world).status.start_time == world.now


def test_left_out_thresholds_are_the_tables_and_the_engine_is_the_datasets(world: Fake) -> None:
    world.create("Engine", "big", {})
    world.edit("Dataset", "flights", engineRef={"name": "big"})
    world.settle("Dataset", "flights")
    world.create(*KEY, SPEC)
    world.settle(*KEY)
    (job,) = compact_jobs(world)
    assert (job.target_file_bytes, job.min_files, job.where, job.dry_run) == (None, 2, None, False)
    assert world.launches[-1].engine is world.resources["Engine", "big"]


def test_the_job_knows_the_order_of_the_run_and_of_the_dataset(world: Fake) -> None:
    world.edit("Dataset", "flights", maintenance={"compaction": {"sortBy": ["carrier"]}})
    world.settle("Dataset", "flights")
    world.create(*KEY, SPEC | {"zOrderBy": ["carrier", "delay"]})
    world.settle(*KEY)
    (job,) = compact_jobs(world)
    assert job.clustering == Clustering(by=("carrier", "delay"), curve=True)
    assert job.dataset.clustering == Clustering(by=("carrier",))


def test_progress_is_shown_while_the_job_runs(running: Fake) -> None:
    running.job_runs(JOB, Progress(stage="Rewriting", tasks_done=3, tasks_total=8))
    running.settle(*KEY)
    progress = compaction(running).status.progress
    assert progress is not None
    assert (progress.stage, progress.tasks_done, progress.tasks_total) == ("Rewriting", 3, 8)
    assert running.kstatus(*KEY) == "InProgress"


# --- the end ---------------------------------------------------------------------------------------------------------


def test_it_tells_what_it_did_and_the_dataset_knows_of_it(running: Fake) -> None:
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


def test_a_dry_run_leaves_the_dataset_at_its_version(running: Fake) -> None:
    running.job_ends(JOB, compact=CompactOutcome(files_before=90, bytes_before=1000), dataset=seen(3))
    running.settle(*KEY)
    status = compaction(running).status
    assert (status.version, status.files_before) == (None, 90)
    assert running.condition(*KEY) == ("True", "Succeeded")


def test_a_failure_that_may_pass_is_tried_again_and_one_that_may_not_is_final(running: Fake) -> None:
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


def test_raising_the_limit_revives_one_that_ran_out_of_attempts(world: Fake) -> None:
    world.create(*KEY, SPEC | {"retryLimit": 0})
    world.settle(*KEY)
    world.job_fails(JOB, FailureClass.RETRY, "OutOfMemory")
    world.settle(*KEY)
    assert world.condition(*KEY) == ("False", "RetryLimitReached")
    world.edit(*KEY, retryLimit=1)
    world.pass_time(timedelta(minutes=1))
    world.settle(*KEY)
    assert names(world) == [JOB, "tidy-compaction-2"]


def test_a_lost_pod_is_replaced_at_once(running: Fake) -> None:
    running.job_vanishes(JOB)
    running.settle(*KEY)
    assert names(running) == [JOB, "tidy-compaction-2"]


def test_one_that_has_ended_stays_as_it_is(running: Fake) -> None:
    running.job_ends(JOB, compact=OUTCOME, dataset=seen(4))
    running.settle(*KEY)
    running.job_vanishes(JOB)
    running.delete("Dataset", "flights")
    before = compaction(running).status
    running.settle(*KEY)
    assert compaction(running).status == before


# --- what has to be there --------------------------------------------------------------------------------------------


def test_it_waits_for_its_dataset_and_goes_on_by_itself() -> None:
    world = Fake()
    world.create(*KEY, SPEC)
    world.settle(*KEY)
    assert world.condition(*KEY) == ("False", "DatasetNotFound")
    with_dataset(world, seen(3))
    world.settle(*KEY)
    assert names(world) == [JOB]


@pytest.mark.parametrize("who", [KEY, ("Dataset", "flights"), ("ObjectStore", "lake")])
def test_nothing_starts_while_it_its_dataset_or_its_store_is_suspended(world: Fake, who: tuple[str, str]) -> None:
    world.create(*KEY, SPEC)
    world.edit(*who, suspend=True)
    world.settle(*who)
    world.settle(*KEY)
    assert names(world) == []
    world.edit(*who, suspend=False)
    world.settle(*who)
    world.settle(*KEY)
    assert names(world) == [JOB]


def test_suspending_does_not_stop_what_runs(running: Fake) -> None:
    running.edit(*KEY, suspend=True)
    running.settle(*KEY)
    assert running.cancelled == []
    running.job_ends(JOB, compact=OUTCOME, dataset=seen(4))
    running.settle(*KEY)
    assert running.condition(*KEY) == ("True", "Succeeded")


# --- what it gives way to --------------------------------------------------------------------------------------------


def test_it_waits_for_a_commit_that_runs_and_for_one_that_could(world: Fake) -> None:
    job = with_running_commit(world)
    world.create("Commit", "february", COMMIT_SPEC)
    world.settle("Commit", "february")
    world.create(*KEY, SPEC)
    outcome = world.settle(*KEY)
    assert world.condition(*KEY) == ("False", "Waiting")
    assert outcome.requeue_after is not None, "it asks again by itself"
    world.job_ends(job, **committed(4))
    world.settle("Commit", "january")
    world.settle(*KEY)
    assert names(world) == [], "february could run now"
    world.settle("Commit", "february")
    world.job_ends("february-1", **committed(5))
    world.settle("Commit", "february")
    world.settle(*KEY)
    assert names(world) == [JOB]


def test_a_commit_that_cannot_run_is_not_waited_for(world: Fake) -> None:
    world.create("Commit", "later", COMMIT_SPEC | {"suspend": True})
    world.settle("Commit", "later")
    world.create("Commit", "after", COMMIT_SPEC | {"dependsOn": [{"name": "later"}]})
    world.settle("Commit", "after")
    world.create(*KEY, SPEC)
    world.settle(*KEY)
    assert names(world) == [JOB]


def test_a_commit_never_waits_for_a_compaction(running: Fake) -> None:
    with_running_commit(running)
    assert [launch.job.job for launch in running.launches][-1] == "january-1"


def test_it_waits_for_a_query_whose_rows_become_the_dataset_and_for_no_other(world: Fake) -> None:
    query = {"sql": "SELECT 1", "storeRef": {"name": "lake"}}
    world.create("Query", "report", query | {"result": {"location": {"path": "reports"}}})
    world.settle("Query", "report")
    world.create("Query", "fill", query | {"result": {"datasetRef": {"name": "flights"}}})
    world.settle("Query", "fill")
    world.create(*KEY, SPEC)
    world.settle(*KEY)
    assert world.condition(*KEY) == ("False", "Waiting")
    assert "Query 'fill'" in world.message(*KEY)
    world.job_ends("fill-query-1", dataset=seen(4))
    world.settle("Query", "fill")
    world.settle(*KEY)
    assert names(world) == [JOB]


def test_it_waits_for_a_look_at_a_source(world: Fake) -> None:
    world.edit("Dataset", "flights", sources=[{"name": "landing", "prefix": "in/", "format": "CSV"}])
    world.settle("Dataset", "flights")
    assert world.jobs["flights-intake-1"].phase is JobPhase.PENDING
    world.create(*KEY, SPEC)
    world.settle(*KEY)
    assert world.condition(*KEY) == ("False", "Waiting")


def test_compactions_of_a_dataset_run_one_after_the_other(running: Fake) -> None:
    running.pass_time(timedelta(seconds=1))
    running.create("Compaction", "next", SPEC)
    running.settle("Compaction", "next")
    assert running.condition("Compaction", "next") == ("False", "Waiting")
    assert "Compaction 'tidy'" in running.message("Compaction", "next")
    running.job_ends(JOB, compact=OUTCOME, dataset=seen(4))
    running.settle(*KEY)
    running.settle("Compaction", "next")
    assert names(running) == [JOB, "next-compaction-1"]


def test_the_one_that_was_created_first_goes_first(world: Fake) -> None:
    world.create("Compaction", "z-first", SPEC)
    world.pass_time(timedelta(seconds=1))
    world.create("Compaction", "a-second", SPEC)
    world.settle("Compaction", "a-second")
    assert names(world) == []
    world.settle("Compaction", "z-first")
    assert names(world) == ["z-first-compaction-1"]


def test_where_there_is_always_a_next_commit_it_starts_beside_them_after_an_hour(world: Fake) -> None:
    with_running_commit(world)
    world.create(*KEY, SPEC)
    world.settle(*KEY)
    world.pass_time(timedelta(minutes=59))
    world.settle(*KEY)
    assert names(world) == []
    world.pass_time(timedelta(minutes=1))
    world.settle(*KEY)
    assert names(world) == [JOB]
