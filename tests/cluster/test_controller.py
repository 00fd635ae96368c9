"""The control loop over a real API server, with small reconcilers of the test's own."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from kubothek.api.engine import Engine
from kubothek.api.jobs import InspectJob, JobResult, StoreRef
from kubothek.api.kinds import parse
from kubothek.api.meta import Resource
from kubothek.cluster.api import Api
from kubothek.cluster.queue import Key
from kubothek.controller.context import (
    CancelJob,
    Context,
    DeleteRun,
    Event,
    FailureClass,
    JobPhase,
    JobView,
    LaunchJob,
    MakeIdentity,
    Outcome,
    SetFinalizer,
)
from tests.cluster.apiserver import ApiServer
from tests.cluster.harness import Kubelet, bench, manifest, ready_status, resource_path
from tests.cluster.podshapes import exited, running
from tests.cluster.proxy import Call, Fault, FaultProxy

STORE = {"url": "s3://bucket/lake"}
STORE_REF = StoreRef(name="s", url="s3://bucket/lake", credentials_dir="/var/run/kubothek/credentials/s")
MERGE = "application/merge-patch+json"


def ready(resource: Resource, context: Context) -> Outcome:
    """The simplest reconciler."""
    return Outcome(status=ready_status(resource.metadata.generation))


def launching(engine: Engine | None = None) -> Callable[[Resource, Context], Outcome]:
    """A reconciler that keeps one attempt launched and publishes what it sees of it."""

    def reconcile(resource: Resource, context: Context) -> Outcome:
        name = f"{resource.name}-1"
        view = context.job(resource.namespace, name)
        refusal = context.launch_refusal(resource.namespace, name)
        seen = f"{view.phase} {view.reason}".strip() if view else f"refused {refusal[0]}" if refusal else "absent"
        status = ready_status(resource.metadata.generation)
        status["conditions"][0]["message"] = seen  # type: ignore[index]
        job = InspectJob(job=name, uid=resource.metadata.uid, store=STORE_REF)
        launch = LaunchJob(job=job, owner=resource, engine=engine, secrets={"s": "credentials"})
        return Outcome(status=status, actions=() if view else (launch,))

    return reconcile


def failing_at(position: int, fault: Fault) -> Callable[[int, Call], Fault | None]:
    return lambda at, call: fault if at == position else None


def shows(server: ApiServer, namespace: str, name: str, text: str) -> bool:
    return message(server, namespace, name) == text


def create(server: ApiServer, kind: str, namespace: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    made = server.request("POST", resource_path(kind, namespace), manifest(kind, namespace, name, spec))
    return dict(made)


def message(server: ApiServer, namespace: str, name: str) -> str:
    """What the reconciler said in Ready's message."""
    status = server.request("GET", resource_path("ObjectStore", namespace, name))["status"]
    return str(status["conditions"][0]["message"]) if "conditions" in status else ""


async def test_reconcile_of_steady_object_writes_once(
    api: Api, server: ApiServer, namespace: str, proxy: FaultProxy
) -> None:
    for index in range(40):
        create(server, "Engine", namespace, f"e{index}", {})
    async with bench(api, namespace, {"Engine": ready}) as operator:
        await operator.settled()
        assert len(proxy.writes) == 40
        for index in range(40):
            operator.controller.queue.add(Key("Engine", namespace, f"e{index}"))
        await operator.settled()
        await operator.settled()
        assert len(proxy.writes) == 40
    engine = server.request("GET", resource_path("Engine", namespace, "e7"))
    assert engine["status"]["conditions"][0]["status"] == "True"
    assert not {"annotations", "finalizers", "labels"} & set(engine["metadata"])


async def test_identity_secret_is_created_once_and_outlives_dataset(
    api: Api, server: ApiServer, namespace: str, proxy: FaultProxy
) -> None:
    rounds = 0  # a busy machine may make one more than is asked for

    def identified(resource: Resource, _: Context) -> Outcome:
        nonlocal rounds
        rounds += 1
        return Outcome(status=ready_status(resource.metadata.generation), actions=(MakeIdentity("e-identity"),))

    create(server, "Engine", namespace, "e", {})
    secret = f"/api/v1/namespaces/{namespace}/secrets/e-identity"
    async with bench(api, namespace, {"Engine": identified}) as operator:
        await operator.settled()
        made = server.request("GET", secret)
        assert len(base64.b64decode(made["data"]["ed25519"])) == 32
        assert "ownerReferences" not in made["metadata"]
        operator.controller.queue.add(Key("Engine", namespace, "e"))
        await operator.settled()
    assert server.request("GET", secret) == made
    assert rounds >= 2
    assert [call.method for call in proxy.calls if "/secrets" in call.path] == ["POST"] * rounds, "it is never read"


