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
def context() -> Fake:
    context = Fake()
    with_store(context)
    return context


def begin(context: Fake, **spec: Any) -> None:
    context.create(*KEY, SPEC | spec)
    context.settle(*KEY)


def jobs(context: Fake) -> list[str]:
    return [launch.job.job for launch in context.launches if isinstance(launch.job, SkipFilesJob)]


def last(context: Fake) -> SkipFilesJob:
    job = context.launches[-1].job
    assert isinstance(job, SkipFilesJob)
    return job


def there(context: Fake) -> SkippingIndex:
    found = context.resources[KEY]
    assert isinstance(found, SkippingIndex)
    return found


def ends(context: Fake, job: str = "trips-skip-1", outcome: SkipFilesOutcome = DONE) -> None:
    context.job_ends(job, skip_files=outcome)
    context.settle(*KEY)


def test_skipping_index_is_built_once_and_reports_coverage(context: Fake) -> None:
    begin(context)
    assert context.condition(*KEY) == ("Unknown", "Describing")
    job = last(context)
    assert (job.name, job.files.prefix, job.files.glob, job.files.format, job.drop) == (
        "team.trips",
        "landing/trips",
        "*.parquet",
        "Parquet",
        False,
    )
    assert job.skipping.indices == (SkippingIndexSpec(type="MinMax", columns=("distance",)),)
    ends(context)
    assert context.condition(*KEY) == ("True", "Succeeded")
    assert context.message(*KEY) == "9 of 10 files are described"
    status = there(context).status
    assert (status.files, status.described, status.size, status.refreshed_time) == (10, 9, "2.00 KiB", context.now)
    assert jobs(context) == ["trips-skip-1"]


def test_skipping_index_names_files_left_out(context: Fake) -> None:
    begin(context)
    ends(context, outcome=DONE.model_copy(update={"left_out": ("a.parquet: no Parquet file",)}))
    assert "always opened, as they could not be described: a.parquet: no Parquet file" in context.message(*KEY)


def test_skipping_index_edit_and_request_each_start_another_job(context: Fake) -> None:
    begin(context)
    ends(context)
    context.edit(*KEY, skipping={"indices": [{"type": "ValueList", "column": "zone"}]})
    context.settle(*KEY)
    ends(context, "trips-skip-2")
    context.annotate(*KEY, requestedAt="today")
    context.settle(*KEY)
    ends(context, "trips-skip-3")
    context.settle(*KEY)
    assert jobs(context) == ["trips-skip-1", "trips-skip-2", "trips-skip-3"]
    assert there(context).status.handled_request == "today"
    assert context.cancelled == ["trips-skip-1"], "the logs of the last two are kept"


def test_skipping_index_schedule_refreshes_at_slots(context: Fake) -> None:
    begin(context, schedule={"cron": "30 * * * *"})
    ends(context)
    assert context.message(*KEY).endswith("next inspection at 2026-11-21T12:30:00Z")
    context.pass_time(timedelta(minutes=20))
    assert context.settle(*KEY).requeue_after == timedelta(minutes=10)
    assert jobs(context) == ["trips-skip-1"]
    context.pass_time(timedelta(minutes=11))
    context.settle(*KEY)
    assert jobs(context) == ["trips-skip-1", "trips-skip-2"]
    ends(context, "trips-skip-2")
    assert jobs(context) == ["trips-skip-1", "trips-skip-2"]


def test_skipping_index_with_invalid_schedule_is_reported(context: Fake) -> None:
    begin(context, schedule={"cron": "0 0 30 2 *"})
    ends(context)
    assert context.condition(*KEY) == ("False", "InvalidSchedule")


def test_skipping_index_failure_is_reported_and_retried_on_request(context: Fake) -> None:
    begin(context)
    context.job_fails("trips-skip-1", FailureClass.REPORT, "SkippingInvalid", "no column 'distance'")
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "SkippingInvalid")
    assert jobs(context) == ["trips-skip-1"]
    context.annotate(*KEY, requestedAt="again")
    context.settle(*KEY)
    assert jobs(context) == ["trips-skip-1", "trips-skip-2"]


def test_skipping_index_with_lost_pod_retries(context: Fake) -> None:
    begin(context)
    context.job_runs("trips-skip-1")
    context.settle(*KEY)
    context.job_fails("trips-skip-1", FailureClass.INFRASTRUCTURE, "PodLost")
    context.settle(*KEY)
    context.pass_time(timedelta(minutes=1))
    context.settle(*KEY)
    assert jobs(context)[-1] == "trips-skip-2"


def test_skipping_index_suspended_starts_no_job(context: Fake) -> None:
    begin(context, suspend=True)
    assert jobs(context) == []
    assert context.condition(*KEY) == ("True", "Suspended")


def test_skipping_index_metadata_may_use_another_store(context: Fake) -> None:
    context.create("ObjectStore", "side", {"url": "s3://side", "credentialsSecretRef": {"name": "side-secret"}})
    context.reconcile("ObjectStore", "side")
    begin(context, metadata={"storeRef": {"name": "side"}})
    assert context.condition(*KEY) == ("False", "DependencyNotReady")
    context.job_ends("side-inspect-1", store={"conditional_writes": True})
    context.settle("ObjectStore", "side")
    context.settle(*KEY)
    job = last(context)
    assert (job.store.name, job.files.store.name) == ("side", "lake")
    assert context.launches[-1].secrets == {"side": "side-secret"}


def test_skipping_index_deletion_with_delete_policy_deletes_metadata_first(context: Fake) -> None:
    begin(context, deletionPolicy="Delete")
    context.job_runs("trips-skip-1")
    context.settle(*KEY)
    context.delete(*KEY)
    context.reconcile(*KEY)
    assert "trips-skip-1" in context.cancelled, "what describes files is stopped"
    assert (context.launches[-1].job.job, last(context).drop) == ("trips-drop-1", True)
    context.job_ends("trips-drop-1")
    context.reconcile(*KEY)
    assert KEY not in context.resources
    assert context.events[-1].reason == "Deleted"


def test_skipping_index_deletion_by_default_keeps_metadata(context: Fake) -> None:
    begin(context)
    ends(context)
    assert there(context).metadata.finalizers == ()
    context.delete(*KEY)
    assert (KEY in context.resources, jobs(context)) == (False, ["trips-skip-1"])


@pytest.mark.parametrize("how", ["retain", "store is gone", "too late"])
def test_skipping_index_deletion_is_never_blocked_forever(context: Fake, how: str) -> None:
    begin(context, deletionPolicy="Delete")
    ends(context)
    if how == "retain":
        context.edit(*KEY, deletionPolicy="Retain")
    if how == "store is gone":
        del context.resources["ObjectStore", "lake"]
    context.delete(*KEY)
    context.reconcile(*KEY)
    if how == "too late":
        context.job_is("trips-drop-1", JobPhase.PENDING)
        context.reconcile(*KEY)
        context.pass_time(timedelta(minutes=6))
        context.reconcile(*KEY)
    assert KEY not in context.resources
    assert context.events[-1].reason == ("Retained" if how == "retain" else "MetadataLeft")
