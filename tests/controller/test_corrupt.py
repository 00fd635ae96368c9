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
def world() -> Fake:
    world = Fake()
    with_dataset(world, seen(5, corrupt=LOST))
    return world


def inspect_again(world: Fake, state: DatasetState) -> None:
    world.pass_time(timedelta(minutes=10))
    world.reconcile(*STORE)
    world.job_ends(world.launches[-1].job.job, store=StoreState(conditional_writes=True), datasets=(state,))
    world.settle(*STORE)
    world.settle(*KEY)


def test_it_is_a_condition_with_files_versions_and_what_is_whole(world: Fake) -> None:
    condition = world.dataset.status.condition("Corrupt")
    assert condition is not None
    assert (condition.status, condition.reason, condition.message) == ("True", "Corrupt", LOST)
    assert world.condition(*KEY) == ("False", "Corrupt")
    assert world.message(*KEY) == LOST
    assert world.kstatus(*KEY) == "Failed"
    assert [(event.type, event.reason) for event in world.events][-1] == ("Warning", "Corrupt")


def test_it_is_gone_when_an_inspection_finds_the_table_whole(world: Fake) -> None:
    inspect_again(world, seen(5))
    assert world.dataset.status.condition("Corrupt") is None
    assert world.condition(*KEY) == ("True", "Succeeded")


def test_a_commit_can_put_it_right(world: Fake) -> None:
    rollback = {"datasetRef": COMMIT_SPEC["datasetRef"], "operation": "Rollback", "toVersion": 4}
    world.create("Commit", "back", rollback)
    world.settle("Commit", "back")
    assert [launch.job.job for launch in world.launches][-1] == "back-1"
    world.job_ends("back-1", **committed(6))
    world.settle("Commit", "back")
    world.settle(*KEY)
    assert (world.dataset.status.version, world.condition(*KEY)[1]) == (6, "Corrupt"), "until somebody has looked"
    inspect_again(world, seen(6))
    assert world.condition(*KEY) == ("True", "Succeeded")


def test_nothing_is_made_anew_or_rewritten_until_then(world: Fake) -> None:
    inspect_again(world, seen(5, corrupt=LOST, ailments=AILMENTS))
    assert not [launch for launch in world.launches if isinstance(launch.job, HealJob)]
    inspect_again(world, seen(5, ailments=AILMENTS))
    assert [launch.job.job for launch in world.launches if isinstance(launch.job, HealJob)] == ["flights-heal-1"]


def test_what_a_healing_finds_out_counts(world: Fake) -> None:
    inspect_again(world, seen(5, ailments=AILMENTS))
    world.job_ends("flights-heal-1", dataset=seen(5, corrupt=LOST))
    world.settle(*KEY)
    assert world.condition(*KEY) == ("False", "Corrupt")


def test_another_problem_comes_first_and_a_deleted_table_has_nothing_to_lose(world: Fake) -> None:
    inspect_again(world, seen(5, corrupt=LOST, problem="OwnedByAnother: cluster/other/flights owns it"))
    assert world.condition(*KEY) == ("False", "OwnedByAnother")
    inspect_again(world, seen(5, deleted=True))
    assert world.condition(*KEY) == ("True", "Succeeded")
