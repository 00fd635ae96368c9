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
from kubothek.controller.context import Event, FailureClass, JobPhase, JobSlot, Limits, Load
from kubothek.controller.kinds import gcpolicy
from kubothek.controller.kinds.targets import JOB_LIMIT, matcher
from tests.controller.fake import START, STORE_SPEC, Fake, with_store

HOUR = timedelta(hours=1)
HOURLY = {"selector": {"all": True}, "schedule": {"cron": "0 * * * *"}, "mode": "Enforce", "retention": {"versions": 3}}


def context_with(*datasets: str, labels: dict[str, str] | None = None, **policy: Any) -> Fake:
    """A policy `nightly` and Datasets that are ready: names, or `store/name`."""
    context = Fake()
    if any("/" not in dataset for dataset in datasets):
        with_store(context)
    for dataset in datasets:
        add(context, dataset, labels)
    context.create("GCPolicy", "nightly", HOURLY | policy)
    context.settle("GCPolicy", "nightly")
    return context


def add(context: Fake, dataset: str, labels: dict[str, str] | None = None, **spec: Any) -> None:
    store, _, name = dataset.rpartition("/")
    store = store or "lake"
    if ("ObjectStore", store) not in context.resources:
        add_store(context, store)
    context.create("Dataset", name, {"storeRef": {"name": store}} | spec, labels=labels or {})
    be_ready(context, name)


def add_store(context: Fake, name: str, *, conditional_writes: bool = True) -> None:
    context.create("ObjectStore", name, STORE_SPEC | {"url": f"s3://bucket/{name}"})
    context.reconcile("ObjectStore", name)
    context.job_ends(f"{name}-inspect-1", store=StoreState(conditional_writes=conditional_writes))
    context.settle("ObjectStore", name)


def be_ready(context: Fake, name: str, reason: str = "Succeeded") -> None:
    old = context.resources["Dataset", name]
    generation, conditions = conditions_of(ready(reason, "fine"), old.status, old.metadata.generation, context.now)
    status = DatasetStatus(observed_generation=generation, conditions=conditions, version=3)
    context.resources["Dataset", name] = old.model_copy(update={"status": status})


def policy(context: Fake, name: str = "nightly") -> GCPolicy:
    found = context.resources["GCPolicy", name]
    assert isinstance(found, GCPolicy)
    return found


def round_of(context: Fake) -> Round:
    found = policy(context).status.round
    assert found is not None
    return found


def last_of(context: Fake) -> Round:
    assert policy(context).status.round is None
    found = policy(context).status.last
    assert found is not None
    return found


def launched(context: Fake) -> list[CollectJob]:
    return [launch.job for launch in context.launches if isinstance(launch.job, CollectJob)]


def targets(job: CollectJob) -> list[str]:
    return [target.name for target in job.targets]


def slot_comes(context: Fake, name: str = "nightly") -> None:
    context.now = (context.now + HOUR).replace(minute=0, second=0)
    context.reconcile("GCPolicy", name)


def ends(context: Fake, job: str, names: Sequence[str], *, objects: int = 0, failed: int = 0, **changes: Any) -> None:
    """The job went through these, and deleted so many objects of ten bytes."""
    counts = (KindCount(kind="data", objects=objects, bytes=objects * 10),) if objects else ()
    done = CollectOutcome(after=names[-1], datasets=len(names), failed=failed, collected=counts, **changes)
    context.job_ends(job, collect=done)
    context.reconcile("GCPolicy", "nightly")


# --- rounds ---


def test_gc_policy_before_first_slot_starts_no_job() -> None:
    context = context_with("flights")
    assert launched(context) == []
    assert context.condition("GCPolicy", "nightly") == ("True", "Succeeded")
    assert policy(context).status.next_time == START + HOUR
    assert context.reconcile("GCPolicy", "nightly").requeue_after == HOUR


