"""Sync and Repository: when jobs run, what they are told, what is told of them, and what a Copy is meanwhile."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kubothek.api.jobs import DatasetState, LedgerState, Progress, SyncJob, SyncOutcome
from kubothek.api.sync import Sync, SyncProgress
from kubothek.controller.context import FailureClass
from kubothek.controller.scheduling.maintenance_priority import LONGEST_WAIT, RECHECK_INTERVAL
from tests.controller.fake import COMMIT_SPEC, DATASET_SPEC, Fake, seen, with_dataset, with_store

KEY, THERE, HERE = ("Sync", "flights"), ("Repository", "theirs"), ("Dataset", "flights")
SPEC: dict[str, Any] = {
    "repositoryRef": {"name": "theirs"},
    "datasetRef": {"name": "flights"},
    "direction": "Pull",
}
COPY = {"kind": "Copy"}
PUSHED = {
    "kind": "AddPushSource",
    "sourceName": "default",
    "read": {"kind": "Csv", "schema": ["id BIGINT"]},
    "merge": {"kind": "Append"},
}
ROOT = {"metadata": [PUSHED]}
CHAIN = LedgerState(id="did:odf:fed01", head="f1620aa", blocks=3, records=10)
PULLED = SyncOutcome(relation="Ahead", head="f1620aa", version=1, blocks=3, objects=2, bytes=2048)


@pytest.fixture
def context() -> Fake:
    context = Fake(allowed_source_hosts=("example.org",))
    context.create(*THERE, {"url": "https://example.org/data/"})
    context.settle(*THERE)
    return context


def begin(context: Fake, ledger: dict[str, Any] | None = None, state: DatasetState | None = None, **spec: Any) -> None:
    with_dataset(context, state, ledger=ledger or COPY)
    context.create(*KEY, SPEC | spec)
    context.settle(*KEY)


def begin_push(context: Fake, **spec: Any) -> None:
    """A chain of one's own, and a Sync that pushes it."""
    with_dataset(context, ledger=ROOT)
    context.job_ends("flights-ledger-1", dataset=chained())
    context.settle(*HERE)
    context.create(*KEY, SPEC | {"direction": "Push"} | spec)
    context.settle(*KEY)


def chained(version: int = 1) -> DatasetState:
    return seen(version, ledger=CHAIN)


def jobs(context: Fake) -> list[str]:
    return [launch.job.job for launch in context.launches if isinstance(launch.job, SyncJob)]


def last(context: Fake) -> SyncJob:
    return next(launch.job for launch in reversed(context.launches) if isinstance(launch.job, SyncJob))


def there(context: Fake) -> Sync:
    found = context.resources[KEY]
    assert isinstance(found, Sync)
    return found


def ends(context: Fake, job: str = "flights-sync-1", outcome: SyncOutcome = PULLED, version: int = 1) -> None:
    context.job_ends(job, sync=outcome, dataset=chained(version))
    context.settle(*KEY)


def test_a_repository_is_ready_as_soon_as_it_is_valid(context: Fake) -> None:
    assert context.condition(*THERE) == ("True", "Succeeded")
    assert context.launches == []


def test_a_copy_starts_no_job_of_its_own_and_waits_for_its_chain(context: Fake) -> None:
    with_dataset(context, ledger=COPY)
    assert context.condition(*HERE) == ("False", "AwaitingChain")
    assert context.kstatus(*HERE) == "InProgress"
    assert context.dataset.writable, "a Sync can write to it"
    assert [launch.job.verb for launch in context.launches] == ["inspect"]
    assert context.identities == []


def test_nothing_else_is_appended_to_a_copy(context: Fake) -> None:
    with_dataset(context, chained(), ledger=COPY)
    assert context.condition(*HERE) == ("True", "Succeeded")
    for operation in ("Append", "Overwrite"):
        context.create("Commit", operation.lower(), COMMIT_SPEC | {"operation": operation})
        context.settle("Commit", operation.lower())
        assert context.condition("Commit", operation.lower()) == ("False", "LedgerOnly")
        assert "append there" in context.message("Commit", operation.lower())


