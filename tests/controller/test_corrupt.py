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


def test_it_is_a_condition_with_files_versions_and_what_is_whole(context: Fake) -> None:
    condition = context.dataset.status.condition("Corrupt")
    assert condition is not None
    assert (condition.status, condition.reason, condition.message) == ("True", "Corrupt", LOST)
    assert context.condition(*KEY) == ("False", "Corrupt")
    assert context.message(*KEY) == LOST
    assert context.kstatus(*KEY) == "Failed"
    assert [(event.type, event.reason) for event in context.events][-1] == ("Warning", "Corrupt")


def test_it_is_gone_when_an_inspection_finds_the_table_whole(context: Fake) -> None:
    inspect_again(context, seen(5))
    assert context.dataset.status.condition("Corrupt") is None
    assert context.condition(*KEY) == ("True", "Succeeded")


def test_a_commit_can_put_it_right(context: Fake) -> None:
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


def test_nothing_is_made_anew_or_rewritten_until_then(context: Fake) -> None:
    inspect_again(context, seen(5, corrupt=LOST, ailments=AILMENTS))
    assert not [launch for launch in context.launches if isinstance(launch.job, HealJob)]
    inspect_again(context, seen(5, ailments=AILMENTS))
    assert [launch.job.job for launch in context.launches if isinstance(launch.job, HealJob)] == ["flights-heal-1"]


def test_what_a_healing_finds_out_counts(context: Fake) -> None:
    inspect_again(context, seen(5, ailments=AILMENTS))
    context.job_ends("flights-heal-1", dataset=seen(5, corrupt=LOST))
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "Corrupt")


def test_another_problem_comes_first_and_a_deleted_table_has_nothing_to_lose(context: Fake) -> None:
    inspect_again(context, seen(5, corrupt=LOST, problem="OwnedByAnother: cluster/other/flights owns it"))
    assert context.condition(*KEY) == ("False", "OwnedByAnother")
    inspect_again(context, seen(5, deleted=True))
    assert context.condition(*KEY) == ("True", "Succeeded")
