"""Disaster recovery with an API server: its objects are lost, the repository is applied again, the bucket has the rest.

The kubelet that is played here does the jobs, in this process: what they are told and answer is what pods would be told
and answer. What comes back has other uids, and no controller but the operator's own runs.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kubothek.api.kinds import KINDS
from kubothek.cluster.api import RESOURCES, Api, ApiError, ApiUnavailable
from kubothek.cluster.pods import job_secret
from kubothek.controller.reconcilers import RECONCILERS
from kubothek.jobs.main import perform
from kubothek.jobs.outcome import render
from kubothek.jobs.progress import Reporter
from tests.cluster.apiserver import ApiServer
from tests.cluster.harness import Kubelet, bench
from tests.cluster.podshapes import exited, running
from tests.cluster.test_operator import status
from tests.recovery import COMMITS, GIT, data, put_sources, resource, rows

Json = dict[str, Any]
MOUNTED = "/var/run/kubothek"
RESULT_BYTES = 4096
PATIENCE = 500.0
"""Some thirty jobs, one after the other: a tenth of this on a quiet machine."""


class Cluster:
    """A namespace, and a node that does what its pods say, with Secrets at paths of its own."""

    def __init__(self, server: ApiServer, namespace: str, directory: Path) -> None:
        self.kubelet = Kubelet(server, namespace)
        self._work: asyncio.Task[None]
        self._server, self._namespace, self._directory = server, namespace, directory

    def path(self, kind: str, name: str = "") -> str:
        root, plural = RESOURCES[kind]
        return f"{root}/namespaces/{self._namespace}/{plural}" + (f"/{name}" if name else "")

    def apply(self, *manifests: Json) -> None:
        for manifest in manifests:
            self._server.apply(self.path(manifest["kind"], manifest["metadata"]["name"]), manifest)

    def all(self, kind: str) -> list[Json]:
        return list(self._server.request("GET", self.path(kind))["items"])

    def get(self, kind: str, name: str) -> Json:
        return dict(self._server.request("GET", self.path(kind, name)))

    def lose_everything_but_secrets(self) -> None:
        """Secrets were in a vault; nothing else was kept."""
        for kind in (*KINDS, "Pod", "ConfigMap"):
            self._server.request("DELETE", self.path(kind), {"gracePeriodSeconds": 0})
        assert not any(self.all(kind) for kind in (*KINDS, "Pod"))

    def ready(self) -> bool:
        """Whether every Dataset and Cube is Ready, and every run through."""
        if self._work.done():
            self._work.result()  # raises
        wanted = {"Dataset": "Ready", "Cube": "Ready", "Commit": "Complete", "Query": "Complete"}
        found = [(each, wanted[kind]) for kind in wanted for each in self.all(kind)]
        return self.derived() and all(
            any(c["type"] == condition and c["status"] == "True" for c in each["status"].get("conditions", ()))
            for each, condition in found
        )

    def derived(self) -> bool:
        """Whether the derivative has taken all that its input has."""
        planes, large = (self.get("Dataset", name)["status"] for name in ("planes", "large"))
        pushed = self.get("Commit", "planes-2")["status"].get("version")
        if pushed is None or planes.get("version", -1) < pushed:  # a Commit is complete before its Dataset says so
            return False
        inputs = large.get("ledger", {}).get("inputs", ())
        return [each.get("block") for each in inputs] == [planes["ledger"]["head"]]

    def versions(self) -> dict[str, int]:
        found = {name: self.get("Commit", name) for name in COMMITS} | {"found": self.get("Query", "found")}
        return {name: each["status"]["version"] for name, each in found.items()}

    def uids(self) -> set[str]:
        return {each["metadata"]["uid"] for kind in KINDS for each in self.all(kind)}

    def do(self, name: str, pod: Json) -> Json:
        """What the pod's container does; the state that it ends in."""
        spec, here = pod["spec"], self._directory / name
        secrets = {volume["name"]: volume["secret"] for volume in spec["volumes"] if "secret" in volume}
        secrets.pop(job_secret.VOLUME, None)  # of Spark, which is not started here
        for mount in spec["containers"][0]["volumeMounts"]:
            if mount["name"] in secrets:
                target = here / Path(mount["mountPath"]).relative_to(MOUNTED)
                target.mkdir(parents=True)
                content = self.get("Secret", secrets[mount["name"]]["secretName"])["data"]
                for key, value in content.items():
                    (target / key).write_bytes(base64.b64decode(value))
        here.mkdir(parents=True, exist_ok=True)
        config = self.get("ConfigMap", name)["data"]["job.json"]
        (here / "job.json").write_text(config.replace(MOUNTED, str(here)))
        result, code = perform([str(here / "job.json")], Reporter())
        return exited(int(code), render(result, RESULT_BYTES).decode())

    async def come_true(self, api: Api) -> None:
        """An operator that knows nothing, and the node, until all is as the manifests say."""
        async with bench(api, self._namespace, RECONCILERS) as operator, self.node(), asyncio.timeout(PATIENCE):
            while not self.ready():
                with suppress(ApiError, ApiUnavailable):
                    await operator.resync.once()
                await asyncio.sleep(0.2)

    @asynccontextmanager
    async def node(self) -> AsyncIterator[None]:
        """Let every pod run, one after the other."""

        async def work() -> None:
            while True:
                for name, pod in self.kubelet.pods().items():
                    if pod["status"].get("phase") == "Pending":
                        self.kubelet.show(name, status("Running", running()))
                        state = await asyncio.to_thread(self.do, name, pod)
                        ended = "Failed" if state["terminated"]["exitCode"] else "Succeeded"
                        self.kubelet.show(name, status(ended, state))
                await asyncio.sleep(0.05)

        self._work = asyncio.create_task(work())
        try:
            yield
        finally:
            self._work.cancel()
            with suppress(asyncio.CancelledError):
                await self._work


@pytest.mark.timeout(1200)
async def test_recovery_of_cluster_from_store_and_manifests_changes_no_object(
    server: ApiServer, api: Api, namespace: str, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    put_sources(root)
    store = resource("ObjectStore", "lake", url=root.as_uri(), volume={"claimName": "store"})
    first = Cluster(server, namespace, tmp_path / "first")
    first.apply(store, *GIT)
    await first.come_true(api)
    versions, committed, content, uids = first.versions(), data(root), rows(root), first.uids()

    first.lose_everything_but_secrets()
    again = Cluster(server, namespace, tmp_path / "again")
    again.apply(*reversed(GIT), store)
    await again.come_true(api)
    assert not uids & again.uids()
    assert again.versions() == versions
    reasons = {c["reason"] for name in COMMITS for c in again.get("Commit", name)["status"]["conditions"]}
    assert reasons == {"AlreadyApplied"}
    assert committed.items() ^ data(root).items() == set(), "not one object came, went or changed"
    assert rows(root) == content