def test_it_pulls_once_and_the_dataset_knows_at_once(context: Fake) -> None:
    begin(context)
    assert context.condition(*KEY) == ("Unknown", "Syncing")
    job = last(context)
    assert (job.direction, job.force, job.rows, job.view, job.dataset.uuid) == ("Pull", False, None, True, "flights")
    assert job.remote.model_dump() == {
        "url": "https://example.org/data/flights",
        "endpoint": None,
        "region": None,
        "secret_dir": None,
        "ca_bundle": None,
        "allowed_hosts": ("example.org",),
        "allow_local": False,
    }
    ends(context)
    assert context.condition(*KEY) == ("True", "Succeeded")
    assert context.message(*KEY) == "both end with f1620aa"
    status = there(context).status
    assert (status.relation, status.blocks, status.objects, status.size) == ("Ahead", 3, 2, "2.00 KiB")
    assert (status.last_sync_time, status.url) == (context.now, "https://example.org/data/flights")
    context.settle(*HERE)
    assert (context.dataset.status.version, context.condition(*HERE)) == (1, ("True", "Succeeded"))
    assert context.dataset.status.ledger is not None
    context.settle(*KEY)
    assert jobs(context) == ["flights-sync-1"]


def test_another_name_there_a_secret_and_all_the_rest_reach_the_job(context: Fake) -> None:
    pem = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"
    context.edit(*THERE, credentialsSecretRef={"name": "token"}, caBundle=pem)
    begin(
        context,
        {"kind": "Copy", "view": "None"},
        remote="account/planes",
        force="IfDiverged",
        level="Physical",
    )
    job = last(context)
    assert job.remote.url == "https://example.org/data/account/planes"
    assert context.launches[-1].mounts == {job.remote.secret_dir: "token"}
    assert (job.remote.ca_bundle, job.force, job.rows, job.view) == (pem, True, False, False)


def test_how_far_it_is_stands_in_the_status_while_it_runs(context: Fake) -> None:
    begin(context)
    told = Progress(stage="Transferring", tasks_done=3, tasks_total=10, blocks=7, bytes=100, bytes_total=400)
    context.job_runs("flights-sync-1", told)
    context.settle(*KEY)
    assert there(context).status.progress == SyncProgress(
        stage="Transferring", blocks=7, objects=3, objects_to_go=7, bytes=100, bytes_to_go=300
    )
    ends(context)
    assert there(context).status.progress is None


@pytest.mark.parametrize(
    "edit",
    [
        lambda context: context.edit(*KEY, remote="planes"),
        lambda context: context.edit(*KEY, force="IfDiverged"),
        lambda context: context.edit(*THERE, url="odf+https://example.org/data"),
        lambda context: context.annotate(*KEY, requestedAt="today"),
    ],
    ids=["another name", "force", "another repository", "a request"],
)
def test_an_edit_and_a_request_each_sync_once_more(context: Fake, edit: Any) -> None:
    begin(context)
    ends(context)
    edit(context)
    context.settle(*KEY)
    ends(context, "flights-sync-2")
    context.settle(*KEY)
    assert jobs(context) == ["flights-sync-1", "flights-sync-2"]


def test_what_is_no_matter_of_the_other_side_starts_nothing(context: Fake) -> None:
    begin(context)
    ends(context)
    context.edit(*KEY, schedule={"cron": "@yearly"}, level="Full")
    context.settle(*KEY)
    assert jobs(context) == ["flights-sync-1"]


def test_a_schedule_syncs_at_its_slots_and_keeps_the_last_two_jobs(context: Fake) -> None:
    begin(context, schedule={"cron": "30 * * * *"})
    ends(context)
    assert context.message(*KEY).endswith("next sync at 2026-11-21T12:30:00Z")
    context.pass_time(timedelta(minutes=20))
    assert context.settle(*KEY).requeue_after == timedelta(minutes=10)
    context.pass_time(timedelta(minutes=11))
    context.settle(*KEY)
    ends(context, "flights-sync-2", SyncOutcome(relation="Equal", head="f1620aa", version=1))
    assert there(context).status.relation == "Equal"
    context.pass_time(timedelta(hours=1))
    context.settle(*KEY)
    assert jobs(context) == ["flights-sync-1", "flights-sync-2", "flights-sync-3"]
    assert context.cancelled == ["flights-sync-1"]


def test_a_schedule_that_names_no_time_is_told(context: Fake) -> None:
    begin(context, schedule={"cron": "0 0 30 2 *"})
    ends(context)
    assert context.condition(*KEY) == ("False", "InvalidSchedule")


@pytest.mark.parametrize("reason", ["Diverged", "Corrupt", "InvalidCredentials", "AccessDenied", "SourceRefused"])
def test_what_a_person_has_to_mend_is_told_until_the_next_request(context: Fake, reason: str) -> None:
    begin(context)
    context.job_fails("flights-sync-1", FailureClass.REPORT, reason, "mend it")
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", reason)
    assert context.kstatus(*KEY) == "Failed"
    assert there(context).status.relation == ("Diverged" if reason == "Diverged" else None)
    assert jobs(context) == ["flights-sync-1"]
    context.annotate(*KEY, requestedAt="again")
    context.settle(*KEY)
    ends(context, "flights-sync-2")
    assert context.condition(*KEY) == ("True", "Succeeded")


