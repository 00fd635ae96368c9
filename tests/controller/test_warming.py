"""How many drivers wait for jobs, which jobs they take, and when they make room for others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import count, islice
from typing import Any

import pytest

from kubothek.api.engine import Engine, Warm
from kubothek.api.jobs import CommitJob, CompactJob
from kubothek.api.jobs.parts import Claim, DatasetRef
from kubothek.api.kinds import InvalidResource
from kubothek.api.objectstore import ObjectStore
from kubothek.controller.context import LaunchJob, WarmDriver
from kubothek.controller.references import launch_job, store_ref
from kubothek.controller.scheduling.warm_pool import busiest, key_of, tally
from tests.controller.fake import DATASET_SPEC, START, STORE_SPEC, Fake

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
CREDENTIALS = {"credentialsSecretRef": {"name": "keys"}}


@pytest.fixture
def context() -> Fake:
    """An engine with two waiting drivers for the one store of its datasets."""
    context = Fake()
    context.drivers = {}
    context.create("Engine", "default", {"warm": {"min": 2, "max": 4, "idleTimeout": "10m"}})
    context.create("ObjectStore", "lake", STORE_SPEC)
    context.create("ObjectStore", "unused", {"url": "s3://bucket/unused"})
    context.create("Dataset", "flights", DATASET_SPEC)
    return context


def settle(context: Fake) -> None:
    """Until all is as it should be, and every driver is ready."""
    context.settle("Engine", "default")
    assert context.drivers is not None
    context.drivers = {name: replace(driver, phase="Ready") for name, driver in context.drivers.items()}
    context.settle("Engine", "default")


def names(context: Fake) -> list[str]:
    assert context.drivers is not None
    return sorted(context.drivers)


def take(context: Fake, name: str) -> None:
    """A driver is given a job."""
    assert context.drivers is not None
    context.asked.setdefault(context.drivers.pop(name).key, []).append(context.now)


def test_warm_drivers_start_in_namespaces_that_use_engine(context: Fake) -> None:
    settle(context)
    assert names(context) == ["default-warm-1", "default-warm-2"]
    assert context.engine.status.warm is not None
    assert context.engine.status.warm.model_dump() == {"ready": 2, "starting": 0, "failed": 0, "last": 2}
    context.create("Dataset", "others", {"storeRef": {"name": "unused"}, "engineRef": {"name": "big"}})
    settle(context)
    assert len(names(context)) == 2
    context.create("Dataset", "ours", {"storeRef": {"name": "unused"}})
    settle(context)
    assert len(names(context)) == 4
    context.edit("ObjectStore", "unused", suspend=True)
    settle(context)
    assert names(context) == ["default-warm-1", "default-warm-2"]


def test_warm_driver_in_use_is_replaced_and_burst_raises_target(context: Fake) -> None:
    settle(context)
    take(context, "default-warm-1")
    settle(context)
    assert names(context) == ["default-warm-2", "default-warm-3"]
    for number in (2, 3):
        take(context, f"default-warm-{number}")
    settle(context)
    assert len(names(context)) == 3, "three jobs came within a minute"
    for name in names(context):
        take(context, name)
    settle(context)
    assert len(names(context)) == 4, "six jobs came, and four may wait"
    context.pass_time(10 * MINUTE)
    settle(context)
    assert names(context) == ["default-warm-11", "default-warm-12"], "fresh ones, and no more than at least"


@pytest.mark.parametrize(
    "change",
    [
        {"image": "other:2"},
        {"serviceAccountName": "other"},
        {"driver": {"memory": "2Gi"}},
        {"sparkConf": {"spark.sql.shuffle.partitions": "4"}},
        {"warm": {"min": 2, "max": 4, "sparkUpTo": "1Gi"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_warm_drivers_are_replaced_after_engine_edit(context: Fake, change: dict[str, Any]) -> None:
    settle(context)
    context.edit("Engine", "default", **change)
    settle(context)
    assert names(context) == ["default-warm-3", "default-warm-4"]


def test_warm_drivers_stay_after_unrelated_engine_edit(context: Fake) -> None:
    settle(context)
    context.edit("Engine", "default", retry={"limit": 1}, sparkFrom="1Gi", warm={"min": 1, "max": 1})
    settle(context)
    assert names(context) == ["default-warm-2"], "the one that waited longest is let go"
    context.edit("Engine", "default", warm=None)
    settle(context)
    assert names(context) == []
    assert context.engine.status.warm is None


def test_warm_drivers_with_sidecar_containers_are_not_started(context: Fake) -> None:
    sidecar = {"spec": {"containers": [{"name": "proxy", "image": "envoy"}]}}
    context.edit("Engine", "default", podTemplate={"driver": sidecar})
    settle(context)
    assert names(context) == []
    assert "other containers" in context.message("Engine", "default")


def test_warm_drivers_without_pool_are_not_started(context: Fake) -> None:
    context.drivers = None
    context.settle("Engine", "default")
    assert context.engine.status.warm is None


def test_warm_minimum_above_maximum_is_refused(context: Fake) -> None:
    with pytest.raises(InvalidResource, match="exchange them"):
        context.create("Engine", "odd", {"warm": {"min": 2, "max": 1}})


# --- one key -------------------------------------------------------------------------------------------------------


def driver(number: int, age: timedelta, phase: Any = "Ready") -> WarmDriver:
    return WarmDriver(f"d-{number}", "key", phase, START - age)


@pytest.mark.parametrize(
    ("drivers", "start", "stop"),
    [
        ([], 1, ()),
        ([driver(1, MINUTE)], 0, ()),
        ([driver(1, MINUTE, "Starting")], 0, ()),
        ([driver(1, 10 * MINUTE, "Starting")], 0, ()),  # a start may take longer than the timeout
        ([driver(1, MINUTE, "Failed")], 0, ()),  # holds its place, lest the same fails over and over
        ([driver(1, 10 * MINUTE, "Failed")], 1, ("d-1",)),
        ([driver(1, 10 * MINUTE)], 1, ()),  # until the other one is ready
        ([driver(1, 10 * MINUTE), driver(2, SECOND, "Starting")], 0, ()),
        ([driver(1, 10 * MINUTE), driver(2, SECOND)], 0, ("d-1",)),
        ([driver(1, MINUTE), driver(2, SECOND)], 0, ("d-1",)),
    ],
)
def test_warm_tally_keeps_requested_count_per_key(
    drivers: Sequence[WarmDriver], start: int, stop: tuple[str, ...]
) -> None:
    warm = Warm(min=1, max=1)
    started, stopped, again = tally(warm, drivers, (), START)
    assert (started, stopped) == (start, stop)
    fresh = [each.since for each in drivers if START - each.since < 10 * MINUTE]  # ages that time alone changes
    assert again == (min(fresh) + 10 * MINUTE - START if fresh else None)


@pytest.mark.parametrize(("start", "idle"), [(60, 30), (300, 1), (5, 60)])
def test_warm_drivers_with_slow_start_stay_within_limit(start: int, idle: int) -> None:
    warm, drivers, numbers, most = Warm(min=2, max=2, idle_timeout=f"{idle}s"), dict[str, WarmDriver](), count(), 0
    for second in range(0, 3600, 5):
        now = START + SECOND * second
        for each in drivers.values():
            if each.phase == "Starting" and now - each.since >= SECOND * start:
                drivers[each.name] = replace(each, phase="Ready", since=now)
        started, stopped, _ = tally(warm, list(drivers.values()), (), now)
        for name in stopped:
            del drivers[name]
        for number in islice(numbers, started):
            drivers[f"d-{number}"] = WarmDriver(f"d-{number}", "key", "Starting", now)
        most = max(most, len(drivers))
        assert second <= start or sum(each.phase == "Ready" for each in drivers.values()) >= 2
    assert most <= 4, "those that wait, and those that replace them"


@pytest.mark.parametrize(
    ("seconds", "most"), [((), 0), ((0, 59), 2), ((0, 60), 1), ((0, 50, 70, 90), 3), ((-600, -590, 0), 1)]
)
def test_busiest_minute_counts_most_starts_within_one_minute(seconds: Sequence[int], most: int) -> None:
    assert busiest([START + SECOND * each for each in seconds], START - MINUTE) == most


# --- which jobs ----------------------------------------------------------------------------------------------------


def launch(context: Fake, engine: str | None = "default", *stores: str) -> LaunchJob:
    found = {name: context.get(ObjectStore, "team", name) for name in ("lake", *stores)}
    assert all(found.values())
    lake = context.store
    dataset = DatasetRef(uuid="flights", claim=Claim(owner="c/team/flights", incarnation="u"))
    job = CommitJob(job="january-1", uid="u", store=store_ref(lake), dataset=dataset, commit_id="january", digest="d")
    given = context.get(Engine, "team", engine) if engine else None
    return launch_job(job, lake, given, *(store for store in found.values() if store is not None))


def test_warm_driver_is_used_for_job_with_same_mounts(context: Fake) -> None:
    settle(context)
    assert context.drivers is not None
    fitting = launch(context)
    assert {key_of(fitting, context.settings)} == {driver.key for driver in context.drivers.values()}
    assert fitting.job.store.name == "lake"
    dataset = fitting.job.dataset if isinstance(fitting.job, CommitJob) else None
    assert dataset is not None
    upkeep = CompactJob(job="c-1", uid="u", store=fitting.job.store, dataset=dataset, commit_id="c", digest="d")
    for other in (
        launch(context, None),
        replace(fitting, job=upkeep),
        replace(fitting, mounts={"/var/run/identity": "key"}),
        replace(fitting, secrets={"lake": "keys", "landing": "other-keys"}),
        replace(fitting, volumes={"landing": "claim"}),
    ):
        assert key_of(other, context.settings) is None


def test_warm_driver_key_changes_with_mounted_secrets(context: Fake) -> None:
    before = key_of(launch(context), context.settings)
    keys = {before}
    for change in (CREDENTIALS, {"credentialsSecretRef": {"name": "others"}}, {"keysSecretRef": {"name": "more"}}):
        context.edit("ObjectStore", "lake", **change)
        keys.add(key_of(launch(context), context.settings))
    keys.add(key_of(launch(context), replace(context.settings, default_image="image:2")))
    assert len(keys) == 5
