"""GitOps: what tools make of our resources, and that nothing of theirs is written over."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from lupa.lua51 import LuaRuntime

from kubothek.api.meta import FINALIZER
from kubothek.cluster import names
from kubothek.cluster.api import RESOURCES, Api
from kubothek.controller.reconcilers import RECONCILERS
from tests import kstatus
from tests.cluster.apiserver import ApiServer
from tests.cluster.harness import Kubelet, bench, manifest
from tests.cluster.test_operator import COMMIT, jobs_that_work

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
MANAGER = "argocd-controller"
EXAMPLES = sorted((ROOT / "examples" / "gitops" / "lake").glob("*.yaml"))


class Argo:
    """Argo CD's part: its Lua, in the Lua that it has (5.1), on objects as it sees them."""

    def __init__(self) -> None:
        file = yaml.safe_load((ROOT / "deploy" / "argocd" / "argocd-cm.yaml").read_text())
        (self._entry,) = yaml.safe_load(file["data"]["resource.customizations"]).values()
        self._actions = yaml.safe_load(self._entry["actions"])

    def health(self, obj: Json) -> str:
        told = self._run(self._entry["health.lua"], obj)
        assert told["message"]
        return str(told["status"])

    def actions(self, obj: Json) -> dict[str, bool]:
        """Which can be chosen, and whether they are enabled."""
        return {name: not each["disabled"] for name, each in self._run(self._actions["discovery.lua"], obj).items()}

    def act(self, name: str, obj: Json) -> Json:
        (script,) = (each["action.lua"] for each in self._actions["definitions"] if each["name"] == name)
        return dict(self._run(script, obj))

    def _run(self, script: str, obj: Json) -> Any:
        lua = LuaRuntime(unpack_returned_tuples=True)
        lua.globals().obj = lua.table_from(obj, recursive=True)
        return _plain(lua.execute(script))


def _plain(value: Any) -> Any:
    if not hasattr(value, "items"):
        return value
    items = dict(value.items())
    if items and all(isinstance(key, int) for key in items):
        return [_plain(items[key]) for key in sorted(items)]
    return {key: _plain(item) for key, item in items.items()}


def state(ready: str | None, *true: str, observed: int = 2, suspend: bool = False) -> Json:
    conditions = [{"type": kind, "status": "True", "message": "m", "observedGeneration": observed} for kind in true]
    if ready is not None:
        conditions.insert(0, {"type": "Ready", "status": ready, "message": "m", "observedGeneration": observed})
    root = observed if ready == "True" or "Stalled" in true else 1
    status = {"observedGeneration": root, "conditions": conditions} if conditions else {"observedGeneration": -1}
    return {"kind": "Dataset", "metadata": {"generation": 2}, "spec": {"suspend": suspend}, "status": status}


@pytest.mark.parametrize(
    ("obj", "health", "computed"),
    [
        ({"metadata": {"generation": 1}, "spec": {}}, "Progressing", "Current"),  # kstatus' trap: hence the default -1
        (state(None), "Progressing", "InProgress"),
        (state("True"), "Healthy", "Current"),
        (state("True", "Complete"), "Healthy", "Current"),
        (state("True", observed=1), "Progressing", "InProgress"),
        (state("Unknown", "Reconciling"), "Progressing", "InProgress"),
        (state("False", "Reconciling"), "Progressing", "InProgress"),
        (state("False", "Stalled"), "Degraded", "Failed"),
        (state("False", "Stalled", "Failed"), "Degraded", "Failed"),
        (state("False", "Stalled", observed=1), "Progressing", "InProgress"),
        (state("False"), "Progressing", "InProgress"),
        (state("True", suspend=True), "Suspended", "Current"),
    ],
)
def test_argo_health_and_kstatus_agree(obj: Json, health: str, computed: str) -> None:
    assert Argo().health(obj) == health
    assert kstatus.compute(obj) == computed