def test_gc_slot_collects_all_datasets_and_reports_totals() -> None:
    context = context_with("flights", "planes")
    slot_comes(context)
    (job,) = launched(context)
    assert (job.job, job.uid, targets(job)) == ("nightly-collect-1", "uid-4", ["flights", "planes"])
    assert (job.enforce, job.max_deletes, job.grace_seconds) == (True, 1_000_000, 86400.0)
    assert context.condition("GCPolicy", "nightly") == ("True", "Collecting")
    context.job_runs(job.job)
    context.settle("GCPolicy", "nightly")
    ends(context, job.job, ["flights", "planes"], objects=4)
    last = last_of(context)
    assert (last.slot, last.datasets, last.failed, last.problems) == (START + HOUR, 2, 0, ())
    assert last.collected[0].model_dump() == {"kind": "data", "objects": 4, "bytes": 40}
    assert policy(context).status.last_time == context.now
    assert policy(context).status.next_time == START + 2 * HOUR
    told = "4 objects (40 B) of 2 Datasets deleted"
    assert context.message("GCPolicy", "nightly") == f"{told}; next at 2026-11-21T14:00:00Z"
    assert context.events[-1] == Event("Normal", "Succeeded", context.message("GCPolicy", "nightly"))
    context.settle("GCPolicy", "nightly")
    assert len(launched(context)) == 1


def test_gc_slot_is_processed_once_after_clock_is_set_back() -> None:
    context = context_with("flights")
    slot_comes(context)
    ends(context, "nightly-collect-1", ["flights"])
    context.pass_time(HOUR - timedelta(seconds=1))
    context.settle("GCPolicy", "nightly")
    context.now -= timedelta(minutes=59, seconds=30)  # the clock is set back behind the slot, and passes it again
    for _ in range(3):
        context.settle("GCPolicy", "nightly")
        context.pass_time(timedelta(seconds=30))
    assert len(launched(context)) == 1


def test_gc_round_with_many_datasets_is_split_by_store_and_job_limit() -> None:
    many = [f"d{number:03}" for number in range(JOB_LIMIT + 20)]
    context = context_with(*many, "other/events", "other/logs")
    slot_comes(context)
    for number in (1, 2, 3):
        job = launched(context)[-1]
        assert job.job == f"nightly-collect-{number}"
        ends(context, job.job, targets(job), objects=1)
    assert [targets(job) for job in launched(context)] == [many[:JOB_LIMIT], many[JOB_LIMIT:], ["events", "logs"]]
    assert [job.store.name for job in launched(context)] == ["lake", "lake", "other"]
    last = last_of(context)
    assert (last.datasets, last.collected[0].objects) == (JOB_LIMIT + 22, 3)
    slot_comes(context)
    assert launched(context)[-1].job == "nightly-collect-4", "numbers of jobs are never used again"


def test_gc_policy_keeps_last_two_jobs() -> None:
    context = context_with("a/x", "b/x1", "c/x2")
    slot_comes(context)
    for job, name in (("nightly-collect-1", "x"), ("nightly-collect-2", "x1"), ("nightly-collect-3", "x2")):
        ends(context, job, [name])
    assert context.cancelled == ["nightly-collect-1"]


def test_gc_job_that_ends_early_leaves_rest_to_next_job() -> None:
    context = context_with("a", "b", "c")
    slot_comes(context)
    ends(context, "nightly-collect-1", ["a", "b"])
    assert targets(launched(context)[-1]) == ["c"]


@pytest.mark.parametrize("after", ["", "zzz", "0"])
def test_gc_job_with_invalid_result_ends_round(after: str) -> None:
    context = context_with("a", "b")
    slot_comes(context)
    for number in (1, 2):
        if policy(context).status.round is not None:
            ends(context, f"nightly-collect-{number}", [after])
    assert policy(context).status.round is None


def test_gc_round_without_datasets_ends_immediately() -> None:
    context = context_with()
    slot_comes(context)
    assert launched(context) == []
    assert last_of(context).slot == START + HOUR
    assert context.message("GCPolicy", "nightly").startswith("spec.selector selects no Dataset")


def test_gc_round_collects_leftovers_with_last_job_of_each_store() -> None:
    context = context_with("a/one", "a/two", "c/three")
    add_store(context, "b")
    slot_comes(context)
    ends(context, "nightly-collect-1", ["one", "two"])
    ends(context, "nightly-collect-2", ["~"])
    ends(context, "nightly-collect-3", ["three"])
    assert [targets(job) for job in launched(context)] == [["one", "two"], [], ["three"]]
    assert [job.leftovers for job in launched(context)] == ["cluster/team/"] * 3
    assert last_of(context).slot == START + HOUR
    assert policy(context).status.round is None


