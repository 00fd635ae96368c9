"""When an attempt starts, and what its end means."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubothek.api.commit import Commit
from kubothek.api.jobs import CommitJob, Progress, StoreState
from kubothek.controller.context import FailureClass, JobPhase
from kubothek.controller.kinds import commit
from tests.controller.fake import (
    COMMIT_SPEC,
    DATASET_SPEC,
    STORE_SPEC,
    Fake,
    committed,
    seen,
    with_dataset,
    with_running_commit,
    with_store,
)

KEY = ("Commit", "january")
RETRY, REPORT, INFRASTRUCTURE = FailureClass.RETRY, FailureClass.REPORT, FailureClass.INFRASTRUCTURE


@pytest.fixture
def context() -> Fake:
    return Fake()


@pytest.fixture
def running(context: Fake) -> Fake:
    with_running_commit(context)
    return context


def commit_jobs(context: Fake) -> list[CommitJob]:
    return [launch.job for launch in context.launches if isinstance(launch.job, CommitJob)]


def names(context: Fake) -> list[str]:
    return [job.job for job in commit_jobs(context)]


# --- the job ---


def test_commit_attempt_passes_all_inputs_to_job(context: Fake) -> None:
    context.create("ObjectStore", "landing", {"url": "s3://landing", "credentialsSecretRef": {"name": "other"}})
    context.reconcile("ObjectStore", "landing")
    context.job_ends("landing-inspect-1", store=StoreState(conditional_writes=True))
    context.settle("ObjectStore", "landing")
    context.create("Engine", "big", {"sparkFrom": "1Mi", "sparkConf": {"spark.sql.ansi.enabled": "true"}})
    schema: list[dict[str, object]] = [
        {"name": "month", "type": "int64"},
        {"name": "carrier", "type": "string", "nullable": False},
    ]
    table: dict[str, object] = {
        "partitionOn": ["month"],
        "targetFileSize": "1Gi",
        "compression": "NONE",
        "schema": schema,
    }
    with_dataset(context, table=table, engineRef={"name": "big"})
    source: dict[str, object] = {
        "storeRef": {"name": "landing"},
        "paths": ["a.csv", "b.csv"],
        "format": "CSV",
        "compression": "Gzip",
    }
    source |= {"csv": {"delimiter": ";"}, "schema": schema[:1]}
    context.create("Commit", "january", COMMIT_SPEC | {"source": source, "onConflict": "Retry", "id": "2013-01"})
    context.reconcile(*KEY)
    launch = context.launches[-1]
    job = launch.job
    assert isinstance(job, CommitJob)
    assert (job.job, job.uid, job.attempt) == ("january-1", context.commit().metadata.uid, 1)
    assert (job.commit_id, job.operation, job.on_conflict) == ("2013-01", "Append", "Retry")
    assert (job.store.url, job.store.conditional_writes) == ("s3://bucket/lake", True)
    assert (job.dataset.uuid, job.dataset.claim.owner) == ("flights", "cluster/team/flights")
    assert job.dataset.table.partition_on == ("month",)
    assert (job.dataset.table.target_file_bytes, job.dataset.table.compression) == (2**30, "NONE")
    assert [(c.name, c.type, c.nullable) for c in job.dataset.table.columns] == [
        ("month", "int64", True),
        ("carrier", "string", False),
    ]
    assert job.source is not None
    assert job.source.store is not None
    assert (job.source.store.name, job.source.paths, job.source.urls) == ("landing", ("a.csv", "b.csv"), ())
    assert (job.source.format, job.source.compression, job.source.csv.delimiter) == ("CSV", "Gzip", ";")
    assert [column.name for column in job.source.columns] == ["month"]
    assert (job.spark.from_bytes, job.spark.conf) == (2**20, {"spark.sql.ansi.enabled": "true"})
    assert not job.purge
    assert launch.secrets == {"landing": "other"}
    assert launch.engine is context.resources["Engine", "big"]
    assert context.commit().status.id == "2013-01"
    assert context.commit().status.start_time == context.now


def test_commit_with_purge_passes_purge_to_job_and_changes_digest(context: Fake) -> None:
    with_dataset(context)
    deletion = {"datasetRef": {"name": "flights"}, "operation": "Delete", "where": "month = 3"}
    context.create("Commit", "january", deletion | {"purge": True})
    context.reconcile(*KEY)
    job = context.launches[-1].job
    assert isinstance(job, CommitJob)
    assert job.purge
    context.create("Commit", "february", deletion)
    plain = context.get(Commit, "team", "february")
    assert plain is not None
    assert plain.digest("lake") != job.digest


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"operation": "Delete", "where": "month = 1"}, {"where": "month = 1", "row_level": False}),
        (
            {"operation": "Update", "where": "TRUE", "set": {"a": "1"}, "rowLevel": True},
            {"where": "TRUE", "new_values": {"a": "1"}, "row_level": True},
        ),
        ({"operation": "Rollback", "toVersion": 3}, {"to_version": 3, "to_time": None, "to_tag": None}),
        ({"operation": "Rollback", "toTag": "audit"}, {"to_version": None, "to_tag": "audit"}),
        (
            {"operation": "Rollback", "toTime": "2026-11-21T12:00:00Z", "allowSchemaChange": True},
            {"to_version": None, "to_time": datetime(2026, 11, 21, 12, tzinfo=UTC), "allow_schema_change": True},
        ),
    ],
)
def test_commit_without_source_passes_its_fields_to_job(
    context: Fake, spec: dict[str, object], expected: dict[str, object]
) -> None:
    with_dataset(context)
    context.create("Commit", "january", {"datasetRef": {"name": "flights"}} | spec)
    context.reconcile(*KEY)
    job = commit_jobs(context)[0]
    assert (job.operation, job.source) == (spec["operation"], None)
    assert job.model_dump(include=set(expected)) == expected


def test_replace_commit_passes_filter_and_source_to_job(running: Fake) -> None:
    spec = COMMIT_SPEC | {"operation": "Replace", "where": "month = 1"}
    running.create("Commit", "february", spec | {"id": "another"})
    running.job_ends("january-1", **committed(version=1))
    running.settle(*KEY)
    running.reconcile("Commit", "february")
    job = commit_jobs(running)[-1]
    assert (job.operation, job.where) == ("Replace", "month = 1")
    assert job.source is not None
    assert job.digest != commit_jobs(running)[0].digest


def test_commit_of_statement_passes_it_with_its_store_to_job(context: Fake) -> None:
    context.create("ObjectStore", "other", {"url": "s3://other", "credentialsSecretRef": {"name": "reader"}})
    context.reconcile("ObjectStore", "other")
    context.job_ends("other-inspect-1", store=StoreState(conditional_writes=True))
    context.settle("ObjectStore", "other")
    context.create("Engine", "big", {"driver": {"memory": "3Gi"}})
    with_dataset(context, engineRef={"name": "big"})
    source = {"sql": "SELECT 1 AS a", "storeRef": {"name": "other"}, "asOf": {"tag": "sent"}, "timeLimit": "90s"}
    context.create("Commit", "january", COMMIT_SPEC | {"source": source})
    context.reconcile(*KEY)
    launch = context.launches[-1]
    job = launch.job
    assert isinstance(job, CommitJob)
    assert job.source is None
    assert job.statement is not None
    assert (job.statement.sql, job.statement.store.url, job.store.url) == (
        "SELECT 1 AS a",
        "s3://other",
        "s3://bucket/lake",
    )
    assert (job.statement.as_of_version, job.statement.as_of_tag) == (None, "sent")
    assert (job.statement.memory_bytes, job.statement.time_limit_seconds) == (3 << 30, 90.0)
    assert launch.secrets == {"other": "reader"}


@pytest.mark.parametrize("source", [{"sql": "SELECT 1 AS a"}, {"paths": ["a.csv"], "format": "CSV"}])
def test_commit_of_statement_reports_lineage_under_its_name(source: dict[str, Any]) -> None:
    context = Fake(open_lineage_url="http://marquez:5000")
    with_running_commit(context, source=source)
    job = context.launches[-1].job
    assert isinstance(job, CommitJob)
    if "sql" not in source:
        assert job.lineage is None
        return
    assert job.lineage is not None
    assert (job.lineage.url, job.lineage.namespace, job.lineage.job) == (
        "http://marquez:5000",
        "cluster/team",
        "commit/january",
    )


def test_commit_of_statement_waits_for_store_that_it_reads(context: Fake) -> None:
    with_dataset(context)
    context.create("Commit", "january", COMMIT_SPEC | {"source": {"sql": "SELECT 1", "storeRef": {"name": "other"}}})
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "ObjectStoreNotFound")
    assert context.launches[-1].job.verb != "commit"


def test_commit_with_source_urls_passes_allowed_hosts_to_job() -> None:
    context = Fake(allowed_source_hosts=("example.com",))
    source = {"urls": ["https://example.com/a.csv"], "format": "CSV"}
    with_running_commit(context, source=source)
    job = commit_jobs(context)[0]
    assert job.source is not None
    assert (job.source.store, job.source.urls) == (None, ("https://example.com/a.csv",))
    assert (job.source.allowed_hosts, job.source.allow_local) == (("example.com",), False)


@pytest.mark.parametrize(
    ("commit_engine", "dataset_engine", "others", "used"),
    [
        (None, None, (), None),
        (None, None, ("default",), "default"),
        (None, "big", ("default", "big"), "big"),
        ("huge", "big", ("default", "big", "huge"), "huge"),
    ],
)
def test_commit_engine_falls_back_to_dataset_then_default_engine(
    context: Fake, commit_engine: str | None, dataset_engine: str | None, others: tuple[str, ...], used: str | None
) -> None:
    for name in others:
        context.create("Engine", name, {})
    with_dataset(context, **_engine_ref(dataset_engine))
    with_running_commit(context, **_engine_ref(commit_engine))
    engine = context.launches[-1].engine
    assert (engine.name if engine else None) == used


def _engine_ref(name: str | None) -> dict[str, Any]:
    return {"engineRef": {"name": name}} if name else {}


def test_commit_id_defaults_to_namespace_and_name(running: Fake) -> None:
    assert commit_jobs(running)[0].commit_id == "team/january"


def test_commit_digest_depends_only_on_change(context: Fake) -> None:
    with_dataset(context)
    source = COMMIT_SPEC["source"]
    assert isinstance(source, dict)
    same: list[dict[str, object]] = [
        {},
        {"id": "other", "retryLimit": 9, "onConflict": "Retry", "suspend": False},
        {"source": source | {"storeRef": {"name": "lake"}}},
        {"source": source | {"compression": "Auto"}},
    ]
    other: list[dict[str, object]] = [
        {"source": source | {"paths": ["in/b.csv"]}},
        {"source": source | {"storeRef": {"name": "landing"}}},
        {"source": source | {"csv": {"header": False}}},
    ]

    def digest(spec: dict[str, object]) -> str:
        context.create("Commit", "x", COMMIT_SPEC | spec)
        return context.commit("x").digest("lake")

    assert len({digest(spec) for spec in same}) == 1
    assert len({digest(spec) for spec in (*same, *other)}) == 4


def test_commit_digest_is_stable_across_releases(context: Fake) -> None:
    """A changed digest would make every commit that is applied again an IdReused."""
    context.create("Commit", "x", COMMIT_SPEC)
    assert context.commit("x").digest("lake") == "1195a1f21935f7f5cbf54118a5cbdd112e6777f1f3107561451af4a38530fd18"


# --- the end ---


def test_commit_that_succeeds_is_ready_and_complete(running: Fake) -> None:
    running.pass_time(timedelta(seconds=30))
    running.job_ends("january-1", **committed(4))
    running.settle(*KEY)
    assert running.condition(*KEY) == ("True", "Succeeded")
    assert running.kstatus(*KEY) == "Current"
    status = running.commit().status
    assert status.holds("Complete")
    assert (status.version, status.rows, status.files, status.bytes) == (4, 10, 1, 1000)
    assert status.table is not None
    assert (status.table.version, status.table.rows) == (4, 40)
    assert status.completion_time == running.now
    assert status.progress is None
    assert [event.reason for event in running.events[-2:]] == ["Progressing", "Succeeded"]


def test_commit_that_is_already_applied_adds_no_rows(running: Fake) -> None:
    running.job_ends("january-1", **committed(4, already_applied=True))
    running.settle(*KEY)
    assert running.condition(*KEY) == ("True", "AlreadyApplied")
    status = running.commit().status
    assert status.holds("Complete")
    assert (status.version, status.rows, status.files, status.bytes) == (4, 0, 0, 0)


@pytest.mark.parametrize(
    "reason", ["DataTypeMismatch", "SourceNotFound", "SchemaMismatch", "IdReused", "Conflict", "TooSlow"]
)
def test_commit_with_permanent_failure_fails_without_retry(running: Fake, reason: str) -> None:
    running.job_fails("january-1", REPORT, reason, "in/a.csv, row 7: 'x' is no int64")
    running.settle(*KEY)
    assert running.condition(*KEY) == ("False", reason)
    assert running.message(*KEY) == "in/a.csv, row 7: 'x' is no int64"
    assert running.kstatus(*KEY) == "Failed"
    assert running.commit().status.holds("Failed")
    running.pass_time(timedelta(days=1))
    running.settle(*KEY)
    assert names(running) == ["january-1"]


def test_commit_success_survives_deletion_of_pod_and_dataset(running: Fake) -> None:
    running.job_ends("january-1", **committed(4))
    running.settle(*KEY)
    running.job_vanishes("january-1")
    running.delete("Dataset", "flights")
    running.edit(*KEY, suspend=True)
    running.settle(*KEY)
    assert running.condition(*KEY) == ("True", "Succeeded")
    assert running.kstatus(*KEY) == "Current", "the edit is dealt with"
    assert names(running) == ["january-1"]


def test_commit_failure_survives_deletion_of_pod(running: Fake) -> None:
    running.job_fails("january-1", REPORT, "SourceEmpty")
    running.settle(*KEY)
    running.job_vanishes("january-1")
    running.edit(*KEY, retryLimit=9)
    running.settle(*KEY)
    assert running.condition(*KEY) == ("False", "SourceEmpty")
    assert names(running) == ["january-1"]


def test_commit_status_shows_progress_while_job_runs(running: Fake) -> None:
    running.job_runs("january-1", Progress(stage="Writing", tasks_done=3, tasks_total=8, rows=1000))
    conditions = running.commit().status.conditions
    running.settle(*KEY)
    progress = running.commit().status.progress
    assert progress is not None
    assert (progress.stage, progress.tasks_done, progress.tasks_total, progress.rows) == ("Writing", 3, 8, 1000)
    assert running.commit().status.conditions == conditions, "progress is no transition"


def test_commit_with_lost_result_reruns_job(running: Fake) -> None:
    running.job_is("january-1", JobPhase.SUCCEEDED)
    running.reconcile(*KEY)
    assert names(running) == ["january-1", "january-2"]
    running.job_ends("january-2", **committed(4, already_applied=True))
    running.settle(*KEY)
    assert running.condition(*KEY) == ("True", "AlreadyApplied")


# --- attempts ---


def test_commit_with_transient_failure_retries_with_growing_delay(running: Fake) -> None:
    waits = []
    for number in (1, 2, 3):
        running.job_fails(f"january-{number}", RETRY, "StoreUnavailable", "no answer")
        wait = running.settle(*KEY).requeue_after
        assert running.condition(*KEY) == ("False", "ProgressingWithRetry")
        assert "StoreUnavailable" in running.message(*KEY)
        assert "no answer" in running.message(*KEY)
        assert running.kstatus(*KEY) == "InProgress"
        assert wait is not None
        waits.append(wait.total_seconds())
        running.pass_time(wait / 2)
        running.settle(*KEY)
        assert names(running)[-1] == f"january-{number}", "not yet"
        running.pass_time(wait / 2)
        running.reconcile(*KEY)
        assert names(running)[-1] == f"january-{number + 1}"
    assert waits == [2, 4, 8]
    running.job_fails("january-4", RETRY, "StoreUnavailable", "no answer")
    running.settle(*KEY)
    assert running.condition(*KEY) == ("False", "RetryLimitReached")
    assert "no answer; raise spec.retryLimit to try again" in running.message(*KEY)
    assert running.kstatus(*KEY) == "Failed"
    assert running.commit().status.holds("Failed")


def test_commit_failure_reconciled_repeatedly_counts_once(running: Fake) -> None:
    running.job_fails("january-1", RETRY, "StoreUnavailable")
    for _ in range(10):
        running.reconcile(*KEY)
    status = running.commit().status
    assert (status.failures, status.attempt) == (1, 2)


def test_commit_with_raised_retry_limit_resumes(running: Fake) -> None:
    running.edit(*KEY, retryLimit=0)
    running.job_fails("january-1", RETRY, "StoreUnavailable")
    running.settle(*KEY)
    assert running.condition(*KEY) == ("False", "RetryLimitReached")
    running.edit(*KEY, retryLimit=1)
    running.pass_time(timedelta(seconds=2))
    running.reconcile(*KEY)
    assert names(running) == ["january-1", "january-2"]
    assert running.kstatus(*KEY) == "InProgress"
    assert not running.commit().status.holds("Failed")


def test_commit_retry_limit_and_backoff_come_from_engine(context: Fake) -> None:
    context.create("Engine", "default", {"retry": {"limit": 1, "backoff": {"initial": "30s"}}})
    with_running_commit(context)
    context.job_fails("january-1", RETRY, "StoreUnavailable")
    assert context.settle(*KEY).requeue_after == timedelta(seconds=30)
    context.pass_time(timedelta(seconds=30))
    context.reconcile(*KEY)
    context.job_fails("january-2", RETRY, "StoreUnavailable")
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "RetryLimitReached")


def test_commit_counts_lost_pods_against_separate_budget(running: Fake) -> None:
    running.edit(*KEY, retryLimit=0)
    for number in range(1, 11):
        if number % 2:
            running.job_fails(f"january-{number}", INFRASTRUCTURE, "Evicted", "the node ran out of memory")
        else:
            running.settle(*KEY)
            running.job_vanishes(f"january-{number}")
        wait = running.settle(*KEY).requeue_after
        running.pass_time(wait or timedelta(0))
        running.settle(*KEY)
        assert names(running)[-1] == f"january-{number + 1}"
    status = running.commit().status
    assert (status.failures, status.disruptions) == (0, 10)
    running.job_fails("january-11", INFRASTRUCTURE, "Evicted")
    running.settle(*KEY)
    assert running.condition(*KEY) == ("False", "RetryLimitReached")
    assert "create the Commit again" in running.message(*KEY)
    running.edit(*KEY, retryLimit=20)
    running.settle(*KEY)
    assert names(running)[-1] == "january-11", "the limit is about other failures"


def test_commit_with_first_lost_pod_retries_immediately(running: Fake) -> None:
    running.job_vanishes("january-1")
    running.reconcile(*KEY)
    assert names(running) == ["january-1", "january-2"]
    assert running.cancelled == ["january-1"], "in case it only looked lost"
    assert running.condition(*KEY) == ("Unknown", "Progressing")


def test_commit_with_lost_pod_reports_disruption_while_next_attempt_runs(running: Fake) -> None:
    running.job_fails("january-1", INFRASTRUCTURE, "Disrupted", "EvictionByEvictionAPI: evicting")
    (event,) = running.reconcile(*KEY).events
    assert (event.type, event.reason) == ("Warning", "Disrupted")
    assert "EvictionByEvictionAPI: evicting; another attempt follows immediately" in event.message
    running.job_runs("january-2")
    running.settle(*KEY)
    assert "the attempt before ended: Disrupted: EvictionByEvictionAPI: evicting" in running.message(*KEY)
    assert running.commit().status.setback == "Disrupted: EvictionByEvictionAPI: evicting"


def test_commit_job_on_lost_node_is_awaited_and_reported(running: Fake) -> None:
    running.job_is("january-1", JobPhase.RUNNING, "NodeLost", "the node n1 does not report that the pod has ended")
    running.settle(*KEY)
    assert running.condition(*KEY) == ("False", "NodeLost")
    assert "the node n1" in running.message(*KEY)
    assert names(running) == ["january-1"], "two at once are for the commit protocol to bear, not to be asked for"


def test_commit_retry_after_clock_set_back_waits_no_longer(running: Fake) -> None:
    running.pass_time(timedelta(hours=1))
    running.job_fails("january-1", RETRY, "StoreUnavailable")
    running.settle(*KEY)
    running.pass_time(timedelta(hours=-1))
    running.settle(*KEY)
    assert names(running) == ["january-1", "january-2"]


def test_commit_crash_before_launch_repeats_same_launch(context: Fake) -> None:
    with_dataset(context)
    context.create("Commit", "january", COMMIT_SPEC)
    context.reconcile(*KEY)
    context.job_vanishes("january-1")
    context.reconcile(*KEY)
    assert names(context) == ["january-1", "january-1"]
    assert context.commit().status.disruptions == 0


def test_commit_crash_before_cancelling_lost_job_leaves_one_job(running: Fake) -> None:
    lost = running.jobs.pop("january-1")
    outcome = commit.reconcile(running.commit(), running)
    running.publish("Commit", "january", outcome)  # and no action is performed
    running.jobs["january-1"] = lost  # it only looked lost
    running.reconcile(*KEY)
    assert running.cancelled == ["january-1"]
    assert names(running)[-1] == "january-2"


def test_commit_with_name_of_earlier_commit_waits_until_its_job_ends(running: Fake) -> None:
    running.delete(*KEY)
    running.create("Commit", "january", COMMIT_SPEC | {"id": "other"})
    running.settle(*KEY)
    assert running.condition(*KEY) == ("False", "NameTaken")
    assert names(running) == ["january-1"]
    running.job_ends("january-1", **committed(4))
    running.settle(*KEY)
    assert names(running) == ["january-1", "january-2"]
    assert not running.commit().status.holds("Complete")


@pytest.mark.parametrize("reason", ["ImagePullFailed", "ConfigError", "InvalidImageName"])
@pytest.mark.parametrize("phase", [JobPhase.PENDING, JobPhase.FAILED])
def test_commit_with_broken_engine_stalls_until_engine_is_repaired(context: Fake, reason: str, phase: JobPhase) -> None:
    context.create("Engine", "default", {"image": "missing:1"})
    with_running_commit(context)
    context.job_is("january-1", phase, reason, failure=REPORT if phase is JobPhase.FAILED else None)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", reason)
    assert context.kstatus(*KEY) == "Failed"
    assert not context.commit().status.holds("Failed"), "not for good"
    context.edit("Engine", "default", image="there:1")
    context.reconcile(*KEY)
    assert names(context) == ["january-1", "january-2"]
    assert "january-1" in context.cancelled or phase is JobPhase.FAILED
    context.job_ends("january-2", **committed(1))
    context.settle(*KEY)
    assert context.condition(*KEY) == ("True", "Succeeded")


def test_commit_with_image_pulled_after_failure_resumes(running: Fake) -> None:
    running.job_is("january-1", JobPhase.PENDING, "ImagePullFailed")
    running.settle(*KEY)
    running.job_runs("january-1")
    running.settle(*KEY)
    assert running.condition(*KEY) == ("Unknown", "Progressing")


def test_engine_edit_keeps_running_commit_job(context: Fake) -> None:
    context.create("Engine", "default", {})
    with_running_commit(context)
    context.edit("Engine", "default", image="other:1")
    assert context.settle(*KEY).actions == ()


def test_commit_with_unschedulable_pod_waits(running: Fake) -> None:
    running.job_is("january-1", JobPhase.PENDING, "Unschedulable", "0/3 nodes are available")
    running.settle(*KEY)
    assert running.condition(*KEY) == ("False", "Unschedulable")
    assert running.kstatus(*KEY) == "InProgress"


@pytest.mark.parametrize(("reason", "kstatus"), [("QuotaExceeded", "InProgress"), ("AdmissionDenied", "Failed")])
def test_commit_with_refused_launch_retries_without_using_budget(context: Fake, reason: str, kstatus: str) -> None:
    with_dataset(context)
    context.refusals["january-1"] = (reason, "exceeded quota: pods")
    context.create("Commit", "january", COMMIT_SPEC)
    assert context.settle(*KEY).requeue_after is not None
    assert context.condition(*KEY) == ("False", reason)
    assert context.kstatus(*KEY) == kstatus
    del context.refusals["january-1"]
    context.settle(*KEY)
    status = context.commit().status
    assert (status.attempt, status.failures, status.disruptions) == (1, 0, 0)
    assert context.condition(*KEY) == ("Unknown", "Progressing")


# --- what it waits for ---


def test_commit_without_dataset_names_remedy_and_recovers(context: Fake) -> None:
    context.create("Commit", "january", COMMIT_SPEC)
    outcome = context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "DatasetNotFound")
    assert "no valid Dataset 'flights' in namespace 'team': create it" in context.message(*KEY)
    assert context.kstatus(*KEY) == "InProgress"
    assert [(event.type, event.reason) for event in context.events] == [("Warning", "DatasetNotFound")]
    assert outcome.requeue_after is not None
    context.pass_time(outcome.requeue_after)
    context.settle(*KEY)
    assert context.kstatus(*KEY) == "Failed", "those who wait for it are told"
    assert not context.commit().status.holds("Failed"), "but not for good"
    with_dataset(context)
    context.reconcile(*KEY)
    assert names(context) == ["january-1"]


def test_commit_dataset_and_store_applied_in_any_order_converge(context: Fake) -> None:
    context.create("Commit", "january", COMMIT_SPEC)
    context.settle(*KEY)
    context.create("Dataset", "flights", DATASET_SPEC)
    context.settle("Dataset", "flights")
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "DependencyNotReady")
    context.create("ObjectStore", "lake", STORE_SPEC)
    context.reconcile("ObjectStore", "lake")
    context.job_ends("lake-inspect-1", store=StoreState(conditional_writes=True), datasets=(seen(),))
    for kind, name in (("ObjectStore", "lake"), ("Dataset", "flights")):
        context.settle(kind, name)
    context.reconcile(*KEY)
    assert names(context) == ["january-1"]
    assert all(event.type == "Normal" for event in context.events if event.reason == "DependencyNotReady")


def test_commit_with_unwritable_dataset_waits_without_failing(context: Fake) -> None:
    with_dataset(context, seen(problem="OwnedByAnother: cluster/other/flights owns it"))
    context.create("Commit", "january", COMMIT_SPEC)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "DependencyNotReady")
    assert context.message(*KEY) == "Dataset 'flights' is not ready (OwnedByAnother): its status says what to do"
    assert names(context) == []


@pytest.mark.parametrize("kind", ["Dataset", "ObjectStore"])
def test_commit_with_suspended_dependency_starts_no_job(context: Fake, kind: str) -> None:
    with_dataset(context)
    name = "flights" if kind == "Dataset" else "lake"
    context.edit(kind, name, suspend=True)
    context.settle(kind, name)
    context.create("Commit", "january", COMMIT_SPEC)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "DependencyNotReady")
    assert f"{kind} '{name}' is suspended" in context.message(*KEY)
    context.edit(kind, name, suspend=False)
    context.settle(kind, name)
    context.reconcile(*KEY)
    assert names(context) == ["january-1"]


def test_commit_with_unavailable_store_waits(context: Fake) -> None:
    with_dataset(context)
    context.pass_time(timedelta(minutes=10))
    context.reconcile("ObjectStore", "lake")
    context.job_fails("lake-inspect-2", RETRY, "StoreUnavailable")
    context.settle("ObjectStore", "lake")
    context.create("Commit", "january", COMMIT_SPEC)
    context.settle(*KEY)
    assert context.message(*KEY) == "ObjectStore 'lake' is not ready (StoreUnavailable): its status says what to do"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"source": {"paths": ["a"], "format": "CSV", "storeRef": {"name": "landing"}}}, "ObjectStoreNotFound"),
        ({"engineRef": {"name": "big"}}, "EngineNotFound"),
        ({"dependsOn": [{"name": "december"}]}, "CommitNotFound"),
    ],
)
def test_commit_with_missing_dependency_reports_reason(context: Fake, spec: dict[str, object], reason: str) -> None:
    with_dataset(context)
    context.create("Commit", "january", COMMIT_SPEC | spec)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", reason)
    assert names(context) == []


def test_commit_to_dataset_under_deletion_waits(context: Fake) -> None:
    with_dataset(context, deletionPolicy="Delete")
    context.delete("Dataset", "flights")
    context.create("Commit", "january", COMMIT_SPEC)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "DependencyNotReady")
    assert "is being deleted" in context.message(*KEY)


def test_commit_job_runs_to_end_after_deletion_of_dependencies(running: Fake) -> None:
    running.edit(*KEY, suspend=True)
    running.delete("Dataset", "flights")
    running.delete("ObjectStore", "lake")
    running.settle(*KEY)
    assert running.condition(*KEY) == ("Unknown", "Progressing")
    running.job_ends("january-1", **committed(1))
    running.settle(*KEY)
    assert running.condition(*KEY) == ("True", "Succeeded")


def test_commit_suspended_starts_no_job_until_resumed(context: Fake) -> None:
    with_dataset(context)
    context.create("Commit", "january", COMMIT_SPEC | {"suspend": True})
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "Suspended")
    assert names(context) == []
    context.edit(*KEY, suspend=False)
    context.reconcile(*KEY)
    assert names(context) == ["january-1"]


def test_commit_suspended_starts_no_retry(running: Fake) -> None:
    running.edit(*KEY, suspend=True)
    running.job_fails("january-1", RETRY, "StoreUnavailable")
    running.settle(*KEY)
    running.pass_time(timedelta(hours=1))
    running.settle(*KEY)
    assert running.condition(*KEY) == ("False", "Suspended")
    assert names(running) == ["january-1"]


def test_commit_under_deletion_or_disabled_is_ignored(context: Fake) -> None:
    with_dataset(context)
    context.create("Commit", "january", COMMIT_SPEC, finalizers=("foregroundDeletion",))
    context.delete(*KEY)
    assert context.reconcile(*KEY).actions == ()
    context.create("Commit", "frozen", COMMIT_SPEC, annotations={"kubothek.io/reconcile": "disabled"})
    assert context.reconcile("Commit", "frozen").actions == ()
    assert names(context) == []


# --- one at a time ---


def finish(context: Fake, name: str, version: int) -> None:
    context.job_ends(f"{name}-1", **committed(version))
    context.settle("Commit", name)


def test_commits_to_one_dataset_run_one_by_one_by_age_then_name(context: Fake) -> None:
    with_dataset(context)
    context.create("Commit", "z-oldest", COMMIT_SPEC)
    context.pass_time(timedelta(seconds=1))
    context.create("Commit", "b", COMMIT_SPEC)
    context.create("Commit", "a", COMMIT_SPEC)
    order = []
    for version in (1, 2, 3):
        for name in ("a", "b", "z-oldest"):
            context.settle("Commit", name)
        (active,) = [name for name in ("a", "b", "z-oldest") if context.condition("Commit", name)[0] == "Unknown"]
        waiting = [name for name in ("a", "b", "z-oldest") if context.condition("Commit", name) == ("False", "Waiting")]
        assert len(waiting) == 3 - version
        order.append(active)
        finish(context, active, version)
    assert order == ["z-oldest", "a", "b"]
    assert all(event.type == "Normal" for event in context.events)


def test_commits_to_different_datasets_run_concurrently(context: Fake) -> None:
    context.create("Dataset", "other", DATASET_SPEC)
    context.create("Dataset", "flights", DATASET_SPEC)
    with_store(context, seen(), seen(uuid="other"))
    for name in ("flights", "other"):
        context.settle("Dataset", name)
        with_running_commit(context, f"of-{name}", datasetRef={"name": name})
    assert names(context) == ["of-flights-1", "of-other-1"]


def test_commit_waiting_for_retry_keeps_queue_position(running: Fake) -> None:
    running.create("Commit", "later", COMMIT_SPEC)
    running.job_fails("january-1", RETRY, "StoreUnavailable")
    running.settle(*KEY)
    running.settle("Commit", "later")
    assert running.condition("Commit", "later") == ("False", "Waiting")


@pytest.mark.parametrize("end", ["failed", "suspended", "deleted"])
def test_commit_that_ended_or_is_suspended_yields_to_later_commit(context: Fake, end: str) -> None:
    with_dataset(context)
    context.create("Commit", "january", COMMIT_SPEC | {"suspend": end == "suspended"})
    context.create("Commit", "later", COMMIT_SPEC)
    context.reconcile(*KEY)
    if end == "failed":
        context.job_fails("january-1", REPORT, "SourceNotFound")
        context.settle(*KEY)
    elif end == "deleted":
        context.delete(*KEY)
    context.reconcile("Commit", "later")
    assert names(context)[-1] == "later-1"


def test_commit_suspended_with_running_job_blocks_later_commit(running: Fake) -> None:
    running.edit(*KEY, suspend=True)
    running.create("Commit", "later", COMMIT_SPEC)
    running.settle("Commit", "later")
    assert running.condition("Commit", "later") == ("False", "Waiting")


def test_older_commit_observed_late_waits_for_running_job(running: Fake) -> None:
    running.create("Commit", "aaa", COMMIT_SPEC, creationTimestamp="2020-01-01T00:00:00Z")
    running.settle("Commit", "aaa")
    assert running.condition("Commit", "aaa") == ("False", "Waiting")
    finish(running, "january", 1)
    running.reconcile("Commit", "aaa")
    assert names(running)[-1] == "aaa-1"


def test_commit_that_depends_on_later_commit_runs_second(context: Fake) -> None:
    with_dataset(context)
    context.create("Commit", "january", COMMIT_SPEC | {"dependsOn": [{"name": "later"}]})
    context.pass_time(timedelta(seconds=1))
    context.create("Commit", "later", COMMIT_SPEC)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "DependencyNotReady")
    assert "Commit 'later' of spec.dependsOn is not complete" in context.message(*KEY)
    context.reconcile("Commit", "later")
    assert names(context) == ["later-1"]
    finish(context, "later", 1)
    context.reconcile(*KEY)
    assert names(context) == ["later-1", "january-1"]


def test_commit_with_failed_dependency_is_reported_and_recovers(context: Fake) -> None:
    with_running_commit(context, "first")
    context.create("Commit", "january", COMMIT_SPEC | {"dependsOn": [{"name": "first"}]})
    context.job_fails("first-1", REPORT, "SourceNotFound")
    context.settle("Commit", "first")
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "DependencyFailed")
    assert context.kstatus(*KEY) == "Failed"
    context.delete("Commit", "first")
    context.jobs.clear()
    context.create("Commit", "first", COMMIT_SPEC)
    context.reconcile("Commit", "first")
    finish(context, "first", 1)
    context.reconcile(*KEY)
    assert names(context)[-1] == "january-1"


def test_commits_in_dependency_cycle_are_reported(context: Fake) -> None:
    with_dataset(context)
    for name, other in (("a", "b"), ("b", "c"), ("c", "a")):
        context.create("Commit", name, COMMIT_SPEC | {"dependsOn": [{"name": other}]})
    context.create("Commit", "into-it", COMMIT_SPEC | {"dependsOn": [{"name": "a"}]})
    for name in "abc":
        context.settle("Commit", name)
        assert context.condition("Commit", name) == ("False", "DependencyCycle")
    context.settle("Commit", "into-it")
    assert context.condition("Commit", "into-it") == ("False", "DependencyNotReady")