def test_sync_whose_job_is_lost_cancels_it_once_before_the_next(context: Fake) -> None:
    begin(context)
    context.job_runs("flights-sync-1")
    context.settle(*KEY)
    context.job_vanishes("flights-sync-1")
    actions = context.reconcile(*KEY).actions
    assert [type(action).__name__ for action in actions] == ["CancelJob", "LaunchJob"]
    assert jobs(context) == ["flights-sync-1", "flights-sync-2"]


def test_what_was_given_up_is_tried_again_at_the_next_slot(context: Fake) -> None:
    begin(context, schedule={"cron": "30 * * * *"})
    context.job_fails("flights-sync-1", FailureClass.REPORT, "Diverged", "look at both")
    assert context.settle(*KEY).requeue_after == timedelta(minutes=30)
    assert context.message(*KEY) == "look at both; next sync at 2026-11-21T12:30:00Z"
    context.pass_time(timedelta(minutes=31))
    context.settle(*KEY)
    assert jobs(context) == ["flights-sync-1", "flights-sync-2"]


@pytest.mark.parametrize("schedule", [{}, {"schedule": {"cron": "10 * * * *"}}])
def test_a_dataset_that_is_not_there_yet_is_waited_for(context: Fake, schedule: dict[str, Any]) -> None:
    begin(context, **schedule)
    context.job_fails(
        "flights-sync-1", FailureClass.REPORT, "DatasetNotFound", "there is no dataset: it has no refs/head"
    )
    assert context.settle(*KEY).requeue_after == timedelta(minutes=10)
    assert context.condition(*KEY) == ("False", "AwaitingRemote")
    assert context.kstatus(*KEY) == "InProgress"
    assert "next sync at" in context.message(*KEY) or "every ten minutes" in context.message(*KEY)
    for number in (2, 3):
        context.pass_time(timedelta(minutes=61 if schedule else 11))
        context.settle(*KEY)
        assert jobs(context)[-1] == f"flights-sync-{number}"
        if number == 2:
            context.job_fails("flights-sync-2", FailureClass.REPORT, "DatasetNotFound", "there is no dataset")
            context.settle(*KEY)
    ends(context, "flights-sync-3")
    assert context.condition(*KEY) == ("True", "Succeeded")


def test_a_repository_that_is_away_is_tried_again(context: Fake) -> None:
    begin(context)
    context.job_fails("flights-sync-1", FailureClass.RETRY, "StoreUnavailable", "example.org does not answer")
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "ProgressingWithRetry")
    assert "example.org does not answer" in context.message(*KEY)
    context.pass_time(timedelta(minutes=5))
    context.settle(*KEY)
    ends(context, "flights-sync-2")
    assert context.condition(*KEY) == ("True", "Succeeded")


def test_a_job_that_runs_is_followed_whatever_else_has_changed(context: Fake) -> None:
    begin(context)
    context.job_runs("flights-sync-1")
    context.delete(*THERE)
    context.edit(*KEY, suspend=True)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("Unknown", "Syncing")
    ends(context)
    assert context.condition(*KEY) == ("True", "Suspended")
    assert there(context).status.head == "f1620aa"


def test_suspended_it_starts_nothing(context: Fake) -> None:
    begin(context, suspend=True)
    assert jobs(context) == []
    assert context.condition(*KEY) == ("True", "Suspended")
    context.edit(*KEY, suspend=False)
    context.settle(*KEY)
    assert jobs(context) == ["flights-sync-1"]


def test_a_lost_pod_is_another_attempt(context: Fake) -> None:
    begin(context)
    context.job_runs("flights-sync-1")
    context.settle(*KEY)
    context.job_vanishes("flights-sync-1")
    context.settle(*KEY)
    context.pass_time(timedelta(minutes=1))
    context.settle(*KEY)
    assert jobs(context) == ["flights-sync-1", "flights-sync-2"]


# --- what does not go together ---------------------------------------------------------------------------------------


def test_what_is_missing_is_waited_for(context: Fake) -> None:
    context.delete(*THERE)
    with_dataset(context, ledger=COPY)
    context.create(*KEY, SPEC)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "RepositoryNotFound")
    context.create(*THERE, {"url": "https://example.org"})
    context.delete(*HERE)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "DatasetNotFound")
    context.create(*HERE, DATASET_SPEC | {"ledger": COPY})
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "DependencyNotReady"), "nobody has looked at the store for it yet"
    assert jobs(context) == []