def test_gc_policy_with_selector_collects_no_leftovers() -> None:
    context = context_with("a/one", selector={"names": ["one"]})
    add_store(context, "b")
    slot_comes(context)
    ends(context, "nightly-collect-1", ["one"])
    assert [(targets(job), job.leftovers) for job in launched(context)] == [(["one"], None)]


def test_gc_job_retry_postpones_leftovers_to_next_round() -> None:
    context = context_with("one")
    slot_comes(context)
    context.job_fails("nightly-collect-1", FailureClass.RETRY, "OutOfMemory")
    for _ in range(3):
        context.settle("GCPolicy", "nightly")
        context.pass_time(timedelta(minutes=1))
    assert [(targets(job), job.leftovers) for job in launched(context)] == [(["one"], "cluster/team/"), (["one"], None)]


def test_gc_slot_during_round_runs_after_round() -> None:
    context = context_with("flights")
    slot_comes(context)
    slot_comes(context)
    assert len(launched(context)) == 1
    context.pass_time(timedelta(minutes=10))
    ends(context, "nightly-collect-1", ["flights"])
    assert round_of(context).slot == START + 2 * HOUR
    assert len(launched(context)) == 2


def test_gc_slots_missed_by_stopped_operator_run_at_most_once() -> None:
    context = context_with("flights", schedule={"cron": "0 * * * *", "startingDeadline": "10m"})
    context.pass_time(5 * HOUR + timedelta(minutes=11))
    context.settle("GCPolicy", "nightly")
    assert launched(context) == []
    context.pass_time(timedelta(minutes=55))
    context.reconcile("GCPolicy", "nightly")
    assert round_of(context).slot == START + 6 * HOUR


# --- what is collected ---


def test_gc_round_skips_datasets_not_ready_suspended_or_under_deletion() -> None:
    context = context_with("fine", "suspended", "unready", "lagging", "lossy", "dark/unreachable", "going", "gone")
    context.edit("Dataset", "suspended", suspend=True)
    be_ready(context, "suspended", "Suspended")
    context.edit("Dataset", "unready", table={"targetFileSize": "1Mi"})  # nobody has looked at this generation yet
    context.resources["Dataset", "going"] = context.resources["Dataset", "going"].model_copy(
        update={"metadata": context.resources["Dataset", "going"].metadata.model_copy(update={"finalizers": ("x",)})}
    )
    lossy = context.resources["Dataset", "lossy"]
    context.resources["Dataset", "lossy"] = lossy.model_copy(
        update={"status": lossy.status.model_copy(update={"corrupt": "a.parquet is lost; version 2 is whole"})}
    )
    context.delete("Dataset", "going")
    context.delete("Dataset", "gone")
    context.edit("ObjectStore", "dark", suspend=True)
    slot_comes(context)
    assert targets(launched(context)[0]) == ["fine", "lagging"]
    assert policy(context).status.datasets == 7


def test_gc_round_skips_dataset_with_pending_tags() -> None:
    context = context_with("flights", "planes")
    context.edit("Dataset", "flights", tags=[{"name": "audit", "version": 2}])
    be_ready(context, "flights")
    slot_comes(context)
    assert targets(launched(context)[0]) == ["planes"]
    old = context.resources["Dataset", "flights"]
    tagged = old.status.model_copy(update={"tags": (TagStatus(name="audit", version=2),)})
    context.resources["Dataset", "flights"] = old.model_copy(update={"status": tagged})
    ends(context, "nightly-collect-1", ["planes"])
    slot_comes(context)
    assert targets(launched(context)[-1]) == ["flights", "planes"]


def test_gc_round_collects_dataset_with_tombstone() -> None:
    context = context_with("flights")
    old = context.resources["Dataset", "flights"]
    context.resources["Dataset", "flights"] = old.model_copy(
        update={"status": old.status.model_copy(update={"deleted": True})}
    )
    slot_comes(context)
    assert targets(launched(context)[0]) == ["flights"]


