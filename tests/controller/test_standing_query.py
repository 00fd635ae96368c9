"""When runs of a Query with a schedule, or that follows its inputs, begin, and what their ends mean."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kubothek.api.jobs import QueryDataset, QueryJob, QueryOutcome, QueryRead
from kubothek.api.query import Query, QueryRun
from kubothek.controller.context import FailureClass
from kubothek.controller.validation.rules import findings
from tests.controller.fake import DATASET_SPEC, Fake, seen, with_store

KEY = ("Query", "top")
SPEC: dict[str, Any] = {"sql": "SELECT 1", "storeRef": {"name": "lake"}, "result": {"datasetRef": {"name": "top"}}}
HOURLY = SPEC | {"schedule": {"cron": "@hourly"}}
FOLLOWS = SPEC | {"follow": [{"name": "flights"}, {"name": "planes"}]}
HOUR = timedelta(hours=1)


@pytest.fixture
def context() -> Fake:
    """A store with the Datasets flights and planes, which have versions, and top, which has none."""
    context = Fake()
    names = ("flights", "planes", "top")
    for name in names:
        context.create("Dataset", name, DATASET_SPEC)
    with_store(context, seen(3), seen(1, "planes"), seen(None, "top"))
    for name in names:
        context.settle("Dataset", name)
    return context


def query(context: Fake) -> Query:
    found = context.resources[KEY]
    assert isinstance(found, Query)
    return found


def run(context: Fake) -> QueryRun:
    found = query(context).status.run
    assert found is not None
    return found


def query_jobs(context: Fake) -> list[QueryJob]:
    return [launch.job for launch in context.launches if isinstance(launch.job, QueryJob)]


def targets(context: Fake) -> list[QueryDataset]:
    return [job.becomes for job in query_jobs(context) if job.becomes is not None]


def ends(context: Fake, version: int) -> None:
    """The last job of the Query ends with a version of its Dataset."""
    reads = (QueryRead(dataset="flights", version=3),)
    job = query_jobs(context)[-1].job
    context.job_ends(job, query=QueryOutcome(version=version, rows=2, reads=reads), dataset=seen(version, "top"))
    context.settle(*KEY)


def gives_up(context: Fake, reason: str = "QueryInvalid") -> None:
    """The last job of the Query fails permanently."""
    context.job_fails(query_jobs(context)[-1].job, FailureClass.REPORT, reason)
    context.settle(*KEY)


def moves_on(context: Fake, name: str, version: int) -> None:
    """The Dataset gets this version."""
    old = context.resources["Dataset", name]
    status = old.status.model_copy(update={"version": version})
    context.resources["Dataset", name] = old.model_copy(update={"status": status})


# --- a schedule -----------------------------------------------------------------------------------------------------


def test_scheduled_query_runs_at_creation_then_at_each_slot(context: Fake) -> None:
    context.create(*KEY, HOURLY)
    context.reconcile(*KEY)
    assert len(query_jobs(context)) == 1
    ends(context, 1)
    assert context.condition(*KEY) == ("True", "Succeeded")
    assert context.message(*KEY) == "run 1 is complete and made version 1; the next one begins at 2026-11-21T13:00:00Z"
    outcome = context.settle(*KEY)
    assert outcome.requeue_after == HOUR
    assert query(context).status.next_time == context.now + HOUR
    for number in (2, 3):
        context.pass_time(HOUR)
        context.settle(*KEY)
        assert (len(query_jobs(context)), run(context).number) == (number, number)
        ends(context, number)
    assert [job.job for job in query_jobs(context)] == ["top-query-1", "top-query-2", "top-query-3"]
    assert context.cancelled == ["top-query-1"], "the logs of the last two jobs stay"


def test_scheduled_query_never_completes(context: Fake) -> None:
    context.create(*KEY, HOURLY)
    context.reconcile(*KEY)
    ends(context, 1)
    assert not query(context).finished
    assert not query(context).status.holds("Complete")
    assert context.kstatus(*KEY) == "Current"


def test_each_run_has_commit_id_of_its_own_that_retries_keep(context: Fake) -> None:
    context.create(*KEY, HOURLY)
    context.reconcile(*KEY)
    context.job_runs("top-query-1")
    context.settle(*KEY)
    context.job_vanishes("top-query-1")
    context.settle(*KEY)
    ends(context, 1)
    context.pass_time(HOUR)
    context.settle(*KEY)
    uid = query(context).metadata.uid
    first, second = f"query:{uid}:1:2026-11-21T12:00:00Z", f"query:{uid}:2:2026-11-21T13:00:00Z"
    assert [(job.attempt, job.becomes and job.becomes.commit_id) for job in query_jobs(context)] == [
        (1, first),
        (2, first),
        (3, second),
    ]


def test_run_after_loss_of_status_has_new_commit_id(context: Fake) -> None:
    context.create(*KEY, HOURLY)
    context.reconcile(*KEY)
    ends(context, 1)
    context.resources[KEY] = query(context).model_copy(update={"status": type(query(context).status)()})
    context.jobs.clear()
    context.pass_time(timedelta(minutes=5))
    context.reconcile(*KEY)
    before, after = (target.commit_id for target in targets(context))
    assert before != after


def test_scheduled_query_passes_key_of_merge_to_job(context: Fake) -> None:
    result = {"datasetRef": {"name": "top"}, "operation": "Merge", "key": ["carrier"]}
    context.create(*KEY, HOURLY | {"result": result})
    context.reconcile(*KEY)
    (target,) = targets(context)
    assert (target.key, target.run, target.dataset.claim.owner) == (("carrier",), 1, "cluster/team/top")


def test_run_shows_result_and_versions_that_it_read(context: Fake) -> None:
    context.create(*KEY, HOURLY)
    context.reconcile(*KEY)
    ends(context, 4)
    status = query(context).status
    assert (status.version, status.rows, status.completion_time) == (4, 2, context.now)
    assert [(read.dataset, read.version) for read in status.reads] == [("flights", 3)]
    context.settle("Dataset", "top")
    top: Any = context.resources["Dataset", "top"].status
    assert (top.version, top.rows) == (4, 40)


def test_status_keeps_last_result_while_next_run_is_in_progress(context: Fake) -> None:
    context.create(*KEY, HOURLY)
    context.reconcile(*KEY)
    ends(context, 1)
    context.pass_time(HOUR)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("Unknown", "Progressing")
    assert (query(context).status.version, run(context).done) == (1, False)


def test_slots_that_pass_during_run_cause_one_run_after_it(context: Fake) -> None:
    context.create(*KEY, HOURLY)
    context.reconcile(*KEY)
    context.job_runs("top-query-1")
    context.pass_time(3 * HOUR)
    context.settle(*KEY)
    assert len(query_jobs(context)) == 1
    ends(context, 1)
    assert len(query_jobs(context)) == 2
    ends(context, 2)
    assert len(query_jobs(context)) == 2


def test_edited_schedule_holds_for_next_slot(context: Fake) -> None:
    context.create(*KEY, HOURLY)
    context.reconcile(*KEY)
    ends(context, 1)
    context.edit(*KEY, schedule={"cron": "30 * * * *"})
    context.settle(*KEY)
    assert query(context).status.next_time == context.now + HOUR / 2


def test_schedule_that_names_no_time_is_stalled(context: Fake) -> None:
    context.create(*KEY, SPEC | {"schedule": {"cron": "0 0 30 2 *"}})
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "InvalidSchedule")
    assert query_jobs(context) == []


def test_request_begins_run_before_slot(context: Fake) -> None:
    context.create(*KEY, HOURLY)
    context.reconcile(*KEY)
    ends(context, 1)
    context.annotate(*KEY, requestedAt="now")
    context.settle(*KEY)
    assert len(query_jobs(context)) == 2
    ends(context, 2)
    assert len(query_jobs(context)) == 2


def test_commits_in_depends_on_are_awaited_by_first_run_only(context: Fake) -> None:
    context.create(*KEY, HOURLY | {"dependsOn": [{"name": "january"}]})
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "CommitNotFound")
    context.create("Commit", "january", {"datasetRef": {"name": "flights"}, "operation": "Rollback", "toVersion": 1})
    context.reconcile("Commit", "january")
    context.job_ends("january-1")
    context.settle("Commit", "january")
    context.settle(*KEY)
    ends(context, 1)
    context.delete("Commit", "january")
    context.pass_time(HOUR)
    context.settle(*KEY)
    assert len(query_jobs(context)) == 2


def test_commit_expires_once_first_run_that_depends_on_it_is_complete(context: Fake) -> None:
    january = {"datasetRef": {"name": "flights"}, "operation": "Rollback", "toVersion": 1}
    context.create("Commit", "january", january | {"ttlSecondsAfterFinished": 0})
    context.create(*KEY, HOURLY | {"dependsOn": [{"name": "january"}]})
    context.reconcile("Commit", "january")
    context.job_ends("january-1")
    context.settle("Commit", "january")
    context.pass_time(HOUR)
    context.settle("Commit", "january")
    assert ("Commit", "january") in context.resources
    context.settle(*KEY)
    ends(context, 1)
    context.settle("Commit", "january")
    assert ("Commit", "january") not in context.resources


# --- failures and suspension ----------------------------------------------------------------------------------------


def test_failed_run_is_stalled_until_next_slot(context: Fake) -> None:
    context.create(*KEY, HOURLY)
    context.reconcile(*KEY)
    ends(context, 1)
    context.pass_time(HOUR)
    context.settle(*KEY)
    gives_up(context)
    assert context.condition(*KEY) == ("False", "QueryInvalid")
    assert context.kstatus(*KEY) == "Failed"
    assert "run 2 failed: it went wrong; the next one begins at 2026-11-21T14:00:00Z" in context.message(*KEY)
    assert query(context).status.version == 1, "the last result stays"
    context.pass_time(HOUR)
    context.settle(*KEY)
    ends(context, 2)
    assert context.condition(*KEY) == ("True", "Succeeded")
    assert run(context).number == 3


def test_run_retries_after_backoff_until_limit_which_holds_for_each_run(context: Fake) -> None:
    context.create(*KEY, HOURLY | {"retryLimit": 1})
    for number in (1, 2):
        context.settle(*KEY)
        for _ in range(2):
            context.job_fails(query_jobs(context)[-1].job, FailureClass.RETRY, "StoreUnavailable")
            wait = context.reconcile(*KEY).requeue_after
            assert wait is not None
            context.pass_time(min(wait, timedelta(minutes=2)))
            context.settle(*KEY)
        assert len(query_jobs(context)) == 2 * number
        assert (context.condition(*KEY), run(context).number) == (("False", "StoreUnavailable"), number)
        context.pass_time(HOUR)


def test_suspended_query_starts_no_run_and_keeps_result(context: Fake) -> None:
    context.create(*KEY, HOURLY)
    context.reconcile(*KEY)
    ends(context, 1)
    context.edit(*KEY, suspend=True)
    context.pass_time(5 * HOUR)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "Suspended")
    assert (query(context).status.version, query(context).status.next_time) == (1, None)
    assert (run(context).number, run(context).done) == (1, True)
    context.edit(*KEY, suspend=False)
    context.settle(*KEY)
    assert [job.job for job in query_jobs(context)] == ["top-query-1", "top-query-2"], "the newest missed slot only"


def test_query_suspended_from_creation_starts_no_run(context: Fake) -> None:
    context.create(*KEY, HOURLY | {"suspend": True})
    context.settle(*KEY)
    assert query_jobs(context) == []


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (HOURLY | {"storeRef": {"name": "nowhere"}}, "ObjectStoreNotFound"),
        (HOURLY | {"result": {"datasetRef": {"name": "nowhere"}}}, "DatasetNotFound"),
        (HOURLY | {"engineRef": {"name": "nowhere"}}, "EngineNotFound"),
        (SPEC | {"follow": [{"name": "nowhere"}]}, "DatasetNotFound"),
    ],
)
def test_standing_query_with_missing_dependency_waits(context: Fake, spec: dict[str, Any], reason: str) -> None:
    context.create(*KEY, spec)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", reason)
    assert query_jobs(context) == []


def test_query_into_ledger_is_refused(context: Fake) -> None:
    context.create("Dataset", "chain", DATASET_SPEC | {"ledger": {"kind": "Copy"}})
    spec = HOURLY | {"result": {"datasetRef": {"name": "chain"}}}
    context.create(*KEY, spec)
    assert [(found.reason, found.path) for found in findings(query(context), context)] == [
        ("LedgerOnly", "spec.result.datasetRef")
    ]


# --- inputs ---------------------------------------------------------------------------------------------------------


def test_following_query_runs_once_for_each_change_of_input(context: Fake) -> None:
    context.create(*KEY, FOLLOWS)
    context.reconcile(*KEY)
    ends(context, 1)
    assert [(each.name, each.version) for each in run(context).inputs] == [("flights", 3), ("planes", 1)]
    assert "the next one begins when an input has a new version" in context.message(*KEY)
    context.pass_time(timedelta(days=1))
    context.settle(*KEY)
    assert len(query_jobs(context)) == 1, "nothing has changed"
    moves_on(context, "planes", 2)
    context.settle(*KEY)
    ends(context, 2)
    assert len(query_jobs(context)) == 2
    assert [(each.name, each.version) for each in run(context).inputs] == [("flights", 3), ("planes", 2)]


def test_change_of_input_during_run_causes_one_run_after_it(context: Fake) -> None:
    context.create(*KEY, FOLLOWS)
    context.reconcile(*KEY)
    context.job_runs("top-query-1")
    for version in (4, 5):
        moves_on(context, "flights", version)
        context.settle(*KEY)
    assert len(query_jobs(context)) == 1
    ends(context, 1)
    ends(context, 2)
    assert len(query_jobs(context)) == 2


def test_input_created_again_counts_as_changed(context: Fake) -> None:
    context.create(*KEY, FOLLOWS)
    context.reconcile(*KEY)
    ends(context, 1)
    del context.resources["Dataset", "planes"]
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "DatasetNotFound")
    context.create("Dataset", "planes", DATASET_SPEC)
    moves_on(context, "planes", 1)
    context.settle(*KEY)
    assert len(query_jobs(context)) == 2


def test_following_query_waits_for_first_version_of_input(context: Fake) -> None:
    context.create("Dataset", "airports", DATASET_SPEC)
    context.create(*KEY, SPEC | {"follow": [{"name": "airports"}]})
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "InputNotReady")
    assert context.kstatus(*KEY) == "InProgress"
    moves_on(context, "airports", 1)
    context.settle(*KEY)
    assert len(query_jobs(context)) == 1


def test_failed_run_that_follows_waits_for_another_change(context: Fake) -> None:
    context.create(*KEY, FOLLOWS)
    context.reconcile(*KEY)
    gives_up(context)
    context.pass_time(timedelta(days=1))
    context.settle(*KEY)
    assert (context.condition(*KEY), len(query_jobs(context))) == (("False", "QueryInvalid"), 1)
    moves_on(context, "flights", 4)
    context.settle(*KEY)
    assert len(query_jobs(context)) == 2


def test_slot_without_change_of_input_is_skipped(context: Fake) -> None:
    context.create(*KEY, FOLLOWS | HOURLY)
    context.reconcile(*KEY)
    ends(context, 1)
    context.pass_time(HOUR)
    context.settle(*KEY)
    moves_on(context, "flights", 4)
    context.settle(*KEY)
    assert len(query_jobs(context)) == 1, "the slot has passed: the change waits for the next one"
    assert "2026-11-21T14:00:00Z, if an input has a new version" in context.message(*KEY)
    context.pass_time(HOUR)
    context.settle(*KEY)
    assert len(query_jobs(context)) == 2


def test_failed_run_is_tried_again_at_next_slot_without_change(context: Fake) -> None:
    context.create(*KEY, FOLLOWS | HOURLY)
    context.reconcile(*KEY)
    gives_up(context)
    context.pass_time(HOUR)
    context.settle(*KEY)
    assert len(query_jobs(context)) == 2


def test_input_of_other_store_is_refused(context: Fake) -> None:
    context.create("Dataset", "far", {"storeRef": {"name": "other"}})
    context.create(*KEY, SPEC | {"follow": [{"name": "far"}]})
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "QueryInvalid")
    found = [each for each in findings(query(context), context) if each.denies]
    assert [(each.reason, each.path) for each in found] == [("QueryInvalid", "spec.follow[0]")]


def test_queries_that_follow_each_other_are_refused(context: Fake) -> None:
    back = {"sql": "SELECT 1", "storeRef": {"name": "lake"}, "result": {"datasetRef": {"name": "flights"}}}
    context.create("Query", "back", back | {"follow": [{"name": "planes"}]})
    context.create(*KEY, FOLLOWS)
    assert [each for each in findings(query(context), context) if each.denies] == []
    context.create("Query", "back", back | {"follow": [{"name": "top"}]})
    (found,) = (each for each in findings(query(context), context) if each.denies)
    assert (found.reason, found.path) == ("Cycle", "spec.follow")
    assert "top follows flights follows top" in found.message
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "Cycle")
    assert query_jobs(context) == []
