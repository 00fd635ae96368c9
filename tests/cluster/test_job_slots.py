"""Places are counted from pods, held from the decision on, and given to those that wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kubothek.api.jobs import AnyJob, DatasetRef, IndexJob, InspectJob, StoreRef
from kubothek.api.meta import Resource
from kubothek.cluster import names
from kubothek.cluster.api import Api
from kubothek.cluster.cache.job_slots import JobSlots
from kubothek.cluster.queue import Key
from kubothek.controller.context import AwaitSlot, Context, JobSlot, LaunchJob, Limits, Outcome
from kubothek.controller.references import launch_job
from kubothek.controller.scheduling.launching import held_back
from tests.cluster.apiserver import ApiServer
from tests.cluster.harness import Kubelet, bench, manifest, ready_status, resource_path

SLOT = JobSlot("ns", "lake", maintenance=True)
DATASET = DatasetRef.model_validate({"uuid": "d", "claim": {"owner": "o", "incarnation": "i"}})


def pod(job: str, phase: str = "Pending", verb: str = "index") -> dict[str, Any]:
    labels = {names.VERB: verb, names.STORE: "lake"}
    return {"metadata": {"namespace": "ns", "name": job, "labels": labels}, "status": {"phase": phase}}


def key(name: str, namespace: str = "ns") -> Key:
    return Key("Dataset", namespace, name)


def job(name: str, verb: type[IndexJob | InspectJob] = IndexJob) -> AnyJob:
    given = {"job": name, "uid": "u", "store": StoreRef(name="lake", url="s3://bucket/lake")}
    return verb.model_validate(given | ({"dataset": DATASET} if verb is IndexJob else {}))


def launch(name: str, verb: type[IndexJob | InspectJob] = IndexJob) -> LaunchJob:
    owner = Resource.model_validate({"kind": "Dataset", "metadata": {"name": "d", "namespace": "ns"}, "spec": {}})
    return launch_job(job(name, verb), owner, None)


def user(namespace: str, store: str = "lake") -> JobSlot:
    return JobSlot(namespace, store, maintenance=False)


def run(slots: JobSlots, namespace: str, name: str, store: str = "lake") -> None:
    labels = {names.VERB: "commit", names.STORE: store}
    meta = {"namespace": namespace, "name": name, "labels": labels}
    slots.follow({"metadata": meta, "status": {"phase": "Running"}})


def wait(slots: JobSlots, waiting: Key, slot: JobSlot) -> None:
    with slots.decided(waiting, (AwaitSlot(slot),)):
        pass


@pytest.fixture
def slots() -> JobSlots:
    return JobSlots(Limits())


def test_pod_holds_slot_until_end_or_deletion(slots: JobSlots) -> None:
    for phase in ("Pending", "Running", "Unknown"):
        slots.follow(pod("a-1", phase))
        assert slots.load.held == {SLOT: 1}
    slots.follow(pod("b-1", "Running"))
    assert slots.load.held == {SLOT: 2}
    slots.follow(pod("a-1", "Succeeded"))
    assert slots.load.held == {SLOT: 1}
    slots.release("ns", "b-1")
    slots.release("ns", "b-1")
    assert slots.load.held == {}


def test_inspection_and_foreign_pods_hold_no_slot(slots: JobSlots) -> None:
    slots.follow(pod("lake-inspect-1", verb="inspect"))
    slots.follow({"metadata": {"namespace": "ns", "name": "stranger"}})
    assert slots.load.held == {}


def test_slot_is_held_from_launch_decision(slots: JobSlots) -> None:
    with slots.decided(key("d"), (launch("a-1"), launch("lake-inspect-1", InspectJob))):
        assert slots.load.held == {SLOT: 1}
        slots.follow(pod("a-1"))
        assert slots.load.held == {SLOT: 1}, "the pod and the decision are one"
    assert slots.load.held == {SLOT: 1}


def test_failed_launch_releases_slot(slots: JobSlots) -> None:
    with slots.decided(key("waiting"), (AwaitSlot(SLOT),)):
        pass
    with pytest.raises(OSError), slots.decided(key("d"), (launch("a-1"),)):
        raise OSError
    assert slots.load.held == {}
    assert list(slots.woken()) == [key("waiting")], "it may go on"


def test_pod_that_ended_during_creation_holds_no_slot(slots: JobSlots) -> None:
    with slots.decided(key("d"), (launch("a-1"),)):
        slots.follow(pod("a-1"))
        slots.follow(pod("a-1", "Failed"))
    assert slots.load.held == {}


def test_repeated_launch_of_running_job_uses_no_second_slot(slots: JobSlots) -> None:
    slots.follow(pod("a-1", "Running"))
    with slots.decided(key("d"), (launch("a-1"),)):
        assert slots.load.held == {SLOT: 1}
    assert slots.load.held == {SLOT: 1}


def test_waiting_request_is_counted_until_start_or_withdrawal(slots: JobSlots) -> None:
    for name in ("c", "d"):
        with slots.decided(key(name), (AwaitSlot(SLOT),)):
            assert slots.load.wanted[SLOT]
    assert slots.load.wanted == {SLOT: 2}
    with slots.decided(key("c"), (launch("c-1"),)):
        assert slots.load.wanted == {SLOT: 1}
    slots.withdraw(key("d"))
    assert slots.load.wanted == {}


def test_free_slots_are_offered_in_turn_by_namespace() -> None:
    slots = JobSlots(Limits(jobs=4))
    for number in range(4):
        run(slots, "ns", f"a-{number}")
    near, far = [key(f"d{number}") for number in range(20)], key("far", "away")
    for one in near:
        wait(slots, one, user("ns"))
    wait(slots, far, user("away"))
    assert list(slots.woken()) == [], "nothing is free"
    slots.release("ns", "a-0")
    assert list(slots.woken()) == [far], "one place, and who holds least comes first"
    slots.release("ns", "a-1")
    assert list(slots.woken()) == [], "until it has decided"
    run(slots, "away", "far-1")
    with slots.decided(far, ()):
        pass
    assert list(slots.woken()) == [near[0]]
    slots.answered(near[0])  # its round was over before it decided
    assert list(slots.woken()) == [near[1]], "the next one, however many there are"
    with slots.decided(near[1], (launch("d1-1"),)):
        slots.follow(pod("d1-1", verb="commit"))
    assert list(slots.woken()) == [], "all is taken"


def test_free_slots_reach_each_namespace_before_any_gets_second() -> None:
    slots, got = JobSlots(Limits(jobs=1)), []
    run(slots, "ns", "last")
    for number in range(3):
        for namespace in "abc":
            wait(slots, key(f"{namespace}{number}", namespace), user(namespace))
    wait(slots, key("lone", "z"), user("z"))
    running = "ns", "last"
    for _ in range(10):
        slots.release(*running)
        (following,) = slots.woken()
        got.append(following.name)
        running = following.namespace, f"{following.name}-1"
        run(slots, *running)
        with slots.decided(following, ()):
            pass
    assert got == ["a0", "b0", "c0", "lone", "a1", "b1", "c1", "a2", "b2", "c2"]


def test_launch_takes_no_turn_from_requests_held_back_by_other_limit() -> None:
    slots = JobSlots(Limits(jobs_per_namespace=1))
    for namespace in "az":
        run(slots, namespace, f"{namespace}-1")
        wait(slots, key("k", namespace), user(namespace))
    slots.release("z", "z-1")
    assert list(slots.woken()) == [key("k", "z")]
    slots.release("a", "a-1")  # while that one thinks about it
    for namespace in "bz":
        run(slots, namespace, f"{namespace}-2")
    slots.answered(key("k", "z"))
    assert list(slots.woken()) == [key("k", "a")]


def test_request_for_free_store_is_found_behind_requests_for_busy_store() -> None:
    slots = JobSlots(Limits(jobs_per_store=1))
    for store in ("busy", "lake"):
        run(slots, "ns", f"{store}-1", store)
    for number in range(20):
        wait(slots, key(f"d{number}"), user("ns", "busy"))
    wait(slots, key("last"), user("ns"))
    slots.release("ns", "lake-1")
    assert list(slots.woken()) == [key("last")]


def test_launch_that_gives_turn_to_other_namespace_wakes_its_request() -> None:
    slots, far = JobSlots(Limits(jobs=7)), [key(f"far{number}", "away") for number in range(5)]
    for number in range(3):
        run(slots, "ns", f"a-{number}")
    wait(slots, key("near"), user("ns"))
    for one in far:
        wait(slots, one, user("away"))
    assert list(slots.woken()) == far[:4], "those who have less than their share want all that is free"
    for one in far[:3]:
        run(slots, "away", f"{one.name}-1")
        with slots.decided(one, ()):
            pass
    slots.answered(far[3])
    assert list(slots.woken()) == [key("near")], "now both have their share, and one place is left"


def test_slot_offered_to_withdrawn_request_goes_to_next_request() -> None:
    slots = JobSlots(Limits(jobs=2))
    for number in range(2):
        run(slots, "ns", f"a-{number}")
    wait(slots, key("near"), user("ns"))
    wait(slots, key("far", "away"), user("away"))
    slots.release("ns", "a-0")
    assert list(slots.woken()) == [key("far", "away")]
    slots.withdraw(key("far", "away"))
    assert list(slots.woken()) == [key("near")]


# --- in the control loop ---------------------------------------------------------------------------------------------


def indexing(started: list[int]) -> Callable[[Resource, Context], Outcome]:
    """A reconciler that wants one job for each resource; it writes down how many places were taken when one starts."""

    def reconcile(resource: Resource, context: Context) -> Outcome:
        status = ready_status(resource.metadata.generation)
        name = f"{resource.name}-1"
        if context.job(resource.namespace, name) is not None:
            return Outcome(status)
        wanted = IndexJob(
            job=name, uid=resource.metadata.uid, store=StoreRef(name="lake", url="s3://bucket/lake"), dataset=DATASET
        )
        action = launch_job(wanted, resource, None)
        held = held_back(action, context)
        if held is not None:
            return Outcome(status, (held[1],))
        started.append(sum(context.load.held.values()))
        return Outcome(status, (action,))

    return reconcile


async def test_concurrent_workers_stay_below_limit_and_each_end_admits_one(
    api: Api, server: ApiServer, namespace: str
) -> None:
    kubelet, started = Kubelet(server, namespace), list[int]()
    for number in range(12):
        made = manifest("Engine", namespace, f"e{number}", {})
        server.request("POST", resource_path("Engine", namespace), made)
    limits = Limits(jobs=4)
    async with bench(api, namespace, {"Engine": indexing(started)}, workers=8, limits=limits) as operator:
        await operator.settled()
        for finished in range(12):
            assert len(kubelet.pods()) == min(12, finished + 3), "maintenance leaves one of the four to others"
            running = next(name for name, it in kubelet.pods().items() if it["status"]["phase"] == "Pending")
            kubelet.show(running, {"phase": "Succeeded"})
            await operator.settled()
    assert len(started) == 12
    assert max(started) < 3