def test_gc_round_skips_dataset_deleted_between_two_jobs() -> None:
    context = context_with("a/one", "b/two", "c/three")
    add(context, "b/resting", suspend=True)
    slot_comes(context)
    context.delete("Dataset", "two")
    ends(context, "nightly-collect-1", ["one"])
    assert targets(launched(context)[-1]) == ["three"]


def test_gc_round_skips_job_whose_datasets_were_deleted_before_launch() -> None:
    context = context_with("a/one", "b/two")
    add(context, "a/resting", suspend=True)
    context.refusals["nightly-collect-1"] = ("QuotaExceeded", "no room")
    slot_comes(context)
    assert context.condition("GCPolicy", "nightly") == ("False", "QuotaExceeded")
    context.delete("Dataset", "one")
    context.refusals.clear()
    context.settle("GCPolicy", "nightly")
    assert targets(launched(context)[-1]) == ["two"]


def test_gc_job_keeps_data_retained_by_any_policy() -> None:
    context = context_with("flights", "planes")
    others: list[dict[str, Any]] = [
        {"selector": {"names": ["flights"]}, "retention": {"age": "48h"}, "gracePeriod": "36h", "suspend": True},
        {"selector": {"names": ["flights"]}, "retention": {"versions": 3}},
        {"selector": {"names": ["planes"]}, "retention": {}},
    ]
    for number, spec in enumerate(others):
        context.create("GCPolicy", f"other-{number}", {"schedule": {"cron": "@yearly"}} | spec)
    slot_comes(context)
    (job,) = launched(context)
    kept = [[(p.versions, p.seconds) for p in target.policies] for target in job.targets]
    assert kept == [[(3, None), (None, 172800.0)], [(3, None), (None, None)]]
    assert job.grace_seconds == 36 * 3600


def test_gc_job_grace_period_considers_policies_of_its_store_only() -> None:
    context = context_with("one", "far/two", gracePeriod="2h")
    context.create("GCPolicy", "far", HOURLY | {"selector": {"names": ["two"]}, "gracePeriod": "9h", "suspend": True})
    slot_comes(context)
    first = launched(context)[0]
    ends(context, first.job, targets(first))
    assert {job.store.name: job.grace_seconds for job in launched(context)} == {"far": 9 * 3600, "lake": 2 * 3600}


def test_unreadable_gc_policy_blocks_all_collections() -> None:
    context = context_with("flights")
    context.unreadable["GCPolicy"] = ("broken",)
    slot_comes(context)
    assert launched(context) == []
    assert context.condition("GCPolicy", "nightly") == ("False", "PolicyInvalid")
    assert "'broken'" in context.message("GCPolicy", "nightly")
    context.unreadable.clear()
    context.settle("GCPolicy", "nightly")
    assert len(launched(context)) == 1


def test_gc_job_gets_durations_instead_of_timestamps() -> None:
    """The operator's clock decides when to collect; how old something is, the store's clock decides."""
    told = []
    for wrong in (timedelta(0), timedelta(days=400), -timedelta(days=400)):
        context = context_with("flights", retention={"age": "48h"})
        context.annotate("GCPolicy", "nightly", requestedAt="now")
        context.now += wrong
        context.reconcile("GCPolicy", "nightly")
        told.append(launched(context)[0])
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
def test_gc_selector_matches_labels_with_kubernetes_semantics(selector: dict[str, Any], expected: str) -> None:
    selects = matcher(DatasetSelector.model_validate_json(json.dumps(selector)))
    context = Fake()
    for name, labels in {"a": {"tier": "hot"}, "b": {"tier": "cold"}, "c": {}}.items():
        context.create("Dataset", name, {"storeRef": {"name": "lake"}}, labels=labels)
    assert "".join(dataset.name for dataset in context.list(Dataset, "team") if selects(dataset)) == expected


# --- modes, requests, suspension ---


def test_gc_dry_run_deletes_nothing_and_is_reported() -> None:
    context = context_with("flights", mode="DryRun")
    slot_comes(context)
    assert not launched(context)[0].enforce
    ends(context, "nightly-collect-1", ["flights"], objects=4)
    assert "4 objects (40 B) of 1 Dataset that would be deleted (mode is DryRun)" in context.message(
        "GCPolicy", "nightly"
    )