async def test_spec_edit_causes_one_write(api: Api, server: ApiServer, namespace: str, proxy: FaultProxy) -> None:
    create(server, "Engine", namespace, "e", {})
    async with bench(api, namespace, {"Engine": ready}) as operator:
        await operator.settled()
        server.apply(resource_path("Engine", namespace, "e"), manifest("Engine", namespace, "e", {"sparkFrom": "1Gi"}))
        await operator.settled()
    assert len(proxy.writes) == 2
    assert server.request("GET", resource_path("Engine", namespace, "e"))["status"]["observedGeneration"] == 2


async def test_edit_observed_with_own_write_is_reconciled(
    api: Api, server: ApiServer, namespace: str, proxy: FaultProxy
) -> None:
    """The answer to the write is newer than the edit, so that the watch tells of it as of nothing new."""
    create(server, "Engine", namespace, "e", {})
    edits = [manifest("Engine", namespace, "e", {"sparkFrom": "1Gi"})]

    def edit_first(_: int, call: Call) -> None:
        if call.method == "PATCH" and edits:
            server.apply(resource_path("Engine", namespace, "e"), edits.pop())

    proxy.decide = edit_first
    async with bench(api, namespace, {"Engine": ready}) as operator:
        await operator.settled()
    assert not edits
    assert server.request("GET", resource_path("Engine", namespace, "e"))["status"]["observedGeneration"] == 2


async def test_status_is_written_before_job_is_created(
    api: Api, server: ApiServer, namespace: str, proxy: FaultProxy
) -> None:
    create(server, "ObjectStore", namespace, "s", STORE)
    async with bench(api, namespace, {"ObjectStore": launching()}) as operator:
        await operator.settled()
    order = [(call.method, re.sub(r".*/", "", call.path)) for call in proxy.writes]
    assert order[:3] == [("PATCH", "status"), ("POST", "configmaps"), ("POST", "pods")]
    assert message(server, namespace, "s") == "Pending"


async def test_job_result_is_observed_and_pod_passes_restricted_pod_security(
    api: Api, server: ApiServer, namespace: str
) -> None:
    kubelet = Kubelet(server, namespace)
    create(server, "ObjectStore", namespace, "s", STORE)
    async with bench(api, namespace, {"ObjectStore": launching()}) as operator:
        await operator.settled()
        assert kubelet.job("s-1")["store"]["credentials_dir"] == STORE_REF.credentials_dir
        kubelet.show("s-1", {"phase": "Running", "containerStatuses": [_container(running())]})
        await operator.settled()
        assert message(server, namespace, "s") == "Running"
        done = JobResult(outcome="Succeeded", reason="Inspected", message="all well").model_dump_json()
        kubelet.show("s-1", {"phase": "Succeeded", "containerStatuses": [_container(exited(0, done))]})
        await operator.settled()
    assert message(server, namespace, "s") == "Succeeded Inspected"


async def test_pod_that_disappears_counts_as_lost_attempt(api: Api, server: ApiServer, namespace: str) -> None:
    kubelet = Kubelet(server, namespace)
    views: list[JobView | None] = []

    def reconcile(resource: Resource, context: Context) -> Outcome:
        views.append(context.job(resource.namespace, "s-1"))
        return launching()(resource, context)

    create(server, "ObjectStore", namespace, "s", STORE)
    async with bench(api, namespace, {"ObjectStore": reconcile}) as operator:
        await operator.settled()
        kubelet.remove("s-1")
        await operator.settled()
        assert kubelet.pods() == {}
    assert message(server, namespace, "s") == "Failed PodDeleted"
    lost = views[-1]
    assert lost is not None
    assert (lost.phase, lost.failure) == (JobPhase.FAILED, FailureClass.INFRASTRUCTURE)


