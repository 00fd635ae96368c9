"""Sync and Repository: when jobs run, what they are told, what is told of them, and what a Copy is meanwhile."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kubothek.api.jobs import DatasetState, LedgerState, Progress, SyncJob, SyncOutcome
from kubothek.api.sync import Sync, SyncProgress
from kubothek.controller.context import FailureClass
from kubothek.controller.scheduling.maintenance_priority import LONGEST_WAIT, LOOK_AGAIN
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
def world() -> Fake:
    world = Fake(allowed_source_hosts=("example.org",))
    world.create(*THERE, {"url": "https://example.org/data/"})
    world.settle(*THERE)
    return world


def begin(world: Fake, ledger: dict[str, Any] | None = None, state: DatasetState | None = None, **spec: Any) -> None:
    with_dataset(world, state, ledger=ledger or COPY)
    world.create(*KEY, SPEC | spec)
    world.settle(*KEY)


def begin_push(world: Fake, **spec: Any) -> None:
    """A chain of one's own, and a Sync that pushes it."""
    with_dataset(world, ledger=ROOT)
    world.job_ends("flights-ledger-1", dataset=chained())
    world.settle(*HERE)
    world.create(*KEY, SPEC | {"direction": "Push"} | spec)
    world.settle(*KEY)


def chained(version: int = 1) -> DatasetState:
    return seen(version, ledger=CHAIN)


def jobs(world: Fake) -> list[str]:
    return [launch.job.job for launch in world.launches if isinstance(launch.job, SyncJob)]


def last(world: Fake) -> SyncJob:
    return next(launch.job for launch in reversed(world.launches) if isinstance(launch.job, SyncJob))


def there(world: Fake) -> Sync:
    found = world.resources[KEY]
    assert isinstance(found, Sync)
    return found


def ends(world: Fake, job: str = "flights-sync-1", outcome: SyncOutcome = PULLED, version: int = 1) -> None:
    world.job_ends(job, sync=outcome, dataset=chained(version))
    world.settle(*KEY)


def test_a_repository_is_ready_as_soon_as_it_is_valid(world: Fake) -> None:
    assert world.condition(*THERE) == ("True", "Succeeded")
    assert world.launches == []


def test_a_copy_starts_no_job_of_its_own_and_waits_for_its_chain(world: Fake) -> None:
    with_dataset(world, ledger=COPY)
    assert world.condition(*HERE) == ("False", "AwaitingChain")
    assert world.kstatus(*HERE) == "InProgress"
    assert world.dataset.writable, "a Sync can write to it"
    assert [launch.job.verb for launch in world.launches] == ["inspect"]
    assert world.identities == []


def test_nothing_else_is_appended_to_a_copy(world: Fake) -> None:
    with_dataset(world, chained(), ledger=COPY)
    assert world.condition(*HERE) == ("True", "Succeeded")
    for operation in ("Append", "Overwrite"):
        world.create("Commit", operation.lower(), COMMIT_SPEC | {"operation": operation})
        world.settle("Commit", operation.lower())
        assert world.condition("Commit", operation.lower()) == ("False", "LedgerOnly")
        assert "append there" in world.message("Commit", operation.lower())


def test_it_pulls_once_and_the_dataset_knows_at_once(world: Fake) -> None:
    begin(world)
    assert world.condition(*KEY) == ("Unknown", "Syncing")
    job = last(world)
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
    ends(world)
    assert world.condition(*KEY) == ("True", "Succeeded")
    assert world.message(*KEY) == "both end with f1620aa"
    status = there(world).status
    assert (status.relation, status.blocks, status.objects, status.size) == ("Ahead", 3, 2, "2.00 KiB")
    assert (status.last_sync_time, status.url) == (world.now, "https://example.org/data/flights")
    world.settle(*HERE)
    assert (world.dataset.status.version, world.condition(*HERE)) == (1, ("True", "Succeeded"))
    assert world.dataset.status.ledger is not None
    world.settle(*KEY)
    assert jobs(world) == ["flights-sync-1"]


def test_another_name_there_a_secret_and_all_the_rest_reach_the_job(world: Fake) -> None:
    pem = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"
    world.edit(*THERE, credentialsSecretRef={"name": "token"}, caBundle=pem)
    begin(
        world,
        {"kind": "Copy", "view": "None"},
        remote="account/planes",
        force="IfDiverged",
        level="Physical",
    )
    job = last(world)
    assert job.remote.url == "https://example.org/data/account/planes"
    assert world.launches[-1].mounts == {job.remote.secret_dir: "token"}
    assert (job.remote.ca_bundle, job.force, job.rows, job.view) == (pem, True, False, False)


