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
def context() -> Fake:
    return Fake()


def inspections(context: Fake) -> list[InspectJob]:
    return [launch.job for launch in context.launches if isinstance(launch.job, InspectJob)]


def numbers(context: Fake) -> list[int]:
    return [job.attempt for job in inspections(context)]


def test_new_store_is_inspected_immediately_with_all_its_datasets(context: Fake) -> None:
    context.create("Dataset", "b", DATASET_SPEC)
    context.create("Dataset", "a", DATASET_SPEC | {"uuid": "Z", "table": {"partitionOn": ["month"]}})
    context.create("Dataset", "elsewhere", {"storeRef": {"name": "other"}})
    context.create(
        "ObjectStore", "lake", STORE_SPEC | {"endpoint": "http://s3:9000", "credentialsSecretRef": {"name": "keys"}}
    )
    context.settle(*KEY)
    (launch,) = context.launches
    job = launch.job
    assert isinstance(job, InspectJob)
    assert (job.job, job.uid) == ("lake-inspect-1", context.store.metadata.uid)
    assert [dataset.uuid for dataset in job.datasets] == ["Z", "b"]
    assert job.datasets[0].claim.owner == "cluster/team/a"
    assert job.datasets[0].claim.incarnation == context.resources["Dataset", "a"].metadata.uid
    assert job.datasets[0].table.partition_on == ("month",)
    assert (job.store.url, job.store.endpoint) == ("s3://bucket/lake", "http://s3:9000")
    assert job.store.credentials_dir is not None
    assert launch.secrets == {"lake": "keys"}
    assert context.condition(*KEY) == ("Unknown", "Progressing")
    assert context.kstatus(*KEY) == "InProgress"


def test_store_on_volume_is_mounted_in_job(context: Fake) -> None:
    context.create("ObjectStore", "lake", {"url": "file:///data", "volume": {"claimName": "disk"}})
    context.reconcile(*KEY)
    assert context.launches[0].volumes == {"lake": "disk"}


def test_store_that_answers_is_ready(context: Fake) -> None:
    with_store(context)
    assert context.condition(*KEY) == ("True", "Succeeded")
    assert context.kstatus(*KEY) == "Current"
    assert context.store.status.capabilities is not None
    assert context.store.status.capabilities.conditional_writes
    assert numbers(context) == [1]


def test_store_is_inspected_with_default_engine_of_namespace(context: Fake) -> None:
    context.create("Engine", "default", {"image": "mine:2"})
    context.create("ObjectStore", "lake", STORE_SPEC)
    context.reconcile(*KEY)
    assert context.launches[0].engine == context.engine


def test_store_without_conditional_writes_is_reported_once(context: Fake) -> None:
    with_store(context, conditional_writes=False)
    assert context.condition(*KEY) == ("True", "Succeeded")
    assert "no conditional writes" in context.message(*KEY)
    context.pass_time(timedelta(minutes=10))
    context.reconcile(*KEY)
    context.job_ends("lake-inspect-2", store=StoreState(conditional_writes=False))
    context.settle(*KEY)
    assert [event.type for event in context.events if event.reason == "NoConditionalWrites"] == ["Warning"]


def test_store_inspection_repeats_after_interval_without_condition_change(context: Fake) -> None:
    with_store(context)
    assert context.reconcile(*KEY).requeue_after == timedelta(minutes=10)
    context.pass_time(timedelta(minutes=9))
    context.reconcile(*KEY)
    assert numbers(context) == [1]
    conditions, events = context.store.status.conditions, len(context.events)
    context.pass_time(timedelta(minutes=1))
    context.reconcile(*KEY)
    assert numbers(context) == [1, 2]
    context.job_runs("lake-inspect-2")
    context.settle(*KEY)
    assert context.store.status.conditions == conditions
    context.job_ends("lake-inspect-2", store=OK)
    context.settle(*KEY)
    assert context.store.status.conditions == conditions
    assert len(context.events) == events


def test_store_request_starts_one_inspection_immediately(context: Fake) -> None:
    with_store(context)
    context.annotate(*KEY, requestedAt="monday")
    context.reconcile(*KEY)
    assert numbers(context) == [1, 2]
    assert context.store.status.last_handled_reconcile_at == "monday"
    context.job_ends("lake-inspect-2", store=OK)
    context.settle(*KEY)
    assert numbers(context) == [1, 2]
    assert context.store.status.last_handled_reconcile_at == "monday"


