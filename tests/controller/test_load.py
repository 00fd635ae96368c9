"""Limits hold, nobody starves, namespaces share, and maintenance comes last."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubothek.api.jobs import HealthState
from kubothek.controller.context import AwaitSlot, JobPhase, JobSlot, Limits, Load
from kubothek.controller.scheduling.concurrency import admit, job_slot_of
from tests.controller.fake import COMMIT_SPEC, Fake, committed, seen, with_dataset, with_running_commit

A, B, C = (JobSlot(name, "lake", maintenance=False) for name in "abc")
TIDY_A, TIDY_B = (JobSlot(name, "lake", maintenance=True) for name in "ab")
KEY = ("Commit", "january")


def may_start(slot: JobSlot, limits: Limits, held: tuple[JobSlot, ...] = (), wanted: tuple[JobSlot, ...] = ()) -> bool:
    return admit(slot, limits, Load(Counter(held), Counter(wanted))) is None


# --- each limit ------------------------------------------------------------------------------------------------------


def test_admission_without_limits_starts_every_job() -> None:
    assert may_start(A, Limits(), held=(A,) * 1000)
    assert may_start(TIDY_A, Limits(), held=(A,) * 1000, wanted=(A,) * 1000)


@pytest.mark.parametrize(
    ("limits", "inside", "outside"),
    [
        (Limits(jobs=2), B, None),
        (Limits(jobs_per_namespace=2), JobSlot("a", "other", maintenance=False), B),
        (Limits(jobs_per_store=2), A, JobSlot("a", "other", maintenance=False)),
        (Limits(jobs_per_store=2), A, B),
    ],
)
def test_admission_limit_holds_back_only_jobs_in_its_scope(
    limits: Limits, inside: JobSlot, outside: JobSlot | None
) -> None:
    assert may_start(inside, limits, held=(A,))
    assert not may_start(inside, limits, held=(A, A))
    assert outside is None or may_start(outside, limits, held=(A, A))


def test_admission_message_names_exceeded_limit() -> None:
    for limits, told in (
        (Limits(jobs=1), "at most 1 jobs at a time"),
        (Limits(jobs_per_namespace=1), "of a namespace"),
        (Limits(jobs_per_store=1), "on ObjectStore 'lake'"),
    ):
        blocked = admit(A, limits, Load({A: 1}))
        assert blocked is not None
        assert blocked.state.reason == "ConcurrencyLimit"
        assert told in blocked.state.message
        assert not blocked.state.worrying, "it is the normal course of things"
        assert blocked.again is not None


@pytest.mark.parametrize("verb", ["inspect", "delete", "restore", "tag"])
def test_small_jobs_use_no_slot(verb: str) -> None:
    assert job_slot_of(verb, "a", "lake") is None


# --- maintenance -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [Limits(jobs=3), Limits(jobs_per_namespace=3), Limits(jobs_per_store=3)])
def test_maintenance_leaves_one_slot_free(limits: Limits) -> None:
    assert may_start(TIDY_A, limits, held=(TIDY_A,))
    assert not may_start(TIDY_A, limits, held=(TIDY_A, TIDY_A))
    assert may_start(A, limits, held=(TIDY_A, TIDY_A))


def test_maintenance_uses_only_slot_when_no_user_job_waits() -> None:
    limits = Limits(jobs=1)
    assert may_start(TIDY_A, limits)
    assert not may_start(TIDY_A, limits, wanted=(B,))


def test_maintenance_yields_slots_to_admissible_user_jobs() -> None:
    assert not may_start(TIDY_A, Limits(jobs=4), held=(A, A), wanted=(B, B))
    assert may_start(TIDY_A, Limits(jobs=4), held=(A, A), wanted=(B,)), "there is room for both"
    held_back = Limits(jobs=4, jobs_per_namespace=1)
    assert may_start(TIDY_B, held_back, held=(A,), wanted=(A, A, A)), "no place is any use to those that wait"


# --- fairness --------------------------------------------------------------------------------------------------------


def test_single_namespace_may_use_all_slots() -> None:
    assert may_start(A, Limits(jobs=4), held=(A, A, A), wanted=(A, A))


def test_free_slot_goes_to_namespace_with_fewer_jobs() -> None:
    limits = Limits(jobs=4)
    assert not may_start(A, limits, held=(A, A, A), wanted=(A, B))
    assert may_start(B, limits, held=(A, A, A), wanted=(A, B))
    assert not may_start(A, limits, held=(A, A, B), wanted=(A, B))
    assert may_start(A, limits, held=(A, B, B), wanted=(A, B))


def test_each_waiting_namespace_gets_at_least_one_slot() -> None:
    limits = Limits(jobs=2)
    assert may_start(C, limits, held=(A,), wanted=(A, B, C))
    assert not may_start(A, limits, held=(A,), wanted=(A, B, C))


def test_remaining_slot_goes_to_any_waiting_namespace() -> None:
    assert may_start(A, Limits(jobs=5), held=(A, A, B, B), wanted=(A, B)), "five by two is two and one over"


def test_fair_share_ignores_jobs_that_cannot_start() -> None:
    limits = Limits(jobs=4, jobs_per_store=1)
    elsewhere = JobSlot("a", "other", maintenance=False)
    assert may_start(elsewhere, limits, held=(A, JobSlot("a", "third", maintenance=False), B), wanted=(B, elsewhere))


def test_user_job_starts_before_maintenance_of_other_namespace() -> None:
    assert may_start(A, Limits(jobs=4), held=(A, A, A), wanted=(TIDY_B,))


# --- any history -----------------------------------------------------------------------------------------------------

places = st.builds(JobSlot, st.sampled_from("abc"), st.sampled_from(["lake", "pond"]), st.booleans())
few = st.integers(0, 4)


def scopes(slot: JobSlot, limits: Limits) -> list[tuple[int, tuple[str, ...]]]:
    named = (
        (limits.jobs, ()),
        (limits.jobs_per_namespace, (slot.namespace,)),
        (limits.jobs_per_store, (slot.namespace, slot.store)),
    )
    return [(limit, scope) for limit, scope in named if limit]


def within(scope: tuple[str, ...], held: list[JobSlot]) -> list[JobSlot]:
    return [slot for slot in held if (slot.namespace, slot.store)[: len(scope)] == scope]


@settings(max_examples=150, deadline=None)
@given(st.builds(Limits, few, few, few), st.lists(places | st.integers(0, 20), max_size=30), st.randoms())
def test_admission_in_any_order_respects_limits_and_fills_free_slots(
    limits: Limits, history: list[JobSlot | int], chance: Random
) -> None:
    """A place is wanted, or a job (by its number) ends; then all that wait ask again, in any order, to a fixpoint."""
    held: list[JobSlot] = []
    wanted: list[JobSlot] = []
    for event in history:
        if isinstance(event, JobSlot):
            wanted.append(event)
        elif held:
            held.pop(event % len(held))
        moved = True
        while moved:
            moved = False
            chance.shuffle(wanted)
            for slot in list(wanted):
                if may_start(slot, limits, tuple(held), tuple(wanted)):
                    wanted.remove(slot)
                    held.append(slot)
                    moved = True
        for slot in held:
            for limit, scope in scopes(slot, limits):
                here = within(scope, held)
                assert len(here) <= limit
                assert sum(other.maintenance for other in here) <= max(1, limit - 1)
        for slot in wanted:
            free = all(len(within(scope, held)) < limit for limit, scope in scopes(slot, limits))
            assert slot.maintenance or not free, "user work waits beside a free place"
        if not any(not slot.maintenance for slot in wanted):
            for slot in wanted:
                full = (
                    len(here := within(scope, held)) >= limit
                    or sum(other.maintenance for other in here) >= max(1, limit - 1)
                    for limit, scope in scopes(slot, limits)
                )
                assert any(full), "maintenance waits though nobody else wants the place"


def test_two_namespaces_with_long_queues_get_half_of_slots_each() -> None:
    limits, held, wanted = Limits(jobs=4), [A, A, A, A], [A] * 50 + [B] * 50
    for _ in range(10):
        held.pop(0)
        for slot in (A, B):  # the one that has more asks first
            if may_start(slot, limits, tuple(held), tuple(wanted)):
                wanted.remove(slot)
                held.append(slot)
    assert Counter(held) == {A: 2, B: 2}


# --- what becomes of it in reconcilers -------------------------------------------------------------------------------


@pytest.fixture
def context() -> Fake:
    return Fake(limits=Limits(jobs=2))


OTHERS = JobSlot("other", "lake", maintenance=False)
FULL = Load({OTHERS: 2})


def test_commit_without_free_slot_waits_and_then_starts(context: Fake) -> None:
    with_dataset(context)
    context.load = FULL
    context.create(*KEY, COMMIT_SPEC)
    outcome = context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "ConcurrencyLimit")
    assert context.kstatus(*KEY) == "InProgress"
    assert outcome.actions == (AwaitSlot(JobSlot("team", "lake", maintenance=False)),)
    assert outcome.requeue_after is not None
    assert context.commit().status.start_time is None
    context.load = Load({OTHERS: 1})
    context.settle(*KEY)
    assert "january-1" in context.jobs


def test_commit_waiting_for_slot_keeps_queue_position(context: Fake) -> None:
    with_dataset(context)
    context.load = FULL
    context.create(*KEY, COMMIT_SPEC)
    context.settle(*KEY)
    context.pass_time(timedelta(seconds=1))
    context.create("Commit", "february", COMMIT_SPEC)
    context.load = Load()
    context.settle("Commit", "february")
    assert context.condition("Commit", "february") == ("False", "Waiting")
    assert "february-1" not in context.jobs


def test_running_job_continues_when_limits_are_exceeded(context: Fake) -> None:
    job = with_running_commit(context)
    context.load = FULL
    context.settle(*KEY)
    assert context.jobs[job].phase is JobPhase.RUNNING
    context.job_ends(job, **committed(1))
    context.settle(*KEY)
    assert context.condition(*KEY) == ("True", "Succeeded")


def test_ingestion_waiting_for_slot_does_not_block_commits(context: Fake) -> None:
    context.load = FULL
    with_dataset(context, sources=[{"name": "landing", "prefix": "in/", "format": "CSV"}])
    assert context.awaited
    assert context.condition("Dataset", "flights") == ("True", "Succeeded")
    context.load = Load()
    context.create(*KEY, COMMIT_SPEC)
    context.settle(*KEY)
    assert "january-1" in context.jobs
    context.job_ends("january-1", **committed(1))
    context.settle(*KEY)
    context.settle("Dataset", "flights")
    assert "flights-intake-1" in context.jobs


def test_maintenance_waiting_for_slot_yields_to_new_commit(context: Fake) -> None:
    context.load = FULL
    health = HealthState(version=3, worst_partition_small_files=9)
    with_dataset(context, seen(3, health=health), maintenance={"compaction": {}})
    assert context.awaited[-1] == JobSlot("team", "lake", maintenance=True)
    assert context.condition("Dataset", "flights") == ("True", "Succeeded")
    with_waiting = COMMIT_SPEC | {"id": "x"}
    context.create(*KEY, with_waiting)
    context.settle(*KEY)
    context.load = Load()
    context.settle("Dataset", "flights")
    assert "flights-compact-1" not in context.jobs, "the Commit could run now"


def test_small_job_starts_at_full_load(context: Fake) -> None:
    context.load = FULL
    with_dataset(context, seen(3), tags=[{"name": "a", "version": 1}])
    assert "flights-tag-1" in context.jobs
    assert context.store.ready


def test_suspended_engine_starts_no_data_jobs_and_stops_none(context: Fake) -> None:
    running = with_running_commit(context)
    context.create("Engine", "default", {"suspend": True})
    context.settle("Engine", "default")
    assert context.condition("Engine", "default") == ("True", "Suspended")
    context.pass_time(timedelta(minutes=10))
    context.settle("ObjectStore", "lake")
    assert "lake-inspect-2" in context.jobs, "looking takes no place"
    context.job_ends(running, **committed(1))
    context.settle(*KEY)
    assert context.commit().status.version == 1
    february = ("Commit", "february")
    context.create(*february, COMMIT_SPEC)
    outcome = context.settle(*february)
    assert context.condition(*february) == ("False", "DependencyNotReady")
    assert "spec.suspend" in context.message(*february)
    assert outcome.actions == ()
    assert context.kstatus(*february) == "InProgress"
    context.edit("Engine", "default", suspend=False)
    context.settle(*february)
    assert "february-1" in context.jobs
