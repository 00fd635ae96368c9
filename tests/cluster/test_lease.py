"""One operator of several works, on a real API server: it is followed when it dies, ends or is cut off.

Who loses the Lease stops, and stands again.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.error import HTTPError

import pytest

from kubothek.cluster.api import Api, ApiError
from kubothek.cluster.config import OperatorConfig
from kubothek.cluster.leader_election import Lease, Times
from kubothek.cluster.process import identity, work
from kubothek.controller.reconcilers import RECONCILERS
from tests.cluster.apiserver import OPERATOR, OPERATOR_USER, ApiServer
from tests.cluster.harness import Bench, Clock, bench, resource_path, until
from tests.cluster.proxy import Call, Fault, FaultProxy
from tests.cluster.test_operator import Tenant, jobs_that_work

FAST = Times(duration=60, deadline=40, renew=0.02, poll=0.02)
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"


class Candidate:
    """An operator that stands for the Lease; its work is to tell that it works."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.works = False
        self.begun = 0

    async def run(self) -> None:
        await self.lease.run(self._work)

    async def _work(self) -> None:
        self.begun += 1
        self.works = True
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)  # it may take its time to end
            self.works = False


@asynccontextmanager
async def running(candidate: Candidate) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(candidate.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make(api: Api, namespace: str, clock: Clock) -> Callable[[str], Candidate]:
    return lambda identity: Candidate(Lease(api, namespace, "operator", identity, FAST, clock))


async def spec(api: Api, namespace: str) -> dict[str, Any]:
    lease = await api.get("Lease", namespace, "operator")
    assert lease is not None
    return dict(lease["spec"])


async def test_lease_of_five_candidates_is_held_by_one_and_handed_over(
    api: Api, namespace: str, make: Callable[[str], Candidate]
) -> None:
    candidates = {name: make(name) for name in "abcde"}
    tasks = {name: asyncio.create_task(candidate.run()) for name, candidate in candidates.items()}
    for turn in range(5):
        await until(lambda: any(candidate.works for candidate in candidates.values()))
        found = await spec(api, namespace)
        assert [name for name, each in candidates.items() if each.works] == [found["holderIdentity"]], "exactly one"
        assert found["leaseTransitions"] == turn
        tasks[found["holderIdentity"]].cancel()
        await asyncio.wait([tasks[found["holderIdentity"]]])
    assert (await spec(api, namespace))["holderIdentity"] == ""


async def test_lease_renewal_that_arrives_late_does_not_keep_lease(
    api: Api, server: ApiServer, namespace: str, clock: Clock, proxy: FaultProxy
) -> None:
    late = {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}
    path = f"{LEASES.format(namespace)}/operator"
    arrived: list[Call] = []

    def arrive(position: int, call: Call) -> None:
        if call.is_write and not arrived:
            arrived.append(call)
            server.request("PATCH", path, late, "application/merge-patch+json")

    seldom = replace(FAST, renew=60)  # the write after the first is that which gives it back
    async with running(candidate := Candidate(Lease(api, namespace, "operator", "old", seldom, clock))) as task:
        await until(lambda: candidate.works)
        proxy.decide = arrive
        task.cancel()
        await asyncio.wait([task])
    assert len(arrived) == 1
    found = server.request("GET", path)["spec"]
    assert (found["holderIdentity"], found["renewTime"]) == ("", late["spec"]["renewTime"])


async def test_lease_of_dead_holder_is_acquired_after_expiry_only(
    api: Api, namespace: str, make: Callable[[str], Candidate], clock: Clock, proxy: FaultProxy
) -> None:
    async with AsyncExitStack() as stack:
        dead = await stack.enter_async_context(running(old := make("old")))
        await until(lambda: old.works)
        proxy.decide = lambda position, call: Fault.REFUSED  # it cannot even give it back
        dead.cancel()
        await asyncio.wait([dead])
        proxy.decide = lambda position, call: None
        await stack.enter_async_context(running(new := make("new")))
        asked = len(proxy.calls)
        await until(lambda: len(proxy.calls) > asked + 3)
        clock.now += FAST.duration - 1
        asked = len(proxy.calls)
        await until(lambda: len(proxy.calls) > asked + 3)
        assert not new.works
        clock.now += 1
        await until(lambda: new.works)
        assert (await spec(api, namespace))["leaseTransitions"] == 1


def test_lease_identity_is_pod_name_or_unique_on_local_machine() -> None:
    inside, outside = (OperatorConfig((), "image", kubeconfig=path) for path in (None, "kubeconfig"))
    assert identity(inside) == socket.gethostname()
    assert identity(outside) != identity(outside)


async def test_lease_holder_restarted_under_same_name_resumes_immediately(
    api: Api, namespace: str, make: Callable[[str], Candidate], proxy: FaultProxy
) -> None:
    """Its predecessor had the same name, and is dead."""
    async with AsyncExitStack() as stack:
        dead = await stack.enter_async_context(running(first := make("pod")))
        await until(lambda: first.works)
        proxy.decide = lambda position, call: Fault.REFUSED
        dead.cancel()
        await asyncio.wait([dead])
        proxy.decide = lambda position, call: None
        await stack.enter_async_context(running(second := make("pod")))
        await until(lambda: second.works)
        assert (await spec(api, namespace))["leaseTransitions"] == 0


async def test_lease_holder_without_api_server_stops_before_expiry_and_rejoins(
    api: Api, namespace: str, make: Callable[[str], Candidate], clock: Clock, proxy: FaultProxy
) -> None:
    async with running(candidate := make("old")) as task:
        for times in range(1, 4):
            await until(lambda times=times: candidate.begun == times and candidate.works)  # type: ignore[misc]
            proxy.decide = lambda position, call: Fault.REFUSED
            asked = len(proxy.calls)
            await until(lambda asked=asked: len(proxy.calls) > asked + 3)  # type: ignore[misc]
            assert candidate.works, "a server that is away for a while is no reason to stop"
            clock.now += FAST.deadline
            await until(lambda: not candidate.works)
            assert not task.done(), "it is no failure"
            proxy.decide = lambda position, call: None
        await until(lambda: candidate.begun == 4)
        assert (await spec(api, namespace))["leaseTransitions"] == 0, "nobody else came"
    assert FAST.deadline < FAST.duration
    assert Times().deadline < Times().duration


async def test_lease_holder_that_observes_other_holder_stops_and_waits(
    server: ApiServer, namespace: str, make: Callable[[str], Candidate]
) -> None:
    async with running(candidate := make("old")) as task:
        await until(lambda: candidate.works)
        give(server, namespace, "new")
        await until(lambda: not candidate.works)
        assert not task.done()
        give(server, namespace, "")
        await until(lambda: candidate.begun == 2)


async def test_lease_work_error_is_raised_and_lease_released(
    api: Api, namespace: str, make: Callable[[str], Candidate]
) -> None:
    async def fail() -> None:
        raise RuntimeError("beyond repair")

    with pytest.raises(RuntimeError, match="beyond repair"):
        await make("old").lease.run(fail)
    assert (await spec(api, namespace))["holderIdentity"] == ""


async def test_lease_without_permission_ends_operator_unless_held_before(
    server: ApiServer, namespace: str, clock: Clock
) -> None:
    """An API server knows no roles in the first moments of its life."""
    async with AsyncExitStack() as stack:
        api = await Api.connect(str(server.kubeconfig(OPERATOR)))
        stack.push_async_callback(api.close)
        candidate = Candidate(Lease(api, namespace, "operator", "it", FAST, clock))
        with pytest.raises(ApiError, match="403"):
            await candidate.run()
        let(server, namespace, [{"kind": "User", "name": OPERATOR_USER}])
        await until(lambda: not refused(server, namespace))
        task = await stack.enter_async_context(running(candidate))
        await until(lambda: candidate.works)
        let(server, namespace, [])
        await until(lambda: refused(server, namespace))
        clock.now += FAST.deadline
        await until(lambda: not candidate.works)
        await asyncio.sleep(10 * FAST.poll)
        assert not task.done()
        let(server, namespace, [{"kind": "User", "name": OPERATOR_USER}])
        await until(lambda: candidate.works)


def let(server: ApiServer, namespace: str, run_index: list[dict[str, str]]) -> None:
    """These users, and no others, may do anything in the namespace."""
    binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "admin"}}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings/admin"
    server.apply(path, {**binding, "roleRef": role, "subjects": run_index})