def test_store_request_during_inspection_starts_another_inspection(context: Fake) -> None:
    context.create("ObjectStore", "lake", STORE_SPEC)
    context.reconcile(*KEY)
    context.annotate(*KEY, requestedAt="monday")
    context.settle(*KEY)
    assert numbers(context) == [1]
    context.job_ends("lake-inspect-1", store=OK)
    context.reconcile(*KEY)
    assert numbers(context) == [1, 2]


def test_datasets_created_together_share_one_inspection(context: Fake) -> None:
    with_store(context)
    context.create("Dataset", "a", DATASET_SPEC)
    assert context.reconcile(*KEY).requeue_after == timedelta(seconds=5)
    context.pass_time(timedelta(seconds=5))
    context.create("Dataset", "b", DATASET_SPEC)
    context.reconcile(*KEY)
    assert [dataset.uuid for dataset in inspections(context)[-1].datasets] == ["a", "b"]
    assert numbers(context) == [1, 2]


def test_truncated_inspection_continues_until_all_datasets_are_covered(context: Fake) -> None:
    for name in "abcde":
        context.create("Dataset", name, DATASET_SPEC)
    context.create("ObjectStore", "lake", STORE_SPEC)
    context.reconcile(*KEY)
    for number, told in enumerate(["ab", "cd", "e"], start=1):
        states = tuple(seen(1, uuid) for uuid in told)
        context.job_ends(f"lake-inspect-{number}", store=OK, datasets=states, truncated=number < 3)
        context.settle(*KEY)
    asked = ["".join(dataset.uuid for dataset in job.datasets) for job in inspections(context)]
    assert asked == ["abcde", "cde", "e"]
    context.pass_time(timedelta(minutes=10))
    context.reconcile(*KEY)
    assert len(inspections(context)[-1].datasets) == 5


def test_inspection_with_many_datasets_is_split_into_jobs(context: Fake) -> None:
    for number in range(1200):
        context.create("Dataset", f"d{number:04}", DATASET_SPEC)
    context.create("ObjectStore", "lake", STORE_SPEC)
    context.reconcile(*KEY)
    for number in (1, 2, 3):
        context.job_ends(f"lake-inspect-{number}", store=OK)
        context.settle(*KEY)
    asked = [[dataset.uuid for dataset in job.datasets] for job in inspections(context)]
    assert [len(uuids) for uuids in asked] == [500, 500, 200]
    assert [uuid for uuids in asked for uuid in uuids] == sorted(f"d{number:04}" for number in range(1200))


def test_inspection_round_restarts_after_dataset_creation(context: Fake) -> None:
    for name in "bc":
        context.create("Dataset", name, DATASET_SPEC)
    context.create("ObjectStore", "lake", STORE_SPEC)
    context.reconcile(*KEY)
    context.create("Dataset", "a", DATASET_SPEC)
    context.job_ends("lake-inspect-1", store=OK, datasets=(seen(1, "b"),), truncated=True)
    context.settle(*KEY)
    assert [dataset.uuid for dataset in inspections(context)[-1].datasets] == ["a", "b", "c"]


def test_store_keeps_last_two_inspection_jobs(context: Fake) -> None:
    with_store(context)
    for number in (2, 3, 4):
        context.pass_time(timedelta(minutes=10))
        context.reconcile(*KEY)
        context.job_ends(f"lake-inspect-{number}", store=OK)
        context.settle(*KEY)
    assert sorted(context.jobs) == ["lake-inspect-3", "lake-inspect-4"]


@pytest.mark.parametrize("reason", ["InvalidCredentials", "AccessDenied", "BucketNotFound"])
def test_store_that_refuses_access_stalls_and_is_polled_with_backoff(context: Fake, reason: str) -> None:
    context.create("ObjectStore", "lake", STORE_SPEC)
    context.reconcile(*KEY)
    waits = []
    for number in range(1, 9):
        context.job_fails(f"lake-inspect-{number}", FailureClass.REPORT, reason)
        wait = context.settle(*KEY).requeue_after
        assert context.condition(*KEY) == ("False", reason)
        assert context.kstatus(*KEY) == "Failed"
        assert wait is not None
        waits.append(wait.total_seconds())
        context.pass_time(wait)
        context.reconcile(*KEY)
        assert context.condition(*KEY) == ("False", reason), "known to be bad until an inspection says otherwise"
    assert waits == [10, 20, 40, 80, 160, 320, 600, 600]
    assert [event.reason for event in context.events] == ["Progressing", reason]
    context.job_ends("lake-inspect-9", store=OK)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("True", "Succeeded")
    assert context.store.status.last_inspection is not None
    assert context.store.status.last_inspection.failures == 0


