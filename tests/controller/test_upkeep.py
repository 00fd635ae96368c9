"""What a Dataset has done for its table by itself: when, in which order, and what gives it pause."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubothek.api.jobs import (
    CompactJob,
    CompactOutcome,
    DatasetState,
    HealJob,
    HealthState,
    IcebergState,
    IndexJob,
    IndexState,
    IntakeOutcome,
    StoreState,
    TagJob,
)
from kubothek.api.observed import IcebergStatus
from kubothek.controller.context import FailureClass
from kubothek.controller.scheduling.maintenance_priority import LONGEST_WAIT
from tests.controller.fake import (
    COMMIT_SPEC,
    DATASET_SPEC,
    Fake,
    committed,
    seen,
    with_dataset,
    with_running_commit,
    with_store,
)

KEY = ("Dataset", "flights")
COMPACT: dict[str, Any] = {"compaction": {"minFiles": 4}}
NIGHTLY: dict[str, Any] = {
    "compaction": {
        "minFiles": 4,
        "schedule": {"cron": "30 2 * * *", "timeZone": "Europe/Berlin", "startingDeadline": "2h"},
    }
}
"""The window is from 01:30 to 03:30 in winter."""
DONE = CompactOutcome(version=4, partitions=1, files_before=9, files_after=1, bytes_before=900, bytes_after=700)


@pytest.fixture
def context() -> Fake:
    return Fake()


def scattered(version: int, small: int = 9, **changes: Any) -> DatasetState:
    """A table one of whose partitions has so many small files."""
    health = HealthState(version=version, small_files=small, worst_partition_small_files=small)
    return seen(version, health=health, **changes)


def upkeep(context: Fake) -> list[str]:
    return [
        launch.job.job
        for launch in context.launches
        if isinstance(launch.job, HealJob | TagJob | IndexJob | CompactJob)
    ]


def at(context: Fake, moment: str) -> None:
    context.now = datetime.fromisoformat(moment).replace(tzinfo=UTC)


def commits(context: Fake, name: str, state: DatasetState) -> None:
    """A Commit that leaves the table so."""
    assert state.version is not None
    job = with_running_commit(context, name)
    context.job_ends(job, **(committed(state.version) | {"dataset": state}))
    context.settle("Commit", name)
    context.settle(*KEY)


def inspect(context: Fake, state: DatasetState) -> None:
    """The next inspection of the store, and what it finds."""
    context.pass_time(timedelta(minutes=11))
    context.settle("ObjectStore", "lake")
    number = context.store.status.last_inspection.attempt if context.store.status.last_inspection else 0
    context.job_ends(f"lake-inspect-{number}", store=StoreState(conditional_writes=True), datasets=(state,))
    context.settle("ObjectStore", "lake")
    context.settle(*KEY)


# --- compaction after commits ----------------------------------------------------------------------------------------


def test_maintenance_with_enough_small_files_starts_job_with_thresholds(context: Fake) -> None:
    wish = {"minFiles": 4, "minSmallPercent": 20, "targetFileSize": "1Gi"}
    with_dataset(context, scattered(3), maintenance={"compaction": wish})
    assert upkeep(context) == ["flights-compact-1"]
    job = context.launches[-1].job
    assert isinstance(job, CompactJob)
    assert (job.min_files, job.min_small_percent, job.target_file_bytes) == (4, 20, 2**30)
    assert (job.where, job.dry_run, job.commit_id) == (None, False, "compaction:team/flights:3")
    assert context.condition(*KEY) == ("True", "Succeeded"), "the table can be written all the while"


def test_maintenance_with_few_small_files_or_no_request_starts_no_job(context: Fake) -> None:
    with_dataset(context, scattered(3, small=3), maintenance=COMPACT)
    context.edit(*KEY, maintenance={})
    context.settle(*KEY)
    commits(context, "january", scattered(4, small=100))
    assert upkeep(context) == []


def test_maintenance_result_is_in_status(context: Fake) -> None:
    with_dataset(context, scattered(3), maintenance=COMPACT)
    context.job_ends("flights-compact-1", compact=DONE, dataset=scattered(4, small=1))
    context.settle(*KEY)
    status = context.dataset.status
    assert status.compaction is not None
    assert (status.compaction.done, status.compaction.version, status.compaction.bytes_saved) == (True, 4, 200)
    assert (status.compaction.files_before, status.compaction.files_after) == (9, 1)
    assert status.compaction.time == context.now
    assert status.version == 4
    assert upkeep(context) == ["flights-compact-1"]


def test_maintenance_checks_each_version_once(context: Fake) -> None:
    """The job may find that no partition is worth it: its thresholds say more than the trigger."""
    with_dataset(context, scattered(3), maintenance=COMPACT)
    context.job_ends("flights-compact-1", compact=CompactOutcome(), dataset=scattered(3))
    context.settle(*KEY)
    context.pass_time(timedelta(hours=1))
    context.settle(*KEY)
    assert upkeep(context) == ["flights-compact-1"]
    commits(context, "january", scattered(4))
    assert upkeep(context) == ["flights-compact-1", "flights-compact-2"]


def test_maintenance_rechecks_version_after_sort_order_edit(context: Fake) -> None:
    with_dataset(context, scattered(3), maintenance=COMPACT)
    context.job_ends("flights-compact-1", compact=CompactOutcome(), dataset=scattered(3))
    context.settle(*KEY)
    for number, order in enumerate(({"sortBy": ["a"]}, {"zOrderBy": ["a"]}), 2):
        context.edit(*KEY, maintenance={"compaction": order})
        context.settle(*KEY)
        assert upkeep(context)[-1] == f"flights-compact-{number}"
        context.job_ends(f"flights-compact-{number}", compact=CompactOutcome(), dataset=scattered(3))
        context.settle(*KEY)
        assert len(upkeep(context)) == number
    assert len({job.commit_id for launch in context.launches if isinstance(job := launch.job, CompactJob)}) == 3


def test_maintenance_attempts_share_one_commit_id(context: Fake) -> None:
    with_dataset(context, scattered(3), maintenance=COMPACT)
    context.job_vanishes("flights-compact-1")
    context.settle(*KEY)
    assert upkeep(context) == ["flights-compact-1", "flights-compact-2"]
    assert len({job.commit_id for launch in context.launches if isinstance(job := launch.job, CompactJob)}) == 1


def test_maintenance_that_fails_is_reported_and_retried_at_next_version(context: Fake) -> None:
    with_dataset(context, scattered(3), maintenance=COMPACT)
    context.job_fails("flights-compact-1", FailureClass.REPORT, "VersionIncomplete", "x.parquet is missing")
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "CompactionStalled")
    assert "VersionIncomplete: x.parquet is missing" in context.message(*KEY)
    assert context.dataset.writable
    commits(context, "january", scattered(4))
    assert upkeep(context) == ["flights-compact-1", "flights-compact-2"]
    context.job_ends("flights-compact-2", compact=DONE, dataset=scattered(5, small=0))
    context.settle(*KEY)
    assert context.condition(*KEY) == ("True", "Succeeded")


def test_maintenance_problem_clears_when_another_commit_tidies_files(context: Fake) -> None:
    with_dataset(context, scattered(3), maintenance=COMPACT)
    context.job_fails("flights-compact-1", FailureClass.REPORT, "VersionIncomplete")
    context.settle(*KEY)
    commits(context, "january", scattered(4, small=0))
    assert context.condition(*KEY) == ("True", "Succeeded")
    assert upkeep(context) == ["flights-compact-1"]


def test_maintenance_with_transient_failure_retries(context: Fake) -> None:
    with_dataset(context, scattered(3), maintenance=COMPACT)
    context.job_fails("flights-compact-1", FailureClass.RETRY, "StoreUnavailable")
    outcome = context.settle(*KEY)
    assert outcome.requeue_after is not None
    assert upkeep(context) == ["flights-compact-1"]
    context.pass_time(outcome.requeue_after)
    context.settle(*KEY)
    assert upkeep(context) == ["flights-compact-1", "flights-compact-2"]


def test_maintenance_request_withdrawn_before_retry_is_forgotten(context: Fake) -> None:
    with_dataset(context, scattered(3), maintenance=COMPACT)
    context.job_fails("flights-compact-1", FailureClass.RETRY, "StoreUnavailable")
    context.settle(*KEY)
    context.edit(*KEY, maintenance={})
    context.pass_time(timedelta(hours=1))
    context.settle(*KEY)
    assert upkeep(context) == ["flights-compact-1"]
    assert context.dataset.status.compaction is not None
    assert context.dataset.status.compaction.done


def test_maintenance_keeps_last_two_jobs(context: Fake) -> None:
    with_dataset(context, scattered(3), maintenance=COMPACT)
    for number in (1, 2, 3, 4):
        context.job_ends(f"flights-compact-{number}", compact=CompactOutcome(), dataset=scattered(2 + number))
        commits(context, f"commit-{number}", scattered(3 + number))
    assert [name for name in context.jobs if "compact" in name] == ["flights-compact-4", "flights-compact-5"]


def test_maintenance_of_suspended_dataset_follows_running_job_only(context: Fake) -> None:
    with_dataset(context, scattered(3), maintenance=COMPACT)
    context.edit(*KEY, suspend=True)
    context.job_ends("flights-compact-1", compact=DONE, dataset=scattered(4))
    context.settle(*KEY)
    assert context.dataset.status.version == 4
    assert upkeep(context) == ["flights-compact-1"], "there is still more to do"
    context.edit(*KEY, suspend=False)
    context.settle(*KEY)
    assert upkeep(context) == ["flights-compact-1", "flights-compact-2"]


def test_maintenance_of_deleted_table_starts_no_job(context: Fake) -> None:
    with_dataset(context, scattered(3, deleted=True), maintenance=COMPACT, tags=[{"name": "a", "version": 1}])
    assert upkeep(context) == []


# --- compaction in windows -------------------------------------------------------------------------------------------


def test_maintenance_with_schedule_waits_for_window(context: Fake) -> None:
    at(context, "2026-11-21T12:00:00")
    with_dataset(context, scattered(3), maintenance=NIGHTLY)
    assert upkeep(context) == []
    outcome = context.settle(*KEY)
    assert outcome.requeue_after == timedelta(hours=13, minutes=30)
    at(context, "2026-11-22T01:30:00")
    context.settle(*KEY)
    assert upkeep(context) == ["flights-compact-1"]
    job = context.launches[-1].job
    assert isinstance(job, CompactJob)
    assert job.commit_id == "compaction:team/flights:2026-11-22T01:30:00Z"


def test_maintenance_window_is_used_once(context: Fake) -> None:
    at(context, "2026-11-21T12:00:00")
    with_dataset(context, scattered(3), maintenance=NIGHTLY)
    at(context, "2026-11-22T01:30:00")
    context.settle(*KEY)
    context.job_ends("flights-compact-1", compact=DONE, dataset=scattered(4, small=0))
    context.settle(*KEY)
    commits(context, "january", scattered(5))
    assert upkeep(context) == ["flights-compact-1"]
    at(context, "2026-11-23T01:30:00")
    context.settle(*KEY)
    assert upkeep(context) == ["flights-compact-1", "flights-compact-2"]


def test_maintenance_starts_only_within_window(context: Fake) -> None:
    at(context, "2026-11-21T12:00:00")
    with_dataset(context, scattered(3, small=0), maintenance=NIGHTLY)
    at(context, "2026-11-22T01:31:00")
    context.settle(*KEY)
    assert upkeep(context) == []
    at(context, "2026-11-22T03:31:00")
    commits(context, "january", scattered(4))
    assert upkeep(context) == []
    at(context, "2026-11-23T02:00:00")
    context.settle(*KEY)
    assert upkeep(context) == ["flights-compact-1"]


def test_maintenance_window_that_was_missed_starts_no_job(context: Fake) -> None:
    at(context, "2026-11-21T12:00:00")
    with_dataset(context, scattered(3), maintenance=NIGHTLY)
    at(context, "2026-11-22T09:00:00")
    context.settle(*KEY)
    assert upkeep(context) == []


def test_maintenance_with_unknown_time_zone_is_reported_and_commits_run(context: Fake) -> None:
    wish = {"schedule": {"cron": "@daily", "timeZone": "Europe/Atlantis"}}
    with_dataset(context, scattered(3), maintenance={"compaction": wish})
    assert context.condition(*KEY) == ("False", "InvalidSchedule")
    assert "Europe/Atlantis" in context.message(*KEY)
    assert context.dataset.writable
    assert upkeep(context) == []


# --- tags ------------------------------------------------------------------------------------------------------------


def test_tag_edit_starts_job(context: Fake) -> None:
    with_dataset(context, seen(3, tags={"old": 1}), tags=[{"name": "audit", "version": 2}])
    assert upkeep(context) == ["flights-tag-1"]
    job = context.launches[-1].job
    assert isinstance(job, TagJob)
    assert job.tags == {"audit": 2}
    context.job_ends("flights-tag-1", dataset=seen(4, tags={"audit": 2}))
    context.settle(*KEY)
    assert [(tag.name, tag.version) for tag in context.dataset.status.tags] == [("audit", 2)]
    assert upkeep(context) == ["flights-tag-1"]


def test_tag_list_empty_drops_tags_and_absent_list_keeps_them(context: Fake) -> None:
    with_dataset(context, seen(3, tags={"old": 1}))
    assert upkeep(context) == []
    context.edit(*KEY, tags=[])
    context.settle(*KEY)
    job = context.launches[-1].job
    assert isinstance(job, TagJob)
    assert job.tags == {}


def test_tag_of_missing_version_is_reported_and_set_when_version_exists(context: Fake) -> None:
    with_dataset(context, seen(3), tags=[{"name": "next", "version": 4}])
    context.job_fails("flights-tag-1", FailureClass.REPORT, "VersionNotFound", "there is no version 4")
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "TagStalled")
    assert context.dataset.writable
    context.pass_time(timedelta(hours=1))
    context.settle(*KEY)
    assert upkeep(context) == ["flights-tag-1"]
    commits(context, "january", seen(4))
    assert upkeep(context) == ["flights-tag-1", "flights-tag-2"]


# --- healing ---------------------------------------------------------------------------------------------------------


def test_healing_recreates_objects_found_missing(context: Fake) -> None:
    with_dataset(context, seen(3, ailments=("the marker of version 3",)))
    assert upkeep(context) == ["flights-heal-1"]
    context.job_ends("flights-heal-1", dataset=seen(3))
    context.settle(*KEY)
    inspect(context, seen(3))
    assert context.dataset.status.ailments == ()
    assert upkeep(context) == ["flights-heal-1"]
    inspect(context, seen(3, ailments=("the marker of version 3",)))
    assert upkeep(context) == ["flights-heal-1", "flights-heal-2"], "the same once more"


def test_healing_without_effect_is_not_repeated_forever(context: Fake) -> None:
    with_dataset(context, seen(3, ailments=("x",)))
    context.job_ends("flights-heal-1", dataset=seen(3))
    context.settle(*KEY)
    for _ in range(3):
        inspect(context, seen(3, ailments=("x",)))
    assert upkeep(context) == ["flights-heal-1"]
    inspect(context, seen(3, ailments=("x", "y")))
    assert upkeep(context) == ["flights-heal-1", "flights-heal-2"]


def test_healing_that_finds_lost_file_reports_corruption(context: Fake) -> None:
    with_dataset(context, seen(3, ailments=("x",)))
    context.job_ends("flights-heal-1", dataset=seen(3, corrupt="a data file is lost: x.parquet"))
    context.settle(*KEY)
    assert context.dataset.status.corrupt == "a data file is lost: x.parquet"


def test_healing_stays_pending_after_commit(context: Fake) -> None:
    with_dataset(context, seen(3, ailments=("x",)), maintenance={"healing": "Off"})
    commits(context, "january", seen(4))
    assert upkeep(context) == []
    context.edit(*KEY, maintenance={"healing": "Auto"})
    context.settle(*KEY)
    assert upkeep(context) == ["flights-heal-1"]


# --- export ----------------------------------------------------------------------------------------------------------


def test_failed_export_stalls_until_a_later_one_succeeds(context: Fake) -> None:
    problem = "SchemaMismatch: Iceberg has no equal of the type of column 'big' (uint64)"
    with_dataset(context, seen(3, iceberg=IcebergState(version=2, lag=1, problem=problem)))
    assert context.condition(*KEY) == ("False", "ExportStalled")
    assert context.message(*KEY) == (
        f"the Iceberg metadata is 1 version behind: {problem}; set export.iceberg.unsupportedColumns to Omit. "
        "Commits continue"
    )
    assert context.dataset.writable
    assert [event.reason for event in context.events if event.type == "Warning"] == ["ExportStalled"]
    commits(
        context, "january", seen(4, iceberg=IcebergState(version=4, metadata_location="s3://lake/v4.metadata.json"))
    )
    assert context.condition(*KEY) == ("True", "Succeeded")
    exported = context.dataset.status.iceberg
    assert exported is not None
    assert (exported.version, exported.lag, exported.problem) == (4, 0, None)
    assert exported.metadata_location == "s3://lake/v4.metadata.json"


def test_failed_export_of_supported_columns_names_no_other_remedy(context: Fake) -> None:
    problem = "SchemaMismatch: version 3 changed the scale of the decimals of 'price'; rewrite the table (overwrite)"
    with_dataset(context, seen(3, iceberg=IcebergState(version=2, lag=1, problem=problem)))
    assert context.message(*KEY) == f"the Iceberg metadata is 1 version behind: {problem}. Commits continue"


def test_lagging_export_is_healed(context: Fake) -> None:
    lagging = IcebergState(version=2, lag=1)
    with_dataset(context, seen(3, iceberg=lagging, ailments=("the Iceberg export",)))
    assert upkeep(context) == ["flights-heal-1"]
    assert context.condition(*KEY) == ("True", "Succeeded")
    context.job_ends("flights-heal-1", dataset=seen(3, iceberg=IcebergState(version=3)))
    context.settle(*KEY)
    assert context.dataset.status.iceberg == IcebergStatus(version=3)


def test_lagging_export_without_healing_is_stalled(context: Fake) -> None:
    lagging = IcebergState(version=2, lag=1)
    with_dataset(context, seen(3, iceberg=lagging), maintenance={"healing": "Off"})
    assert context.condition(*KEY) == ("False", "ExportStalled")
    assert "maintenance.healing is Off" in context.message(*KEY)


# --- order -----------------------------------------------------------------------------------------------------------


def test_maintenance_jobs_run_one_by_one_in_order(context: Fake) -> None:
    state = scattered(3, ailments=("x",))
    with_dataset(
        context,
        state,
        maintenance=COMPACT,
        tags=[{"name": "audit", "version": 2}],
        table={"indices": [{"column": "x"}]},
    )
    assert upkeep(context) == ["flights-heal-1"]
    context.job_ends("flights-heal-1", dataset=scattered(3))
    context.settle(*KEY)
    assert upkeep(context)[1:] == ["flights-tag-1"]
    context.job_ends("flights-tag-1", dataset=scattered(4, tags={"audit": 2}))
    context.settle(*KEY)
    assert upkeep(context)[2:] == ["flights-index-1"]
    indexed: dict[str, Any] = {"tags": {"audit": 2}, "indices": (IndexState(column="x", kind="Native"),)}
    context.job_ends("flights-index-1", dataset=scattered(5, **indexed))
    context.settle(*KEY)
    assert upkeep(context)[3:] == ["flights-compact-1"]
    context.job_ends("flights-compact-1", compact=DONE, dataset=scattered(6, small=0, **indexed))
    context.settle(*KEY)
    assert len(upkeep(context)) == 4
    assert context.condition(*KEY) == ("True", "Succeeded")


def test_maintenance_job_starts_in_reconcile_that_observes_previous_end(context: Fake) -> None:
    """Nothing wakes the Dataset after its own status was written."""
    with_dataset(context, scattered(3, ailments=("x",)), maintenance=COMPACT)
    context.job_ends("flights-heal-1", dataset=scattered(3))
    context.reconcile(*KEY)
    assert upkeep(context) == ["flights-heal-1", "flights-compact-1"]


def test_maintenance_continues_after_failed_healing(context: Fake) -> None:
    with_dataset(context, scattered(3, ailments=("x",)), maintenance=COMPACT)
    context.job_fails("flights-heal-1", FailureClass.REPORT, "VersionIncomplete")
    context.settle(*KEY)
    assert upkeep(context) == ["flights-heal-1", "flights-compact-1"]
    assert context.condition(*KEY) == ("False", "HealingStalled")


# --- giving way ------------------------------------------------------------------------------------------------------


def test_maintenance_waits_for_commits(context: Fake) -> None:
    with_dataset(context, scattered(3))
    job = with_running_commit(context)
    context.edit(*KEY, maintenance=COMPACT)
    outcome = context.settle(*KEY)
    assert upkeep(context) == []
    assert outcome.requeue_after is not None, "it asks again by itself"
    context.job_ends(job, **(committed(4) | {"dataset": scattered(4)}))
    context.settle("Commit", "january")
    context.settle(*KEY)
    assert upkeep(context) == ["flights-compact-1"]


def test_maintenance_retry_waits_for_commits(context: Fake) -> None:
    with_dataset(context, scattered(3), maintenance=COMPACT)
    context.job_fails("flights-compact-1", FailureClass.RETRY, "StoreUnavailable")
    context.settle(*KEY)
    with_running_commit(context)
    context.pass_time(timedelta(minutes=10))
    outcome = context.settle(*KEY)
    assert upkeep(context) == ["flights-compact-1"]
    assert outcome.requeue_after is not None


def test_commit_starts_during_running_maintenance(context: Fake) -> None:
    with_dataset(context, scattered(3), maintenance=COMPACT)
    context.job_runs("flights-compact-1")
    context.settle(*KEY)
    with_running_commit(context)
    assert "january-1" in context.jobs


def test_maintenance_waits_for_ingestion_poll(context: Fake) -> None:
    source = {"name": "landing", "prefix": "in/", "format": "CSV"}
    with_dataset(context, scattered(3), maintenance=COMPACT, sources=[source])
    assert "flights-intake-1" in context.jobs
    assert upkeep(context) == []


def test_maintenance_waits_for_compaction_resource(context: Fake) -> None:
    with_dataset(context, scattered(3))
    context.create("Compaction", "tidy", {"datasetRef": {"name": "flights"}})
    context.edit(*KEY, maintenance=COMPACT)
    context.settle(*KEY)
    assert upkeep(context) == [], "it has not even been looked at"
    context.settle("Compaction", "tidy")
    context.settle(*KEY)
    assert upkeep(context) == ["tidy-compaction-1"]
    context.job_ends("tidy-compaction-1", compact=DONE, dataset=scattered(4, small=0))
    context.settle("Compaction", "tidy")
    context.settle(*KEY)
    assert upkeep(context) == ["tidy-compaction-1"], "nothing is left to do"


def test_compaction_resource_waits_for_running_maintenance(context: Fake) -> None:
    with_dataset(context, scattered(3), maintenance=COMPACT)
    context.create("Compaction", "tidy", {"datasetRef": {"name": "flights"}})
    context.settle("Compaction", "tidy")
    assert context.condition("Compaction", "tidy") == ("False", "Waiting")
    assert "flights-compact-1" in context.message("Compaction", "tidy")
    context.job_ends("flights-compact-1", compact=DONE, dataset=scattered(4, small=0))
    context.settle(*KEY)
    context.settle("Compaction", "tidy")
    assert "tidy-compaction-1" in context.jobs


def test_maintenance_with_refused_launch_is_reported_and_commits_continue(context: Fake) -> None:
    with_dataset(context, scattered(3))
    context.refusals["flights-compact-1"] = ("AdmissionDenied", "a policy of the cluster forbids it")
    context.edit(*KEY, maintenance=COMPACT)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "CompactionStalled")
    assert context.dataset.writable


def test_maintenance_behind_continuous_commits_starts_after_one_hour(context: Fake) -> None:
    with_dataset(context, scattered(3))
    with_running_commit(context)
    context.edit(*KEY, maintenance=COMPACT)
    context.settle(*KEY)
    context.pass_time(timedelta(minutes=59))
    context.settle(*KEY)
    assert upkeep(context) == []
    context.pass_time(timedelta(minutes=1))
    context.settle(*KEY)
    assert upkeep(context) == ["flights-compact-1"]


def test_maintenance_behind_continuous_commits_stays_within_window(context: Fake) -> None:
    at(context, "2026-11-21T12:00:00")
    with_dataset(context, scattered(3), maintenance=NIGHTLY)
    with_running_commit(context)
    at(context, "2026-11-22T03:00:00")
    context.settle(*KEY)
    at(context, "2026-11-22T04:00:00")
    context.settle(*KEY)
    assert upkeep(context) == []
    at(context, "2026-11-23T01:30:00")
    context.settle(*KEY)
    at(context, "2026-11-23T02:30:00")
    context.settle(*KEY)
    assert upkeep(context) == ["flights-compact-2"], "the number of the first was not used"


def test_maintenance_starts_when_commit_ends_within_window(context: Fake) -> None:
    at(context, "2026-11-21T12:00:00")
    with_dataset(context, scattered(3), maintenance=NIGHTLY)
    job = with_running_commit(context)
    at(context, "2026-11-22T01:40:00")
    context.settle(*KEY)
    assert upkeep(context) == []
    context.job_ends(job, **(committed(4) | {"dataset": scattered(4)}))
    context.settle("Commit", "january")
    context.settle(*KEY)
    assert upkeep(context) == ["flights-compact-1"]
    context.job_ends("flights-compact-1", compact=DONE, dataset=scattered(5))
    context.settle(*KEY)
    assert upkeep(context) == ["flights-compact-1"], "the window is used"


def test_maintenance_waiting_yields_to_tag_job_and_running_does_not(context: Fake) -> None:
    with_dataset(context, scattered(3))
    job = with_running_commit(context)
    context.edit(*KEY, maintenance=COMPACT)
    context.settle(*KEY)
    context.edit(*KEY, tags=[{"name": "audit", "version": 2}])
    context.settle(*KEY)
    context.job_ends(job, **(committed(4) | {"dataset": scattered(4)}))
    context.settle("Commit", "january")
    context.settle(*KEY)
    assert upkeep(context) == ["flights-tag-1"]
    context.edit(*KEY, table={"indices": [{"column": "x"}]})
    context.job_ends("flights-tag-1", dataset=scattered(5, tags={"audit": 2}))
    context.settle(*KEY)
    assert upkeep(context) == ["flights-tag-1", "flights-index-1"]
    context.job_runs("flights-index-1")
    context.edit(*KEY, tags=[])
    context.settle(*KEY)
    assert upkeep(context) == ["flights-tag-1", "flights-index-1"]


# --- stores that bear one writer -----------------------------------------------------------------------------


def without_conditional_writes(context: Fake, state: DatasetState, **spec: Any) -> None:
    context.create("Dataset", "flights", DATASET_SPEC | spec)
    with_store(context, state, conditional_writes=False)
    context.settle(*KEY)


def test_single_writer_store_commit_waits_for_maintenance(context: Fake) -> None:
    without_conditional_writes(context, scattered(3), maintenance=COMPACT)
    assert upkeep(context) == ["flights-compact-1"]
    context.create("Commit", "january", COMMIT_SPEC)
    context.settle("Commit", "january")
    assert context.condition("Commit", "january") == ("False", "Waiting")
    assert "flights-compact-1" in context.message("Commit", "january")
    context.job_ends("flights-compact-1", compact=DONE, dataset=scattered(4, small=1))
    context.settle(*KEY)
    context.settle("Commit", "january")
    assert context.launches[-1].job.job == "january-1"


def test_single_writer_store_maintenance_waits_for_commits(context: Fake) -> None:
    without_conditional_writes(context, scattered(3), maintenance={})
    job = with_running_commit(context)
    context.edit(*KEY, maintenance=COMPACT)
    for _ in range(3):
        context.settle(*KEY)
        context.pass_time(LONGEST_WAIT)
    assert upkeep(context) == []
    context.job_ends(job, **(committed(4) | {"dataset": scattered(4)}))
    context.settle("Commit", "january")
    context.settle(*KEY)
    assert upkeep(context) == ["flights-compact-1"]


QUERY = {"sql": "SELECT 1", "storeRef": {"name": "lake"}, "result": {"datasetRef": {"name": "flights"}}}
LANDING = {"name": "landing", "prefix": "landing/", "format": "CSV"}


def with_running_compaction(context: Fake, **spec: Any) -> None:
    without_conditional_writes(context, scattered(3), maintenance=COMPACT, **spec)
    context.job_runs("flights-compact-1")
    context.settle(*KEY)


def started(context: Fake) -> set[str]:
    return {launch.job.job for launch in context.launches}


def test_single_writer_store_query_into_dataset_waits_for_maintenance(context: Fake) -> None:
    with_running_compaction(context)
    context.create("Query", "top", QUERY)
    context.create("Query", "report", QUERY | {"result": {"location": {"path": "reports"}}})
    for name in ("top", "report"):
        context.settle("Query", name)
    assert context.condition("Query", "top") == ("False", "Waiting")
    assert "flights-compact-1" in context.message("Query", "top")
    assert "report-query-1" in started(context), "which writes nothing of the Dataset"
    context.job_ends("flights-compact-1", compact=DONE, dataset=scattered(4, small=1))
    context.settle(*KEY)
    context.settle("Query", "top")
    assert "top-query-1" in started(context)


def test_single_writer_store_ingestion_waits_for_maintenance(context: Fake) -> None:
    with_running_compaction(context)
    context.edit(*KEY, sources=[LANDING])
    for _ in range(3):
        context.settle(*KEY)
        context.pass_time(timedelta(hours=1))
    assert "flights-intake-1" not in started(context)
    context.job_ends("flights-compact-1", compact=DONE, dataset=scattered(4, small=1))
    for _ in range(2):
        context.settle(*KEY)
    assert "flights-intake-1" in started(context)


def test_single_writer_store_queries_and_commits_run_one_by_one(context: Fake) -> None:
    without_conditional_writes(context, scattered(3, small=0))
    context.create("Query", "top", QUERY)
    context.settle("Query", "top")
    context.job_runs("top-query-1")
    for kind, name, spec in (("Commit", "january", COMMIT_SPEC), ("Query", "second", QUERY)):
        context.create(kind, name, spec)
        context.settle(kind, name)
        assert context.condition(kind, name) == ("False", "Waiting")
        assert "Query 'top'" in context.message(kind, name)
    context.job_ends("top-query-1", dataset=scattered(4, small=0))
    context.settle("Query", "top")
    context.settle("Commit", "january")
    assert "january-1" in started(context)
    context.job_runs("january-1")
    context.settle("Query", "second")
    assert "Commit 'january'" in context.message("Query", "second")


def test_multi_writer_store_maintenance_blocks_no_writer(context: Fake) -> None:
    with_dataset(context, scattered(3), maintenance=COMPACT, sources=[LANDING])
    context.job_ends(
        "flights-intake-1", intake=IntakeOutcome(current_until=context.now.isoformat()), dataset=scattered(3)
    )
    context.settle(*KEY)
    context.job_runs("flights-compact-1")
    context.create("Query", "top", QUERY)
    context.settle("Query", "top")
    context.pass_time(timedelta(hours=1))
    context.settle(*KEY)
    assert {"top-query-1", "flights-intake-2"} <= started(context)
