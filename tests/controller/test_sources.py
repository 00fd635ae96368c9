"""Standing sources: when a look starts, what comes of it, who waits for whom."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kubothek.api import jobs
from kubothek.api.sources import SourceState
from kubothek.controller.context import FailureClass
from tests.controller.fake import COMMIT_SPEC, Fake, seen, with_dataset, with_store

LANDING = {"name": "landing", "prefix": "landing/", "format": "CSV"}
FIRST = "flights-intake-1"
SECOND = "flights-intake-2"
STALLED = jobs.StalledFile(
    key="landing/b.csv", etag="e1", version=3, problem="DataTypeMismatch: 'landing/b.csv', row 2, column 'x': 'y'"
)


@pytest.fixture
def world() -> Fake:
    return Fake()


def with_source(world: Fake, *others: dict[str, Any], **fields: Any) -> None:
    with_dataset(world, seen(3), sources=[LANDING | fields, *others])


def announced_only(world: Fake) -> None:
    with_dataset(world, seen(3))
    world.edit("Dataset", "flights", sources=[LANDING])
    world.reconcile("Dataset", "flights")
    del world.jobs[FIRST]


def found(world: Fake, **changes: Any) -> jobs.IntakeOutcome:
    return jobs.IntakeOutcome(**{"current_until": world.now.isoformat(), **changes})


def ends(world: Fake, job: str = FIRST, version: int = 3, **changes: Any) -> None:
    """The job ends with this word, and the operator takes it in."""
    world.job_ends(job, intake=found(world, **changes), dataset=seen(version))
    world.settle("Dataset", "flights")


def source(world: Fake, name: str = "landing") -> SourceState:
    return next(state for state in world.dataset.status.sources if state.name == name)


def launched(world: Fake) -> list[str]:
    return [launch.job.job for launch in world.launches if isinstance(launch.job, jobs.IntakeJob)]


def intake_job(world: Fake) -> jobs.IntakeJob:
    job = world.launches[-1].job
    assert isinstance(job, jobs.IntakeJob)
    return job


# --- when ------------------------------------------------------------------------------------------------------------


def test_the_first_look_starts_as_soon_as_the_dataset_can_be_written(world: Fake) -> None:
    world.create("Dataset", "flights", {"storeRef": {"name": "lake"}, "sources": [LANDING]})
    world.reconcile("Dataset", "flights")
    assert launched(world) == []
    with_store(world, seen())
    world.settle("Dataset", "flights")
    assert launched(world) == [FIRST]
    job = intake_job(world)
    assert (job.name, job.prefix, job.glob, job.operation) == ("landing", "landing/", "", "Append")
    assert (job.max_files, job.max_bytes, job.quarantine, job.stalled) == (1000, 1 << 30, False, None)
    assert world.condition("Dataset", "flights") == ("True", "Succeeded")


def test_the_next_look_is_due_an_interval_later(world: Fake) -> None:
    with_source(world, interval="2m")
    ends(world)
    outcome = world.settle("Dataset", "flights")
    assert (launched(world), outcome.requeue_after) == ([FIRST], timedelta(minutes=2))
    world.pass_time(timedelta(minutes=2))
    world.settle("Dataset", "flights")
    assert launched(world) == [FIRST, SECOND]
    assert FIRST in world.cancelled, "what was taken in is cleared away"


def test_a_look_that_left_something_it_could_have_taken_is_followed_by_another_at_once(world: Fake) -> None:
    with_source(world)
    ends(world, commits=16, files=16000, waiting_files=5, waiting_bytes=50)
    assert launched(world) == [FIRST, SECOND]


def test_what_a_look_took_is_in_the_numbers_at_once(world: Fake) -> None:
    with_source(world)
    ends(world, version=9, commits=1, files=1)
    status = world.dataset.status
    assert (status.version, status.bytes, status.size) == (9, 9000, "8.79 KiB")


def test_what_waits_without_progress_waits_for_the_interval(world: Fake) -> None:
    with_source(world)
    ends(world, commits=0, waiting_files=5)
    assert launched(world) == [FIRST]


def test_sources_take_turns_and_the_one_that_waited_longest_comes_first(world: Fake) -> None:
    with_source(world, LANDING | {"name": "other", "interval": "10m"})
    ends(world)
    assert intake_job(world).name == "other"
    ends(world, SECOND)
    assert launched(world) == [FIRST, SECOND]
    world.pass_time(timedelta(minutes=1))
    world.settle("Dataset", "flights")
    assert intake_job(world).name == "landing"


def test_one_look_at_a_time(world: Fake) -> None:
    with_source(world, LANDING | {"name": "other"})
    world.job_runs(FIRST)
    world.pass_time(timedelta(minutes=5))
    world.settle("Dataset", "flights")
    assert launched(world) == [FIRST]


@pytest.mark.parametrize("who", ["dataset", "source"])
def test_suspended_nothing_new_is_looked_at_and_what_runs_goes_on(world: Fake, who: str) -> None:
    with_source(world)
    world.job_runs(FIRST)
    spec = {"suspend": True} if who == "dataset" else {"sources": [LANDING | {"suspend": True}]}
    world.edit("Dataset", "flights", **spec)
    world.settle("Dataset", "flights")
    ends(world, commits=1, files=2, taken=2, waiting_files=1)
    assert (source(world).files, launched(world), world.cancelled) == (2, [FIRST], [])
    assert world.dataset.ready


def test_a_source_that_is_taken_out_of_the_manifest_is_forgotten(world: Fake) -> None:
    with_source(world)
    world.edit("Dataset", "flights", sources=[])
    ends(world, stalled=STALLED)
    assert world.dataset.status.sources == ()
    assert world.condition("Dataset", "flights") == ("True", "Succeeded")


def test_a_source_in_another_store_waits_for_that_and_lets_others_go_first(world: Fake) -> None:
    with_source(world, LANDING | {"name": "here"}, storeRef={"name": "elsewhere"})
    assert intake_job(world).name == "here"
    ends(world)
    assert world.settle("Dataset", "flights").requeue_after == timedelta(seconds=30)
    world.create("ObjectStore", "elsewhere", {"url": "s3://elsewhere"})
    world.reconcile("ObjectStore", "elsewhere")
    world.job_ends("elsewhere-inspect-1", store=jobs.StoreState(conditional_writes=True))
    world.settle("ObjectStore", "elsewhere")
    world.settle("Dataset", "flights")
    job = intake_job(world)
    assert (job.name, job.store.url) == ("landing", "s3://bucket/lake")
    assert job.source.store is not None
    assert job.source.store.url == "s3://elsewhere"


# --- turns -----------------------------------------------------------------------------------------------------------


def test_a_commit_waits_while_a_look_is_under_way(world: Fake) -> None:
    with_source(world)
    world.create("Commit", "january", COMMIT_SPEC)
    world.settle("Commit", "january")
    assert world.condition("Commit", "january") == ("False", "Waiting")
    ends(world)
    world.settle("Commit", "january")
    assert world.launches[-1].job.job == "january-1"


def test_commits_go_before_the_next_look_and_each_gets_its_turn(world: Fake) -> None:
    with_source(world)
    world.create("Commit", "january", COMMIT_SPEC)
    world.settle("Commit", "january")
    ends(world, commits=1, waiting_files=5)
    assert launched(world) == [FIRST], "the Commit that waits for its turn comes first"
    world.settle("Commit", "january")
    world.job_runs("january-1")
    assert world.settle("Dataset", "flights").requeue_after == timedelta(seconds=30)
    world.job_ends("january-1", commit=jobs.CommitOutcome(version=4), dataset=seen(4))
    world.settle("Commit", "january")
    world.settle("Dataset", "flights")
    assert launched(world) == [FIRST, SECOND]


@pytest.mark.parametrize("spec", [{"suspend": True}, {"dependsOn": [{"name": "never"}]}])
def test_a_commit_that_cannot_run_is_no_reason_to_wait(world: Fake, spec: dict[str, Any]) -> None:
    with_source(world)
    world.create("Commit", "january", COMMIT_SPEC | spec)
    world.settle("Commit", "january")
    ends(world, commits=1, waiting_files=5)
    assert launched(world) == [FIRST, SECOND]


def test_a_commit_whose_own_store_is_missing_is_no_reason_to_wait(world: Fake) -> None:
    with_source(world)
    ends(world)
    world.create("Commit", "january", COMMIT_SPEC | {"source": {**COMMIT_SPEC["source"], "storeRef": {"name": "no"}}})  # type: ignore[dict-item]
    world.settle("Commit", "january")
    world.pass_time(timedelta(minutes=1))
    world.settle("Dataset", "flights")
    assert launched(world) == [FIRST, SECOND]


# --- what is known ---------------------------------------------------------------------------------------------------


def test_the_status_shows_lag_freshness_and_the_last_file(world: Fake) -> None:
    with_source(world)
    ends(
        world,
        version=5,
        commits=2,
        files=7,
        rows=70,
        taken=12,
        last_file="landing/z.csv",
        last_commit_time="2026-11-21T11:59:58.25Z",
        waiting_files=3,
        waiting_bytes=300,
        oldest_waiting="2026-11-21T11:58:00Z",
        current_until="2026-11-21T11:58:00Z",
        quarantined=4,
        stalled=None,
    )
    state = source(world)
    assert (state.lag.files, state.lag.bytes, state.files, state.quarantined) == (3, 300, 12, 4)
    assert state.last_file == "landing/z.csv"
    assert state.current_until == state.lag.oldest == world.now - timedelta(minutes=2)
    assert state.problem is None
    assert world.dataset.status.version == 5, "the table is as the job left it"


def test_a_bad_file_stalls_the_source_and_the_dataset_says_which(world: Fake) -> None:
    with_source(world)
    ends(world, waiting_files=2, stalled=STALLED)
    assert world.condition("Dataset", "flights") == ("False", "SourceStalled")
    message = world.message("Dataset", "flights")
    assert "source 'landing'" in message
    assert "'landing/b.csv', row 2, column 'x'" in message
    assert world.kstatus("Dataset", "flights") == "Failed"
    assert [event.reason for event in world.events][-1] == "SourceStalled"


def test_commits_go_on_while_a_source_is_stalled(world: Fake) -> None:
    with_source(world)
    ends(world, stalled=STALLED)
    world.create("Commit", "january", COMMIT_SPEC)
    world.settle("Commit", "january")
    assert world.launches[-1].job.job == "january-1"


def test_the_next_look_is_told_where_the_last_one_stopped_and_the_source_goes_on_when_the_file_is_replaced(
    world: Fake,
) -> None:
    with_source(world)
    ends(world, stalled=STALLED)
    world.pass_time(timedelta(minutes=1))
    world.settle("Dataset", "flights")
    assert intake_job(world).stalled == STALLED
    assert world.condition("Dataset", "flights") == ("False", "SourceStalled"), "until the look has another word"
    ends(world, SECOND, commits=1, files=2, taken=2)
    assert world.condition("Dataset", "flights") == ("True", "Succeeded")
    assert source(world).stalled is None


@pytest.mark.parametrize(
    "edit", [{"csv": {"delimiter": ";"}}, {"schema": [{"name": "x", "type": "string"}]}, {"format": "JSONLines"}]
)
def test_another_way_of_reading_is_tried_at_once(world: Fake, edit: dict[str, Any]) -> None:
    with_source(world)
    ends(world, stalled=STALLED)
    world.edit("Dataset", "flights", sources=[LANDING | edit])
    world.settle("Dataset", "flights")
    assert launched(world) == [FIRST, SECOND]
    assert intake_job(world).stalled is None


def test_a_file_that_goes_into_quarantine_is_told_once(world: Fake) -> None:
    with_source(world, quarantine=True)
    ends(world, commits=1, refused=2, refusal="DataTypeMismatch: 'landing/b.csv', row 2", quarantined=2)
    told = [event for event in world.events if event.reason == "FileQuarantined"]
    assert len(told) == 1
    assert told[0].type == "Warning"
    assert "2 files" in told[0].message
    assert "row 2" in told[0].message
    assert world.condition("Dataset", "flights") == ("True", "Succeeded")


# --- failures --------------------------------------------------------------------------------------------------------


def test_a_look_that_failed_is_repeated_ever_more_rarely(world: Fake) -> None:
    with_source(world)
    waits = []
    for number in range(1, 6):
        job = f"flights-intake-{number}"
        world.job_fails(job, FailureClass.RETRY, "StoreUnavailable")
        outcome = world.settle("Dataset", "flights")
        assert outcome.requeue_after is not None
        waits.append(outcome.requeue_after.total_seconds())
        assert world.condition("Dataset", "flights") == ("False", "SourceRetrying")
        world.pass_time(outcome.requeue_after)
        world.settle("Dataset", "flights")
    assert waits == [2, 4, 8, 16, 32]
    ends(world, "flights-intake-6")
    assert source(world).failures == 0
    assert world.condition("Dataset", "flights") == ("True", "Succeeded")


def test_what_a_person_has_to_mend_stalls_the_source_and_is_looked_at_again(world: Fake) -> None:
    with_source(world)
    world.job_fails(FIRST, FailureClass.REPORT, "PartitionInvalid", "the table is partitioned on something else")
    outcome = world.settle("Dataset", "flights")
    assert world.condition("Dataset", "flights") == ("False", "SourceStalled")
    assert "PartitionInvalid" in world.message("Dataset", "flights")
    assert outcome.requeue_after == timedelta(minutes=1)


def test_a_job_that_vanished_is_followed_by_another_under_a_new_number(world: Fake) -> None:
    with_source(world)
    world.job_runs(FIRST)
    world.settle("Dataset", "flights")
    world.job_vanishes(FIRST)
    world.settle("Dataset", "flights")
    world.pass_time(timedelta(seconds=2))
    world.settle("Dataset", "flights")
    assert launched(world) == [FIRST, SECOND]


def test_a_result_without_a_word_about_the_source_is_a_failure(world: Fake) -> None:
    with_source(world)
    world.job_ends(FIRST)
    world.settle("Dataset", "flights")
    assert (source(world).problem or "").startswith("ResultLost")


def test_a_look_that_was_announced_and_not_made_is_made_under_the_same_number(world: Fake) -> None:
    """The operator died between writing the status and making the pod."""
    announced_only(world)
    world.settle("Dataset", "flights")
    assert launched(world) == [FIRST, FIRST]


def test_if_the_source_was_edited_meanwhile_the_next_number_asks_for_the_edited_one(world: Fake) -> None:
    announced_only(world)
    world.edit("Dataset", "flights", sources=[LANDING | {"csv": {"delimiter": ";"}}])
    world.settle("Dataset", "flights")
    assert launched(world) == [FIRST, SECOND]
    assert intake_job(world).source.csv.delimiter == ";"


def test_a_refused_launch_is_tried_again(world: Fake) -> None:
    world.refusals[FIRST] = ("QuotaExceeded", "no pods left")
    with_source(world)
    outcome = world.settle("Dataset", "flights")
    assert outcome.requeue_after == timedelta(seconds=30)
    del world.refusals[FIRST]
    world.settle("Dataset", "flights")
    assert FIRST in world.jobs


def test_a_dataset_without_sources_starts_nothing(world: Fake) -> None:
    with_dataset(world, seen(3))
    assert launched(world) == []
    assert world.dataset.status.intake is None
