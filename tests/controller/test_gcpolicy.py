"""GCPolicy: rounds, slots and requests; what any policy keeps; jobs that die, and Datasets that they die of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from kubothek.api.conditions import conditions_of, ready
from kubothek.api.dataset import Dataset, DatasetStatus, TagStatus
from kubothek.api.gcpolicy import DatasetSelector, GCPolicy, Round
from kubothek.api.jobs import CollectJob, CollectOutcome, KindCount, StoreState
from kubothek.controller.context import Event, FailureClass, JobPhase, Limits, Load, Place
from kubothek.controller.kinds import gcpolicy
from kubothek.controller.kinds.targets import JOB_LIMIT, matcher
from tests.controller.fake import START, STORE_SPEC, Fake, with_store

HOUR = timedelta(hours=1)
HOURLY = {"selector": {"all": True}, "schedule": {"cron": "0 * * * *"}, "mode": "Enforce", "retention": {"versions": 3}}


def world_with(*datasets: str, labels: dict[str, str] | None = None, **policy: Any) -> Fake:
    """A policy `nightly` and Datasets that are ready: names, or `store/name`."""
    world = Fake()
    if any("/" not in dataset for dataset in datasets):
        with_store(world)
    for dataset in datasets:
        add(world, dataset, labels)
    world.create("GCPolicy", "nightly", HOURLY | policy)
    world.settle("GCPolicy", "nightly")
    return world


def add(world: Fake, dataset: str, labels: dict[str, str] | None = None, **spec: Any) -> None:
    store, _, name = dataset.rpartition("/")
    store = store or "lake"
    if ("ObjectStore", store) not in world.resources:
        add_store(world, store)
    world.create("Dataset", name, {"storeRef": {"name": store}} | spec, labels=labels or {})
    be_ready(world, name)


def add_store(world: Fake, name: str, *, conditional_writes: bool = True) -> None:
    world.create("ObjectStore", name, STORE_SPEC | {"url": f"s3://bucket/{name}"})
    world.reconcile("ObjectStore", name)
    world.job_ends(f"{name}-inspect-1", store=StoreState(conditional_writes=conditional_writes))
    world.settle("ObjectStore", name)


def be_ready(world: Fake, name: str, reason: str = "Succeeded") -> None:
    old = world.resources["Dataset", name]
    generation, conditions = conditions_of(ready(reason, "fine"), old.status, old.metadata.generation, world.now)
    status = DatasetStatus(observed_generation=generation, conditions=conditions, version=3)
    world.resources["Dataset", name] = old.model_copy(update={"status": status})


def policy(world: Fake, name: str = "nightly") -> GCPolicy:
    found = world.resources["GCPolicy", name]
    assert isinstance(found, GCPolicy)
    return found


def round_of(world: Fake) -> Round:
    found = policy(world).status.round
    assert found is not None
    return found


def last_of(world: Fake) -> Round:
    assert policy(world).status.round is None
    found = policy(world).status.last
    assert found is not None
    return found


def launched(world: Fake) -> list[CollectJob]:
    return [launch.job for launch in world.launches if isinstance(launch.job, CollectJob)]


def targets(job: CollectJob) -> list[str]:
    return [target.name for target in job.targets]


def slot_comes(world: Fake, name: str = "nightly") -> None:
    world.now = (world.now + HOUR).replace(minute=0, second=0)
    world.reconcile("GCPolicy", name)


def ends(world: Fake, job: str, names: Sequence[str], *, objects: int = 0, failed: int = 0, **changes: Any) -> None:
    """The job went through these, and deleted so many objects of ten bytes."""
    counts = (KindCount(kind="data", objects=objects, bytes=objects * 10),) if objects else ()
    done = CollectOutcome(after=names[-1], datasets=len(names), failed=failed, collected=counts, **changes)
    world.job_ends(job, collect=done)
    world.reconcile("GCPolicy", "nightly")


# --- rounds ---


def test_nothing_is_collected_before_the_first_slot() -> None:
    world = world_with("flights")
    assert launched(world) == []
    assert world.condition("GCPolicy", "nightly") == ("True", "Succeeded")
    assert policy(world).status.next_time == START + HOUR
    assert world.reconcile("GCPolicy", "nightly").requeue_after == HOUR


def test_a_slot_collects_all_datasets_and_tells_what_went() -> None:
    world = world_with("flights", "planes")
    slot_comes(world)
    (job,) = launched(world)
    assert (job.job, job.uid, targets(job)) == ("nightly-collect-1", "uid-4", ["flights", "planes"])
    assert (job.enforce, job.max_deletes, job.grace_seconds) == (True, 1_000_000, 86400.0)
    assert world.condition("GCPolicy", "nightly") == ("True", "Collecting")
    world.job_runs(job.job)
    world.settle("GCPolicy", "nightly")
    ends(world, job.job, ["flights", "planes"], objects=4)
    last = last_of(world)
    assert (last.slot, last.datasets, last.failed, last.problems) == (START + HOUR, 2, 0, ())
    assert last.collected[0].model_dump() == {"kind": "data", "objects": 4, "bytes": 40}
    assert policy(world).status.last_time == world.now
    assert policy(world).status.next_time == START + 2 * HOUR
    told = "4 objects (40 B) of 2 Datasets deleted"
    assert world.message("GCPolicy", "nightly") == f"{told}; next at 2026-11-21T14:00:00Z"
    assert world.events[-1] == Event("Normal", "Succeeded", world.message("GCPolicy", "nightly"))
    world.settle("GCPolicy", "nightly")
    assert len(launched(world)) == 1


def test_a_slot_is_worked_off_once() -> None:
    world = world_with("flights")
    slot_comes(world)
    ends(world, "nightly-collect-1", ["flights"])
    world.pass_time(HOUR - timedelta(seconds=1))
    world.settle("GCPolicy", "nightly")
    world.now -= timedelta(minutes=59, seconds=30)  # the clock is set back behind the slot, and passes it again
    for _ in range(3):
        world.settle("GCPolicy", "nightly")
        world.pass_time(timedelta(seconds=30))
    assert len(launched(world)) == 1


def test_large_rounds_go_by_store_and_in_pieces() -> None:
    many = [f"d{number:03}" for number in range(JOB_LIMIT + 20)]
    world = world_with(*many, "other/events", "other/logs")
    slot_comes(world)
    for number in (1, 2, 3):
        job = launched(world)[-1]
        assert job.job == f"nightly-collect-{number}"
        ends(world, job.job, targets(job), objects=1)
    assert [targets(job) for job in launched(world)] == [many[:JOB_LIMIT], many[JOB_LIMIT:], ["events", "logs"]]
    assert [job.store.name for job in launched(world)] == ["lake", "lake", "other"]
    last = last_of(world)
    assert (last.datasets, last.collected[0].objects) == (JOB_LIMIT + 22, 3)
    slot_comes(world)
    assert launched(world)[-1].job == "nightly-collect-4", "numbers of jobs are never used again"


def test_of_the_jobs_of_a_policy_the_last_two_are_kept() -> None:
    world = world_with("a/x", "b/x1", "c/x2")
    slot_comes(world)
    for job, name in (("nightly-collect-1", "x"), ("nightly-collect-2", "x1"), ("nightly-collect-3", "x2")):
        ends(world, job, [name])
    assert world.cancelled == ["nightly-collect-1"]


def test_a_job_may_leave_the_rest_to_the_next_one() -> None:
    world = world_with("a", "b", "c")
    slot_comes(world)
    ends(world, "nightly-collect-1", ["a", "b"])
    assert targets(launched(world)[-1]) == ["c"]


@pytest.mark.parametrize("after", ["", "zzz", "0"])
def test_a_word_that_makes_no_sense_does_not_go_round_in_circles(after: str) -> None:
    world = world_with("a", "b")
    slot_comes(world)
    for number in (1, 2):
        if policy(world).status.round is not None:
            ends(world, f"nightly-collect-{number}", [after])
    assert policy(world).status.round is None


def test_a_round_without_datasets_is_over_at_once() -> None:
    world = world_with()
    slot_comes(world)
    assert launched(world) == []
    assert last_of(world).slot == START + HOUR
    assert world.message("GCPolicy", "nightly").startswith("spec.selector selects no Dataset")


def test_what_deleted_datasets_left_goes_with_the_last_job_of_each_store_and_alone_where_there_are_none() -> None:
    world = world_with("a/one", "a/two", "c/three")
    add_store(world, "b")
    slot_comes(world)
    ends(world, "nightly-collect-1", ["one", "two"])
    ends(world, "nightly-collect-2", ["~"])
    ends(world, "nightly-collect-3", ["three"])
    assert [targets(job) for job in launched(world)] == [["one", "two"], [], ["three"]]
    assert [job.leftovers for job in launched(world)] == ["cluster/team/"] * 3
    assert last_of(world).slot == START + HOUR
    assert policy(world).status.round is None


def test_only_a_policy_for_all_collects_what_deleted_datasets_left() -> None:
    world = world_with("a/one", selector={"names": ["one"]})
    add_store(world, "b")
    slot_comes(world)
    ends(world, "nightly-collect-1", ["one"])
    assert [(targets(job), job.leftovers) for job in launched(world)] == [(["one"], None)]


def test_a_job_that_is_tried_again_leaves_what_deleted_datasets_left_to_the_next_round() -> None:
    world = world_with("one")
    slot_comes(world)
    world.job_fails("nightly-collect-1", FailureClass.RETRY, "OutOfMemory")
    for _ in range(3):
        world.settle("GCPolicy", "nightly")
        world.pass_time(timedelta(minutes=1))
    assert [(targets(job), job.leftovers) for job in launched(world)] == [(["one"], "cluster/team/"), (["one"], None)]


def test_a_slot_that_comes_during_a_round_is_made_up_for_after_it() -> None:
    world = world_with("flights")
    slot_comes(world)
    slot_comes(world)
    assert len(launched(world)) == 1
    world.pass_time(timedelta(minutes=10))
    ends(world, "nightly-collect-1", ["flights"])
    assert round_of(world).slot == START + 2 * HOUR
    assert len(launched(world)) == 2


def test_slots_missed_while_the_operator_was_away_are_one_round_or_none() -> None:
    world = world_with("flights", schedule={"cron": "0 * * * *", "startingDeadline": "10m"})
    world.pass_time(5 * HOUR + timedelta(minutes=11))
    world.settle("GCPolicy", "nightly")
    assert launched(world) == []
    world.pass_time(timedelta(minutes=55))
    world.reconcile("GCPolicy", "nightly")
    assert round_of(world).slot == START + 6 * HOUR


# --- what is collected ---


def test_what_is_not_ready_suspended_or_going_away_is_left_out() -> None:
    world = world_with("fine", "suspended", "unready", "lagging", "lossy", "dark/unreachable", "going", "gone")
    world.edit("Dataset", "suspended", suspend=True)
    be_ready(world, "suspended", "Suspended")
    world.edit("Dataset", "unready", table={"targetFileSize": "1Mi"})  # nobody has looked at this generation yet
    world.resources["Dataset", "going"] = world.resources["Dataset", "going"].model_copy(
        update={"metadata": world.resources["Dataset", "going"].metadata.model_copy(update={"finalizers": ("x",)})}
    )
    lossy = world.resources["Dataset", "lossy"]
    world.resources["Dataset", "lossy"] = lossy.model_copy(
        update={"status": lossy.status.model_copy(update={"corrupt": "a.parquet is lost; version 2 is whole"})}
    )
    world.delete("Dataset", "going")
    world.delete("Dataset", "gone")
    world.edit("ObjectStore", "dark", suspend=True)
    slot_comes(world)
    assert targets(launched(world)[0]) == ["fine", "lagging"]
    assert policy(world).status.datasets == 7


def test_a_dataset_whose_tags_are_not_set_yet_is_left_out() -> None:
    world = world_with("flights", "planes")
    world.edit("Dataset", "flights", tags=[{"name": "audit", "version": 2}])
    be_ready(world, "flights")
    slot_comes(world)
    assert targets(launched(world)[0]) == ["planes"]
    old = world.resources["Dataset", "flights"]
    tagged = old.status.model_copy(update={"tags": (TagStatus(name="audit", version=2),)})
    world.resources["Dataset", "flights"] = old.model_copy(update={"status": tagged})
    ends(world, "nightly-collect-1", ["planes"])
    slot_comes(world)
    assert targets(launched(world)[-1]) == ["flights", "planes"]


def test_deleted_data_is_collected() -> None:
    world = world_with("flights")
    old = world.resources["Dataset", "flights"]
    world.resources["Dataset", "flights"] = old.model_copy(
        update={"status": old.status.model_copy(update={"deleted": True})}
    )
    slot_comes(world)
    assert targets(launched(world)[0]) == ["flights"]


def test_datasets_that_go_away_between_two_jobs_are_passed_over() -> None:
    world = world_with("a/one", "b/two", "c/three")
    add(world, "b/resting", suspend=True)
    slot_comes(world)
    world.delete("Dataset", "two")
    ends(world, "nightly-collect-1", ["one"])
    assert targets(launched(world)[-1]) == ["three"]


def test_a_job_whose_datasets_went_away_before_it_was_made_is_passed_over() -> None:
    world = world_with("a/one", "b/two")
    add(world, "a/resting", suspend=True)
    world.refusals["nightly-collect-1"] = ("QuotaExceeded", "no room")
    slot_comes(world)
    assert world.condition("GCPolicy", "nightly") == ("False", "QuotaExceeded")
    world.delete("Dataset", "one")
    world.refusals.clear()
    world.settle("GCPolicy", "nightly")
    assert targets(launched(world)[-1]) == ["two"]


def test_what_any_policy_keeps_is_kept() -> None:
    world = world_with("flights", "planes")
    others: list[dict[str, Any]] = [
        {"selector": {"names": ["flights"]}, "retention": {"age": "48h"}, "gracePeriod": "36h", "suspend": True},
        {"selector": {"names": ["flights"]}, "retention": {"versions": 3}},
        {"selector": {"names": ["planes"]}, "retention": {}},
    ]
    for number, spec in enumerate(others):
        world.create("GCPolicy", f"other-{number}", {"schedule": {"cron": "@yearly"}} | spec)
    slot_comes(world)
    (job,) = launched(world)
    kept = [[(p.versions, p.seconds) for p in target.policies] for target in job.targets]
    assert kept == [[(3, None), (None, 172800.0)], [(3, None), (None, None)]]
    assert job.grace_seconds == 36 * 3600


def test_the_grace_period_is_that_of_the_store_only() -> None:
    world = world_with("one", "far/two", gracePeriod="2h")
    world.create("GCPolicy", "far", HOURLY | {"selector": {"names": ["two"]}, "gracePeriod": "9h", "suspend": True})
    slot_comes(world)
    first = launched(world)[0]
    ends(world, first.job, targets(first))
    assert {job.store.name: job.grace_seconds for job in launched(world)} == {"far": 9 * 3600, "lake": 2 * 3600}


def test_a_policy_that_cannot_be_read_stops_all_collections() -> None:
    world = world_with("flights")
    world.unreadable["GCPolicy"] = ("broken",)
    slot_comes(world)
    assert launched(world) == []
    assert world.condition("GCPolicy", "nightly") == ("False", "PolicyInvalid")
    assert "'broken'" in world.message("GCPolicy", "nightly")
    world.unreadable.clear()
    world.settle("GCPolicy", "nightly")
    assert len(launched(world)) == 1


def test_jobs_are_told_spans_and_not_moments() -> None:
    """The operator's clock decides when to collect; how old something is, the store's clock decides."""
    told = []
    for wrong in (timedelta(0), timedelta(days=400), -timedelta(days=400)):
        world = world_with("flights", retention={"age": "48h"})
        world.annotate("GCPolicy", "nightly", requestedAt="now")
        world.now += wrong
        world.reconcile("GCPolicy", "nightly")
        told.append(launched(world)[0])
    assert told[0] == told[1] == told[2]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"all": True}, "abc"),
        ({"names": ["a", "x"]}, "a"),
        ({"matchLabels": {"tier": "hot"}}, "a"),
        ({"matchLabels": {"tier": "hot", "team": "x"}}, ""),
        ({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["hot", "cold"]}]}, "ab"),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["hot"]}]}, "bc"),
        ({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, "ab"),
        ({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, "c"),
        ({"matchLabels": {"tier": "hot"}, "matchExpressions": [{"key": "team", "operator": "Exists"}]}, ""),
        ({"matchLabels": {"tier": ""}}, ""),
    ],
)
def test_selectors_select_as_those_of_kubernetes(selector: dict[str, Any], expected: str) -> None:
    selects = matcher(DatasetSelector.model_validate_json(json.dumps(selector)))
    world = Fake()
    for name, labels in {"a": {"tier": "hot"}, "b": {"tier": "cold"}, "c": {}}.items():
        world.create("Dataset", name, {"storeRef": {"name": "lake"}}, labels=labels)
    assert "".join(dataset.name for dataset in world.list(Dataset, "team") if selects(dataset)) == expected


# --- modes, requests, suspension ---


def test_a_dry_run_deletes_nothing_and_says_so() -> None:
    world = world_with("flights", mode="DryRun")
    slot_comes(world)
    assert not launched(world)[0].enforce
    ends(world, "nightly-collect-1", ["flights"], objects=4)
    assert "4 objects (40 B) of 1 Dataset that would be deleted (mode is DryRun)" in world.message(
        "GCPolicy", "nightly"
    )


@pytest.mark.parametrize(("before", "after"), [("Enforce", "DryRun"), ("DryRun", "Enforce")])
def test_an_edit_of_the_mode_during_a_round_never_makes_it_delete(before: str, after: str) -> None:
    world = world_with("a/one", "b/two", mode=before)
    slot_comes(world)
    world.edit("GCPolicy", "nightly", mode=after)
    ends(world, "nightly-collect-1", ["one"])
    assert [job.enforce for job in launched(world)] == [before == "Enforce", False]


def test_a_request_collects_now_and_once() -> None:
    world = world_with("flights")
    world.pass_time(timedelta(minutes=7))
    world.annotate("GCPolicy", "nightly", requestedAt="today")
    world.reconcile("GCPolicy", "nightly")
    assert round_of(world).slot == START + timedelta(minutes=7)
    ends(world, "nightly-collect-1", ["flights"])
    world.settle("GCPolicy", "nightly")
    assert policy(world).status.handled_request == "today"
    assert len(launched(world)) == 1
    slot_comes(world)
    assert round_of(world).slot == START + HOUR, "a request does not take a slot's place"


def test_a_request_during_a_round_is_answered_by_another_round() -> None:
    world = world_with("flights")
    slot_comes(world)
    world.annotate("GCPolicy", "nightly", requestedAt="today")
    world.settle("GCPolicy", "nightly")
    ends(world, "nightly-collect-1", ["flights"])
    assert launched(world)[-1].job == "nightly-collect-2"


def test_a_suspended_policy_starts_nothing_and_a_running_job_goes_on() -> None:
    world = world_with("a/one", "b/two")
    slot_comes(world)
    world.edit("GCPolicy", "nightly", suspend=True)
    world.job_runs("nightly-collect-1")
    world.settle("GCPolicy", "nightly")
    assert world.cancelled == []
    ends(world, "nightly-collect-1", ["one"])
    world.settle("GCPolicy", "nightly")
    assert len(launched(world)) == 1
    assert world.condition("GCPolicy", "nightly") == ("True", "Suspended")
    assert policy(world).status.next_time is None
    world.edit("GCPolicy", "nightly", suspend=False)
    world.reconcile("GCPolicy", "nightly")
    assert targets(launched(world)[-1]) == ["two"], "the round goes on where it was"


def test_a_suspended_policy_waits_with_requests_and_slots() -> None:
    world = world_with("flights", suspend=True)
    world.annotate("GCPolicy", "nightly", requestedAt="today")
    slot_comes(world)
    assert launched(world) == []
    world.edit("GCPolicy", "nightly", suspend=False)
    world.reconcile("GCPolicy", "nightly")
    assert len(launched(world)) == 1


@pytest.mark.parametrize("broken", [{"cron": "0 0 30 2 *"}, {"cron": "@daily", "timeZone": "Mars/Base"}])
def test_a_schedule_without_slots_is_told_and_its_retention_counts(broken: dict[str, str]) -> None:
    world = world_with("flights")
    world.create("GCPolicy", "broken", HOURLY | {"schedule": broken, "retention": {"versions": 9}})
    world.settle("GCPolicy", "broken")
    assert world.condition("GCPolicy", "broken") == ("False", "InvalidSchedule")
    assert policy(world, "broken").status.next_time is None
    slot_comes(world)
    assert [kept.versions for kept in launched(world)[0].targets[0].policies] == [3, 9]


def test_a_frozen_policy_is_left_alone() -> None:
    world = world_with("flights")
    world.annotate("GCPolicy", "nightly", reconcile="disabled")
    slot_comes(world)
    assert launched(world) == []


# --- several policies ---


def test_two_policies_do_not_collect_the_same_dataset_at_once() -> None:
    world = world_with("a", "b", "c")
    world.create("GCPolicy", "other", HOURLY | {"selector": {"names": ["c"]}})
    world.settle("GCPolicy", "other")
    slot_comes(world)
    world.job_runs("nightly-collect-1")
    assert world.reconcile("GCPolicy", "other").requeue_after == timedelta(seconds=30)
    assert len(launched(world)) == 1
    assert "'nightly'" in world.message("GCPolicy", "other")
    ends(world, "nightly-collect-1", ["a", "b", "c"])
    world.reconcile("GCPolicy", "other")
    assert launched(world)[-1].job == "other-collect-1"


def test_policies_for_different_datasets_collect_side_by_side() -> None:
    world = world_with("a", "b", "c", selector={"names": ["a", "c"]})
    world.create("GCPolicy", "other", HOURLY | {"selector": {"names": ["b"]}})
    slot_comes(world)
    world.reconcile("GCPolicy", "other")
    assert [job.job for job in launched(world)] == ["nightly-collect-1", "other-collect-1"]


@pytest.mark.parametrize("end", ["died", "frozen"])
def test_a_job_that_is_gone_is_in_nobodys_way(end: str) -> None:
    world = world_with("a")
    world.create("GCPolicy", "other", HOURLY)
    slot_comes(world)
    if end == "died":
        world.job_vanishes("nightly-collect-1")
    else:
        world.annotate("GCPolicy", "nightly", reconcile="disabled")
        world.job_ends("nightly-collect-1")
    world.reconcile("GCPolicy", "other")
    assert launched(world)[-1].job == "other-collect-1"


# --- failures ---


def fails(world: Fake, failure: FailureClass = FailureClass.RETRY, reason: str = "StoreUnavailable") -> None:
    world.job_fails(launched(world)[-1].job, failure, reason)
    world.reconcile("GCPolicy", "nightly")
    if policy(world).status.round is not None:
        world.pass_time(timedelta(minutes=5))
        world.reconcile("GCPolicy", "nightly")


def test_a_job_that_fails_is_tried_again() -> None:
    world = world_with("flights")
    slot_comes(world)
    world.job_fails("nightly-collect-1", FailureClass.RETRY, "StoreUnavailable")
    outcome = world.reconcile("GCPolicy", "nightly")
    assert outcome.requeue_after == timedelta(seconds=2)
    assert world.condition("GCPolicy", "nightly") == ("False", "ProgressingWithRetry")
    world.pass_time(timedelta(seconds=2))
    world.reconcile("GCPolicy", "nightly")
    ends(world, "nightly-collect-2", ["flights"])
    assert last_of(world).failed == 0
    assert world.condition("GCPolicy", "nightly") == ("True", "Succeeded")


def test_a_dataset_that_jobs_die_of_is_found_and_keeps_no_other_from_being_collected() -> None:
    names = [f"d{number:02}" for number in range(30)]
    world = world_with(*names)
    world.create("Engine", "default", {"retry": {"limit": 2}})
    slot_comes(world)
    collected: list[str] = []
    for _ in range(40):
        if policy(world).status.round is None:
            break
        asked = targets(launched(world)[-1])
        if "d13" in asked:
            fails(world, reason="OOMKilled")
        else:
            collected += asked
            ends(world, launched(world)[-1].job, asked)
    assert collected == [name for name in names if name != "d13"]
    last = last_of(world)
    assert (last.datasets, last.failed) == (30, 1)
    assert last.problems == ("d13: OOMKilled: it went wrong",)
    assert world.condition("GCPolicy", "nightly") == ("False", "CollectionFailed")


def test_a_store_that_is_down_keeps_no_other_from_being_collected() -> None:
    world = world_with("down/a", "down/b", "up/c")
    world.create("Engine", "default", {"retry": {"limit": 0}})
    slot_comes(world)
    fails(world)
    assert targets(launched(world)[-1]) == ["c"]
    ends(world, launched(world)[-1].job, ["c"])
    assert (last_of(world).failed, last_of(world).problems) == (2, ("2 Datasets: StoreUnavailable: it went wrong",))


def test_a_store_without_conditional_writes_is_left_alone_as_a_collection_commits_beside_others() -> None:
    world = world_with("up/c")
    add_store(world, "plain", conditional_writes=False)
    add(world, "plain/a")
    slot_comes(world)
    assert [targets(job) for job in launched(world)] == [["c"]]
    ends(world, "nightly-collect-1", ["c"])
    assert last_of(world).datasets == 1


def test_what_only_the_engine_can_mend_ends_the_round() -> None:
    world = world_with("a/one", "b/two", "c/three")
    slot_comes(world)
    fails(world, FailureClass.REPORT, "ImagePullFailed")
    assert (last_of(world).datasets, last_of(world).failed) == (3, 3)
    assert len(launched(world)) == 1
    slot_comes(world)
    ends(world, "nightly-collect-2", ["one"])
    ends(world, "nightly-collect-3", ["two"])
    ends(world, "nightly-collect-4", ["three"])
    assert world.condition("GCPolicy", "nightly") == ("True", "Succeeded")


def test_failures_of_datasets_are_told_until_a_round_goes_well() -> None:
    world = world_with("a", "b")
    slot_comes(world)
    ends(world, "nightly-collect-1", ["a", "b"], failed=1, problems=("a: TooManyDeletes: mistake?",), objects=2)
    assert world.kstatus("GCPolicy", "nightly") == "Failed"
    assert "1 of 2 Datasets could not be collected: a: TooManyDeletes: mistake?" in world.message("GCPolicy", "nightly")
    slot_comes(world)
    ends(world, "nightly-collect-2", ["a", "b"])
    assert world.kstatus("GCPolicy", "nightly") == "Current"


def test_problems_are_few_and_short() -> None:
    world = world_with("a/one", "b/two")
    slot_comes(world)
    for number, name in ((1, "one"), (2, "two")):
        ends(world, f"nightly-collect-{number}", [name], failed=6, problems=("x" * 1000,) * 6)
    assert [len(problem) for problem in last_of(world).problems] == [300] * 8


def test_a_job_without_a_word_counts_as_failed() -> None:
    world = world_with("flights")
    slot_comes(world)
    world.job_ends("nightly-collect-1")
    world.reconcile("GCPolicy", "nightly")
    assert last_of(world).problems == ("flights: ResultLost: the job ended without a word about its Datasets",)


def test_a_lost_job_is_made_again_under_another_name() -> None:
    world = world_with("flights")
    slot_comes(world)
    world.job_runs("nightly-collect-1")
    world.reconcile("GCPolicy", "nightly")
    world.job_vanishes("nightly-collect-1")
    world.reconcile("GCPolicy", "nightly")
    assert launched(world)[-1].job == "nightly-collect-2"
    assert round_of(world).disruptions == 1


def test_a_crash_between_announcement_and_launch_makes_the_same_job() -> None:
    world = world_with("flights")
    world.now = START + HOUR
    world.publish("GCPolicy", "nightly", gcpolicy.reconcile(policy(world), world))  # and the operator dies
    assert launched(world) == []
    world.pass_time(timedelta(minutes=3))
    world.reconcile("GCPolicy", "nightly")
    assert [(job.job, targets(job)) for job in launched(world)] == [("nightly-collect-1", ["flights"])]
    assert round_of(world).slot == START + HOUR


def test_pods_of_an_earlier_policy_of_this_name_are_passed_over() -> None:
    world = world_with("flights")
    slot_comes(world)
    ends(world, "nightly-collect-1", ["flights"])
    world.delete("GCPolicy", "nightly")
    world.create("GCPolicy", "nightly", HOURLY)
    slot_comes(world)
    world.reconcile("GCPolicy", "nightly")
    assert launched(world)[-1].job == "nightly-collect-2"


def test_a_missing_engine_is_told() -> None:
    world = world_with("flights", engineRef={"name": "big"})
    slot_comes(world)
    assert world.condition("GCPolicy", "nightly")[1] == "EngineNotFound"
    world.create("Engine", "big", {})
    world.reconcile("GCPolicy", "nightly")
    assert world.launches[-1].engine is world.resources["Engine", "big"]


def test_a_policy_that_waits_for_a_place_is_ready() -> None:
    world = world_with("flights")
    world.settings = replace(world.settings, limits=Limits(jobs=1))
    world.load = Load(taken={Place("team", "lake", maintenance=False): 1})
    slot_comes(world)
    assert launched(world) == []
    assert world.condition("GCPolicy", "nightly") == ("True", "Collecting")
    world.load = Load()
    world.reconcile("GCPolicy", "nightly")
    assert len(launched(world)) == 1


def test_a_pod_that_does_not_start_is_told() -> None:
    world = world_with("flights")
    slot_comes(world)
    world.job_is("nightly-collect-1", JobPhase.PENDING, "Unschedulable", "no node is large enough")
    world.reconcile("GCPolicy", "nightly")
    assert world.condition("GCPolicy", "nightly") == ("False", "Unschedulable")