@pytest.mark.parametrize(("before", "after"), [("Enforce", "DryRun"), ("DryRun", "Enforce")])
def test_gc_mode_edit_during_round_starts_no_deletion(before: str, after: str) -> None:
    context = context_with("a/one", "b/two", mode=before)
    slot_comes(context)
    context.edit("GCPolicy", "nightly", mode=after)
    ends(context, "nightly-collect-1", ["one"])
    assert [job.enforce for job in launched(context)] == [before == "Enforce", False]


def test_gc_request_starts_one_round_immediately() -> None:
    context = context_with("flights")
    context.pass_time(timedelta(minutes=7))
    context.annotate("GCPolicy", "nightly", requestedAt="today")
    context.reconcile("GCPolicy", "nightly")
    assert round_of(context).slot == START + timedelta(minutes=7)
    ends(context, "nightly-collect-1", ["flights"])
    context.settle("GCPolicy", "nightly")
    assert policy(context).status.handled_request == "today"
    assert len(launched(context)) == 1
    slot_comes(context)
    assert round_of(context).slot == START + HOUR, "a request does not take a slot's place"


def test_gc_request_during_round_starts_another_round() -> None:
    context = context_with("flights")
    slot_comes(context)
    context.annotate("GCPolicy", "nightly", requestedAt="today")
    context.settle("GCPolicy", "nightly")
    ends(context, "nightly-collect-1", ["flights"])
    assert launched(context)[-1].job == "nightly-collect-2"


def test_gc_policy_suspended_starts_no_job_and_running_job_completes() -> None:
    context = context_with("a/one", "b/two")
    slot_comes(context)
    context.edit("GCPolicy", "nightly", suspend=True)
    context.job_runs("nightly-collect-1")
    context.settle("GCPolicy", "nightly")
    assert context.cancelled == []
    ends(context, "nightly-collect-1", ["one"])
    context.settle("GCPolicy", "nightly")
    assert len(launched(context)) == 1
    assert context.condition("GCPolicy", "nightly") == ("True", "Suspended")
    assert policy(context).status.next_time is None
    context.edit("GCPolicy", "nightly", suspend=False)
    context.reconcile("GCPolicy", "nightly")
    assert targets(launched(context)[-1]) == ["two"], "the round goes on where it was"


def test_gc_policy_suspended_defers_requests_and_slots() -> None:
    context = context_with("flights", suspend=True)
    context.annotate("GCPolicy", "nightly", requestedAt="today")
    slot_comes(context)
    assert launched(context) == []
    context.edit("GCPolicy", "nightly", suspend=False)
    context.reconcile("GCPolicy", "nightly")
    assert len(launched(context)) == 1


@pytest.mark.parametrize("broken", [{"cron": "0 0 30 2 *"}, {"cron": "@daily", "timeZone": "Mars/Base"}])
def test_gc_policy_with_invalid_schedule_is_reported_and_still_retains(broken: dict[str, str]) -> None:
    context = context_with("flights")
    context.create("GCPolicy", "broken", HOURLY | {"schedule": broken, "retention": {"versions": 9}})
    context.settle("GCPolicy", "broken")
    assert context.condition("GCPolicy", "broken") == ("False", "InvalidSchedule")
    assert policy(context, "broken").status.next_time is None
    slot_comes(context)
    assert [kept.versions for kept in launched(context)[0].targets[0].policies] == [3, 9]


def test_gc_policy_with_disabled_reconcile_is_ignored() -> None:
    context = context_with("flights")
    context.annotate("GCPolicy", "nightly", reconcile="disabled")
    slot_comes(context)
    assert launched(context) == []


# --- several policies ---


def test_gc_policies_with_common_dataset_collect_in_turn() -> None:
    context = context_with("a", "b", "c")
    context.create("GCPolicy", "other", HOURLY | {"selector": {"names": ["c"]}})
    context.settle("GCPolicy", "other")
    slot_comes(context)
    context.job_runs("nightly-collect-1")
    assert context.reconcile("GCPolicy", "other").requeue_after == timedelta(seconds=30)
    assert len(launched(context)) == 1
    assert "'nightly'" in context.message("GCPolicy", "other")
    ends(context, "nightly-collect-1", ["a", "b", "c"])
    context.reconcile("GCPolicy", "other")
    assert launched(context)[-1].job == "other-collect-1"


