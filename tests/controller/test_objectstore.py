"""When a store is inspected, and what becomes of the answer."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kubothek.api.jobs import InspectJob, StoreState
from kubothek.controller.context import FailureClass, JobPhase
from tests.controller.fake import (
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
KEY = ("ObjectStore", "lake")


@pytest.fixture
def world() -> Fake:
    return Fake()


def inspections(world: Fake) -> list[InspectJob]:
    return [launch.job for launch in world.launches if isinstance(launch.job, InspectJob)]


def numbers(world: Fake) -> list[int]:
    return [job.attempt for job in inspections(world)]


def test_a_new_store_is_inspected_at_once_with_all_its_datasets(world: Fake) -> None:
    world.create("Dataset", "b", DATASET_SPEC)
    world.create("Dataset", "a", DATASET_SPEC | {"uuid": "Z", "table": {"partitionOn": ["month"]}})
    world.create("Dataset", "elsewhere", {"storeRef": {"name": "other"}})
    world.create(
        "ObjectStore", "lake", STORE_SPEC | {"endpoint": "http://s3:9000", "credentialsSecretRef": {"name": "keys"}}
    )
    world.settle(*KEY)
    (launch,) = world.launches
    job = launch.job
    assert isinstance(job, InspectJob)
    assert (job.job, job.uid) == ("lake-inspect-1", world.store.metadata.uid)
    assert [dataset.uuid for dataset in job.datasets] == ["Z", "b"]
    assert job.datasets[0].claim.owner == "cluster/team/a"
    assert job.datasets[0].claim.incarnation == world.resources["Dataset", "a"].metadata.uid
    assert job.datasets[0].table.partition_on == ("month",)
    assert (job.store.url, job.store.endpoint) == ("s3://bucket/lake", "http://s3:9000")
    assert job.store.credentials_dir is not None
    assert launch.secrets == {"lake": "keys"}
    assert world.condition(*KEY) == ("Unknown", "Progressing")
    assert world.kstatus(*KEY) == "InProgress"


def test_a_store_on_a_volume_is_mounted(world: Fake) -> None:
    world.create("ObjectStore", "lake", {"url": "file:///data", "volume": {"claimName": "disk"}})
    world.reconcile(*KEY)
    assert world.launches[0].volumes == {"lake": "disk"}


def test_a_store_that_answers_is_ready(world: Fake) -> None:
    with_store(world)
    assert world.condition(*KEY) == ("True", "Succeeded")
    assert world.kstatus(*KEY) == "Current"
    assert world.store.status.capabilities is not None
    assert world.store.status.capabilities.conditional_writes
    assert numbers(world) == [1]


def test_the_namespace_default_engine_inspects(world: Fake) -> None:
    world.create("Engine", "default", {"image": "mine:2"})
    world.create("ObjectStore", "lake", STORE_SPEC)
    world.reconcile(*KEY)
    assert world.launches[0].engine == world.engine


def test_a_store_without_conditional_writes_says_so_once(world: Fake) -> None:
    with_store(world, conditional_writes=False)
    assert world.condition(*KEY) == ("True", "Succeeded")
    assert "no conditional writes" in world.message(*KEY)
    world.pass_time(timedelta(minutes=10))
    world.reconcile(*KEY)
    world.job_ends("lake-inspect-2", store=StoreState(conditional_writes=False))
    world.settle(*KEY)
    assert [event.type for event in world.events if event.reason == "NoConditionalWrites"] == ["Warning"]


def test_the_next_inspection_is_an_interval_later_and_moves_no_condition(world: Fake) -> None:
    with_store(world)
    assert world.reconcile(*KEY).requeue_after == timedelta(minutes=10)
    world.pass_time(timedelta(minutes=9))
    world.reconcile(*KEY)
    assert numbers(world) == [1]
    conditions, events = world.store.status.conditions, len(world.events)
    world.pass_time(timedelta(minutes=1))
    world.reconcile(*KEY)
    assert numbers(world) == [1, 2]
    world.job_runs("lake-inspect-2")
    world.settle(*KEY)
    assert world.store.status.conditions == conditions
    world.job_ends("lake-inspect-2", store=OK)
    world.settle(*KEY)
    assert world.store.status.conditions == conditions
    assert len(world.events) == events


def test_a_request_is_handled_at_once_and_once(world: Fake) -> None:
    with_store(world)
    world.annotate(*KEY, requestedAt="monday")
    world.reconcile(*KEY)
    assert numbers(world) == [1, 2]
    assert world.store.status.last_handled_reconcile_at == "monday"
    world.job_ends("lake-inspect-2", store=OK)
    world.settle(*KEY)
    assert numbers(world) == [1, 2]
    assert world.store.status.last_handled_reconcile_at == "monday"


def test_a_request_during_an_inspection_is_handled_after_it(world: Fake) -> None:
    world.create("ObjectStore", "lake", STORE_SPEC)
    world.reconcile(*KEY)
    world.annotate(*KEY, requestedAt="monday")
    world.settle(*KEY)
    assert numbers(world) == [1]
    world.job_ends("lake-inspect-1", store=OK)
    world.reconcile(*KEY)
    assert numbers(world) == [1, 2]


def test_datasets_that_come_together_share_an_inspection(world: Fake) -> None:
    with_store(world)
    world.create("Dataset", "a", DATASET_SPEC)
    assert world.reconcile(*KEY).requeue_after == timedelta(seconds=5)
    world.pass_time(timedelta(seconds=5))
    world.create("Dataset", "b", DATASET_SPEC)
    world.reconcile(*KEY)
    assert [dataset.uuid for dataset in inspections(world)[-1].datasets] == ["a", "b"]
    assert numbers(world) == [1, 2]


def test_a_truncated_answer_is_continued_until_all_have_answered(world: Fake) -> None:
    for name in "abcde":
        world.create("Dataset", name, DATASET_SPEC)
    world.create("ObjectStore", "lake", STORE_SPEC)
    world.reconcile(*KEY)
    for number, told in enumerate(["ab", "cd", "e"], start=1):
        states = tuple(seen(1, uuid) for uuid in told)
        world.job_ends(f"lake-inspect-{number}", store=OK, datasets=states, truncated=number < 3)
        world.settle(*KEY)
    asked = ["".join(dataset.uuid for dataset in job.datasets) for job in inspections(world)]
    assert asked == ["abcde", "cde", "e"]
    world.pass_time(timedelta(minutes=10))
    world.reconcile(*KEY)
    assert len(inspections(world)[-1].datasets) == 5


def test_more_datasets_than_one_job_can_be_told_of_are_shared_out(world: Fake) -> None:
    for number in range(1200):
        world.create("Dataset", f"d{number:04}", DATASET_SPEC)
    world.create("ObjectStore", "lake", STORE_SPEC)
    world.reconcile(*KEY)
    for number in (1, 2, 3):
        world.job_ends(f"lake-inspect-{number}", store=OK)
        world.settle(*KEY)
    asked = [[dataset.uuid for dataset in job.datasets] for job in inspections(world)]
    assert [len(uuids) for uuids in asked] == [500, 500, 200]
    assert [uuid for uuids in asked for uuid in uuids] == sorted(f"d{number:04}" for number in range(1200))


def test_a_round_starts_anew_when_datasets_came_in_between(world: Fake) -> None:
    for name in "bc":
        world.create("Dataset", name, DATASET_SPEC)
    world.create("ObjectStore", "lake", STORE_SPEC)
    world.reconcile(*KEY)
    world.create("Dataset", "a", DATASET_SPEC)
    world.job_ends("lake-inspect-1", store=OK, datasets=(seen(1, "b"),), truncated=True)
    world.settle(*KEY)
    assert [dataset.uuid for dataset in inspections(world)[-1].datasets] == ["a", "b", "c"]


def test_only_the_last_two_results_are_kept(world: Fake) -> None:
    with_store(world)
    for number in (2, 3, 4):
        world.pass_time(timedelta(minutes=10))
        world.reconcile(*KEY)
        world.job_ends(f"lake-inspect-{number}", store=OK)
        world.settle(*KEY)
    assert sorted(world.jobs) == ["lake-inspect-3", "lake-inspect-4"]


@pytest.mark.parametrize("reason", ["InvalidCredentials", "AccessDenied", "BucketNotFound"])
def test_a_store_that_refuses_is_stalled_and_looked_at_again_ever_more_rarely(world: Fake, reason: str) -> None:
    world.create("ObjectStore", "lake", STORE_SPEC)
    world.reconcile(*KEY)
    waits = []
    for number in range(1, 9):
        world.job_fails(f"lake-inspect-{number}", FailureClass.REPORT, reason)
        wait = world.settle(*KEY).requeue_after
        assert world.condition(*KEY) == ("False", reason)
        assert world.kstatus(*KEY) == "Failed"
        assert wait is not None
        waits.append(wait.total_seconds())
        world.pass_time(wait)
        world.reconcile(*KEY)
        assert world.condition(*KEY) == ("False", reason), "known to be bad until an inspection says otherwise"
    assert waits == [10, 20, 40, 80, 160, 320, 600, 600]
    assert [event.reason for event in world.events] == ["Progressing", reason]
    world.job_ends("lake-inspect-9", store=OK)
    world.settle(*KEY)
    assert world.condition(*KEY) == ("True", "Succeeded")
    assert world.store.status.last_inspection is not None
    assert world.store.status.last_inspection.failures == 0


@pytest.mark.parametrize(("reason", "named"), [("InvalidCredentials", True), ("BucketNotFound", False)])
def test_a_failure_of_keys_names_the_secret_to_correct(world: Fake, reason: str, named: bool) -> None:
    world.create("ObjectStore", "lake", {**STORE_SPEC, "credentialsSecretRef": {"name": "lake-keys"}})
    world.reconcile(*KEY)
    world.job_fails("lake-inspect-1", FailureClass.REPORT, reason)
    world.settle(*KEY)
    assert ("lake-keys" in world.message(*KEY)) is named


def test_a_store_that_does_not_answer_is_waited_for(world: Fake) -> None:
    with_store(world)
    world.pass_time(timedelta(minutes=10))
    world.reconcile(*KEY)
    world.job_fails("lake-inspect-2", FailureClass.RETRY, "StoreUnavailable", "no answer from http://s3")
    world.settle(*KEY)
    assert world.condition(*KEY) == ("False", "StoreUnavailable")
    assert world.kstatus(*KEY) == "InProgress"
    assert world.message(*KEY) == "no answer from http://s3"


def test_a_lost_inspection_says_nothing_about_the_store(world: Fake) -> None:
    with_store(world)
    world.pass_time(timedelta(minutes=10))
    world.reconcile(*KEY)
    world.settle(*KEY)
    world.job_vanishes("lake-inspect-2")
    world.settle(*KEY)
    assert world.condition(*KEY) == ("True", "Succeeded")
    assert "lake-inspect-2" in world.cancelled, "in case it only looked lost"
    world.pass_time(timedelta(seconds=10))
    world.reconcile(*KEY)
    assert numbers(world)[-1] == 3


def test_a_crash_between_announcement_and_launch_repeats_the_launch(world: Fake) -> None:
    world.create("ObjectStore", "lake", STORE_SPEC)
    world.reconcile(*KEY)
    world.job_vanishes("lake-inspect-1")
    world.reconcile(*KEY)
    assert numbers(world) == [1, 1]


def test_an_inspection_that_cannot_start_says_why_and_recovers_with_the_engine(world: Fake) -> None:
    world.create("Engine", "default", {"image": "missing:1"})
    world.create("ObjectStore", "lake", STORE_SPEC)
    world.reconcile(*KEY)
    world.job_is("lake-inspect-1", JobPhase.PENDING, "ImagePullFailed")
    world.settle(*KEY)
    assert world.condition(*KEY) == ("False", "ImagePullFailed")
    assert world.kstatus(*KEY) == "Failed"
    world.edit("Engine", "default", image="there:1")
    world.reconcile(*KEY)
    assert world.cancelled == ["lake-inspect-1"]
    assert numbers(world) == [1, 2]
    world.job_ends("lake-inspect-2", store=OK)
    world.settle(*KEY)
    assert world.condition(*KEY) == ("True", "Succeeded")


def test_another_endpoint_makes_what_was_known_void(world: Fake) -> None:
    with_store(world)
    world.edit(*KEY, endpoint="http://elsewhere:9000")
    world.reconcile(*KEY)
    assert world.condition(*KEY) == ("Unknown", "Progressing")
    assert world.store.status.capabilities is None
    assert inspections(world)[-1].store.endpoint == "http://elsewhere:9000"
    assert inspections(world)[-1].store.conditional_writes is None


def test_a_longer_interval_is_no_reason_to_look(world: Fake) -> None:
    with_store(world)
    world.edit(*KEY, interval="1h")
    assert world.settle(*KEY).requeue_after == timedelta(hours=1)
    assert world.condition(*KEY) == ("True", "Succeeded")
    assert world.kstatus(*KEY) == "Current"
    assert numbers(world) == [1]


def test_a_suspended_store_is_not_inspected_and_keeps_what_is_known(world: Fake) -> None:
    with_store(world)
    world.edit(*KEY, suspend=True)
    world.settle(*KEY)
    assert world.condition(*KEY) == ("True", "Suspended")
    assert world.kstatus(*KEY) == "Current"
    world.pass_time(timedelta(days=1))
    world.settle(*KEY)
    assert numbers(world) == [1]
    world.edit(*KEY, suspend=False)
    world.reconcile(*KEY)
    assert numbers(world) == [1, 2]
    assert world.condition(*KEY) == ("True", "Succeeded")


def test_a_store_that_is_suspended_from_the_start_is_never_looked_at(world: Fake) -> None:
    world.create("ObjectStore", "lake", STORE_SPEC | {"suspend": True})
    world.settle(*KEY)
    assert world.condition(*KEY) == ("False", "Suspended")
    assert world.launches == []


@pytest.mark.parametrize(
    ("refusal", "kstatus", "seconds"),
    [("QuotaExceeded", "InProgress", 30), ("AdmissionDenied", "Failed", 300), ("SomethingElse", "InProgress", 30)],
)
def test_a_refused_launch_is_said_and_tried_again(world: Fake, refusal: str, kstatus: str, seconds: int) -> None:
    world.refusals["lake-inspect-1"] = (refusal, "no pods today")
    world.create("ObjectStore", "lake", STORE_SPEC)
    outcome = world.settle(*KEY)
    assert world.condition(*KEY) == ("False", refusal)
    assert world.kstatus(*KEY) == kstatus
    assert outcome.requeue_after == timedelta(seconds=seconds)
    del world.refusals["lake-inspect-1"]
    world.settle(*KEY)
    assert world.condition(*KEY) == ("Unknown", "Progressing")
    assert "lake-inspect-1" in world.jobs


def test_a_frozen_store_is_left_alone(world: Fake) -> None:
    world.create("ObjectStore", "lake", STORE_SPEC, annotations={"kubothek.io/reconcile": "disabled"})
    outcome = world.reconcile(*KEY)
    assert (outcome.actions, outcome.events) == ((), ())
    assert world.store.status.conditions == ()


def test_a_store_of_the_same_name_does_not_take_the_answer_of_its_predecessor(world: Fake) -> None:
    with_store(world)
    world.delete(*KEY)
    world.create("ObjectStore", "lake", STORE_SPEC)
    world.reconcile(*KEY)
    world.settle(*KEY)
    assert world.condition(*KEY) == ("Unknown", "Progressing")
    assert numbers(world)[-1] == 2, "its predecessor's pod still has the first name"


def test_what_an_inspection_told_the_next_one_need_not_tell_until_something_else_did(world: Fake) -> None:
    with_dataset(world, seen(1))
    flights = ("Dataset", "flights")
    known = world.dataset.status.inspected_digest
    assert known == seen(1).digest
    for number in (2, 3):
        world.pass_time(timedelta(minutes=10))
        world.reconcile(*KEY)
        assert inspections(world)[-1].known == {"flights": known}
        before = world.dataset.status
        world.job_ends(f"lake-inspect-{number}", store=OK)  # nothing new: it is not told of
        world.settle(*KEY)
        world.settle(*flights)
        assert world.dataset.status == before, "what is at rest costs no write"
    name = with_running_commit(world)
    world.job_ends(name, **committed(2))
    world.settle("Commit", "january")
    world.settle(*flights)
    assert world.dataset.status.version == 2
    world.pass_time(timedelta(minutes=10))
    world.reconcile(*KEY)
    assert inspections(world)[-1].known == {}, "the next inspection has the last word on what a Commit left"
