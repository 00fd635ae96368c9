"""Places are counted from pods, held from the decision on, and given to those that wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kubothek.reconcile.references import launch_job
from kubothek.reconcile.running.launching import held_back
from kubothek.reconcile.world import AwaitPlace, LaunchJob, Limits, Outcome, Place, World
from kubothek.resources.jobs import AnyJob, DatasetRef, IndexJob, InspectJob, StoreRef
from kubothek.resources.meta import Resource
from kubothek.runtime.kubernetes import names
from kubothek.runtime.kubernetes.api import Api
from kubothek.runtime.kubernetes.observed.places import Places
from kubothek.runtime.kubernetes.queue import Key
from tests.kubernetes.apiserver import ApiServer
from tests.kubernetes.harness import Kubelet, bench, manifest, ready_status, resource_path

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


@pytest.fixture
def places() -> Places:
    return Places()


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


def test_a_free_place_is_offered_in_turn_by_namespace_until_someone_takes_it(places: Places) -> None:
    places.follow(pod("a-1"))
    waiting = [*(key(f"d{number}") for number in range(20)), key("far", "away")]
    for one in waiting:
        with places.decided(one, (AwaitPlace(PLACE),)):
            pass
    assert list(places.woken()) == [], "nothing has become free"
    places.follow(pod("b-1"))
    places.release("ns", "a-1")
    assert list(places.woken()) == [key("far", "away"), *waiting[:3]], "those first that hold least"
    assert list(places.woken()) == [], "until they have decided"
    for one in (key("far", "away"), *waiting[:2]):
        with places.decided(one, (AwaitPlace(PLACE),)):
            pass
    places.answered(waiting[2])  # its round has failed
    assert list(places.woken()) == [waiting[3]], "none of them could go on, of each namespace four are asked"
    places.answered(waiting[3])
    assert list(places.woken()) == []
    places.release("ns", "b-1")
    assert len(list(places.woken())) == 4
    with places.decided(waiting[0], (launch("d0-1"),)):
        places.follow(pod("d0-1"))
    for one in (key("far", "away"), *waiting[1:3]):
        places.answered(one)
    assert list(places.woken()) == [], "it is taken"


# --- in the control loop ---------------------------------------------------------------------------------------------


def indexing(started: list[int]) -> Callable[[Resource, World], Outcome]:
    """A reconciler that wants one job for each resource; it writes down how many places were taken when one starts."""

    def reconcile(resource: Resource, world: World) -> Outcome:
        status = ready_status(resource.metadata.generation)
        name = f"{resource.name}-1"
        if world.job(resource.namespace, name) is not None:
            return Outcome(status)
        wanted = IndexJob(
            job=name, uid=resource.metadata.uid, store=StoreRef(name="lake", url="s3://bucket/lake"), dataset=DATASET
        )
        action = launch_job(wanted, resource, None)
        held = held_back(action, world)
        if held is not None:
            return Outcome(status, (held[1],))
        started.append(sum(world.load.taken.values()))
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
