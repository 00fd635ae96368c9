"""Places are counted from pods, held from the decision on, and given to those that wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kubothek.api.jobs import AnyJob, DatasetRef, IndexJob, InspectJob, StoreRef
from kubothek.api.meta import Resource
from kubothek.cluster import names
from kubothek.cluster.api import Api
from kubothek.cluster.cache.job_slots import Places
from kubothek.cluster.queue import Key
from kubothek.controller.context import AwaitPlace, Context, LaunchJob, Limits, Outcome, Place
from kubothek.controller.references import launch_job
from kubothek.controller.scheduling.launching import held_back
from tests.cluster.apiserver import ApiServer
from tests.cluster.harness import Kubelet, bench, manifest, ready_status, resource_path

PLACE = Place("ns", "lake", maintenance=True)
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


def user(namespace: str, store: str = "lake") -> Place:
    return Place(namespace, store, maintenance=False)


def run(places: Places, namespace: str, name: str, store: str = "lake") -> None:
    labels = {names.VERB: "commit", names.STORE: store}
    meta = {"namespace": namespace, "name": name, "labels": labels}
    places.follow({"metadata": meta, "status": {"phase": "Running"}})


def wait(places: Places, waiting: Key, place: Place) -> None:
    with places.decided(waiting, (AwaitPlace(place),)):
        pass


@pytest.fixture
def places() -> Places:
    return Places(Limits())


def test_a_pod_holds_its_place_until_it_has_ended_or_is_gone(places: Places) -> None:
    for phase in ("Pending", "Running", "Unknown"):
        places.follow(pod("a-1", phase))
        assert places.load.taken == {PLACE: 1}
    places.follow(pod("b-1", "Running"))
    assert places.load.taken == {PLACE: 2}
    places.follow(pod("a-1", "Succeeded"))
    assert places.load.taken == {PLACE: 1}
    places.release("ns", "b-1")
    places.release("ns", "b-1")
    assert places.load.taken == {}


def test_inspections_and_pods_of_others_hold_none(places: Places) -> None:
    places.follow(pod("lake-inspect-1", verb="inspect"))
    places.follow({"metadata": {"namespace": "ns", "name": "stranger"}})
    assert places.load.taken == {}


def test_a_place_is_held_from_the_decision_on(places: Places) -> None:
    with places.decided(key("d"), (launch("a-1"), launch("lake-inspect-1", InspectJob))):
        assert places.load.taken == {PLACE: 1}
        places.follow(pod("a-1"))
        assert places.load.taken == {PLACE: 1}, "the pod and the decision are one"
    assert places.load.taken == {PLACE: 1}


def test_a_launch_that_came_to_no_pod_gives_its_place_back(places: Places) -> None:
    with places.decided(key("waiting"), (AwaitPlace(PLACE),)):
        pass
    with pytest.raises(OSError), places.decided(key("d"), (launch("a-1"),)):
        raise OSError
    assert places.load.taken == {}
    assert list(places.woken()) == [key("waiting")], "it may go on"


def test_a_pod_that_ended_while_it_was_made_holds_nothing(places: Places) -> None:
    with places.decided(key("d"), (launch("a-1"),)):
        places.follow(pod("a-1"))
        places.follow(pod("a-1", "Failed"))
    assert places.load.taken == {}


def test_launching_once_more_what_runs_takes_no_second_place(places: Places) -> None:
    places.follow(pod("a-1", "Running"))
    with places.decided(key("d"), (launch("a-1"),)):
        assert places.load.taken == {PLACE: 1}
    assert places.load.taken == {PLACE: 1}


def test_who_waits_is_counted_until_it_starts_or_goes(places: Places) -> None:
    for name in ("c", "d"):
        with places.decided(key(name), (AwaitPlace(PLACE),)):
            assert places.load.wanted[PLACE]
    assert places.load.wanted == {PLACE: 2}
    with places.decided(key("c"), (launch("c-1"),)):
        assert places.load.wanted == {PLACE: 1}
    places.withdraw(key("d"))
    assert places.load.wanted == {}


def test_free_places_are_offered_in_turn_by_namespace_to_as_many_as_may_have_them() -> None:
    places = Places(Limits(jobs=4))
    for number in range(4):
        run(places, "ns", f"a-{number}")
    near, far = [key(f"d{number}") for number in range(20)], key("far", "away")
    for one in near:
        wait(places, one, user("ns"))
    wait(places, far, user("away"))
    assert list(places.woken()) == [], "nothing is free"
    places.release("ns", "a-0")
    assert list(places.woken()) == [far], "one place, and who holds least comes first"
    places.release("ns", "a-1")
    assert list(places.woken()) == [], "until it has decided"
    run(places, "away", "far-1")
    with places.decided(far, ()):
        pass
    assert list(places.woken()) == [near[0]]
    places.answered(near[0])  # its round was over before it decided
    assert list(places.woken()) == [near[1]], "the next one, however many there are"
    with places.decided(near[1], (launch("d1-1"),)):
        places.follow(pod("d1-1", verb="commit"))
    assert list(places.woken()) == [], "all is taken"


def test_of_many_namespaces_that_hold_as_little_each_has_its_turn_before_one_has_its_second() -> None:
    places, got = Places(Limits(jobs=1)), []
    run(places, "ns", "last")
    for number in range(3):
        for namespace in "abc":
            wait(places, key(f"{namespace}{number}", namespace), user(namespace))
    wait(places, key("lone", "z"), user("z"))
    running = "ns", "last"
    for _ in range(10):
        places.release(*running)
        (following,) = places.woken()
        got.append(following.name)
        running = following.namespace, f"{following.name}-1"
        run(places, *running)
        with places.decided(following, ()):
            pass
    assert got == ["a0", "b0", "c0", "lone", "a1", "b1", "c1", "a2", "b2", "c2"]


def test_a_launch_takes_nothing_from_those_whom_another_limit_holds_back() -> None:
    places = Places(Limits(jobs_per_namespace=1))
    for namespace in "az":
        run(places, namespace, f"{namespace}-1")
        wait(places, key("k", namespace), user(namespace))
    places.release("z", "z-1")
    assert list(places.woken()) == [key("k", "z")]
    places.release("a", "a-1")  # while that one thinks about it
    for namespace in "bz":
        run(places, namespace, f"{namespace}-2")
    places.answered(key("k", "z"))
    assert list(places.woken()) == [key("k", "a")]


def test_who_waits_for_a_store_that_is_free_is_found_behind_many_that_wait_for_another() -> None:
    places = Places(Limits(jobs_per_store=1))
    for store in ("busy", "lake"):
        run(places, "ns", f"{store}-1", store)
    for number in range(20):
        wait(places, key(f"d{number}"), user("ns", "busy"))
    wait(places, key("last"), user("ns"))
    places.release("ns", "lake-1")
    assert list(places.woken()) == [key("last")]


def test_launches_that_give_another_namespace_its_turn_wake_it() -> None:
    places, far = Places(Limits(jobs=7)), [key(f"far{number}", "away") for number in range(5)]
    for number in range(3):
        run(places, "ns", f"a-{number}")
    wait(places, key("near"), user("ns"))
    for one in far:
        wait(places, one, user("away"))
    assert list(places.woken()) == far[:4], "those who have less than their share want all that is free"
    for one in far[:3]:
        run(places, "away", f"{one.name}-1")
        with places.decided(one, ()):
            pass
    places.answered(far[3])
    assert list(places.woken()) == [key("near")], "now both have their share, and one place is left"


def test_nothing_is_kept_free_for_one_whose_round_failed() -> None:
    places = Places(Limits(jobs=2))
    for number in range(2):
        run(places, "ns", f"a-{number}")
    wait(places, key("near"), user("ns"))
    wait(places, key("far", "away"), user("away"))
    places.release("ns", "a-0")
    assert list(places.woken()) == [key("far", "away")]
    places.withdraw(key("far", "away"))
    assert list(places.woken()) == [key("near")]


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
        started.append(sum(context.load.taken.values()))
        return Outcome(status, (action,))

    return reconcile


async def test_workers_at_once_stay_below_the_limit_and_every_end_lets_one_in(
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
