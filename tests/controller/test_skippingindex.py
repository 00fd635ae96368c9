"""SkippingIndex: when its jobs run, what they are told, and how it goes away."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kubothek.api.jobs import SkipFilesJob, SkipFilesOutcome, SkippingIndexSpec
from kubothek.api.skippingindex import SkippingIndex
from kubothek.controller.context import FailureClass, JobPhase
from tests.controller.fake import Fake, with_store

KEY = ("SkippingIndex", "trips")
SPEC: dict[str, Any] = {
    "location": {"storeRef": {"name": "lake"}, "prefix": "landing/trips", "glob": "*.parquet"},
    "skipping": {"indices": [{"type": "MinMax", "column": "distance"}]},
}
DONE = SkipFilesOutcome(location=".kubothek/++plain/team.trips/xskipper", files=10, described=9, added=9, bytes=2048)


@pytest.fixture
def world() -> Fake:
    world = Fake()
    with_store(world)
    return world


def begin(world: Fake, **spec: Any) -> None:
    world.create(*KEY, SPEC | spec)
    world.settle(*KEY)


def jobs(world: Fake) -> list[str]:
    return [launch.job.job for launch in world.launches if isinstance(launch.job, SkipFilesJob)]


def last(world: Fake) -> SkipFilesJob:
    job = world.launches[-1].job
    assert isinstance(job, SkipFilesJob)
    return job


def there(world: Fake) -> SkippingIndex:
    found = world.resources[KEY]
    assert isinstance(found, SkippingIndex)
    return found


def ends(world: Fake, job: str = "trips-skip-1", outcome: SkipFilesOutcome = DONE) -> None:
    world.job_ends(job, skip_files=outcome)
    world.settle(*KEY)


def test_it_is_made_once_and_says_what_is_described(world: Fake) -> None:
    begin(world)
    assert world.condition(*KEY) == ("Unknown", "Describing")
    job = last(world)
    assert (job.name, job.files.prefix, job.files.glob, job.files.format, job.drop) == (
        "team.trips",
        "landing/trips",
        "*.parquet",
        "Parquet",
        False,
    )
    assert job.skipping.indices == (SkippingIndexSpec(type="MinMax", columns=("distance",)),)
    ends(world)
    assert world.condition(*KEY) == ("True", "Succeeded")
    assert world.message(*KEY) == "9 of 10 files are described"
    status = there(world).status
    assert (status.files, status.described, status.size, status.refreshed_time) == (10, 9, "2.00 KiB", world.now)
    assert jobs(world) == ["trips-skip-1"]


def test_files_that_could_not_be_described_are_named(world: Fake) -> None:
    begin(world)
    ends(world, outcome=DONE.model_copy(update={"left_out": ("a.parquet: no Parquet file",)}))
    assert "always opened, as they could not be described: a.parquet: no Parquet file" in world.message(*KEY)


def test_an_edit_and_a_request_each_start_another_job(world: Fake) -> None:
    begin(world)
    ends(world)
    world.edit(*KEY, skipping={"indices": [{"type": "ValueList", "column": "zone"}]})
    world.settle(*KEY)
    ends(world, "trips-skip-2")
    world.annotate(*KEY, requestedAt="today")
    world.settle(*KEY)
    ends(world, "trips-skip-3")
    world.settle(*KEY)
    assert jobs(world) == ["trips-skip-1", "trips-skip-2", "trips-skip-3"]
    assert there(world).status.handled_request == "today"
    assert world.cancelled == ["trips-skip-1"], "the logs of the last two are kept"


def test_a_schedule_refreshes_at_its_slots(world: Fake) -> None:
    begin(world, schedule={"cron": "30 * * * *"})
    ends(world)
    assert world.message(*KEY).endswith("next inspection at 2026-11-21T12:30:00Z")
    world.pass_time(timedelta(minutes=20))
    assert world.settle(*KEY).requeue_after == timedelta(minutes=10)
    assert jobs(world) == ["trips-skip-1"]
    world.pass_time(timedelta(minutes=11))
    world.settle(*KEY)
    assert jobs(world) == ["trips-skip-1", "trips-skip-2"]
    ends(world, "trips-skip-2")
    assert jobs(world) == ["trips-skip-1", "trips-skip-2"]


def test_a_schedule_that_names_no_time_is_told(world: Fake) -> None:
    begin(world, schedule={"cron": "0 0 30 2 *"})
    ends(world)
    assert world.condition(*KEY) == ("False", "InvalidSchedule")


def test_a_failure_is_told_and_the_next_request_tries_again(world: Fake) -> None:
    begin(world)
    world.job_fails("trips-skip-1", FailureClass.REPORT, "SkippingInvalid", "no column 'distance'")
    world.settle(*KEY)
    assert world.condition(*KEY) == ("False", "SkippingInvalid")
    assert jobs(world) == ["trips-skip-1"]
    world.annotate(*KEY, requestedAt="again")
    world.settle(*KEY)
    assert jobs(world) == ["trips-skip-1", "trips-skip-2"]


def test_a_lost_pod_is_another_attempt(world: Fake) -> None:
    begin(world)
    world.job_runs("trips-skip-1")
    world.settle(*KEY)
    world.job_fails("trips-skip-1", FailureClass.INFRASTRUCTURE, "PodLost")
    world.settle(*KEY)
    world.pass_time(timedelta(minutes=1))
    world.settle(*KEY)
    assert jobs(world)[-1] == "trips-skip-2"


def test_suspended_it_starts_nothing(world: Fake) -> None:
    begin(world, suspend=True)
    assert jobs(world) == []
    assert world.condition(*KEY) == ("True", "Suspended")


def test_metadata_may_go_to_another_store(world: Fake) -> None:
    world.create("ObjectStore", "side", {"url": "s3://side", "credentialsSecretRef": {"name": "side-secret"}})
    world.reconcile("ObjectStore", "side")
    begin(world, metadata={"storeRef": {"name": "side"}})
    assert world.condition(*KEY) == ("False", "DependencyNotReady")
    world.job_ends("side-inspect-1", store={"conditional_writes": True})
    world.settle("ObjectStore", "side")
    world.settle(*KEY)
    job = last(world)
    assert (job.store.name, job.files.store.name) == ("side", "lake")
    assert world.launches[-1].secrets == {"side": "side-secret"}


def test_deleting_it_deletes_the_metadata_first(world: Fake) -> None:
    begin(world, deletionPolicy="Delete")
    world.job_runs("trips-skip-1")
    world.settle(*KEY)
    world.delete(*KEY)
    world.reconcile(*KEY)
    assert "trips-skip-1" in world.cancelled, "what describes files is stopped"
    assert (world.launches[-1].job.job, last(world).drop) == ("trips-drop-1", True)
    world.job_ends("trips-drop-1")
    world.reconcile(*KEY)
    assert KEY not in world.resources
    assert world.events[-1].reason == "Deleted"


def test_deleting_it_leaves_the_metadata_if_nothing_else_is_said(world: Fake) -> None:
    begin(world)
    ends(world)
    assert there(world).metadata.finalizers == ()
    world.delete(*KEY)
    assert (KEY in world.resources, jobs(world)) == (False, ["trips-skip-1"])


@pytest.mark.parametrize("how", ["retain", "store is gone", "too late"])
def test_nothing_holds_it_back_for_ever(world: Fake, how: str) -> None:
    begin(world, deletionPolicy="Delete")
    ends(world)
    if how == "retain":
        world.edit(*KEY, deletionPolicy="Retain")
    if how == "store is gone":
        del world.resources["ObjectStore", "lake"]
    world.delete(*KEY)
    world.reconcile(*KEY)
    if how == "too late":
        world.job_is("trips-drop-1", JobPhase.PENDING)
        world.reconcile(*KEY)
        world.pass_time(timedelta(minutes=6))
        world.reconcile(*KEY)
    assert KEY not in world.resources
    assert world.events[-1].reason == ("Retained" if how == "retain" else "MetadataLeft")
