"""Standing sources: when a look starts, what comes of it, who waits for whom."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kubothek.api import jobs
from kubothek.api.sources import SourceState
from kubothek.controller.context import FailureClass
from tests.controller.fake import COMMIT_SPEC, Fake, seen, with_dataset, with_store

LANDING = {"name": "landing", "prefix": "landing/", "format": "CSV"}
FIRST = "flights-intake-1"
SECOND = "flights-intake-2"
STALLED = jobs.StalledFile(
    key="landing/b.csv", etag="e1", version=3, problem="DataTypeMismatch: 'landing/b.csv', row 2, column 'x': 'y'"
)


@pytest.fixture
def context() -> Fake:
    return Fake()


def with_source(context: Fake, *others: dict[str, Any], **fields: Any) -> None:
    with_dataset(context, seen(3), sources=[LANDING | fields, *others])


def announced_only(context: Fake) -> None:
    with_dataset(context, seen(3))
    context.edit("Dataset", "flights", sources=[LANDING])
    context.reconcile("Dataset", "flights")
    del context.jobs[FIRST]


def found(context: Fake, **changes: Any) -> jobs.IntakeOutcome:
    return jobs.IntakeOutcome(**{"current_until": context.now.isoformat(), **changes})


def ends(context: Fake, job: str = FIRST, version: int = 3, **changes: Any) -> None:
    """The job ends with this word, and the operator takes it in."""
    context.job_ends(job, intake=found(context, **changes), dataset=seen(version))
    context.settle("Dataset", "flights")


def source(context: Fake, name: str = "landing") -> SourceState:
    return next(state for state in context.dataset.status.sources if state.name == name)


def launched(context: Fake) -> list[str]:
    return [launch.job.job for launch in context.launches if isinstance(launch.job, jobs.IntakeJob)]


def intake_job(context: Fake) -> jobs.IntakeJob:
    job = context.launches[-1].job
    assert isinstance(job, jobs.IntakeJob)
    return job


# --- when ------------------------------------------------------------------------------------------------------------


def test_first_ingestion_poll_starts_when_dataset_is_writable(context: Fake) -> None:
    context.create("Dataset", "flights", {"storeRef": {"name": "lake"}, "sources": [LANDING]})
    context.reconcile("Dataset", "flights")
    assert launched(context) == []
    with_store(context, seen())
    context.settle("Dataset", "flights")
    assert launched(context) == [FIRST]
    job = intake_job(context)
    assert (job.name, job.prefix, job.glob, job.operation) == ("landing", "landing/", "", "Append")
    assert (job.max_files, job.max_bytes, job.quarantine, job.stalled) == (1000, 1 << 30, False, None)
    assert context.condition("Dataset", "flights") == ("True", "Succeeded")


def test_next_ingestion_poll_is_due_after_interval(context: Fake) -> None:
    with_source(context, interval="2m")
    ends(context)
    outcome = context.settle("Dataset", "flights")
    assert (launched(context), outcome.requeue_after) == ([FIRST], timedelta(minutes=2))
    context.pass_time(timedelta(minutes=2))
    context.settle("Dataset", "flights")
    assert launched(context) == [FIRST, SECOND]
    assert FIRST in context.cancelled, "what was taken in is cleared away"


def test_ingestion_poll_with_remaining_files_is_repeated_immediately(context: Fake) -> None:
    with_source(context)
    ends(context, commits=16, files=16000, waiting_files=5, waiting_bytes=50)
    assert launched(context) == [FIRST, SECOND]


def test_ingestion_poll_updates_dataset_totals_immediately(context: Fake) -> None:
    with_source(context)
    ends(context, version=9, commits=1, files=1)
    status = context.dataset.status
    assert (status.version, status.bytes, status.size) == (9, 9000, "8.79 KiB")


def test_ingestion_poll_without_progress_waits_for_interval(context: Fake) -> None:
    with_source(context)
    ends(context, commits=0, waiting_files=5)
    assert launched(context) == [FIRST]


def test_ingestion_sources_take_turns_longest_waiting_first(context: Fake) -> None:
    with_source(context, LANDING | {"name": "other", "interval": "10m"})
    ends(context)
    assert intake_job(context).name == "other"
    ends(context, SECOND)
    assert launched(context) == [FIRST, SECOND]
    context.pass_time(timedelta(minutes=1))
    context.settle("Dataset", "flights")
    assert intake_job(context).name == "landing"


def test_ingestion_polls_of_one_dataset_run_one_by_one(context: Fake) -> None:
    with_source(context, LANDING | {"name": "other"})
    context.job_runs(FIRST)
    context.pass_time(timedelta(minutes=5))
    context.settle("Dataset", "flights")
    assert launched(context) == [FIRST]


@pytest.mark.parametrize("who", ["dataset", "source"])
def test_ingestion_suspended_starts_no_poll_and_running_poll_completes(context: Fake, who: str) -> None:
    with_source(context)
    context.job_runs(FIRST)
    spec = {"suspend": True} if who == "dataset" else {"sources": [LANDING | {"suspend": True}]}
    context.edit("Dataset", "flights", **spec)
    context.settle("Dataset", "flights")
    ends(context, commits=1, files=2, taken=2, waiting_files=1)
    assert (source(context).files, launched(context), context.cancelled) == (2, [FIRST], [])
    assert context.dataset.ready


def test_ingestion_source_removed_from_spec_is_removed_from_status(context: Fake) -> None:
    with_source(context)
    context.edit("Dataset", "flights", sources=[])
    ends(context, stalled=STALLED)
    assert context.dataset.status.sources == ()
    assert context.condition("Dataset", "flights") == ("True", "Succeeded")


def test_ingestion_source_in_missing_store_waits_and_yields_to_others(context: Fake) -> None:
    with_source(context, LANDING | {"name": "here"}, storeRef={"name": "elsewhere"})
    assert intake_job(context).name == "here"
    ends(context)
    assert context.settle("Dataset", "flights").requeue_after == timedelta(seconds=30)
    context.create("ObjectStore", "elsewhere", {"url": "s3://elsewhere"})
    context.reconcile("ObjectStore", "elsewhere")
    context.job_ends("elsewhere-inspect-1", store=jobs.StoreState(conditional_writes=True))
    context.settle("ObjectStore", "elsewhere")
    context.settle("Dataset", "flights")
    job = intake_job(context)
    assert (job.name, job.store.url) == ("landing", "s3://bucket/lake")
    assert job.source.store is not None
    assert job.source.store.url == "s3://elsewhere"


# --- turns -----------------------------------------------------------------------------------------------------------


def test_commit_waits_for_running_ingestion_poll(context: Fake) -> None:
    with_source(context)
    context.create("Commit", "january", COMMIT_SPEC)
    context.settle("Commit", "january")
    assert context.condition("Commit", "january") == ("False", "Waiting")
    ends(context)
    context.settle("Commit", "january")
    assert context.launches[-1].job.job == "january-1"


def test_ingestion_poll_and_waiting_commits_alternate(context: Fake) -> None:
    with_source(context)
    context.create("Commit", "january", COMMIT_SPEC)
    context.settle("Commit", "january")
    ends(context, commits=1, waiting_files=5)
    assert launched(context) == [FIRST], "the Commit that waits for its turn comes first"
    context.settle("Commit", "january")
    context.job_runs("january-1")
    assert context.settle("Dataset", "flights").requeue_after == timedelta(seconds=30)
    context.job_ends("january-1", commit=jobs.CommitOutcome(version=4), dataset=seen(4))
    context.settle("Commit", "january")
    context.settle("Dataset", "flights")
    assert launched(context) == [FIRST, SECOND]


@pytest.mark.parametrize("spec", [{"suspend": True}, {"dependsOn": [{"name": "never"}]}])
def test_ingestion_poll_skips_waiting_for_blocked_commit(context: Fake, spec: dict[str, Any]) -> None:
    with_source(context)
    context.create("Commit", "january", COMMIT_SPEC | spec)
    context.settle("Commit", "january")
    ends(context, commits=1, waiting_files=5)
    assert launched(context) == [FIRST, SECOND]


def test_ingestion_poll_skips_waiting_for_commit_without_its_store(context: Fake) -> None:
    with_source(context)
    ends(context)
    context.create("Commit", "january", COMMIT_SPEC | {"source": {**COMMIT_SPEC["source"], "storeRef": {"name": "no"}}})  # type: ignore[dict-item]
    context.settle("Commit", "january")
    context.pass_time(timedelta(minutes=1))
    context.settle("Dataset", "flights")
    assert launched(context) == [FIRST, SECOND]


# --- what is known ---------------------------------------------------------------------------------------------------


def test_ingestion_status_shows_lag_freshness_and_last_file(context: Fake) -> None:
    with_source(context)
    ends(
        context,
        version=5,
        commits=2,
        files=7,
        rows=70,
        taken=12,
        last_file="landing/z.csv",
        last_commit_time="2026-11-21T11:59:58.25Z",
        waiting_files=3,
        waiting_bytes=300,
        oldest_waiting="2026-11-21T11:58:00Z",
        current_until="2026-11-21T11:58:00Z",
        quarantined=4,
        stalled=None,
    )
    state = source(context)
    assert (state.lag.files, state.lag.bytes, state.files, state.quarantined) == (3, 300, 12, 4)
    assert state.last_file == "landing/z.csv"
    assert state.current_until == state.lag.oldest == context.now - timedelta(minutes=2)
    assert state.problem is None
    assert context.dataset.status.version == 5, "the table is as the job left it"


def test_ingestion_of_bad_file_stalls_source_and_names_file(context: Fake) -> None:
    with_source(context)
    ends(context, waiting_files=2, stalled=STALLED)
    assert context.condition("Dataset", "flights") == ("False", "SourceStalled")
    message = context.message("Dataset", "flights")
    assert "source 'landing'" in message
    assert "'landing/b.csv', row 2, column 'x'" in message
    assert context.kstatus("Dataset", "flights") == "Failed"
    assert [event.reason for event in context.events][-1] == "SourceStalled"


def test_commits_continue_while_ingestion_source_is_stalled(context: Fake) -> None:
    with_source(context)
    ends(context, stalled=STALLED)
    context.create("Commit", "january", COMMIT_SPEC)
    context.settle("Commit", "january")
    assert context.launches[-1].job.job == "january-1"


def test_ingestion_poll_gets_stalled_file_and_resumes_after_replacement(
    context: Fake,
) -> None:
    with_source(context)
    ends(context, stalled=STALLED)
    context.pass_time(timedelta(minutes=1))
    context.settle("Dataset", "flights")
    assert intake_job(context).stalled == STALLED
    assert context.condition("Dataset", "flights") == ("False", "SourceStalled"), "until the look has another word"
    ends(context, SECOND, commits=1, files=2, taken=2)
    assert context.condition("Dataset", "flights") == ("True", "Succeeded")
    assert source(context).stalled is None


@pytest.mark.parametrize(
    "edit", [{"csv": {"delimiter": ";"}}, {"schema": [{"name": "x", "type": "string"}]}, {"format": "JSONLines"}]
)
def test_ingestion_edit_of_read_options_starts_poll_immediately(context: Fake, edit: dict[str, Any]) -> None:
    with_source(context)
    ends(context, stalled=STALLED)
    context.edit("Dataset", "flights", sources=[LANDING | edit])
    context.settle("Dataset", "flights")
    assert launched(context) == [FIRST, SECOND]
    assert intake_job(context).stalled is None


def test_ingestion_quarantined_file_is_reported_once(context: Fake) -> None:
    with_source(context, quarantine=True)
    ends(context, commits=1, refused=2, refusal="DataTypeMismatch: 'landing/b.csv', row 2", quarantined=2)
    told = [event for event in context.events if event.reason == "FileQuarantined"]
    assert len(told) == 1
    assert told[0].type == "Warning"
    assert "2 files" in told[0].message
    assert "row 2" in told[0].message
    assert context.condition("Dataset", "flights") == ("True", "Succeeded")


# --- failures --------------------------------------------------------------------------------------------------------


def test_ingestion_poll_with_transient_failure_retries_with_backoff(context: Fake) -> None:
    with_source(context)
    waits = []
    for number in range(1, 6):
        job = f"flights-intake-{number}"
        context.job_fails(job, FailureClass.RETRY, "StoreUnavailable")
        outcome = context.settle("Dataset", "flights")
        assert outcome.requeue_after is not None
        waits.append(outcome.requeue_after.total_seconds())
        assert context.condition("Dataset", "flights") == ("False", "SourceRetrying")
        context.pass_time(outcome.requeue_after)
        context.settle("Dataset", "flights")
    assert waits == [2, 4, 8, 16, 32]
    ends(context, "flights-intake-6")
    assert source(context).failures == 0
    assert context.condition("Dataset", "flights") == ("True", "Succeeded")


def test_ingestion_poll_with_permanent_failure_stalls_source_and_repeats(context: Fake) -> None:
    with_source(context)
    context.job_fails(FIRST, FailureClass.REPORT, "PartitionInvalid", "the table is partitioned on something else")
    outcome = context.settle("Dataset", "flights")
    assert context.condition("Dataset", "flights") == ("False", "SourceStalled")
    assert "PartitionInvalid" in context.message("Dataset", "flights")
    assert outcome.requeue_after == timedelta(minutes=1)


def test_ingestion_job_that_disappeared_restarts_under_next_number(context: Fake) -> None:
    with_source(context)
    context.job_runs(FIRST)
    context.settle("Dataset", "flights")
    context.job_vanishes(FIRST)
    context.settle("Dataset", "flights")
    context.pass_time(timedelta(seconds=2))
    context.settle("Dataset", "flights")
    assert launched(context) == [FIRST, SECOND]


def test_ingestion_result_without_source_counts_as_failure(context: Fake) -> None:
    with_source(context)
    context.job_ends(FIRST)
    context.settle("Dataset", "flights")
    assert (source(context).problem or "").startswith("ResultLost")


def test_ingestion_crash_before_launch_repeats_same_number(context: Fake) -> None:
    """The operator died between writing the status and making the pod."""
    announced_only(context)
    context.settle("Dataset", "flights")
    assert launched(context) == [FIRST, FIRST]


def test_ingestion_crash_before_launch_and_edit_uses_next_number(context: Fake) -> None:
    announced_only(context)
    context.edit("Dataset", "flights", sources=[LANDING | {"csv": {"delimiter": ";"}}])
    context.settle("Dataset", "flights")
    assert launched(context) == [FIRST, SECOND]
    assert intake_job(context).source.csv.delimiter == ";"


def test_ingestion_poll_with_refused_launch_retries(context: Fake) -> None:
    context.refusals[FIRST] = ("QuotaExceeded", "no pods left")
    with_source(context)
    outcome = context.settle("Dataset", "flights")
    assert outcome.requeue_after == timedelta(seconds=30)
    del context.refusals[FIRST]
    context.settle("Dataset", "flights")
    assert FIRST in context.jobs


def test_dataset_without_sources_starts_no_ingestion(context: Fake) -> None:
    with_dataset(context, seen(3))
    assert launched(context) == []
    assert context.dataset.status.intake is None