async def test_launch_repeated_after_crash_finds_existing_pod(api: Api, server: ApiServer, namespace: str) -> None:
    create(server, "ObjectStore", namespace, "s", STORE)
    async with bench(api, namespace, {"ObjectStore": launching()}) as operator:
        await operator.settled()
    uid = Kubelet(server, namespace).pods()["s-1"]["metadata"]["uid"]
    async with bench(api, namespace, {"ObjectStore": launching()}) as restarted:
        # It has not seen the pod yet: the launch itself must find it.
        seen = server.request("GET", resource_path("ObjectStore", namespace, "s"))
        restarted.controller.observer.observe("ObjectStore", seen)
        await restarted.until(lambda: message(server, namespace, "s") == "Pending")
    assert Kubelet(server, namespace).pods()["s-1"]["metadata"]["uid"] == uid


def _quota(server: ApiServer, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/tight"
    hard = {"hard": {"pods": "0"}}
    server.apply(path, {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "tight"}, "spec": hard})
    # Without the quota controller nobody else counts.
    used = {"status": {**hard, "used": {"pods": "0"}}}
    server.request("PATCH", f"{path}/status", used, "application/merge-patch+json")


def _no_account(server: ApiServer, namespace: str) -> None:
    server.request("DELETE", f"/api/v1/namespaces/{namespace}/serviceaccounts/kubothek-job")


def _leaving(server: ApiServer, namespace: str) -> None:
    server.request("DELETE", f"/api/v1/namespaces/{namespace}")


def _foreign_pod(server: ApiServer, namespace: str) -> None:
    security = {"runAsNonRoot": True, "runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"}}
    inner = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {"name": "c", "image": "i", "securityContext": inner}
    spec = {"serviceAccountName": "kubothek-job", "securityContext": security, "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "s-1"}, "spec": spec}
    server.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)


def _foreign_config(server: ApiServer, namespace: str) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s-1"}, "data": {}}
    server.request("POST", f"/api/v1/namespaces/{namespace}/configmaps", config)


@pytest.mark.parametrize(
    ("obstacle", "reason"),
    [
        (_quota, "QuotaExceeded"),
        (_no_account, "ServiceAccountNotFound"),
        (_leaving, "NamespaceTerminating"),
        (_foreign_pod, "NameCollision"),
        (_foreign_config, "NameCollision"),
    ],
)
async def test_refused_launch_is_reported_with_reason(
    api: Api, server: ApiServer, namespace: str, obstacle: Callable[[ApiServer, str], None], reason: str
) -> None:
    create(server, "ObjectStore", namespace, "s", STORE)
    obstacle(server, namespace)
    async with bench(api, namespace, {"ObjectStore": launching()}) as operator:
        await operator.settled()
        assert message(server, namespace, "s") == f"refused {reason}"


async def test_pod_denied_by_admission_is_refused_until_engine_is_repaired(
    api: Api, server: ApiServer, namespace: str
) -> None:
    """The first try has left a ConfigMap; the second needs another one."""
    create(server, "ObjectStore", namespace, "s", STORE)
    beside = {"spec": {"initContainers": [{"name": "root", "image": "x"}]}}
    create(server, "Engine", namespace, "e", {"podTemplate": {"driver": beside, "executor": beside}})

    def reconcile(resource: Resource, context: Context) -> Outcome:
        return launching(engine=context.get(Engine, resource.namespace, "e"))(resource, context)

    async with bench(api, namespace, {"ObjectStore": reconcile, "Engine": ready}) as operator:
        await operator.settled()
        assert message(server, namespace, "s") == "refused AdmissionDenied"
        server.request("PATCH", resource_path("Engine", namespace, "e"), {"spec": {"podTemplate": None}}, MERGE)
        await operator.settled()
        operator.controller.queue.add(Key("ObjectStore", namespace, "s"))
        await operator.settled()
        assert message(server, namespace, "s") == "Pending"
    config = server.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/s-1")
    assert "initContainers" not in config["data"]["executor.json"]


async def test_cancelled_attempt_is_deleted_and_forgotten(api: Api, server: ApiServer, namespace: str) -> None:
    kubelet = Kubelet(server, namespace)
    cancel = False

    def reconcile(resource: Resource, context: Context) -> Outcome:
        outcome = launching()(resource, context)
        return Outcome(outcome.status, (CancelJob(resource.namespace, "s-1"),)) if cancel else outcome

    create(server, "ObjectStore", namespace, "s", STORE)
    async with bench(api, namespace, {"ObjectStore": reconcile}) as operator:
        await operator.settled()
        cancel = True
        operator.controller.queue.add(Key("ObjectStore", namespace, "s"))
        await operator.settled()
        await operator.settled()
        assert message(server, namespace, "s") == "absent"
    assert kubelet.pods() == {}
    names = [
        c["metadata"]["name"] for c in server.request("GET", f"/api/v1/namespaces/{namespace}/configmaps")["items"]
    ]
    assert "s-1" not in names