def refused(server: ApiServer, namespace: str) -> bool:
    """Whether the operator may not see Leases."""
    try:
        server.request("GET", LEASES.format(namespace), user=OPERATOR_USER)
    except HTTPError as error:
        return error.code == 403
    return False


def give(server: ApiServer, namespace: str, holder: str) -> None:
    """The Lease is another's, whoever works by it."""
    path = f"{LEASES.format(namespace)}/operator"
    server.request("PATCH", path, {"spec": {"holderIdentity": holder}}, "application/merge-patch+json")


async def test_two_operators_with_alternating_lease_converge(
    api: Api, server: ApiServer, make_namespace: Callable[[], str]
) -> None:
    """After each third write the other one has it, in the middle of whatever goes on. At rest only one writes."""
    alone, tenant = Tenant(server, make_namespace()), Tenant(server, make_namespace())
    alone.apply()
    async with jobs_that_work(alone.kubelet), bench(api, alone.namespace, RECONCILERS) as operator:
        await operator.until(alone.is_complete)
        await operator.settled()
    names, written, leads, losses = ("one", "other"), [0, 0], [False, False], 0

    def decide(me: int, position: int, call: Call) -> None:
        nonlocal losses
        if call.is_write and "/leases" not in call.path:
            written[me] += 1
            if written[me] % 3 == 0 and not tenant.is_complete():
                losses += 1
                give(server, tenant.namespace, names[1 - me])

    async def lead(me: int) -> None:
        leads[me] = True
        try:
            await work(operators[me].controller, 2)
        finally:
            leads[me] = False

    operators, tasks = list[Bench](), list[asyncio.Task[None]]()
    tenant.apply()
    async with jobs_that_work(tenant.kubelet), AsyncExitStack() as stack:
        for me, name in enumerate(names):
            proxy = await stack.enter_async_context(FaultProxy(server.port, str(server.ca)))
            client = await Api.connect(str(server.kubeconfig(server=proxy.url)))
            stack.push_async_callback(client.close)
            proxy.decide = partial(decide, me)
            operators.append(await stack.enter_async_context(bench(client, tenant.namespace, RECONCILERS, workers=0)))
            lease = Lease(client, tenant.namespace, "operator", name, FAST)
            tasks.append(asyncio.create_task(lease.run(partial(lead, me))))
        await asyncio.gather(*(each.until(tenant.is_complete) for each in operators))
        assert losses >= 3
        give(server, tenant.namespace, "one")
        await until(lambda: leads == [True, False])
        await operators[0].settled()
        before = [*written]
        path = resource_path("ObjectStore", tenant.namespace, "lake")
        server.request("PATCH", path, {"spec": {"interval": "2h"}}, "application/merge-patch+json")
        await operators[1].resync.once()  # it knows as well
        seen = tenant.get("ObjectStore", "lake")["metadata"]["generation"]
        await operators[0].until(lambda: tenant.get("ObjectStore", "lake")["status"]["observedGeneration"] == seen)
        assert written[0] > before[0]
        assert written[1] == before[1]
        assert not any(task.done() for task in tasks), "to lose it is no failure"
        assert tenant.told() == alone.told()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("position", range(6))
@pytest.mark.parametrize("fault", Fault)
async def test_lease_acquisition_with_any_single_failed_call_succeeds(
    api: Api, namespace: str, make: Callable[[str], Candidate], proxy: FaultProxy, position: int, fault: Fault
) -> None:
    """A lost answer to the taking of it is a Lease that is ours: found so at the next look."""
    first = len(proxy.calls)
    proxy.decide = lambda at, call: fault if at == first + position else None
    async with running(candidate := make("only")):
        await until(lambda: candidate.works)
        await until(lambda: len(proxy.calls) > first + 8)
        assert (await spec(api, namespace))["holderIdentity"] == "only"