def test_gc_policies_with_disjoint_datasets_collect_concurrently() -> None:
    context = context_with("a", "b", "c", selector={"names": ["a", "c"]})
    context.create("GCPolicy", "other", HOURLY | {"selector": {"names": ["b"]}})
    slot_comes(context)
    context.reconcile("GCPolicy", "other")
    assert [job.job for job in launched(context)] == ["nightly-collect-1", "other-collect-1"]


@pytest.mark.parametrize("end", ["died", "frozen"])
def test_gc_job_that_ended_unblocks_other_policy(end: str) -> None:
    context = context_with("a")
    context.create("GCPolicy", "other", HOURLY)
    slot_comes(context)
    if end == "died":
        context.job_vanishes("nightly-collect-1")
    else:
        context.annotate("GCPolicy", "nightly", reconcile="disabled")
        context.job_ends("nightly-collect-1")
    context.reconcile("GCPolicy", "other")
    assert launched(context)[-1].job == "other-collect-1"


# --- failures ---


def fails(context: Fake, failure: FailureClass = FailureClass.RETRY, reason: str = "StoreUnavailable") -> None:
    context.job_fails(launched(context)[-1].job, failure, reason)
    context.reconcile("GCPolicy", "nightly")
    if policy(context).status.round is not None:
        context.pass_time(timedelta(minutes=5))
        context.reconcile("GCPolicy", "nightly")


def test_gc_job_with_transient_failure_retries() -> None:
    context = context_with("flights")
    slot_comes(context)
    context.job_fails("nightly-collect-1", FailureClass.RETRY, "StoreUnavailable")
    outcome = context.reconcile("GCPolicy", "nightly")
    assert outcome.requeue_after == timedelta(seconds=2)
    assert context.condition("GCPolicy", "nightly") == ("False", "ProgressingWithRetry")
    context.pass_time(timedelta(seconds=2))
    context.reconcile("GCPolicy", "nightly")
    ends(context, "nightly-collect-2", ["flights"])
    assert last_of(context).failed == 0
    assert context.condition("GCPolicy", "nightly") == ("True", "Succeeded")


def test_gc_dataset_that_crashes_jobs_is_isolated_and_others_are_collected() -> None:
    names = [f"d{number:02}" for number in range(30)]
    context = context_with(*names)
    context.create("Engine", "default", {"retry": {"limit": 2}})
    slot_comes(context)
    collected: list[str] = []
    for _ in range(40):
        if policy(context).status.round is None:
            break
        asked = targets(launched(context)[-1])
        if "d13" in asked:
            fails(context, reason="OOMKilled")
        else:
            collected += asked
            ends(context, launched(context)[-1].job, asked)
    assert collected == [name for name in names if name != "d13"]
    last = last_of(context)
    assert (last.datasets, last.failed) == (30, 1)
    assert last.problems == ("d13: OOMKilled: it went wrong",)
    assert context.condition("GCPolicy", "nightly") == ("False", "CollectionFailed")


def test_gc_round_with_unavailable_store_collects_other_stores() -> None:
    context = context_with("down/a", "down/b", "up/c")
    context.create("Engine", "default", {"retry": {"limit": 0}})
    slot_comes(context)
    fails(context)
    assert targets(launched(context)[-1]) == ["c"]
    ends(context, launched(context)[-1].job, ["c"])
    assert (last_of(context).failed, last_of(context).problems) == (2, ("2 Datasets: StoreUnavailable: it went wrong",))


def test_gc_round_skips_store_without_conditional_writes() -> None:
    context = context_with("up/c")
    add_store(context, "plain", conditional_writes=False)
    add(context, "plain/a")
    slot_comes(context)
    assert [targets(job) for job in launched(context)] == [["c"]]
    ends(context, "nightly-collect-1", ["c"])
    assert last_of(context).datasets == 1


def test_gc_round_with_broken_engine_ends() -> None:
    context = context_with("a/one", "b/two", "c/three")
    slot_comes(context)
    fails(context, FailureClass.REPORT, "ImagePullFailed")
    assert (last_of(context).datasets, last_of(context).failed) == (3, 3)
    assert len(launched(context)) == 1
    slot_comes(context)
    ends(context, "nightly-collect-2", ["one"])
    ends(context, "nightly-collect-3", ["two"])
    ends(context, "nightly-collect-4", ["three"])
    assert context.condition("GCPolicy", "nightly") == ("True", "Succeeded")