async def test_finalizer_is_added_and_removed_and_foreign_finalizers_stay(
    api: Api, server: ApiServer, namespace: str
) -> None:
    wanted = True

    def reconcile(resource: Resource, context: Context) -> Outcome:
        return Outcome(ready_status(resource.metadata.generation), (SetFinalizer(wanted),))

    made = manifest("Dataset", namespace, "d", {"storeRef": {"name": "s"}})
    made["metadata"]["finalizers"] = ["example.com/other"]
    server.request("POST", resource_path("Dataset", namespace), made)

    def finalizers() -> list[str]:
        return list(server.request("GET", resource_path("Dataset", namespace, "d"))["metadata"]["finalizers"])

    async with bench(api, namespace, {"Dataset": reconcile, "ObjectStore": ready}) as operator:
        await operator.settled()
        assert finalizers() == ["example.com/other", "kubothek.io/data-protection"]
        wanted = False
        operator.controller.queue.add(Key("Dataset", namespace, "d"))
        await operator.settled()
        assert finalizers() == ["example.com/other"]


async def test_object_deleted_during_reconcile_is_dropped(
    api: Api, server: ApiServer, namespace: str, proxy: FaultProxy
) -> None:
    stale = create(server, "Engine", namespace, "e", {})
    server.request("DELETE", resource_path("Engine", namespace, "e"))
    async with bench(api, namespace, {"Engine": ready}) as operator:
        operator.controller.observer.observe("Engine", stale)
        await operator.until(lambda: len(operator.controller.state.resources["Engine"]) == 0)
        await operator.settled()
    assert len(proxy.writes) <= 1


async def test_deletion_missed_by_watch_is_found_by_relist(api: Api, server: ApiServer, namespace: str) -> None:
    create(server, "Engine", namespace, "kept", {})
    create(server, "Engine", namespace, "gone", {})
    async with bench(api, namespace, {"Engine": ready}) as operator:
        await operator.settled()
        server.request("DELETE", resource_path("Engine", namespace, "gone"))
        await operator.settled()
        known = [obj["metadata"]["name"] for obj in operator.controller.state.resources["Engine"].objects()]
    assert known == ["kept"]


async def test_reconciler_that_raises_is_retried_and_blocks_no_other(
    api: Api, server: ApiServer, namespace: str
) -> None:
    failures = 0

    def reconcile(resource: Resource, context: Context) -> Outcome:
        nonlocal failures
        if resource.name == "bad" and failures < 3:
            failures += 1
            raise RuntimeError("a bug")
        return ready(resource, context)

    for name in ("bad", "good"):
        create(server, "Engine", namespace, name, {})

    def both_ready() -> bool:
        items = server.request("GET", resource_path("Engine", namespace))["items"]
        return all("conditions" in item["status"] for item in items)

    async with bench(api, namespace, {"Engine": reconcile}, workers=1) as operator:
        await operator.until(both_ready)
    assert failures == 3


async def test_condition_transition_emits_event(api: Api, server: ApiServer, namespace: str) -> None:
    rounds = []

    def reconcile(resource: Resource, context: Context) -> Outcome:
        rounds.append(context.now)
        event = Event("Warning", "Failed", "the reason why")
        return Outcome(ready_status(resource.metadata.generation), events=(event,))

    create(server, "Engine", namespace, "e", {})
    async with bench(api, namespace, {"Engine": reconcile}) as operator:
        await operator.settled()
        operator.controller.queue.add(Key("Engine", namespace, "e"))
        await operator.settled()
    (event,) = server.request("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
    assert (event["type"], event["reason"], event["note"]) == ("Warning", "Failed", "the reason why")
    assert event["regarding"]["name"] == "e"
    assert event["series"]["count"] == len(rounds) >= 2
    assert "the reason why" in server.kubectl("describe", "engine.kubothek.io", "e", "-n", namespace)


async def test_requeue_after_triggers_reconcile(api: Api, server: ApiServer, namespace: str) -> None:
    rounds = []

    def reconcile(resource: Resource, context: Context) -> Outcome:
        rounds.append(context.now)
        return Outcome(ready_status(1), requeue_after=timedelta(milliseconds=20))

    create(server, "Engine", namespace, "e", {})
    async with bench(api, namespace, {"Engine": reconcile}) as operator:
        await operator.until(lambda: len(rounds) >= 4)


async def test_mount_failure_reason_is_read_from_events(api: Api, server: ApiServer, namespace: str) -> None:
    kubelet = Kubelet(server, namespace)
    create(server, "ObjectStore", namespace, "s", STORE)
    later = datetime.now(UTC) + timedelta(minutes=5)
    async with bench(api, namespace, {"ObjectStore": launching()}, clock=lambda: later) as operator:
        await operator.settled()
        pod = kubelet.pods()["s-1"]
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "why", "namespace": namespace},
            "involvedObject": {"kind": "Pod", "namespace": namespace, "name": "s-1", "uid": pod["metadata"]["uid"]},
            "type": "Warning",
            "reason": "FailedMount",
            "message": 'secret "credentials" not found',
            "lastTimestamp": "2026-11-21T12:00:00Z",
        }
        server.request("POST", f"/api/v1/namespaces/{namespace}/events", event)
        kubelet.show(
            "s-1",
            {"phase": "Pending", "containerStatuses": [_container({"waiting": {"reason": "ContainerCreating"}})]},
        )
        await operator.settled()
        assert message(server, namespace, "s") == "Pending VolumeMountFailed"


