"""The real reconcilers over a real API server, from manifests to a committed dataset; the kubelet is played."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest

from kubothek.api.jobs import CommitOutcome, DatasetState, JobResult, StoreState, Totals
from kubothek.cluster.api import RESOURCES, Api
from kubothek.cluster.resync import WATCHED
from kubothek.controller.reconcilers import RECONCILERS
from tests.cluster.apiserver import ApiServer
from tests.cluster.harness import Kubelet, bench, manifest, resource_path
from tests.cluster.podshapes import exited, running
from tests.cluster.proxy import Call, Fault, FaultProxy

COMMIT = {
    "datasetRef": {"name": "orders"},
    "operation": "Append",
    "source": {"paths": ["a.csv"], "format": "CSV"},
}

LISTS = {RESOURCES[kind][1] for kind in (*WATCHED, "CoreEvent")}


def result_of(job: dict[str, Any]) -> JobResult:
    """What a healthy job says."""
    state = DatasetState(uuid="orders")
    if job["verb"] == "inspect":
        seen = tuple(DatasetState(uuid=dataset["uuid"]) for dataset in job["datasets"])
        store = StoreState(conditional_writes=True)
        return JobResult(outcome="Succeeded", reason="Inspected", message="", store=store, datasets=seen)
    done = CommitOutcome(version=1, rows=3, files=1, bytes=10)
    state = DatasetState(uuid="orders", version=1, totals=Totals(rows=3, files=1, bytes=10, partitions=1))
    return JobResult(outcome="Succeeded", reason="Committed", message="", commit=done, dataset=state)


@asynccontextmanager
async def jobs_that_work(kubelet: Kubelet) -> AsyncIterator[None]:
    """Let every pod run and succeed."""

    async def play() -> None:
        while True:
            for name, pod in kubelet.pods().items():
                phase = pod["status"].get("phase")
                if phase == "Pending":
                    kubelet.show(name, status("Running", running()))
                elif phase == "Running":
                    result = result_of(kubelet.job(name)).model_dump_json()
                    kubelet.show(name, status("Succeeded", exited(0, result)))
            await asyncio.sleep(0.03)

    task = asyncio.create_task(play())
    try:
        yield
    finally:
        task.cancel()


def status(phase: str, state: dict[str, Any]) -> dict[str, Any]:
    container = {"name": "driver", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": state}
    return {"phase": phase, "containerStatuses": [container]}


class Tenant:
    """One namespace with a store, a dataset and a commit."""

    def __init__(self, server: ApiServer, namespace: str) -> None:
        self._server = server
        self.namespace = namespace
        self.kubelet = Kubelet(server, namespace)

    def apply(self) -> None:
        """The dataset first: then the first inspection of the store already asks for it."""
        self._create("Commit", "january", COMMIT)
        self._create("Dataset", "orders", {"storeRef": {"name": "lake"}})
        self._create("ObjectStore", "lake", {"url": "s3://lake", "interval": "1h"})

    def get(self, kind: str, name: str) -> dict[str, Any]:
        return dict(self._server.request("GET", resource_path(kind, self.namespace, name)))

    def condition(self, kind: str, name: str, condition: str) -> str:
        conditions = self.get(kind, name)["status"].get("conditions", [])
        return next((c["status"] for c in conditions if c["type"] == condition), "")

    def is_complete(self) -> bool:
        """Whether the commit is through and the dataset tells of it."""
        return (
            self.condition("Commit", "january", "Complete") == "True"
            and self.get("Dataset", "orders")["status"].get("version") == 1
            and self.condition("Dataset", "orders", "Ready") == "True"
            and self.condition("ObjectStore", "lake", "Ready") == "True"
        )

    def outcome(self) -> dict[str, Any]:
        """Everything that should be the same however often something failed on the way."""
        configs = self._server.request("GET", f"/api/v1/namespaces/{self.namespace}/configmaps")["items"]
        objects = (("Commit", "january"), ("Dataset", "orders"), ("ObjectStore", "lake"))
        return {
            "pods": sorted(self.kubelet.pods()),
            "configs": sorted(c["metadata"]["name"] for c in configs if c["metadata"]["name"] != "kube-root-ca.crt"),
            **{name: dict(_timeless(self.get(kind, name)["status"])) for kind, name in objects},
        }

    def told(self) -> dict[str, Any]:
        """What should be the same even if an attempt was taken for lost and made again."""
        commit, dataset = (self.outcome()[name] for name in ("january", "orders"))
        told = ("conditions", "engineDigest", "bytes", "files", "rows", "version", "observedGeneration")
        return {name: (commit.get(name), dataset.get(name)) for name in told}

    def _create(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        self._server.request("POST", resource_path(kind, self.namespace), manifest(kind, self.namespace, name, spec))


def _timeless(value: Any) -> Iterator[tuple[str, Any]]:
    """A status without its times and digests of uids."""
    for key, item in value.items():
        if isinstance(item, dict):
            yield key, dict(_timeless(item))
        elif isinstance(item, list):
            yield key, [dict(_timeless(one)) for one in item]
        elif not (key.lower().endswith(("time", "started", "finished")) or key in ("datasets", "id")):
            yield key, item


@pytest.fixture
def tenant(server: ApiServer, namespace: str) -> Tenant:
    return Tenant(server, namespace)


async def test_manifests_become_committed_dataset(api: Api, tenant: Tenant, proxy: FaultProxy) -> None:
    tenant.apply()
    async with jobs_that_work(tenant.kubelet), bench(api, tenant.namespace, RECONCILERS) as operator:
        await operator.until(tenant.is_complete)
        await operator.settled()
        at_rest = len(proxy.writes)
        for kind, name in (("Commit", "january"), ("Dataset", "orders"), ("ObjectStore", "lake")):
            operator.controller.queue.add(operator.key(kind, name))
        await operator.settled()
        assert len(proxy.writes) == at_rest
    assert sorted(tenant.kubelet.pods()) == ["january-1", "lake-inspect-1"]
    commit = tenant.get("Commit", "january")["status"]
    assert (commit["version"], commit["rows"], commit["attempt"]) == (1, 3, 1)


async def test_lost_pod_starts_new_attempt_and_counts_no_failure(api: Api, tenant: Tenant) -> None:
    tenant.apply()
    kubelet = tenant.kubelet
    async with bench(api, tenant.namespace, RECONCILERS) as operator:
        await operator.until(lambda: "lake-inspect-1" in kubelet.pods())
        inspected = result_of(kubelet.job("lake-inspect-1")).model_dump_json()
        kubelet.show("lake-inspect-1", status("Succeeded", exited(0, inspected)))
        await operator.until(lambda: "january-1" in kubelet.pods())
        kubelet.show("january-1", status("Running", running()))
        await operator.settled()
        kubelet.remove("january-1")
        await operator.until(lambda: "january-2" in kubelet.pods())
        done = result_of(kubelet.job("january-2")).model_dump_json()
        kubelet.show("january-2", status("Succeeded", exited(0, done)))
        await operator.until(tenant.is_complete)
    commit = tenant.get("Commit", "january")["status"]
    assert (commit["attempt"], commit.get("failures", 0), commit["disruptions"]) == (2, 0, 1)


async def test_operator_restarted_after_any_write_resumes(api: Api, tenant: Tenant, proxy: FaultProxy) -> None:
    """It is stopped after every write that it makes, so at every point at which it can be interrupted."""
    tenant.apply()
    restarts = 0
    async with jobs_that_work(tenant.kubelet):
        while not tenant.is_complete():
            restarts += 1
            last = len(proxy.writes) + 1
            proxy.decide = partial(_refuse_writes_after, proxy, last)
            async with bench(api, tenant.namespace, RECONCILERS, workers=1) as operator:
                await operator.until(partial(_wrote_or_ended, proxy, last, tenant))
    assert restarts >= 8
    assert sorted(tenant.kubelet.pods()) == ["january-1", "lake-inspect-1"]


def _refuse_writes_after(proxy: FaultProxy, last: int, position: int, call: Call) -> Fault | None:
    return Fault.REFUSED if call.is_write and len(proxy.writes) > last else None


def _wrote_or_ended(proxy: FaultProxy, last: int, tenant: Tenant) -> bool:
    return len(proxy.writes) >= last or tenant.is_complete()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", Fault)
async def test_operator_with_any_single_failed_call_converges(
    api: Api, server: ApiServer, make_namespace: Callable[[], str], proxy: FaultProxy, fault: Fault
) -> None:
    async def run(position: int | None) -> tuple[dict[str, Any], int]:
        """One scenario; the call at ``position`` goes wrong. Listings are the test's own feed and do not count."""
        tenant = Tenant(server, make_namespace())
        tenant.apply()
        counted = 0

        def decide(_: int, call: Call) -> Fault | None:
            nonlocal counted
            if call.method == "GET" and call.path.rsplit("/", 1)[-1] in LISTS:
                return None
            counted += 1
            return fault if counted - 1 == position else None

        proxy.decide = decide
        async with jobs_that_work(tenant.kubelet), bench(api, tenant.namespace, RECONCILERS, workers=2) as operator:
            await operator.until(tenant.is_complete)
            await operator.settled()
        return tenant.outcome(), counted

    expected, calls = await run(None)
    assert calls >= 12
    # Each call fails in one of the ways; with `make soak` in each of them.
    step, first = (1, 0) if os.environ.get("KUBOTHEK_SOAK") else (len(Fault), list(Fault).index(fault))
    for position in range(first, calls, step):
        outcome, _ = await run(position)
        assert outcome == expected, f"after the failure of call {position}"


async def test_two_concurrent_operators_converge(
    api: Api, server: ApiServer, make_namespace: Callable[[], str]
) -> None:
    """Both hold what they take for the Lease. One may take the other's attempt for lost and make another, which finds
    the commit done; but no status takes back what the other wrote.
    """

    async def run(operators: int) -> dict[str, Any]:
        tenant = Tenant(server, make_namespace())
        tenant.apply()
        async with jobs_that_work(tenant.kubelet), AsyncExitStack() as stack:
            benches = [
                await stack.enter_async_context(bench(api, tenant.namespace, RECONCILERS)) for _ in range(operators)
            ]
            await asyncio.gather(*(each.until(tenant.is_complete) for each in benches))
            for each in benches:
                await each.settled()
        return tenant.told()

    expected = await run(1)
    assert expected["engineDigest"][0]
    for _ in range(3):
        assert await run(2) == expected