def test_a_table_without_a_chain_is_not_synced(context: Fake) -> None:
    with_dataset(context)
    context.create(*KEY, SPEC)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "NotALedger")


def test_a_chain_of_ones_own_is_not_pulled_over(context: Fake) -> None:
    begin_push(context, direction="Pull")
    assert context.condition(*KEY) == ("False", "NotACopy")
    assert jobs(context) == []


def test_a_push_needs_leave_of_the_repository_and_goes_on_when_it_is_given(context: Fake) -> None:
    begin_push(context)
    assert context.condition(*KEY) == ("False", "PushNotAllowed")
    context.edit(*THERE, url="odf+https://example.org", push=True)
    context.settle(*KEY)
    assert last(context).direction == "Push"
    ends(context, outcome=PULLED.model_copy(update={"version": None}))
    assert context.condition(*KEY) == ("True", "Succeeded")
    assert there(context).status.table is None, "a push changes nothing here"


def test_a_push_waits_for_the_chain_of_its_dataset(context: Fake) -> None:
    context.edit(*THERE, url="odf+https://example.org", push=True)
    begin(context, direction="Push")
    assert context.condition(*KEY) == ("False", "Waiting")
    context.pass_time(timedelta(minutes=10))
    context.settle("ObjectStore", "lake")
    context.job_ends("lake-inspect-2", store={"conditional_writes": True}, datasets=(chained(),))
    context.settle("ObjectStore", "lake")
    context.settle(*HERE)
    context.settle(*KEY)
    assert jobs(context) == ["flights-sync-1"]


def test_a_push_takes_along_what_is_about_to_be_committed_but_does_not_wait_for_ever(context: Fake) -> None:
    context.edit(*THERE, url="odf+https://example.org", push=True)
    with_dataset(context, ledger=ROOT)
    context.job_ends("flights-ledger-1", dataset=chained())
    context.settle(*HERE)
    context.create("Commit", "january", COMMIT_SPEC)
    context.settle("Commit", "january")
    context.create(*KEY, SPEC | {"direction": "Push"})
    assert context.settle(*KEY).requeue_after == RECHECK_INTERVAL
    assert context.condition(*KEY) == ("False", "Waiting")
    assert jobs(context) == []
    context.pass_time(LONGEST_WAIT)
    context.settle(*KEY)
    assert jobs(context) == ["flights-sync-1"]


def test_a_store_without_conditional_writes_bears_one_writer_at_a_time(context: Fake) -> None:
    context.create(*HERE, DATASET_SPEC | {"ledger": COPY})
    with_store(context, chained(), conditional_writes=False)
    context.settle(*HERE)
    for name in ("first", "second"):
        context.create("Sync", name, SPEC)
        context.settle("Sync", name)
    assert jobs(context) == ["first-sync-1"]
    assert context.condition("Sync", "second") == ("False", "Waiting")
    assert "Sync 'first'" in context.message("Sync", "second")
    context.job_ends("first-sync-1", sync=PULLED, dataset=chained())
    context.settle("Sync", "first")
    context.settle("Sync", "second")
    assert jobs(context) == ["first-sync-1", "second-sync-1"]


def test_maintenance_gives_way_to_a_pull(context: Fake) -> None:
    with_dataset(context, chained(), ledger=COPY)
    context.create(*KEY, SPEC)
    context.settle(*KEY)
    context.create("Compaction", "tidy", {"datasetRef": {"name": "flights"}})
    context.settle("Compaction", "tidy")
    assert context.condition("Compaction", "tidy") == ("False", "Waiting")
    assert "Sync 'flights'" in context.message("Compaction", "tidy")


def test_a_dataset_created_anew_is_pulled_anew(context: Fake) -> None:
    begin(context)
    ends(context)
    context.pass_time(timedelta(minutes=1))
    context.delete(*HERE)
    context.create(*HERE, DATASET_SPEC | {"ledger": COPY})
    context.settle("ObjectStore", "lake")
    context.job_ends("lake-inspect-2", store={"conditional_writes": True}, datasets=(seen(),))
    context.settle("ObjectStore", "lake")
    context.settle(*HERE)
    assert context.condition(*HERE) == ("False", "AwaitingChain"), "what the Sync saw was of another"
    context.settle(*KEY)
    assert jobs(context) == ["flights-sync-1", "flights-sync-2"]
