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


def test_valid_repository_is_ready_without_job(context: Fake) -> None:
    assert context.condition(*THERE) == ("True", "Succeeded")
    assert context.launches == []


def test_copy_dataset_starts_no_job_and_waits_for_chain(context: Fake) -> None:
    with_dataset(context, ledger=COPY)
    assert context.condition(*HERE) == ("False", "AwaitingChain")
    assert context.kstatus(*HERE) == "InProgress"
    assert context.dataset.writable, "a Sync can write to it"
    assert [launch.job.verb for launch in context.launches] == ["inspect"]
    assert context.identities == []


def test_copy_dataset_refuses_commits(context: Fake) -> None:
    with_dataset(context, chained(), ledger=COPY)
    assert context.condition(*HERE) == ("True", "Succeeded")
    for operation in ("Append", "Overwrite"):
        context.create("Commit", operation.lower(), COMMIT_SPEC | {"operation": operation})
        context.settle("Commit", operation.lower())
        assert context.condition("Commit", operation.lower()) == ("False", "LedgerOnly")
        assert "append there" in context.message("Commit", operation.lower())


def test_sync_pulls_once_and_updates_dataset_immediately(context: Fake) -> None:
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


def test_sync_passes_options_and_secrets_to_job(context: Fake) -> None:
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


def test_sync_status_shows_progress_while_job_runs(context: Fake) -> None:
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
def test_sync_edit_and_request_each_start_one_job(context: Fake, edit: Any) -> None:
    begin(context)
    ends(context)
    edit(context)
    context.settle(*KEY)
    ends(context, "flights-sync-2")
    context.settle(*KEY)
    assert jobs(context) == ["flights-sync-1", "flights-sync-2"]


def test_sync_edit_of_unrelated_fields_starts_no_job(context: Fake) -> None:
    begin(context)
    ends(context)
    context.edit(*KEY, schedule={"cron": "@yearly"}, level="Full")
    context.settle(*KEY)
    assert jobs(context) == ["flights-sync-1"]


def test_sync_schedule_starts_jobs_at_slots_and_keeps_last_two(context: Fake) -> None:
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


def test_sync_with_invalid_schedule_is_reported(context: Fake) -> None:
    begin(context, schedule={"cron": "0 0 30 2 *"})
    ends(context)
    assert context.condition(*KEY) == ("False", "InvalidSchedule")


@pytest.mark.parametrize("reason", ["Diverged", "Corrupt", "InvalidCredentials", "AccessDenied", "SourceRefused"])
def test_sync_with_permanent_failure_is_reported_until_next_request(context: Fake, reason: str) -> None:
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


def test_sync_with_permanent_failure_retries_at_next_slot(context: Fake) -> None:
    begin(context, schedule={"cron": "30 * * * *"})
    context.job_fails("flights-sync-1", FailureClass.REPORT, "Diverged", "look at both")
    assert context.settle(*KEY).requeue_after == timedelta(minutes=30)
    assert context.message(*KEY) == "look at both; next sync at 2026-11-21T12:30:00Z"
    context.pass_time(timedelta(minutes=31))
    context.settle(*KEY)
    assert jobs(context) == ["flights-sync-1", "flights-sync-2"]


@pytest.mark.parametrize("schedule", [{}, {"schedule": {"cron": "10 * * * *"}}])
def test_sync_of_missing_remote_dataset_waits(context: Fake, schedule: dict[str, Any]) -> None:
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


def test_sync_with_unavailable_repository_retries(context: Fake) -> None:
    begin(context)
    context.job_fails("flights-sync-1", FailureClass.RETRY, "StoreUnavailable", "example.org does not answer")
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "ProgressingWithRetry")
    assert "example.org does not answer" in context.message(*KEY)
    context.pass_time(timedelta(minutes=5))
    context.settle(*KEY)
    ends(context, "flights-sync-2")
    assert context.condition(*KEY) == ("True", "Succeeded")


def test_sync_job_runs_to_end_after_edits_and_deletions(context: Fake) -> None:
    begin(context)
    context.job_runs("flights-sync-1")
    context.delete(*THERE)
    context.edit(*KEY, suspend=True)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("Unknown", "Syncing")
    ends(context)
    assert context.condition(*KEY) == ("True", "Suspended")
    assert there(context).status.head == "f1620aa"


def test_sync_suspended_starts_no_job_until_resumed(context: Fake) -> None:
    begin(context, suspend=True)
    assert jobs(context) == []
    assert context.condition(*KEY) == ("True", "Suspended")
    context.edit(*KEY, suspend=False)
    context.settle(*KEY)
    assert jobs(context) == ["flights-sync-1"]


def test_sync_with_lost_pod_retries(context: Fake) -> None:
    begin(context)
    context.job_runs("flights-sync-1")
    context.settle(*KEY)
    context.job_vanishes("flights-sync-1")
    context.settle(*KEY)
    context.pass_time(timedelta(minutes=1))
    context.settle(*KEY)
    assert jobs(context) == ["flights-sync-1", "flights-sync-2"]


# --- what does not go together ---------------------------------------------------------------------------------------


def test_sync_with_missing_dependency_waits(context: Fake) -> None:
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


def test_sync_of_table_without_chain_is_refused(context: Fake) -> None:
    with_dataset(context)
    context.create(*KEY, SPEC)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "NotALedger")


def test_sync_pull_into_own_chain_is_refused(context: Fake) -> None:
    begin_push(context, direction="Pull")
    assert context.condition(*KEY) == ("False", "NotACopy")
    assert jobs(context) == []


def test_sync_push_needs_permission_of_repository(context: Fake) -> None:
    begin_push(context)
    assert context.condition(*KEY) == ("False", "PushNotAllowed")
    context.edit(*THERE, url="odf+https://example.org", push=True)
    context.settle(*KEY)
    assert last(context).direction == "Push"
    ends(context, outcome=PULLED.model_copy(update={"version": None}))
    assert context.condition(*KEY) == ("True", "Succeeded")
    assert there(context).status.table is None, "a push changes nothing here"


def test_sync_push_waits_for_chain_of_dataset(context: Fake) -> None:
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


def test_sync_push_waits_for_pending_commits_up_to_limit(context: Fake) -> None:
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


def test_syncs_on_store_without_conditional_writes_run_one_by_one(context: Fake) -> None:
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


def test_compaction_waits_for_sync_pull(context: Fake) -> None:
    with_dataset(context, chained(), ledger=COPY)
    context.create(*KEY, SPEC)
    context.settle(*KEY)
    context.create("Compaction", "tidy", {"datasetRef": {"name": "flights"}})
    context.settle("Compaction", "tidy")
    assert context.condition("Compaction", "tidy") == ("False", "Waiting")
    assert "Sync 'flights'" in context.message("Compaction", "tidy")


def test_sync_of_recreated_dataset_pulls_again(context: Fake) -> None:
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
