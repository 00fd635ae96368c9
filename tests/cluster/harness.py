"""The operator without its watches: a controller over a real API server, fed by listings, run until it is at rest."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from kubothek.cluster.api import Api, ApiError, ApiUnavailable
from kubothek.cluster.config import OperatorConfig
from kubothek.cluster.controller import Controller
from kubothek.cluster.launch import Launcher
from kubothek.cluster.queue import Backoff, Key, WorkQueue
from kubothek.cluster.resync import Resync
from kubothek.cluster.telemetry.events import EventRecorder
from kubothek.controller.context import Limits, Settings
from kubothek.controller.reconcilers import Reconciler
from tests.cluster.apiserver import ApiServer

PATIENCE = 120.0
NO_LIMITS = Limits()


class Clock:
    """Shows what it was set to, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def until(condition: Callable[[], object]) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.02)


def manifest(kind: str, namespace: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """A resource of ours."""
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "kubothek.io/v1alpha1", "kind": kind, "metadata": meta, "spec": dict(spec)}


def resource_path(kind: str, namespace: str, name: str = "") -> str:
    """The URL path of a resource of ours, or of its list."""
    path = f"/apis/kubothek.io/v1alpha1/namespaces/{namespace}/{kind.lower()}s"
    return f"{path}/{name}" if name else path


def ready_status(generation: int) -> dict[str, object]:
    """What a finished reconciliation publishes."""
    moment = "2026-11-21T12:00:00Z"
    condition = {"type": "Ready", "status": "True", "reason": "Succeeded", "message": "", "lastTransitionTime": moment}
    return {"observedGeneration": generation, "conditions": [condition]}


class Bench:
    """A controller and what feeds it."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        reconcilers: Mapping[str, Reconciler],
        clock: Callable[[], datetime],
        limits: Limits = NO_LIMITS,
    ):
        config = OperatorConfig(namespaces=(namespace,), job_image="docker.io/kubothek/kubothek:dev")
        self.recorder = EventRecorder(api, "bench", clock=clock)
        self.controller = Controller(
            api=api,
            settings=Settings(cluster_id="test", default_image=config.job_image, limits=limits),
            launcher=Launcher(api, config),
            recorder=self.recorder,
            reconcilers=reconcilers,
            queue=WorkQueue(Backoff(initial=0.01, limit=0.05)),
            clock=clock,
        )
        self._namespace = namespace
        self.resync = Resync(api, self.controller, config.scopes)

    def key(self, kind: str, name: str) -> Key:
        """The key of a resource in the bench's namespace."""
        return Key(kind, self._namespace, name)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Feed the controller until the condition holds."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await self.resync.once()
                except (ApiError, ApiUnavailable):
                    continue
                if condition():
                    return
                await asyncio.sleep(0.02)

    async def settled(self) -> None:
        """Feed the controller until nothing is left to do."""
        async with asyncio.timeout(PATIENCE):
            await self.resync.once()
            while len(self.controller.queue) or self.controller.queue.busy:
                await asyncio.sleep(0.01)
            await self.recorder.drain()


@asynccontextmanager
async def bench(
    api: Api,
    namespace: str,
    reconcilers: Mapping[str, Reconciler],
    *,
    workers: int = 4,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    limits: Limits = NO_LIMITS,
) -> AsyncIterator[Bench]:
    """A running controller with these reconcilers, that knows what there is when it starts."""
    running = Bench(api, namespace, reconcilers, clock, limits)
    await running.resync.once()
    tasks = [asyncio.create_task(running.controller.work()) for _ in range(workers)]
    tasks.append(asyncio.create_task(running.recorder.run()))
    try:
        yield running
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Kubelet:
    """Plays the kubelet: moves pods by patching their status."""

    def __init__(self, server: ApiServer, namespace: str) -> None:
        self._server = server
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._namespace = namespace

    def pods(self) -> dict[str, Any]:
        """All pods by name."""
        return {pod["metadata"]["name"]: pod for pod in self._server.request("GET", self._pods)["items"]}

    def job(self, name: str) -> dict[str, Any]:
        """The job that a pod is to do, from its ConfigMap."""
        config = self._server.request("GET", f"/api/v1/namespaces/{self._namespace}/configmaps/{name}")
        return dict(json.loads(config["data"]["job.json"]))

    def show(self, name: str, status: Mapping[str, Any]) -> None:
        """Set a pod's status."""
        path = f"{self._pods}/{name}/status"
        self._server.request("PATCH", path, {"status": dict(status)}, "application/merge-patch+json")

    def remove(self, name: str) -> None:
        """The pod is gone at once."""
        self._server.request("DELETE", f"{self._pods}/{name}", {"gracePeriodSeconds": 0})
