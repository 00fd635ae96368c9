"""The same duty as most operators with kopf do it: by handlers of changes, timers, and a field here and there.

What it does: a store is looked at in intervals by a pod, a Dataset is Ready when that told of it, Commits of a Dataset
run one at a time, and so many jobs at once. What it leaves out: retries of jobs, restarts in the middle of anything,
maintenance, events, validation; it is there to compare costs.
"""

from __future__ import annotations

import json
import os
from typing import Any

import kopf

from kubothek.api.jobs import JobResult
from kubothek.api.meta import API_VERSION
from kubothek.cluster import names
from kubothek.cluster.api import Api, ApiError

_JOBS = int(os.environ.get("BENCH_JOBS", "50"))
_INTERVAL = float(os.environ.get("BENCH_INTERVAL", "60"))
_AGAIN = 5.0
"""Seconds after which a handler that has to wait is called again."""

_told: dict[tuple[str, str], dict[str, Any]] = {}
"""What inspections said, by namespace and Dataset."""
_ended: dict[tuple[str, str], JobResult] = {}
"""Results of jobs, by namespace and pod."""
_running: dict[tuple[str, str], str] = {}
"""Which Dataset a running commit is of, by namespace and pod."""
_datasets: dict[str, set[str]] = {}
_numbers: dict[tuple[str, str], int] = {}
_api: list[Api] = []


@kopf.on.startup()
async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Connect, with the settings that a busy operator needs."""
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.label_selectors["", "v1", "pods"] = names.JOB
    _api.append(await Api.connect(os.environ["KUBECONFIG"]))


@kopf.on.event("kubothek.io", "v1alpha1", "datasets")  # type: ignore[arg-type]
async def known(event: Any, namespace: str, name: str, **_: Any) -> None:
    """A Dataset is there, for the next inspection."""
    here = _datasets.setdefault(namespace, set())
    here.discard(name) if event["type"] == "DELETED" else here.add(name)


@kopf.on.resume("kubothek.io", "v1alpha1", "datasets")
@kopf.on.create("kubothek.io", "v1alpha1", "datasets")
@kopf.on.update("kubothek.io", "v1alpha1", "datasets", field="spec")  # type: ignore[arg-type]
async def dataset(namespace: str, name: str, meta: Any, patch: Any, **_: Any) -> None:
    """A Dataset is Ready once an inspection told of it."""
    state = _told.get((namespace, name))
    if state is None:
        raise kopf.TemporaryError("not looked at yet", delay=_AGAIN)
    patch.status.update(_ready(meta["generation"], "Succeeded") | {"version": state["version"]})


@kopf.timer("kubothek.io", "v1alpha1", "objectstores", interval=_INTERVAL)  # type: ignore[arg-type]
async def inspect(namespace: str, name: str, uid: str, **_: Any) -> None:
    """Look at a store and at all Datasets in it."""
    number = _numbers[namespace, name] = _numbers.get((namespace, name), 0) + 1
    here = sorted(_datasets.get(namespace, ()), key=lambda each: ((namespace, each) in _told, each))
    job = {"verb": "inspect", "datasets": [{"uuid": each} for each in here]}
    if number > 1:
        for kind in ("Pod", "ConfigMap"):
            await _api[0].delete(kind, namespace, f"{name}-inspect-{number - 1}")
    await _launch("ObjectStore", namespace, name, uid, f"{name}-inspect-{number}", job)


@kopf.on.resume("kubothek.io", "v1alpha1", "commits")
@kopf.on.create("kubothek.io", "v1alpha1", "commits")  # type: ignore[arg-type]
async def commit(namespace: str, name: str, uid: str, spec: Any, status: Any, meta: Any, patch: Any, **_: Any) -> None:
    """Run when nothing of the same Dataset does, and there is a place."""
    if status.get("conditions"):
        return
    pod, target = (namespace, f"{name}-1"), spec["datasetRef"]["name"]
    result = _ended.get(pod)
    if result is not None:
        assert result.commit is not None
        patch.status.update(_ready(meta["generation"], "Complete") | {"version": result.commit.version})
        return
    if pod not in _running:
        if len(_running) >= _JOBS or any(key[0] == namespace and it == target for key, it in _running.items()):
            raise kopf.TemporaryError("others come first", delay=_AGAIN)
        _running[pod] = target
        await _launch("Commit", namespace, name, uid, pod[1], {"verb": "commit", "dataset": {"uuid": target}})
    raise kopf.TemporaryError("its job runs", delay=_AGAIN)


@kopf.on.event("", "v1", "pods", labels={names.JOB: kopf.PRESENT})  # type: ignore[arg-type]
async def pod_seen(namespace: str, name: str, status: Any, labels: Any, **_: Any) -> None:
    """Take what a job said."""
    ends = (each["state"].get("terminated") for each in status.get("containerStatuses") or ())
    end = next((each for each in ends if each), None)
    if end is None or (namespace, name) in _ended:
        return
    result = _ended[namespace, name] = JobResult.model_validate_json(end["message"])
    _running.pop((namespace, name), None)
    for state in result.datasets or ([result.dataset] if result.dataset else ()):
        _told[namespace, state.uuid] = {"version": state.version}


def _ready(generation: int, reason: str) -> dict[str, Any]:
    moment = "2026-11-22T12:00:00Z"
    kinds = ("Ready", "Complete") if reason == "Complete" else ("Ready",)
    conditions = [
        {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": "",
            "lastTransitionTime": moment,
            "observedGeneration": generation,
        }
        for kind in kinds
    ]
    return {"observedGeneration": generation, "conditions": conditions}


async def _launch(kind: str, namespace: str, owner: str, uid: str, name: str, job: dict[str, Any]) -> None:
    reference = {"apiVersion": API_VERSION, "kind": kind, "name": owner, "uid": uid, "controller": True}
    labels = {names.JOB: name, names.VERB: job["verb"]}
    meta = {"name": name, "labels": labels, "ownerReferences": [reference]}
    container = {"name": names.DRIVER_CONTAINER, "image": "x/y:z"}
    spec = {"serviceAccountName": "kubothek-job", "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"job.json": json.dumps(job)}}
    for what in (data, pod):
        try:
            await _api[0].create(str(what["kind"]), namespace, what)
        except ApiError as error:
            if error.status != 409:
                raise