def test_how_far_it_is_stands_in_the_status_while_it_runs(world: Fake) -> None:
    begin(world)
    told = Progress(stage="Transferring", tasks_done=3, tasks_total=10, blocks=7, bytes=100, bytes_total=400)
    world.job_runs("flights-sync-1", told)
    world.settle(*KEY)
    assert there(world).status.progress == SyncProgress(
        stage="Transferring", blocks=7, objects=3, objects_to_go=7, bytes=100, bytes_to_go=300
    )
    ends(world)
    assert there(world).status.progress is None


@pytest.mark.parametrize(
    "edit",
    [
        lambda world: world.edit(*KEY, remote="planes"),
        lambda world: world.edit(*KEY, force="IfDiverged"),
        lambda world: world.edit(*THERE, url="odf+https://example.org/data"),
        lambda world: world.annotate(*KEY, requestedAt="today"),
    ],
    ids=["another name", "force", "another repository", "a request"],
)
def test_an_edit_and_a_request_each_sync_once_more(world: Fake, edit: Any) -> None:
    begin(world)
    ends(world)
    edit(world)
    world.settle(*KEY)
    ends(world, "flights-sync-2")
    world.settle(*KEY)
    assert jobs(world) == ["flights-sync-1", "flights-sync-2"]


def test_what_is_no_matter_of_the_other_side_starts_nothing(world: Fake) -> None:
    begin(world)
    ends(world)
    world.edit(*KEY, schedule={"cron": "@yearly"}, level="Full")
    world.settle(*KEY)
    assert jobs(world) == ["flights-sync-1"]


def test_a_schedule_syncs_at_its_slots_and_keeps_the_last_two_jobs(world: Fake) -> None:
    begin(world, schedule={"cron": "30 * * * *"})
    ends(world)
    assert world.message(*KEY).endswith("next sync at 2026-11-21T12:30:00Z")
    world.pass_time(timedelta(minutes=20))
    assert world.settle(*KEY).requeue_after == timedelta(minutes=10)
    world.pass_time(timedelta(minutes=11))
    world.settle(*KEY)
    ends(world, "flights-sync-2", SyncOutcome(relation="Equal", head="f1620aa", version=1))
    assert there(world).status.relation == "Equal"
    world.pass_time(timedelta(hours=1))
    world.settle(*KEY)
    assert jobs(world) == ["flights-sync-1", "flights-sync-2", "flights-sync-3"]
    assert world.cancelled == ["flights-sync-1"]


def test_a_schedule_that_names_no_time_is_told(world: Fake) -> None:
    begin(world, schedule={"cron": "0 0 30 2 *"})
    ends(world)
    assert world.condition(*KEY) == ("False", "InvalidSchedule")


@pytest.mark.parametrize("reason", ["Diverged", "Corrupt", "InvalidCredentials", "AccessDenied", "SourceRefused"])
def test_what_a_person_has_to_mend_is_told_until_the_next_request(world: Fake, reason: str) -> None:
    begin(world)
    world.job_fails("flights-sync-1", FailureClass.REPORT, reason, "mend it")
    world.settle(*KEY)
    assert world.condition(*KEY) == ("False", reason)
    assert world.kstatus(*KEY) == "Failed"
    assert there(world).status.relation == ("Diverged" if reason == "Diverged" else None)
    assert jobs(world) == ["flights-sync-1"]
    world.annotate(*KEY, requestedAt="again")
    world.settle(*KEY)
    ends(world, "flights-sync-2")
    assert world.condition(*KEY) == ("True", "Succeeded")


def test_sync_whose_job_is_lost_cancels_it_once_before_the_next(world: Fake) -> None:
    begin(world)
    world.job_runs("flights-sync-1")
    world.settle(*KEY)
    world.job_vanishes("flights-sync-1")
    actions = world.reconcile(*KEY).actions
    assert [type(action).__name__ for action in actions] == ["CancelJob", "LaunchJob"]
    assert jobs(world) == ["flights-sync-1", "flights-sync-2"]


