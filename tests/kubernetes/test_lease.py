"""One operator of several works, on a real API server: it is followed when it dies, ends or is cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from kubothek.runtime.kubernetes.api import Api
from kubothek.runtime.kubernetes.lease import Lease, LeaseLost, Times
from tests.kubernetes.apiserver import ApiServer
from tests.kubernetes.harness import Clock, until
from tests.kubernetes.proxy import Fault, FaultProxy

FAST = Times(duration=60, deadline=40, renew=0.02, poll=0.02)


@asynccontextmanager
async def running(lease: Lease) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(lease.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make(api: Api, namespace: str, clock: Clock) -> Callable[[str], Lease]:
    return lambda identity: Lease(api, namespace, "operator", identity, FAST, clock)


async def spec(api: Api, namespace: str) -> dict[str, Any]:
    lease = await api.get("Lease", namespace, "operator")
    assert lease is not None
    return dict(lease["spec"])


async def test_of_five_that_begin_at_once_one_works_and_the_next_follows_when_it_ends(
    api: Api, namespace: str, make: Callable[[str], Lease]
) -> None:
    leases = {name: make(name) for name in "abcde"}
    tasks = {name: asyncio.create_task(lease.run()) for name, lease in leases.items()}
    for turn in range(5):
        await until(lambda turn=turn: sum(lease.held.is_set() for lease in leases.values()) > turn)  # type: ignore[misc]
        holders = [name for name, task in tasks.items() if leases[name].held.is_set() and not task.done()]
        found = await spec(api, namespace)
        assert holders == [found["holderIdentity"]], "exactly one"
        assert found["leaseTransitions"] == turn
        tasks[holders[0]].cancel()
        await asyncio.wait([tasks[holders[0]]])
    assert (await spec(api, namespace))["holderIdentity"] == ""


async def test_a_holder_that_died_is_followed_after_its_time_and_no_sooner(
    api: Api, namespace: str, make: Callable[[str], Lease], clock: Clock, proxy: FaultProxy
) -> None:
    async with AsyncExitStack() as stack:
        dead = await stack.enter_async_context(running(old := make("old")))
        await until(old.held.is_set)
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
        assert not new.held.is_set()
        clock.now += 1
        await until(new.held.is_set)
        assert (await spec(api, namespace))["leaseTransitions"] == 1


async def test_a_holder_that_is_cut_off_ends_before_another_begins(
    make: Callable[[str], Lease], clock: Clock, proxy: FaultProxy
) -> None:
    async with running(lease := make("old")) as task:
        await until(lease.held.is_set)
        proxy.decide = lambda position, call: Fault.REFUSED
        asked = len(proxy.calls)
        await until(lambda: len(proxy.calls) > asked + 3)
        assert not task.done(), "a server that is away for a while is no reason to stop"
        clock.now += FAST.deadline
        with pytest.raises(LeaseLost):
            await asyncio.wait_for(task, 60)
    assert FAST.deadline < FAST.duration
    assert Times().deadline < Times().duration


async def test_a_holder_that_finds_another_in_its_place_ends(
    server: ApiServer, namespace: str, make: Callable[[str], Lease]
) -> None:
    async with running(lease := make("old")) as task:
        await until(lease.held.is_set)
        server.kubectl("patch", "lease", "operator", "-n", namespace, "-p", '{"spec":{"holderIdentity":"new"}}')
        with pytest.raises(LeaseLost, match="new holds"):
            await asyncio.wait_for(task, 60)


@pytest.mark.parametrize("position", range(6))
@pytest.mark.parametrize("fault", Fault)
async def test_each_of_its_calls_may_fail(
    api: Api, namespace: str, make: Callable[[str], Lease], proxy: FaultProxy, position: int, fault: Fault
) -> None:
    """A lost answer to the taking of it is a Lease that is ours: found so at the next look."""
    first = len(proxy.calls)
    proxy.decide = lambda at, call: fault if at == first + position else None
    async with running(lease := make("only")):
        await until(lease.held.is_set)
        await until(lambda: len(proxy.calls) > first + 8)
        assert (await spec(api, namespace))["holderIdentity"] == "only"