@pytest.mark.parametrize(("reason", "named"), [("InvalidCredentials", True), ("BucketNotFound", False)])
def test_store_credentials_failure_names_secret(context: Fake, reason: str, named: bool) -> None:
    context.create("ObjectStore", "lake", {**STORE_SPEC, "credentialsSecretRef": {"name": "lake-keys"}})
    context.reconcile(*KEY)
    context.job_fails("lake-inspect-1", FailureClass.REPORT, reason)
    context.settle(*KEY)
    assert ("lake-keys" in context.message(*KEY)) is named


def test_store_that_is_unavailable_is_retried(context: Fake) -> None:
    with_store(context)
    context.pass_time(timedelta(minutes=10))
    context.reconcile(*KEY)
    context.job_fails("lake-inspect-2", FailureClass.RETRY, "StoreUnavailable", "no answer from http://s3")
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "StoreUnavailable")
    assert context.kstatus(*KEY) == "InProgress"
    assert context.message(*KEY) == "no answer from http://s3"


def test_lost_inspection_job_keeps_store_condition(context: Fake) -> None:
    with_store(context)
    context.pass_time(timedelta(minutes=10))
    context.reconcile(*KEY)
    context.settle(*KEY)
    context.job_vanishes("lake-inspect-2")
    context.settle(*KEY)
    assert context.condition(*KEY) == ("True", "Succeeded")
    assert "lake-inspect-2" in context.cancelled, "in case it only looked lost"
    context.pass_time(timedelta(seconds=10))
    context.reconcile(*KEY)
    assert numbers(context)[-1] == 3


def test_inspection_crash_before_launch_repeats_same_launch(context: Fake) -> None:
    context.create("ObjectStore", "lake", STORE_SPEC)
    context.reconcile(*KEY)
    context.job_vanishes("lake-inspect-1")
    context.reconcile(*KEY)
    assert numbers(context) == [1, 1]


def test_inspection_that_cannot_start_is_reported_and_recovers_with_engine(context: Fake) -> None:
    context.create("Engine", "default", {"image": "missing:1"})
    context.create("ObjectStore", "lake", STORE_SPEC)
    context.reconcile(*KEY)
    context.job_is("lake-inspect-1", JobPhase.PENDING, "ImagePullFailed")
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "ImagePullFailed")
    assert context.kstatus(*KEY) == "Failed"
    context.edit("Engine", "default", image="there:1")
    context.reconcile(*KEY)
    assert context.cancelled == ["lake-inspect-1"]
    assert numbers(context) == [1, 2]
    context.job_ends("lake-inspect-2", store=OK)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("True", "Succeeded")


def test_store_endpoint_edit_discards_known_state(context: Fake) -> None:
    with_store(context)
    context.edit(*KEY, endpoint="http://elsewhere:9000")
    context.reconcile(*KEY)
    assert context.condition(*KEY) == ("Unknown", "Progressing")
    assert context.store.status.capabilities is None
    assert inspections(context)[-1].store.endpoint == "http://elsewhere:9000"
    assert inspections(context)[-1].store.conditional_writes is None


def test_store_interval_increase_starts_no_inspection(context: Fake) -> None:
    with_store(context)
    context.edit(*KEY, interval="1h")
    assert context.settle(*KEY).requeue_after == timedelta(hours=1)
    assert context.condition(*KEY) == ("True", "Succeeded")
    assert context.kstatus(*KEY) == "Current"
    assert numbers(context) == [1]


def test_suspended_store_is_not_inspected_and_keeps_status(context: Fake) -> None:
    with_store(context)
    context.edit(*KEY, suspend=True)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("True", "Suspended")
    assert context.kstatus(*KEY) == "Current"
    context.pass_time(timedelta(days=1))
    context.settle(*KEY)
    assert numbers(context) == [1]
    context.edit(*KEY, suspend=False)
    context.reconcile(*KEY)
    assert numbers(context) == [1, 2]
    assert context.condition(*KEY) == ("True", "Succeeded")


def test_store_created_suspended_is_never_inspected(context: Fake) -> None:
    context.create("ObjectStore", "lake", STORE_SPEC | {"suspend": True})
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "Suspended")
    assert context.launches == []


