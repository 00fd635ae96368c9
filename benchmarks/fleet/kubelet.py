"""What plays the kubelet, and the jobs: pods run for a while, then end with what a job would have said."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any, Final

from benchmarks.fleet.cluster import Cluster
from kubothek.api.jobs import CommitOutcome, DatasetState, HealthState, JobResult, StoreState, Totals
from kubothek.cluster import names
from kubothek.jobs.outcome import render

_ROWS: Final = 1000
_BYTES: Final = 40_000


class Kubelet:
    """Moves every pod of a job from Pending over Running to its end. :meth:`run` is its task."""

    def __init__(self, cluster: Cluster, seconds: float) -> None:
        """``seconds``  that a pod runs"""
        self._cluster = cluster
        self._seconds = seconds
        self.may_end = asyncio.Event()
        """Cleared: commits run on and on."""
        self.may_end.set()
        self.pods: Counter[tuple[str, str]] = Counter()
        """How many there were, by namespace and verb."""
        self._versions: Counter[tuple[str, str]] = Counter()
        self._begun: set[str] = set()

    async def run(self) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as group:
            async for change, pod in self._cluster.watch("/api/v1/pods", names.JOB):
                uid = pod["metadata"]["uid"]
                if change == "ADDED" and uid not in self._begun:
                    self._begun.add(uid)
                    group.create_task(self._play(pod))

    async def _play(self, pod: dict[str, Any]) -> None:
        meta = pod["metadata"]
        namespace, name, verb = meta["namespace"], meta["name"], meta["labels"][names.VERB]
        self.pods[namespace, verb] += 1
        job = await self._cluster.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/{name}")
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        await self._cluster.merge(path, _status("Running", {"running": {"startedAt": meta["creationTimestamp"]}}))
        await asyncio.sleep(self._seconds)
        if verb != "inspect":
            await self.may_end.wait()
        message = render(self._result(namespace, json.loads(job["data"]["job.json"]))).decode()
        ended = {"exitCode": 0, "reason": "Completed", "message": message}
        times = {"startedAt": meta["creationTimestamp"], "finishedAt": meta["creationTimestamp"]}
        await self._cluster.merge(path, _status("Succeeded", {"running": None, "terminated": {**ended, **times}}))

    def _result(self, namespace: str, job: dict[str, Any]) -> JobResult:
        """What a healthy job says of tables that grow by a thousand rows with each commit."""
        said: dict[str, Any] = {"outcome": "Succeeded", "reason": "Succeeded", "message": "done"}
        if job["verb"] == "inspect":
            known = job.get("known") or {}
            seen = (self._state(namespace, dataset["uuid"]) for dataset in job["datasets"])
            told = tuple(state for state in seen if known.get(state.uuid) != state.digest)
            return JobResult(**said, store=StoreState(conditional_writes=True), datasets=told)
        uuid = job["dataset"]["uuid"]
        self._versions[namespace, uuid] += 1
        state = self._state(namespace, uuid)
        assert state.version is not None, "there has been a commit"
        done = CommitOutcome(version=state.version, rows=_ROWS, files=1, bytes=_BYTES)
        return JobResult(**said, commit=done, dataset=state)

    def _state(self, namespace: str, uuid: str) -> DatasetState:
        version = 1 + self._versions[namespace, uuid]
        totals = Totals(rows=_ROWS * version, files=version, bytes=_BYTES * version, partitions=1)
        health = HealthState(version=version, versions=version, history_files=version)
        when = "2026-11-22T12:00:00Z"
        etag = f"{version:032x}"
        return DatasetState(
            uuid=uuid, version=version, etag=etag, totals=totals, last_commit_time=when, partition_on=(), health=health
        )


def _status(phase: str, state: dict[str, Any]) -> dict[str, Any]:
    container = {"name": names.DRIVER_CONTAINER, "image": "x", "imageID": "", "ready": False, "restartCount": 0}
    return {"status": {"phase": phase, "containerStatuses": [container | {"state": state}]}}