def test_what_was_given_up_is_tried_again_at_the_next_slot(world: Fake) -> None:
    begin(world, schedule={"cron": "30 * * * *"})
    world.job_fails("flights-sync-1", FailureClass.REPORT, "Diverged", "look at both")
    assert world.settle(*KEY).requeue_after == timedelta(minutes=30)
    assert world.message(*KEY) == "look at both; next sync at 2026-11-21T12:30:00Z"
    world.pass_time(timedelta(minutes=31))
    world.settle(*KEY)
    assert jobs(world) == ["flights-sync-1", "flights-sync-2"]


@pytest.mark.parametrize("schedule", [{}, {"schedule": {"cron": "10 * * * *"}}])
def test_a_dataset_that_is_not_there_yet_is_waited_for(world: Fake, schedule: dict[str, Any]) -> None:
    begin(world, **schedule)
    world.job_fails(
        "flights-sync-1", FailureClass.REPORT, "DatasetNotFound", "there is no dataset: it has no refs/head"
    )
    assert world.settle(*KEY).requeue_after == timedelta(minutes=10)
    assert world.condition(*KEY) == ("False", "AwaitingRemote")
    assert world.kstatus(*KEY) == "InProgress"
    assert "next sync at" in world.message(*KEY) or "every ten minutes" in world.message(*KEY)
    for number in (2, 3):
        world.pass_time(timedelta(minutes=61 if schedule else 11))
        world.settle(*KEY)
        assert jobs(world)[-1] == f"flights-sync-{number}"
        if number == 2:
            world.job_fails("flights-sync-2", FailureClass.REPORT, "DatasetNotFound", "there is no dataset")
            world.settle(*KEY)
    ends(world, "flights-sync-3")
    assert world.condition(*KEY) == ("True", "Succeeded")


def test_a_repository_that_is_away_is_tried_again(world: Fake) -> None:
    begin(world)
    world.job_fails("flights-sync-1", FailureClass.RETRY, "StoreUnavailable", "example.org does not answer")
    world.settle(*KEY)
    assert world.condition(*KEY) == ("False", "ProgressingWithRetry")
    assert "example.org does not answer" in world.message(*KEY)
    world.pass_time(timedelta(minutes=5))
    world.settle(*KEY)
    ends(world, "flights-sync-2")
    assert world.condition(*KEY) == ("True", "Succeeded")


def test_a_job_that_runs_is_followed_whatever_else_has_changed(world: Fake) -> None:
    begin(world)
    world.job_runs("flights-sync-1")
    world.delete(*THERE)
    world.edit(*KEY, suspend=True)
    world.settle(*KEY)
    assert world.condition(*KEY) == ("Unknown", "Syncing")
    ends(world)
    assert world.condition(*KEY) == ("True", "Suspended")
    assert there(world).status.head == "f1620aa"


def test_suspended_it_starts_nothing(world: Fake) -> None:
    begin(world, suspend=True)
    assert jobs(world) == []
    assert world.condition(*KEY) == ("True", "Suspended")
    world.edit(*KEY, suspend=False)
    world.settle(*KEY)
    assert jobs(world) == ["flights-sync-1"]


def test_a_lost_pod_is_another_attempt(world: Fake) -> None:
    begin(world)
    world.job_runs("flights-sync-1")
    world.settle(*KEY)
    world.job_vanishes("flights-sync-1")
    world.settle(*KEY)
    world.pass_time(timedelta(minutes=1))
    world.settle(*KEY)
    assert jobs(world) == ["flights-sync-1", "flights-sync-2"]


# --- what does not go together ---------------------------------------------------------------------------------------


def test_what_is_missing_is_waited_for(world: Fake) -> None:
    world.delete(*THERE)
    with_dataset(world, ledger=COPY)
    world.create(*KEY, SPEC)
    world.settle(*KEY)
    assert world.condition(*KEY) == ("False", "RepositoryNotFound")
    world.create(*THERE, {"url": "https://example.org"})
    world.delete(*HERE)
    world.settle(*KEY)
    assert world.condition(*KEY) == ("False", "DatasetNotFound")
    world.create(*HERE, DATASET_SPEC | {"ledger": COPY})
    world.settle(*KEY)
    assert world.condition(*KEY) == ("False", "DependencyNotReady"), "nobody has looked at the store for it yet"
    assert jobs(world) == []