@pytest.mark.parametrize(
    ("refusal", "kstatus", "seconds"),
    [("QuotaExceeded", "InProgress", 30), ("AdmissionDenied", "Failed", 300), ("SomethingElse", "InProgress", 30)],
)
def test_inspection_with_refused_launch_is_reported_and_retried(
    context: Fake, refusal: str, kstatus: str, seconds: int
) -> None:
    context.refusals["lake-inspect-1"] = (refusal, "no pods today")
    context.create("ObjectStore", "lake", STORE_SPEC)
    outcome = context.settle(*KEY)
    assert context.condition(*KEY) == ("False", refusal)
    assert context.kstatus(*KEY) == kstatus
    assert outcome.requeue_after == timedelta(seconds=seconds)
    del context.refusals["lake-inspect-1"]
    context.settle(*KEY)
    assert context.condition(*KEY) == ("Unknown", "Progressing")
    assert "lake-inspect-1" in context.jobs


def test_store_with_disabled_reconcile_is_ignored(context: Fake) -> None:
    context.create("ObjectStore", "lake", STORE_SPEC, annotations={"kubothek.io/reconcile": "disabled"})
    outcome = context.reconcile(*KEY)
    assert (outcome.actions, outcome.events) == ((), ())
    assert context.store.status.conditions == ()


def test_store_recreated_ignores_inspection_of_predecessor(context: Fake) -> None:
    with_store(context)
    context.delete(*KEY)
    context.create("ObjectStore", "lake", STORE_SPEC)
    context.reconcile(*KEY)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("Unknown", "Progressing")
    assert numbers(context)[-1] == 2, "its predecessor's pod still has the first name"


def test_inspection_omits_unchanged_dataset_state_until_other_job_reports(context: Fake) -> None:
    with_dataset(context, seen(1))
    flights = ("Dataset", "flights")
    known = context.dataset.status.inspected_digest
    assert known == seen(1).digest
    for number in (2, 3):
        context.pass_time(timedelta(minutes=10))
        context.reconcile(*KEY)
        assert inspections(context)[-1].known == {"flights": known}
        before = context.dataset.status
        context.job_ends(f"lake-inspect-{number}", store=OK)  # nothing new: it is not told of
        context.settle(*KEY)
        context.settle(*flights)
        assert context.dataset.status == before, "what is at rest costs no write"
    name = with_running_commit(context)
    context.job_ends(name, **committed(2))
    context.settle("Commit", "january")
    context.settle(*flights)
    assert context.dataset.status.version == 2
    context.pass_time(timedelta(minutes=10))
    context.reconcile(*KEY)
    assert inspections(context)[-1].known == {}, "the next inspection has the last word on what a Commit left"


# --- writers of Datasets ---------------------------------------------------------------------------------------------

WRITERS = [
    {"serviceAccount": "etl", "operations": ["Append"]},
    {"serviceAccount": "stream", "namespace": "spark", "operations": ["Merge"]},
    {"name": "notebook", "operations": ["Append", "Delete"]},
]


def test_edit_of_writers_requests_inspection_that_grants_them(context: Fake) -> None:
    with_dataset(context)
    context.settle(*KEY)
    context.job_ends(f"lake-inspect-{numbers(context)[-1]}", store=OK, datasets=(seen(),))
    context.pass_time(timedelta(seconds=6))
    context.settle(*KEY)
    before = numbers(context)
    context.edit("Dataset", "flights", writers=WRITERS)
    context.settle(*KEY)
    (job,) = inspections(context)[len(before) :]
    (ref,) = job.datasets
    assert [(writer.name, writer.operations) for writer in ref.writers] == [
        ("system:serviceaccount:team:etl", ("Append",)),
        ("system:serviceaccount:spark:stream", ("Merge",)),
        ("notebook", ("Append", "Delete")),
    ]
    context.job_ends(job.job, store=OK, datasets=(seen(3, writers=("notebook",)),))
    context.settle(*KEY)
    context.settle("Dataset", "flights")
    assert (context.dataset.status.version, context.dataset.status.writers) == (3, ("notebook",))
    assert context.condition("Dataset", "flights") == ("True", "Succeeded")


def test_inspection_that_finds_commit_of_writer_updates_status_and_starts_no_job(context: Fake) -> None:
    with_dataset(context, seen(3), writers=WRITERS)
    context.settle("Dataset", "flights")
    launches = len(context.launches)
    context.pass_time(timedelta(minutes=10))
    context.settle(*KEY)
    context.job_ends(f"lake-inspect-{numbers(context)[-1]}", store=OK, datasets=(seen(5),))
    context.settle(*KEY)
    context.settle("Dataset", "flights")
    assert (context.dataset.status.version, context.dataset.status.rows) == (5, 50)
    assert context.condition("Dataset", "flights") == ("True", "Succeeded")
    assert [launch.job.job for launch in context.launches[launches:]] == ["lake-inspect-2"]
