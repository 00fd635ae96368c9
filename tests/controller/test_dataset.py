"""What a Dataset says about its table, and what happens to its data at the end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, get_args

import pytest

from kubothek.api.dataset import TASK_FIELDS, DatasetStatus, TaskRun
from kubothek.api.jobs import DeleteJob, InspectJob, RestoreJob, StoreState
from kubothek.api.meta import FINALIZER
from kubothek.controller.context import FailureClass, JobPhase
from kubothek.controller.tasks.ledger import DEFINE, POLL
from kubothek.controller.tasks.table_maintenance import TASK_TYPES
from kubothek.controller.tasks.transforms import TRANSFORM
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

OK = StoreState(conditional_writes=True)
KEY = ("Dataset", "flights")
STORE = ("ObjectStore", "lake")


@pytest.fixture
def context() -> Fake:
    return Fake()


def inspect_again(context: Fake, number: int, state: object) -> None:
    context.pass_time(timedelta(minutes=10))
    context.reconcile(*STORE)
    context.job_ends(f"lake-inspect-{number}", store=OK, datasets=(state,))
    context.settle(*STORE)
    context.settle(*KEY)


# --- readiness ---


def test_dataset_and_store_created_in_any_order_converge(context: Fake) -> None:
    context.create("Dataset", "flights", DATASET_SPEC)
    outcome = context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "ObjectStoreNotFound")
    assert context.kstatus(*KEY) == "InProgress"
    assert outcome.requeue_after is not None
    context.pass_time(outcome.requeue_after)
    context.settle(*KEY)
    assert context.kstatus(*KEY) == "Failed", "a mistake by now, rather than a matter of order"
    assert [event.type for event in context.events] == ["Warning"]
    assert "create it" in context.message(*KEY)
    with_store(context, seen())
    context.settle(*KEY)
    assert context.condition(*KEY) == ("True", "Succeeded")


def test_dataset_without_inspection_is_not_ready(context: Fake) -> None:
    context.create("ObjectStore", "lake", STORE_SPEC)
    context.create("Dataset", "flights", DATASET_SPEC)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("Unknown", "Progressing"), (
        "the first inspection of the store looks for it as well"
    )
    context.reconcile(*STORE)
    context.job_ends("lake-inspect-1", store=OK)
    context.settle(*STORE)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("Unknown", "Progressing")


def test_dataset_without_table_is_ready_for_first_commit(context: Fake) -> None:
    with_dataset(context)
    assert context.condition(*KEY) == ("True", "Succeeded")
    assert context.kstatus(*KEY) == "Current"
    status = context.dataset.status
    assert (status.uuid, status.version, status.rows, status.size) == ("flights", None, 0, "0 B")
    assert context.launches[-1].job.verb == "inspect"


def test_dataset_status_shows_totals_of_inspected_head(context: Fake) -> None:
    with_dataset(context, seen(3, uuid="Old"), uuid="Old")
    status = context.dataset.status
    assert (status.uuid, status.version, status.rows, status.files, status.bytes) == ("Old", 3, 30, 3, 3000)
    assert (status.partitions, status.size, status.etag) == (1, "2.93 KiB", "e3")
    assert status.last_commit_time is not None


def test_dataset_owned_by_another_stalls_until_released(context: Fake) -> None:
    problem = "OwnedByAnother: cluster/other/flights owns it; choose another uuid"
    with_dataset(context, seen(7, problem=problem))
    assert context.condition(*KEY) == ("False", "OwnedByAnother")
    assert context.message(*KEY) == "cluster/other/flights owns it; choose another uuid"
    assert context.kstatus(*KEY) == "Failed"
    inspect_again(context, 2, seen(7))
    assert context.condition(*KEY) == ("True", "Succeeded")


def test_dataset_edit_to_adopt_triggers_inspection(context: Fake) -> None:
    with_dataset(context, seen(0, problem="NotAdopted: plateau made it; set spec.adopt to true"))
    assert context.condition(*KEY) == ("False", "NotAdopted")
    context.edit(*KEY, adopt=True)
    context.pass_time(timedelta(seconds=5))
    context.settle(*STORE)
    job = context.launches[-1].job
    assert isinstance(job, InspectJob)
    assert [dataset.adopt for dataset in job.datasets] == [True]


@pytest.mark.parametrize(
    ("spec", "exports", "version_hint"),
    [
        ({}, "Off", True),
        ({"sharing": {"exposed": True}}, "Omit", False),
        ({"sharing": {"exposed": True}, "export": {"iceberg": {"versionHint": True}}}, "Omit", True),
        ({"sharing": {"exposed": True}, "export": {"iceberg": {"enabled": False}}}, "Off", False),
        ({"export": {"iceberg": {"enabled": True, "unsupportedColumns": "Refuse"}}}, "Refuse", True),
        ({"export": {"iceberg": {"enabled": True, "versionHint": False}}}, "Omit", False),
        ({"export": {"iceberg": {"unsupportedColumns": "Refuse"}}}, "Off", True),
    ],
)
def test_dataset_exports_by_default_what_gateways_serve(
    context: Fake, spec: dict[str, Any], exports: str, version_hint: bool
) -> None:
    with_dataset(context, seen(3))
    context.edit(*KEY, **spec)
    context.pass_time(timedelta(minutes=10))
    context.settle(*STORE)
    job = context.launches[-1].job
    assert isinstance(job, InspectJob)
    assert [(dataset.iceberg, dataset.version_hint) for dataset in job.datasets] == [(exports, version_hint)]


def test_dataset_with_unavailable_store_keeps_status(context: Fake) -> None:
    with_dataset(context, seen(3))
    context.pass_time(timedelta(minutes=10))
    context.reconcile(*STORE)
    context.job_fails("lake-inspect-2", FailureClass.RETRY, "StoreUnavailable")
    context.settle(*STORE)
    before = context.dataset.status
    context.reconcile(*KEY)
    assert context.dataset.status == before


def test_dataset_with_missing_engine_names_engine_and_recovers(context: Fake) -> None:
    with_dataset(context, engineRef={"name": "big"})
    assert context.condition(*KEY) == ("False", "EngineNotFound")
    assert "'big'" in context.message(*KEY)
    context.create("Engine", "big", {})
    context.settle(*KEY)
    assert context.condition(*KEY) == ("True", "Succeeded")


def test_dataset_suspended_stays_ready(context: Fake) -> None:
    with_dataset(context, seen(3))
    context.edit(*KEY, suspend=True)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("True", "Suspended")
    assert context.kstatus(*KEY) == "Current"


def test_dataset_with_disabled_reconcile_is_ignored(context: Fake) -> None:
    context.create(
        "Dataset",
        "flights",
        DATASET_SPEC | {"deletionPolicy": "Delete"},
        annotations={"kubothek.io/reconcile": "disabled"},
    )
    assert context.reconcile(*KEY).actions == ()


# --- projection ---


def test_dataset_status_follows_commit_immediately(context: Fake) -> None:
    job = with_running_commit(context)
    context.pass_time(timedelta(minutes=1))
    context.job_ends(job, **committed(1))
    context.settle("Commit", "january")
    context.settle(*KEY)
    assert (context.dataset.status.version, context.dataset.status.rows) == (1, 10)


def test_dataset_status_survives_deletion_of_finished_jobs(context: Fake) -> None:
    with_dataset(context, seen(3))
    context.jobs.clear()
    context.settle(*KEY)
    assert context.dataset.status.version == 3


def test_dataset_status_prefers_commit_over_earlier_inspection(context: Fake) -> None:
    job = with_running_commit(context)
    context.pass_time(timedelta(minutes=10))
    context.reconcile(*STORE)
    context.pass_time(timedelta(seconds=1))
    context.job_ends(job, **committed(1))
    context.settle("Commit", "january")
    context.job_ends("lake-inspect-2", store=OK, datasets=(seen(),))
    context.settle(*STORE)
    context.settle(*KEY)
    assert context.dataset.status.version == 1


def test_dataset_status_follows_inspection_of_replaced_bucket(context: Fake) -> None:
    job = with_running_commit(context)
    context.job_ends(job, **committed(9))
    context.settle("Commit", "january")
    context.settle(*KEY)
    assert context.dataset.status.version == 9
    inspect_again(context, 2, seen(2))
    assert context.dataset.status.version == 2


def test_dataset_status_uses_result_of_previous_inspection(context: Fake) -> None:
    """The next inspection may start before the Dataset has been reconciled."""
    context.create("Dataset", "flights", DATASET_SPEC)
    with_store(context, seen(4))
    context.pass_time(timedelta(minutes=10))
    context.reconcile(*STORE)
    context.settle(*KEY)
    assert context.dataset.status.version == 4


def test_dataset_recreated_ignores_inspection_of_predecessor(context: Fake) -> None:
    with_dataset(context, seen(4))
    context.delete(*KEY)
    context.pass_time(timedelta(seconds=1))
    context.create("Dataset", "flights", DATASET_SPEC)
    context.settle(*KEY)
    assert context.dataset.status.version is None
    assert context.condition(*KEY) == ("Unknown", "Progressing")


def test_dataset_status_ignores_commits_to_other_datasets(context: Fake) -> None:
    with_dataset(context)
    context.create("Dataset", "other", DATASET_SPEC)
    context.pass_time(timedelta(seconds=5))
    context.reconcile(*STORE)
    context.job_ends("lake-inspect-2", store=OK, datasets=(seen(), seen(uuid="other")))
    context.settle(*STORE)
    context.settle("Dataset", "other")
    job = with_running_commit(context, datasetRef={"name": "other"})
    context.job_ends(job, **committed(5))
    context.settle("Commit", "january")
    context.settle(*KEY)
    assert context.dataset.status.version is None


# --- the finalizer ---


def test_dataset_finalizer_is_set_for_delete_policy_only(context: Fake) -> None:
    with_dataset(context)
    assert not context.dataset.metadata.finalizers
    context.edit(*KEY, deletionPolicy="Delete")
    context.settle(*KEY)
    assert context.dataset.metadata.finalizers == (FINALIZER,)
    context.edit(*KEY, deletionPolicy="Retain")
    context.settle(*KEY)
    assert not context.dataset.metadata.finalizers


def test_dataset_finalizer_is_set_before_store_exists(context: Fake) -> None:
    context.create("Dataset", "flights", DATASET_SPEC | {"deletionPolicy": "Delete"})
    context.settle(*KEY)
    assert context.dataset.metadata.finalizers == (FINALIZER,)


# --- deletion ---


@pytest.fixture
def doomed(context: Fake) -> Fake:
    """A Dataset with the policy Delete that is being deleted."""
    with_dataset(context, seen(3), deletionPolicy="Delete")
    context.delete(*KEY)
    context.events.clear()
    context.launches.clear()
    return context


def gone(context: Fake) -> bool:
    return KEY not in context.resources


def kept(context: Fake) -> str:
    """The reason of the one event, which must say that the data is kept."""
    assert gone(context)
    (event,) = context.events
    assert event.type == "Warning"
    assert "is kept in ObjectStore 'lake'" in event.message
    return event.reason


def test_dataset_deletion_with_retain_policy_needs_no_action(context: Fake) -> None:
    with_dataset(context, seen(3))
    context.delete(*KEY)
    assert gone(context)


def test_dataset_deletion_with_foreign_finalizer_needs_no_action(context: Fake) -> None:
    with_dataset(context, seen(3))
    context._metadata(*KEY, finalizers=("other.io/hold",))
    context.delete(*KEY)
    outcome = context.reconcile(*KEY)
    assert (outcome.actions, outcome.events) == ((), ())


def test_dataset_deletion_job_deletes_data_before_resource(doomed: Fake) -> None:
    doomed.reconcile(*KEY)
    (launch,) = doomed.launches
    assert isinstance(launch.job, DeleteJob)
    assert launch.job.job == "flights-delete-1"
    assert launch.job.dataset.claim.incarnation == doomed.dataset.metadata.uid
    assert doomed.kstatus(*KEY) == "Terminating"
    doomed.job_runs("flights-delete-1")
    assert doomed.settle(*KEY).requeue_after == timedelta(minutes=5)
    assert doomed.condition(*KEY) == ("Unknown", "Deleting")
    doomed.job_ends("flights-delete-1")
    doomed.reconcile(*KEY)
    assert gone(doomed)
    assert [event.reason for event in doomed.events] == ["Deleting", "Deleted"]


@pytest.mark.parametrize("reason", ["DatasetNotFound", "DatasetDeleted"])
def test_dataset_deletion_of_missing_data_succeeds(doomed: Fake, reason: str) -> None:
    doomed.reconcile(*KEY)
    doomed.job_fails("flights-delete-1", FailureClass.REPORT, reason)
    doomed.reconcile(*KEY)
    assert gone(doomed)
    assert doomed.events[-1].type == "Normal"


@pytest.mark.parametrize("reason", ["OwnedByAnother", "NotAdopted"])
def test_dataset_deletion_keeps_data_of_another_owner(doomed: Fake, reason: str) -> None:
    doomed.reconcile(*KEY)
    doomed.events.clear()
    doomed.job_fails("flights-delete-1", FailureClass.REPORT, reason)
    doomed.reconcile(*KEY)
    assert kept(doomed) == reason


def test_dataset_deletion_with_denied_access_retries_until_success(doomed: Fake) -> None:
    doomed.reconcile(*KEY)
    doomed.job_fails("flights-delete-1", FailureClass.REPORT, "AccessDenied", "no right to write")
    outcome = doomed.settle(*KEY)
    assert doomed.condition(*KEY) == ("False", "AccessDenied")
    assert "no right to write; correct it" in doomed.message(*KEY)
    assert outcome.requeue_after == timedelta(seconds=2)
    doomed.pass_time(timedelta(seconds=2))
    doomed.reconcile(*KEY)
    doomed.job_ends("flights-delete-2")
    doomed.reconcile(*KEY)
    assert gone(doomed)


def test_dataset_deletion_with_transient_failure_retries(doomed: Fake) -> None:
    doomed.reconcile(*KEY)
    for number in (1, 2, 3):
        doomed.job_fails(f"flights-delete-{number}", FailureClass.RETRY, "StoreUnavailable")
        wait = doomed.settle(*KEY).requeue_after
        assert doomed.condition(*KEY) == ("False", "ProgressingWithRetry")
        assert wait is not None
        doomed.pass_time(wait)
        doomed.reconcile(*KEY)
    assert [launch.job.attempt for launch in doomed.launches] == [1, 2, 3, 4]


def test_dataset_deletion_past_deadline_releases_resource(doomed: Fake) -> None:
    doomed.reconcile(*KEY)
    doomed.events.clear()
    doomed.job_is("flights-delete-1", JobPhase.PENDING, "Unschedulable")
    outcome = doomed.settle(*KEY)
    assert outcome.requeue_after == timedelta(minutes=5)
    doomed.events.clear()
    doomed.pass_time(outcome.requeue_after)
    doomed.reconcile(*KEY)
    assert kept(doomed) == "DeletionDeadlineExceeded"
    assert doomed.cancelled == ["flights-delete-1"]


def test_dataset_deletion_in_terminating_namespace_releases_resource(doomed: Fake) -> None:
    doomed.refusals["flights-delete-1"] = ("NamespaceTerminating", "the namespace is being terminated")
    doomed.reconcile(*KEY)
    assert kept(doomed) == "NamespaceTerminating"


def test_dataset_deletion_without_store_releases_resource(doomed: Fake) -> None:
    doomed.delete(*STORE)
    doomed.reconcile(*KEY)
    assert kept(doomed) == "ObjectStoreNotFound"


def test_dataset_deletion_while_suspended_keeps_data(context: Fake) -> None:
    with_dataset(context, seen(3), deletionPolicy="Delete", suspend=True)
    context.delete(*KEY)
    context.events.clear()
    context.reconcile(*KEY)
    assert kept(context) == "Suspended"


def test_dataset_deletion_with_policy_changed_to_retain_keeps_data(doomed: Fake) -> None:
    doomed.reconcile(*KEY)
    doomed.edit(*KEY, deletionPolicy="Retain")
    doomed.reconcile(*KEY)
    assert gone(doomed)
    assert doomed.events[-1].reason == "Retained"
    assert doomed.cancelled == ["flights-delete-1"]


def test_dataset_deletion_with_missing_engine_deletes_data(context: Fake) -> None:
    with_dataset(context, seen(3), deletionPolicy="Delete", engineRef={"name": "gone"})
    context.delete(*KEY)
    context.reconcile(*KEY)
    assert context.launches[-1].job.verb == "delete"
    assert context.launches[-1].engine is None


def test_dataset_deletion_with_lost_job_starts_another(doomed: Fake) -> None:
    doomed.reconcile(*KEY)
    doomed.settle(*KEY)
    doomed.job_vanishes("flights-delete-1")
    doomed.settle(*KEY)
    assert [launch.job.job for launch in doomed.launches] == ["flights-delete-1", "flights-delete-2"]


# --- restoration ---


@pytest.fixture
def tombstone(context: Fake) -> Fake:
    """A new Dataset whose uuid was deleted before."""
    with_dataset(context, seen(8, deleted=True))
    return context


def test_dataset_with_tombstone_is_ready_and_names_restore_option(tombstone: Fake) -> None:
    assert tombstone.condition(*KEY) == ("True", "Succeeded")
    assert "spec.restore restores the deleted one" in tombstone.message(*KEY)
    assert tombstone.dataset.status.deleted


def test_dataset_restore_completes_before_pending_commit(tombstone: Fake) -> None:
    tombstone.edit(*KEY, restore=True)
    tombstone.create("Commit", "january", COMMIT_SPEC)
    tombstone.reconcile(*KEY)
    job = tombstone.launches[-1].job
    assert isinstance(job, RestoreJob)
    assert job.job == "flights-restore-1"
    assert tombstone.condition(*KEY) == ("Unknown", "Restoring")
    tombstone.settle("Commit", "january")
    assert tombstone.condition("Commit", "january") == ("False", "DependencyNotReady")
    tombstone.job_ends("flights-restore-1", dataset=seen(9))
    tombstone.settle(*KEY)
    assert tombstone.condition(*KEY) == ("True", "Succeeded")
    assert (tombstone.dataset.status.version, tombstone.dataset.status.deleted) == (9, False)
    tombstone.reconcile("Commit", "january")
    assert tombstone.launches[-1].job.verb == "commit"


def test_dataset_restore_ignores_earlier_inspection_with_tombstone(tombstone: Fake) -> None:
    tombstone.edit(*KEY, restore=True)
    tombstone.reconcile(*KEY)
    tombstone.job_ends("flights-restore-1", dataset=seen(9))
    tombstone.settle(*KEY)
    assert len([launch for launch in tombstone.launches if launch.job.verb == "restore"]) == 1
    assert not tombstone.dataset.status.deleted


def test_dataset_restore_without_tombstone_starts_no_job(context: Fake) -> None:
    with_dataset(context, seen(3), restore=True)
    assert context.condition(*KEY) == ("True", "Succeeded")
    assert [launch.job.verb for launch in context.launches] == ["inspect"]


def test_dataset_restore_after_grace_period_fails_and_can_be_withdrawn(tombstone: Fake) -> None:
    tombstone.edit(*KEY, restore=True)
    tombstone.reconcile(*KEY)
    tombstone.job_fails("flights-restore-1", FailureClass.REPORT, "VersionNotFound", "the grace period is over")
    tombstone.settle(*KEY)
    assert tombstone.condition(*KEY) == ("False", "VersionNotFound")
    assert "set spec.restore to false to start a new table" in tombstone.message(*KEY)
    assert tombstone.kstatus(*KEY) == "Failed"
    tombstone.pass_time(timedelta(hours=1))
    tombstone.settle(*KEY)
    assert tombstone.launches[-1].job.job == "flights-restore-1", "not tried again"
    tombstone.edit(*KEY, restore=False)
    tombstone.settle(*KEY)
    assert tombstone.condition(*KEY) == ("True", "Succeeded")
    tombstone.edit(*KEY, restore=True)
    tombstone.reconcile(*KEY)
    assert tombstone.launches[-1].job.job == "flights-restore-2", "the first name has an old end"


def test_dataset_restore_retries_until_store_answers(tombstone: Fake) -> None:
    tombstone.edit(*KEY, restore=True)
    tombstone.reconcile(*KEY)
    for number in range(1, 8):
        tombstone.job_fails(f"flights-restore-{number}", FailureClass.RETRY, "StoreUnavailable")
        wait = tombstone.settle(*KEY).requeue_after
        assert wait is not None
        assert tombstone.condition(*KEY) == ("False", "ProgressingWithRetry")
        tombstone.pass_time(wait)
        tombstone.reconcile(*KEY)
    assert wait == timedelta(minutes=1)


def test_dataset_restore_while_suspended_starts_no_job(tombstone: Fake) -> None:
    tombstone.edit(*KEY, restore=True, suspend=True)
    tombstone.settle(*KEY)
    assert tombstone.condition(*KEY) == ("False", "Suspended")
    assert tombstone.launches[-1].job.verb == "inspect"


def test_task_fields_of_a_status_are_those_of_all_task_types() -> None:
    types = (DEFINE, POLL, TRANSFORM, *TASK_TYPES)
    assert [task_type.verb for task_type in types] == list(TASK_FIELDS), "in the order in which they run"
    held = {name: field.annotation for name, field in DatasetStatus.model_fields.items()}
    states = {name: kind for name, hint in held.items() for kind in get_args(hint) if _is_task_run(kind)}
    assert {task_type.field: task_type.state for task_type in types} == states


def _is_task_run(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, TaskRun)