def test_argo_action_changes_only_its_field() -> None:
    argo, dataset = Argo(), manifest("Dataset", "lake", "orders", {"storeRef": {"name": "lake"}})
    assert argo.actions(dataset) == {"suspend": True, "resume": False, "reconcile": True}
    assert argo.actions(dataset | {"kind": "ObjectStore"}) == {"reconcile": True}
    suspended = argo.act("suspend", copy.deepcopy(dataset))
    assert suspended == dataset | {"spec": dataset["spec"] | {"suspend": True}}
    assert argo.actions(suspended) == {"suspend": False, "resume": True, "reconcile": False}
    assert argo.act("resume", suspended)["spec"]["suspend"] is False
    asked = argo.act("reconcile", copy.deepcopy(dataset))
    assert set(asked["metadata"].pop("annotations")) == {"kubothek.io/requestedAt"}
    assert asked == dataset


def applied(server: ApiServer, obj: Json, *, dry: bool = False) -> Json:
    """Server-side apply, as both tools do."""
    meta, (root, plural) = obj["metadata"], RESOURCES[obj["kind"]]
    path = f"{root}/namespaces/{meta['namespace']}/{plural}/{meta['name']}"
    query = f"fieldManager={MANAGER}" + ("&dryRun=All" if dry else "")
    return dict(server.request("PATCH", f"{path}?{query}", obj, "application/apply-patch+yaml"))


def owned(obj: Json) -> Iterator[tuple[str, set[str]]]:
    """The top-level fields that each of our managers owns."""
    for entry in obj["metadata"]["managedFields"]:
        if entry["manager"] in (names.FIELD_MANAGER, names.STATUS_MANAGER):
            yield entry["manager"], set(entry["fieldsV1"])


async def test_gitops_applied_fields_stay_unchanged_by_operator(server: ApiServer, namespace: str, api: Api) -> None:
    kubelet, argo = Kubelet(server, namespace), Argo()
    wanted = [
        manifest("ObjectStore", namespace, "lake", {"url": "s3://lake", "interval": "1h"}),
        manifest("Dataset", namespace, "orders", {"storeRef": {"name": "lake"}, "deletionPolicy": "Delete"}),
        manifest("Commit", namespace, "january", COMMIT),
    ]
    for obj in wanted:
        obj["metadata"]["labels"] = {"app.kubernetes.io/instance": "lake"}
        obj["metadata"]["annotations"] = {"argocd.argoproj.io/tracking-id": f"lake:kubothek.io/{obj['kind']}"}
    before = [applied(server, obj) for obj in wanted]
    assert {argo.health(obj) for obj in before} == {"Progressing"}

    def now() -> list[Json]:
        return [applied(server, obj, dry=True) for obj in wanted]

    async with bench(api, namespace, RECONCILERS) as running, jobs_that_work(kubelet):
        await running.until(lambda: {argo.health(obj) for obj in now()} == {"Healthy"})
        await running.settled()
    after = await asyncio.to_thread(now)
    for old, new in zip(before, after, strict=True):
        assert new["spec"] == old["spec"]
        assert new["metadata"]["generation"] == old["metadata"]["generation"]
        for field in ("labels", "annotations", "ownerReferences"):
            assert new["metadata"].get(field) == old["metadata"].get(field)
        assert kstatus.compute(new) == "Current"
        for manager, fields in owned(new):
            assert fields == {"f:status"}, manager
    assert [obj["metadata"].get("finalizers", []) for obj in after] == [[], [FINALIZER], []]


def test_gitops_example_repository_is_accepted_by_api_server(server: ApiServer, namespace: str) -> None:
    listed = yaml.safe_load((EXAMPLES[0].parent / "kustomization.yaml").read_text())["resources"]
    assert sorted(listed) == [file.name for file in EXAMPLES if file.name != "kustomization.yaml"]
    documents = [doc for name in listed for doc in yaml.safe_load_all((EXAMPLES[0].parent / name).read_text())]
    for obj in documents:
        obj["metadata"]["namespace"] = namespace
        assert applied(server, obj)["kind"] == obj["kind"]
    for tool in ("argocd", "flux"):
        for file in (ROOT / "examples" / "gitops" / tool).glob("*.yaml"):
            for obj in yaml.safe_load_all(file.read_text()):
                path = obj["spec"].get("path") or obj["spec"].get("source", {}).get("path")
                assert path is None or (ROOT / path).is_dir(), file