def test_a_table_without_a_chain_is_not_synced(world: Fake) -> None:
    with_dataset(world)
    world.create(*KEY, SPEC)
    world.settle(*KEY)
    assert world.condition(*KEY) == ("False", "NotALedger")


def test_a_chain_of_ones_own_is_not_pulled_over(world: Fake) -> None:
    begin_push(world, direction="Pull")
    assert world.condition(*KEY) == ("False", "NotACopy")
    assert jobs(world) == []


def test_a_push_needs_leave_of_the_repository_and_goes_on_when_it_is_given(world: Fake) -> None:
    begin_push(world)
    assert world.condition(*KEY) == ("False", "PushNotAllowed")
    world.edit(*THERE, url="odf+https://example.org", push=True)
    world.settle(*KEY)
    assert last(world).direction == "Push"
    ends(world, outcome=PULLED.model_copy(update={"version": None}))
    assert world.condition(*KEY) == ("True", "Succeeded")
    assert there(world).status.table is None, "a push changes nothing here"


def test_a_push_waits_for_the_chain_of_its_dataset(world: Fake) -> None:
    world.edit(*THERE, url="odf+https://example.org", push=True)
    begin(world, direction="Push")
    assert world.condition(*KEY) == ("False", "Waiting")
    world.pass_time(timedelta(minutes=10))
    world.settle("ObjectStore", "lake")
    world.job_ends("lake-inspect-2", store={"conditional_writes": True}, datasets=(chained(),))
    world.settle("ObjectStore", "lake")
    world.settle(*HERE)
    world.settle(*KEY)
    assert jobs(world) == ["flights-sync-1"]


def test_a_push_takes_along_what_is_about_to_be_committed_but_does_not_wait_for_ever(world: Fake) -> None:
    world.edit(*THERE, url="odf+https://example.org", push=True)
    with_dataset(world, ledger=ROOT)
    world.job_ends("flights-ledger-1", dataset=chained())
    world.settle(*HERE)
    world.create("Commit", "january", COMMIT_SPEC)
    world.settle("Commit", "january")
    world.create(*KEY, SPEC | {"direction": "Push"})
    assert world.settle(*KEY).requeue_after == LOOK_AGAIN
    assert world.condition(*KEY) == ("False", "Waiting")
    assert jobs(world) == []
    world.pass_time(LONGEST_WAIT)
    world.settle(*KEY)
    assert jobs(world) == ["flights-sync-1"]


def test_a_store_without_conditional_writes_bears_one_writer_at_a_time(world: Fake) -> None:
    world.create(*HERE, DATASET_SPEC | {"ledger": COPY})
    with_store(world, chained(), conditional_writes=False)
    world.settle(*HERE)
    for name in ("first", "second"):
        world.create("Sync", name, SPEC)
        world.settle("Sync", name)
    assert jobs(world) == ["first-sync-1"]
    assert world.condition("Sync", "second") == ("False", "Waiting")
    assert "Sync 'first'" in world.message("Sync", "second")
    world.job_ends("first-sync-1", sync=PULLED, dataset=chained())
    world.settle("Sync", "first")
    world.settle("Sync", "second")
    assert jobs(world) == ["first-sync-1", "second-sync-1"]


def test_maintenance_gives_way_to_a_pull(world: Fake) -> None:
    with_dataset(world, chained(), ledger=COPY)
    world.create(*KEY, SPEC)
    world.settle(*KEY)
    world.create("Compaction", "tidy", {"datasetRef": {"name": "flights"}})
    world.settle("Compaction", "tidy")
    assert world.condition("Compaction", "tidy") == ("False", "Waiting")
    assert "Sync 'flights'" in world.message("Compaction", "tidy")


def test_a_dataset_created_anew_is_pulled_anew(world: Fake) -> None:
    begin(world)
    ends(world)
    world.pass_time(timedelta(minutes=1))
    world.delete(*HERE)
    world.create(*HERE, DATASET_SPEC | {"ledger": COPY})
    world.settle("ObjectStore", "lake")
    world.job_ends("lake-inspect-2", store={"conditional_writes": True}, datasets=(seen(),))
    world.settle("ObjectStore", "lake")
    world.settle(*HERE)
    assert world.condition(*HERE) == ("False", "AwaitingChain"), "what the Sync saw was of another"
    world.settle(*KEY)
    assert jobs(world) == ["flights-sync-1", "flights-sync-2"]
