"""A Dataset that has lost data says so, does nothing by itself, and takes the Commits that put it right."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kubothek.api.jobs import DatasetState, HealJob, StoreState
from tests.controller.fake import COMMIT_SPEC, Fake, committed, seen, with_dataset

KEY = ("Dataset", "flights")
STORE = ("ObjectStore", "lake")
LOST = "1 data file is lost: flights/table/a.parquet; missing in version 5; version 4 is whole: put the files back"
AILMENTS = ("the index on 'carrier'",)


@pytest.fixture
def context() -> Fake:
    context = Fake()
    with_dataset(context, seen(5, corrupt=LOST))
    return context


def inspect_again(context: Fake, state: DatasetState) -> None:
    context.pass_time(timedelta(minutes=10))
    context.reconcile(*STORE)
    context.job_ends(context.launches[-1].job.job, store=StoreState(conditional_writes=True), datasets=(state,))
    context.settle(*STORE)
    context.settle(*KEY)


def test_corrupt_dataset_sets_condition_and_warning_event(context: Fake) -> None:
    condition = context.dataset.status.condition("Corrupt")
    assert condition is not None
    assert (condition.status, condition.reason, condition.message) == ("True", "Corrupt", LOST)
    assert context.condition(*KEY) == ("False", "Corrupt")
    assert context.message(*KEY) == LOST
    assert context.kstatus(*KEY) == "Failed"
    assert [(event.type, event.reason) for event in context.events][-1] == ("Warning", "Corrupt")


def test_corrupt_condition_is_removed_after_clean_inspection(context: Fake) -> None:
    inspect_again(context, seen(5))
    assert context.dataset.status.condition("Corrupt") is None
    assert context.condition(*KEY) == ("True", "Succeeded")


def test_corrupt_dataset_recovers_after_rollback_commit_and_inspection(context: Fake) -> None:
    rollback = {"datasetRef": COMMIT_SPEC["datasetRef"], "operation": "Rollback", "toVersion": 4}
    context.create("Commit", "back", rollback)
    context.settle("Commit", "back")
    assert [launch.job.job for launch in context.launches][-1] == "back-1"
    context.job_ends("back-1", **committed(6))
    context.settle("Commit", "back")
    context.settle(*KEY)
    assert (context.dataset.status.version, context.condition(*KEY)[1]) == (6, "Corrupt"), "until somebody has looked"
    inspect_again(context, seen(6))
    assert context.condition(*KEY) == ("True", "Succeeded")


def test_corrupt_dataset_starts_no_healing_until_clean_inspection(context: Fake) -> None:
    inspect_again(context, seen(5, corrupt=LOST, ailments=AILMENTS))
    assert not [launch for launch in context.launches if isinstance(launch.job, HealJob)]
    inspect_again(context, seen(5, ailments=AILMENTS))
    assert [launch.job.job for launch in context.launches if isinstance(launch.job, HealJob)] == ["flights-heal-1"]


def test_healing_that_finds_corruption_sets_corrupt_condition(context: Fake) -> None:
    inspect_again(context, seen(5, ailments=AILMENTS))
    context.job_ends("flights-heal-1", dataset=seen(5, corrupt=LOST))
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "Corrupt")


def test_corrupt_condition_yields_to_other_problem_and_to_deletion(context: Fake) -> None:
    inspect_again(context, seen(5, corrupt=LOST, problem="OwnedByAnother: cluster/other/flights owns it"))
    assert context.condition(*KEY) == ("False", "OwnedByAnother")
    inspect_again(context, seen(5, deleted=True))
    assert context.condition(*KEY) == ("True", "Succeeded")