def test_gc_dataset_failures_are_reported_until_round_succeeds() -> None:
    context = context_with("a", "b")
    slot_comes(context)
    ends(context, "nightly-collect-1", ["a", "b"], failed=1, problems=("a: TooManyDeletes: mistake?",), objects=2)
    assert context.kstatus("GCPolicy", "nightly") == "Failed"
    assert "1 of 2 Datasets could not be collected: a: TooManyDeletes: mistake?" in context.message(
        "GCPolicy", "nightly"
    )
    slot_comes(context)
    ends(context, "nightly-collect-2", ["a", "b"])
    assert context.kstatus("GCPolicy", "nightly") == "Current"


def test_gc_problem_list_is_limited_in_count_and_length() -> None:
    context = context_with("a/one", "b/two")
    slot_comes(context)
    for number, name in ((1, "one"), (2, "two")):
        ends(context, f"nightly-collect-{number}", [name], failed=6, problems=("x" * 1000,) * 6)
    assert [len(problem) for problem in last_of(context).problems] == [300] * 8


def test_gc_job_without_result_counts_as_failed() -> None:
    context = context_with("flights")
    slot_comes(context)
    context.job_ends("nightly-collect-1")
    context.reconcile("GCPolicy", "nightly")
    assert last_of(context).problems == ("flights: ResultLost: the job ended without a word about its Datasets",)


def test_gc_job_that_is_lost_restarts_under_next_number() -> None:
    context = context_with("flights")
    slot_comes(context)
    context.job_runs("nightly-collect-1")
    context.reconcile("GCPolicy", "nightly")
    context.job_vanishes("nightly-collect-1")
    context.reconcile("GCPolicy", "nightly")
    assert launched(context)[-1].job == "nightly-collect-2"
    assert round_of(context).disruptions == 1


def test_gc_crash_before_launch_repeats_same_job() -> None:
    context = context_with("flights")
    context.now = START + HOUR
    context.publish("GCPolicy", "nightly", gcpolicy.reconcile(policy(context), context))  # and the operator dies
    assert launched(context) == []
    context.pass_time(timedelta(minutes=3))
    context.reconcile("GCPolicy", "nightly")
    assert [(job.job, targets(job)) for job in launched(context)] == [("nightly-collect-1", ["flights"])]
    assert round_of(context).slot == START + HOUR


def test_gc_policy_recreated_ignores_jobs_of_predecessor() -> None:
    context = context_with("flights")
    slot_comes(context)
    ends(context, "nightly-collect-1", ["flights"])
    context.delete("GCPolicy", "nightly")
    context.create("GCPolicy", "nightly", HOURLY)
    slot_comes(context)
    context.reconcile("GCPolicy", "nightly")
    assert launched(context)[-1].job == "nightly-collect-2"


def test_gc_policy_with_missing_engine_is_reported_and_recovers() -> None:
    context = context_with("flights", engineRef={"name": "big"})
    slot_comes(context)
    assert context.condition("GCPolicy", "nightly")[1] == "EngineNotFound"
    context.create("Engine", "big", {})
    context.reconcile("GCPolicy", "nightly")
    assert context.launches[-1].engine is context.resources["Engine", "big"]


def test_gc_policy_waiting_for_job_slot_is_ready() -> None:
    context = context_with("flights")
    context.settings = replace(context.settings, limits=Limits(jobs=1))
    context.load = Load(held={JobSlot("team", "lake", maintenance=False): 1})
    slot_comes(context)
    assert launched(context) == []
    assert context.condition("GCPolicy", "nightly") == ("True", "Collecting")
    context.load = Load()
    context.reconcile("GCPolicy", "nightly")
    assert len(launched(context)) == 1


def test_gc_policy_with_unschedulable_pod_is_reported() -> None:
    context = context_with("flights")
    slot_comes(context)
    context.job_is("nightly-collect-1", JobPhase.PENDING, "Unschedulable", "no node is large enough")
    context.reconcile("GCPolicy", "nightly")
    assert context.condition("GCPolicy", "nightly") == ("False", "Unschedulable")
