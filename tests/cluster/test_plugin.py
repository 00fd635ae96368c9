"""``kubectl kubothek`` against a real API server; statuses are what the test writes into them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from kubothek.kubectl import main as entry
from kubothek.kubectl.naming import kind_of
from tests.cluster.apiserver import ApiServer
from tests.cluster.harness import manifest, resource_path
from tests.testcluster.gotools import KUBERNETES

Json = dict[str, Any]

LAKE = {"storeRef": {"name": "lake"}}
APPEND = {"datasetRef": {"name": "orders"}, "operation": "Append", "source": {"paths": ["a.csv"], "format": "CSV"}}
MERGE = "application/merge-patch+json"
TIME = "2026-11-22T12:00:00Z"
TABLE = {"version": 3, "rows": 900, "files": 12, "bytes": 3 * 2**30, "size": "3.00 GiB", "partitionOn": ["month"]}
HEALTH = {"historyFiles": 40, "historyBytes": 2**30, "garbageFiles": 2, "garbageBytes": 2**20, "versions": 9}


class Answer(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Answer]


class Namespace:
    """A namespace as its people and its operator write to it."""

    def __init__(self, server: ApiServer, name: str) -> None:
        self.server = server
        self.name = name

    def create(self, kind: str, name: str, spec: Json, **metadata: Any) -> Json:
        obj = manifest(kind, self.name, name, spec)
        obj["metadata"] |= metadata
        return dict(self.server.request("POST", self._path(kind), obj))

    def get(self, kind: str, name: str) -> Json:
        return dict(self.server.request("GET", self._path(kind, name)))

    def status(self, kind: str, name: str, ready: str, reason: str, *more: str, **status: Any) -> None:
        conditions = [
            {
                "type": each,
                "status": ready if each == "Ready" else "True",
                "reason": reason,
                "message": f"{reason} it is",
                "lastTransitionTime": TIME,
                "observedGeneration": self.get(kind, name)["metadata"]["generation"],
            }
            for each in ("Ready", *more)
        ]
        body = {"status": {"conditions": conditions} | status}
        self.server.request("PATCH", f"{self._path(kind, name)}/status", body, MERGE)

    def _path(self, kind: str, name: str = "") -> str:
        return resource_path(kind, self.name, name).replace("querys", "queries").replace("policys", "policies")


@pytest.fixture
def space(server: ApiServer, namespace: str) -> Namespace:
    found = Namespace(server, namespace)
    found.create("ObjectStore", "lake", {"url": "s3://lake"})
    found.create("Dataset", "orders", LAKE | {"table": {"partitionOn": ["month"]}})
    found.status("Dataset", "orders", "True", "Succeeded", **TABLE, health=HEALTH, lastCommitTime=TIME)
    return found


@pytest.fixture
def kubectl(server: ApiServer, namespace: str, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str | Path) -> Answer:
        command, *rest = map(str, arguments)
        where = [f"--kubeconfig={server.kubeconfig()}", f"--namespace={namespace}"]
        with pytest.raises(SystemExit) as ended:
            entry.main([command, *where, *rest])
        assert isinstance(ended.value.code, int)
        return Answer(ended.value.code, *capsys.readouterr())

    return run


def test_status_lists_resources_and_exit_code_reports_health(kubectl: Run, space: Namespace) -> None:
    space.status("ObjectStore", "lake", "True", "Succeeded")
    answer = kubectl("status")
    assert answer.code == 0
    header, store, dataset = answer.out.splitlines()
    assert header.split() == ["KIND", "NAME", "STATE", "REASON", "MESSAGE"]
    assert store.split()[:4] == ["ObjectStore", "lake", "Ready", "Succeeded"]
    assert "version 3: 900 rows in 12 files, 3.00 GiB" in dataset
    space.create("Commit", "january", APPEND)
    space.status("Commit", "january", "False", "SourceNotFound", "Stalled", "Failed")
    assert kubectl("status").code == 1
    named = kubectl("status", "kcm/january")
    assert named.code == 1
    assert [line.split()[0] for line in named.out.splitlines() if line][-3:] == ["Ready", "Stalled", "Failed"]
    told = json.loads(kubectl("status", "-o", "json").out)
    assert [(each["kind"], each["state"]) for each in told][-1] == ("Commit", "Failed")
    missing = kubectl("status", "commit/february")
    assert missing == (1, "", f"error: there is no Commit 'february' in namespace '{space.name}'\n")


def test_log_and_health_show_status_fields(kubectl: Run, space: Namespace) -> None:
    space.create("Commit", "january", APPEND)
    space.status("Commit", "january", "True", "Succeeded", "Complete", completionTime=TIME, version=3, rows=900)
    space.create("Commit", "other", APPEND | {"datasetRef": {"name": "elsewhere"}})
    header, only = kubectl("log", "orders").out.splitlines()
    assert header.split()[:3] == ["TIME", "RUN", "WHAT"]
    assert only.split() == [TIME, "commit/january", "Append", "Complete", "3", "900"]
    space.create("Compaction", "small", {"datasetRef": {"name": "orders"}})
    assert "… and 1 older ones" in kubectl("log", "orders", "--limit=1").out
    answer = kubectl("health", "orders")
    assert answer.code == 0
    assert "held by history only: 40 files (1.00 GiB)" in answer.out
    space.status("Dataset", "orders", "False", "Corrupt", "Stalled", corrupt="2 files of version 3")
    lost = kubectl("health", "orders")
    assert (lost.code, "LOST: 2 files of version 3" in lost.out) == (1, True)


def test_tail_ends_with_run(kubectl: Run, space: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    space.create("Commit", "january", APPEND)
    progress = {"stage": "Writing", "tasksDone": 3, "tasksTotal": 8, "rows": 70}
    space.status("Commit", "january", "Unknown", "Progressing", "Reconciling", progress=progress)
    steps = iter([lambda: space.status("Commit", "january", "True", "Succeeded", "Complete", version=4, rows=90)])

    async def next_step(_: float) -> None:
        next(steps)()

    # Not asyncio.sleep itself: gateways of other tests sleep in other threads.
    monkeypatch.setattr("kubothek.kubectl.tail.asyncio", SimpleNamespace(sleep=next_step))
    answer = kubectl("tail", "january")
    assert answer.code == 0
    first, *_, last = answer.out.splitlines()
    assert "Running: Writing, 70 rows" in first
    assert last.startswith("commit/january Done: ")
    space.create("Commit", "february", APPEND)
    space.status("Commit", "february", "False", "SourceNotFound", "Stalled", "Failed")
    assert kubectl("tail", "commit/february").code == 1


def test_suspend_resume_and_reconcile_change_one_field_each(kubectl: Run, space: Namespace) -> None:
    assert kubectl("suspend", "dataset/orders").out == "dataset/orders suspended\n"
    assert space.get("Dataset", "orders")["spec"]["suspend"] is True
    before = space.get("Dataset", "orders")["metadata"]["resourceVersion"]
    assert kubectl("suspend", "kds/orders").code == 0
    assert space.get("Dataset", "orders")["metadata"]["resourceVersion"] == before
    kubectl("resume", "dataset/orders")
    assert space.get("Dataset", "orders")["spec"]["suspend"] is False
    space.create("Dataset", "flux", LAKE, labels={"kustomize.toolkit.fluxcd.io/name": "lake"})
    assert "belongs into its repository" in kubectl("suspend", "dataset/flux").err
    stamps = set()
    for _ in range(2):
        assert kubectl("reconcile", "objectstore/lake").code == 0
        stamps.add(space.get("ObjectStore", "lake")["metadata"]["annotations"]["kubothek.io/requestedAt"])
    assert len(stamps) == 2
    assert kubectl("suspend", "engine/e").err == "error: a Engine starts nothing that could be suspended\n"
    assert kubectl("suspend", "pod/x").code == 2


def test_retry_raises_spent_limit_and_recreates_permanently_failed_run(kubectl: Run, space: Namespace) -> None:
    labels = {"team": "a"}
    uid = space.create("Commit", "january", APPEND, labels=labels)["metadata"]["uid"]
    assert "has not failed" in kubectl("retry", "commit/january").err
    space.status("Commit", "january", "False", "RetryLimitReached", "Stalled", "Failed", failures=4)
    assert kubectl("retry", "commit/january").code == 0
    there = space.get("Commit", "january")
    assert (there["spec"]["retryLimit"], there["metadata"]["uid"]) == (4, uid)
    space.status("Commit", "january", "False", "SourceNotFound", "Stalled", "Failed", failures=4)
    assert kubectl("retry", "commit/january").out == "commit/january created anew\n"
    anew = space.get("Commit", "january")
    assert anew["metadata"]["uid"] != uid
    assert anew["metadata"]["labels"] == labels
    assert anew["spec"] == there["spec"]
    assert "conditions" not in anew.get("status", {})
    assert kubectl("retry", "dataset/orders").out == "dataset/orders requested\n"


def test_ui_opens_spark_ui_of_running_driver(kubectl: Run, space: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    uid = space.create("Commit", "january", APPEND)["metadata"]["uid"]
    assert "no job of commit/january is running" in kubectl("ui", "january").err
    owner = {"apiVersion": "kubothek.io/v1alpha1", "kind": "Commit", "name": "january", "uid": uid, "controller": True}
    secure = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    meta = {"name": "january-1", "labels": {"kubothek.io/job": "true"}, "ownerReferences": [owner]}
    containers = [{"name": "driver", "image": "x", "securityContext": secure}]
    spec = {"serviceAccountName": "kubothek-job", "automountServiceAccountToken": False, "containers": containers}
    pod = {"metadata": meta, "spec": spec}
    core = f"/api/v1/namespaces/{space.name}"
    space.server.request("POST", f"{core}/pods", {"apiVersion": "v1", "kind": "Pod", **pod})
    space.server.request("PATCH", f"{core}/pods/january-1/status", {"status": {"phase": "Running"}}, MERGE)
    job = {"metadata": {"name": "january-1"}, "data": {"job.json": json.dumps({"spark": {"conf": {}}})}}
    space.server.request("POST", f"{core}/configmaps", {"apiVersion": "v1", "kind": "ConfigMap", **job})
    assert "set spark.ui.enabled to 'true'" in kubectl("ui", "january").err
    enabled = json.dumps({"spark": {"conf": {"spark.ui.enabled": "true"}}})
    space.server.request("PATCH", f"{core}/configmaps/january-1", {"data": {"job.json": enabled}}, MERGE)
    called: list[list[str]] = []
    monkeypatch.setattr("kubothek.kubectl.ui.os.execvp", lambda _, command: called.append(command))
    assert "http://localhost:4041" in kubectl("ui", "january", "--port=4041").out
    assert called[0][-3:] == ["port-forward", "pod/january-1", "4041:4040"]
    assert f"--namespace={space.name}" in called[0]


def test_plugin_completion_suggests_names_from_cluster(
    space: Namespace, server: ApiServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def words(*given: str) -> list[str]:
        entry.complete(given)
        return capsys.readouterr().out.splitlines()

    assert [word.partition("\t")[0] for word in words("sta")] == ["status", ":4"]
    assert words("retry", "comm") == ["commit/", ":4"]
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig()))
    assert words("suspend", "-n", space.name, "dataset/o") == ["dataset/orders", ":4"]
    assert words("health", "-n", space.name, "o") == ["orders", ":4"]
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    assert words("health", "-n", space.name, "o") == [":4"]
    with pytest.raises(SystemExit):
        entry.main(["completion", "bash"])
    assert "_KUBOTHEK_COMPLETE=bash_complete" in capsys.readouterr().out


def test_plugin_without_cluster_prints_one_line_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        entry.main(["status", f"--kubeconfig={tmp_path / 'none'}"])
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("error: no cluster is configured: ")


@pytest.mark.parametrize(
    ("word", "kind"), [("kds", "Dataset"), ("queries", "Query"), ("GCPolicy", "GCPolicy"), ("pods", None)]
)
def test_plugin_resolves_kind_by_any_name(word: str, kind: str | None) -> None:
    assert kind_of(word) == kind


def test_kubectl_finds_plugin_and_completion(space: Namespace, server: ApiServer) -> None:
    kubectl = KUBERNETES.ensure() / "kubectl"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "KUBECONFIG": str(server.kubeconfig())}

    def run(*arguments: str) -> str:
        command = [str(kubectl), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
        assert done.returncode in (0, 1), done.stderr
        return done.stdout

    assert "orders" in run("kubothek", "status", "-n", space.name)
    assert run("__complete", "kubothek", "health", "-n", space.name, "or").splitlines()[0] == "orders"