@pytest.mark.parametrize("fault", Fault)
async def test_reconcile_with_any_single_failed_call_converges(
    api: Api, server: ApiServer, namespace: str, proxy: FaultProxy, fault: Fault
) -> None:
    """Launches one job per failing position; each in an object of its own, over the calls that the first one made."""
    create(server, "ObjectStore", namespace, "s", STORE)
    async with bench(api, namespace, {"ObjectStore": launching()}, workers=1) as operator:
        await operator.settled()
        positions = sum(1 for call in proxy.calls if namespace in call.path)
        assert positions >= 8
        await operator.settled()
        for position in range(positions):
            name = f"p{position}"
            proxy.calls.clear()
            proxy.decide = failing_at(position, fault)
            create(server, "ObjectStore", namespace, name, STORE)
            await operator.until(partial(shows, server, namespace, name, "Pending"))
            assert len([pod for pod in Kubelet(server, namespace).pods() if pod.startswith(f"{name}-")]) == 1


def _container(state: dict[str, Any]) -> dict[str, Any]:
    return {"name": "driver", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": state}


async def test_deleted_run_is_removed_from_api_server_and_cache(
    api: Api, server: ApiServer, namespace: str, proxy: FaultProxy
) -> None:
    def go(resource: Resource, _: Context) -> Outcome:
        return Outcome(status=ready_status(resource.metadata.generation), actions=(DeleteRun(resource),))

    create(server, "Engine", namespace, "e", {})
    async with bench(api, namespace, {"Engine": go}) as operator:
        await operator.settled()
        assert operator.controller.state.resources["Engine"].get(namespace, "e") is None
    assert server.request("GET", resource_path("Engine", namespace))["items"] == []
    assert [call.method for call in proxy.writes] == ["PATCH", "DELETE"]


async def test_pod_past_start_deadline_is_stopped(api: Api, server: ApiServer, namespace: str) -> None:
    """Nothing happens to the pod; it is looked at again when its deadline is over."""
    kubelet, views = Kubelet(server, namespace), []

    def reconcile(resource: Resource, context: Context) -> Outcome:
        view = context.job(resource.namespace, "s-1")
        views.append(view)
        if view is not None and view.lingers:
            stop = CancelJob(resource.namespace, "s-1")
            return Outcome(status=ready_status(resource.metadata.generation), actions=(stop,))
        engine = parse(manifest("Engine", namespace, "e", {"deadlines": {"schedule": "1h"}}))
        assert isinstance(engine, Engine)
        done = any(seen is not None and seen.lingers for seen in views)
        return Outcome(status={}) if done else launching(engine)(resource, context)

    create(server, "ObjectStore", namespace, "s", STORE)
    late = timedelta(0)
    async with bench(api, namespace, {"ObjectStore": reconcile}, clock=lambda: datetime.now(UTC) + late) as operator:
        await operator.settled()
        assert set(kubelet.pods()) == {"s-1"}
        late = timedelta(hours=2)
        operator.controller.queue.add(Key("ObjectStore", namespace, "s"))
        await operator.settled()
        assert kubelet.pods() == {}
    assert any(view is not None and view.reason == "ScheduleDeadlineExceeded" for view in views)
