"""Drivers that wait: given a job over a real API server, lost with it, drained, and fought over by two operators."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from kubothek.api.commit import Commit
from kubothek.api.engine import Engine
from kubothek.api.jobs import Claim, CommitJob, DatasetRef, Ended, JobResult, QueryJob, StoreRef, signed
from kubothek.api.kinds import parse
from kubothek.cluster import names
from kubothek.cluster.api import Api, ApiUnavailable
from kubothek.cluster.cache.objects import trimmed_pod
from kubothek.cluster.cache.state import ClusterState
from kubothek.cluster.cache.warm_pools import Pools
from kubothek.cluster.config import OperatorConfig
from kubothek.cluster.launch import Launcher, Refused
from kubothek.cluster.pod_status import outcome
from kubothek.cluster.pods import job_pod, job_secret, warm_pods
from kubothek.controller.context import FailureClass, JobPhase, LaunchJob, Settings, StartDriver
from kubothek.controller.reconcilers import RECONCILERS
from kubothek.controller.scheduling.warm_pool import key_of
from tests.cluster import podshapes
from tests.cluster.apiserver import ApiServer
from tests.cluster.harness import Kubelet, bench, manifest, resource_path
from tests.cluster.podshapes import exited, running
from tests.cluster.proxy import Call, Fault, FaultProxy
from tests.cluster.test_operator import COMMIT, result_of, status

MERGE = "application/merge-patch+json"
WARM = {"warm": {"min": 1, "max": 2}}


class Node(Kubelet):
    """A kubelet, and what drivers do of themselves."""

    def annotate(self, name: str, **annotations: str) -> None:
        """A driver writes on its own pod."""
        given = {f"kubothek.io/{key}": value for key, value in annotations.items()}
        self._server.request("PATCH", f"{self._pods}/{name}", {"metadata": {"annotations": given}}, MERGE)

    def get_ready(self, name: str) -> None:
        """A driver has started, and waits for a job."""
        self.show(name, {**status("Running", running()), "startTime": "2026-11-22T12:00:00Z"})
        self.annotate(name, ready="true")

    def succeed(self, name: str) -> None:
        """A driver has done its job, and its process has not ended yet."""
        job = json.loads(self.pods()[name]["metadata"]["annotations"][names.JOB_SPEC])
        ended = Ended(finished="2026-11-22T12:01:00Z", result=result_of(job))
        text = ended.model_dump_json(exclude_defaults=True)
        self.annotate(name, result=signed.sign(text, self.private_of(name)["result-key"]))

    def private_of(self, name: str) -> dict[str, bytes]:
        """The Secret that a driver mounts."""
        pod = self.pods()[name]
        path = f"/api/v1/namespaces/{self._namespace}/secrets/{job_secret.secret_of(pod)}"
        secret = self._server.request("GET", path)
        assert secret["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"], "it goes with the pod"
        return {key: base64.b64decode(value) for key, value in secret["data"].items()}

    def waiting(self) -> list[str]:
        return [name for name, pod in self.pods().items() if names.waits(pod)]

    def taken(self, job: str) -> list[str]:
        """The drivers that were given a job."""
        return [name for name, pod in self.pods().items() if names.job_of(pod) == job]


@asynccontextmanager
async def drivers_that_get_ready(node: Node) -> AsyncIterator[None]:
    """All drivers start; jobs in pods of their own succeed, and the others are the test's to play."""

    async def play() -> None:
        while True:
            for name, pod in node.pods().items():
                phase, labels = pod["status"].get("phase"), pod["metadata"]["labels"]
                if names.WARM in labels:
                    if phase == "Pending":
                        node.get_ready(name)
                elif phase == "Pending":
                    node.show(name, status("Succeeded", exited(0, result_of(node.job(name)).model_dump_json())))
            await asyncio.sleep(0.03)

    task = asyncio.create_task(play())
    try:
        yield
    finally:
        task.cancel()


def create(server: ApiServer, kind: str, namespace: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return dict(server.request("POST", resource_path(kind, namespace), manifest(kind, namespace, name, spec)))


@pytest.fixture
def node(server: ApiServer, namespace: str) -> Node:
    create(server, "Engine", namespace, "default", WARM)
    create(server, "ObjectStore", namespace, "lake", {"url": "s3://lake", "interval": "1h"})
    create(server, "Dataset", namespace, "orders", {"storeRef": {"name": "lake"}})
    return Node(server, namespace)


async def test_commit_runs_on_warm_driver(api: Api, server: ApiServer, namespace: str, node: Node) -> None:
    """It is lost with it once, and done by the next; then an edit of the Engine drains, but not what is at work."""

    def commit() -> dict[str, Any]:
        return dict(server.request("GET", resource_path("Commit", namespace, "january")))

    def engine() -> dict[str, Any]:
        return dict(server.request("GET", resource_path("Engine", namespace, "default")))

    async with drivers_that_get_ready(node), bench(api, namespace, RECONCILERS) as operator:
        await operator.until(lambda: engine()["status"].get("warm", {}).get("ready") == 1)
        (first,) = node.waiting()
        pod = node.pods()[first]
        assert pod["metadata"]["ownerReferences"][0]["kind"] == "Engine"
        assert "activeDeadlineSeconds" not in pod["spec"]
        created = create(server, "Commit", namespace, "january", COMMIT)
        await operator.until(lambda: bool(node.taken("january-1")))
        assert node.taken("january-1") == [first]
        pod = node.pods()[first]
        assert pod["metadata"]["ownerReferences"][0]["uid"] == created["metadata"]["uid"]
        assert pod["metadata"]["labels"][names.KIND] == "Commit"
        assert pod["spec"]["activeDeadlineSeconds"] > 4 * 3600, "the time of waiting does not count"
        await operator.until(lambda: len(node.waiting()) >= 1)
        await operator.until(lambda: commit()["status"].get("observedAttempt") == 1)

        node.remove(first)
        await operator.until(lambda: bool(node.taken("january-2")))
        (second,) = node.taken("january-2")
        assert node.pods()[second]["metadata"]["labels"].get(names.WARM), "the next one waited as well"
        assert commit()["status"]["disruptions"] == 1

        await operator.until(lambda: len(node.waiting()) == 2)
        stale = set(node.waiting())
        server.apply(
            resource_path("Engine", namespace, "default"),
            manifest("Engine", namespace, "default", {**WARM, "image": "docker.io/kubothek/kubothek:other"}),
        )
        await operator.until(lambda: not stale & set(node.pods()) and len(node.waiting()) >= 1)
        images = {pod["spec"]["containers"][0]["image"] for name, pod in node.pods().items() if name in node.waiting()}
        assert images == {"docker.io/kubothek/kubothek:other"}
        assert second in node.pods(), "what is at work goes on"

        forged = json.dumps({"finished": "2026-11-22T12:01:00Z", "result": {"outcome": "Succeeded", "reason": "x"}})
        node.annotate(second, result=forged)  # by anybody who may patch pods
        await operator.settled()
        assert not any(c["type"] == "Complete" and c["status"] == "True" for c in commit()["status"]["conditions"])
        template = json.loads(node.pods()[second]["metadata"]["annotations"][names.EXECUTOR_TEMPLATE])
        ((container,), secret) = (template["spec"]["containers"], job_secret.secret_of(node.pods()[second]))
        assert job_secret.executor_variable(secret or "") in container["env"], "executors know the driver's"
        node.succeed(second)
        await operator.until(lambda: any(c["type"] == "Complete" for c in commit()["status"]["conditions"]))
        node.show(second, status("Failed", exited(137)))  # what becomes of the process after that is no matter
        await operator.settled()
        ends = {c["type"]: c["status"] for c in commit()["status"]["conditions"]}
        assert ends["Complete"] == "True"
        assert commit()["status"]["attempt"] == 2
        assert "january-1" not in node.pods()


async def test_operator_restart_during_warm_launch_resumes(
    api: Api, server: ApiServer, namespace: str, node: Node, proxy: FaultProxy
) -> None:
    """It dies when it has chosen a driver, and when that has the job; meanwhile the Engine is edited, the job ends."""

    def commit() -> dict[str, Any]:
        return dict(server.request("GET", resource_path("Commit", namespace, "january")))

    def warm() -> dict[str, int]:
        return dict(server.request("GET", resource_path("Engine", namespace, "default"))["status"].get("warm") or {})

    def is_hand_over(call: Call) -> bool:
        return call.method == "PATCH" and "/pods/" in call.path

    async with drivers_that_get_ready(node):
        async with bench(api, namespace, RECONCILERS) as operator:
            await operator.until(lambda: warm().get("ready") == 1)
            (chosen,) = node.waiting()
            proxy.decide = lambda _, call: Fault.REFUSED if is_hand_over(call) else None
            create(server, "Commit", namespace, "january", COMMIT)
            await operator.until(lambda: any(is_hand_over(call) for call in proxy.calls))
        proxy.decide = lambda position, call: None
        config = server.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/january-1")
        assert warm_pods.driver_of(config) == chosen
        edited = {**WARM, "image": "docker.io/kubothek/kubothek:other"}
        server.apply(resource_path("Engine", namespace, "default"), manifest("Engine", namespace, "default", edited))
        async with bench(api, namespace, RECONCILERS) as operator:
            await operator.until(lambda: bool(node.taken("january-1")))
        (taken,) = node.taken("january-1")
        if taken != "january-1":  # drained before it got the job, the driver has left that to another, or to such a pod
            node.succeed(taken)
        async with bench(api, namespace, RECONCILERS) as operator:
            await operator.until(lambda: any(c["type"] == "Complete" for c in commit()["status"]["conditions"]))
            await operator.until(lambda: chosen not in node.waiting() and bool(node.waiting()))
        status_of = commit()["status"]
        assert (status_of["attempt"], status_of.get("failures", 0), status_of.get("disruptions", 0)) == (1, 0, 0)
        assert node.taken("january-1") == [taken]


# --- one driver, one job -------------------------------------------------------------------------------------------

CONFIG = OperatorConfig(namespaces=(), job_image="docker.io/kubothek/kubothek:dev")
SETTINGS = Settings(cluster_id="test", default_image=CONFIG.job_image)
LAKE = StoreRef(name="lake", url="s3://lake")


def commit_of(server: ApiServer, namespace: str, name: str, engine: Engine) -> LaunchJob:
    """The launch of a Commit's job."""
    owner = parse(create(server, "Commit", namespace, name, COMMIT))
    assert isinstance(owner, Commit)
    dataset = DatasetRef(uuid="orders", claim=Claim(owner="c/n/orders", incarnation="u"))
    job = CommitJob(
        job=f"{name}-1", uid=owner.metadata.uid, store=LAKE, dataset=dataset, commit_id=owner.id, digest="d"
    )
    return LaunchJob(job, owner, engine)


@pytest.fixture
def engine(server: ApiServer, namespace: str) -> Engine:
    found = parse(create(server, "Engine", namespace, "default", WARM))
    assert isinstance(found, Engine)
    return found


async def waiting(launcher: Launcher, node: Node, engine: Engine, *driver_names: str) -> None:
    """Start these drivers, and let them get ready."""
    like = LaunchJob(QueryJob(job="default", uid=engine.metadata.uid, store=LAKE), engine, engine)
    key = key_of(like, SETTINGS)
    assert key is not None
    for name in driver_names:
        await launcher.start_driver(StartDriver(name, key, like))
        node.get_ready(name)


@pytest.mark.parametrize(
    ("ready", "since"),
    [(None, "12:00:00"), ("2026-11-22T12:01:30+00:00", "12:01:30"), ("true", "12:00:00"), ("2026-11-22", "12:00:00")],
)
def test_driver_is_idle_from_ready_time(ready: str | None, since: str) -> None:
    owner = {"kind": "Engine", "uid": "u", "controller": True, "apiVersion": "kubothek.io/v1alpha1", "name": "default"}
    meta = {
        "name": "default-warm-1",
        "namespace": "team",
        "labels": {names.WARM: "key"},
        "annotations": {} if ready is None else {names.READY: ready},
        "creationTimestamp": "2026-11-22T12:00:00Z",
        "ownerReferences": [owner],
    }
    pools = Pools()
    pools.follow({"metadata": meta, "status": {"phase": "Running"}})
    (driver,) = pools.warm_pool("u").drivers
    assert driver.since == datetime.fromisoformat(f"2026-11-22T{since}+00:00")
    assert driver.phase == ("Starting" if ready is None else "Ready")


async def test_two_operators_assign_one_job_to_one_warm_driver(
    api: Api, server: ApiServer, namespace: str, engine: Engine
) -> None:
    node, launchers = Node(server, namespace), [Launcher(api, CONFIG), Launcher(api, CONFIG)]
    for round_ in range(4):
        drivers = [f"d-{round_}-0", f"d-{round_}-1"]
        await waiting(launchers[0], node, engine, *drivers)
        job = commit_of(server, namespace, f"c-{round_}", engine)
        # Each prefers another one.
        both = await asyncio.gather(launchers[0].launch(job, drivers), launchers[1].launch(job, drivers[::-1]))
        taken = [None if isinstance(each, Refused) else each["metadata"]["name"] for each in both]
        assert taken[0] == taken[1]
        assert node.taken(job.job.job) == taken[:1]
        # A repeated launch, after a restart, finds it.
        again = await Launcher(api, CONFIG).launch(job, ())
        assert not isinstance(again, Refused)
        assert again["metadata"]["name"] == taken[0]


async def test_job_network_policy_is_created_before_first_job_of_namespace(
    api: Api, server: ApiServer, namespace: str, engine: Engine
) -> None:
    config = replace(CONFIG, job_network_policy=True)
    job = commit_of(server, namespace, "c", engine)
    for launcher in (Launcher(api, config), Launcher(api, config)):  # found by the second one
        await launcher.launch(job)
        await launcher.cancel(namespace, job.job.job, job.owner.metadata.uid)
    path = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
    (policy,) = server.request("GET", path)["items"]
    pod = job_pod.driver_pod(job, config)
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()


async def test_warm_launch_interrupted_before_secret_is_completed(
    api: Api, server: ApiServer, namespace: str, engine: Engine, proxy: FaultProxy
) -> None:
    node, job = Node(server, namespace), commit_of(server, namespace, "c", engine)
    secrets = f"/api/v1/namespaces/{namespace}/secrets"
    proxy.decide = lambda _, call: Fault.REFUSED if call == Call("POST", secrets) else None
    with pytest.raises(ApiUnavailable):
        await Launcher(api, CONFIG).launch(job)
    assert job.job.job in node.pods()
    proxy.decide = lambda at, call: None
    for _ in range(2):
        await Launcher(api, CONFIG).launch(job)
        found = node.private_of(job.job.job)
        assert set(found) == {"rpc-secret", "executor-rpc-secret", "result-key"}
        assert base64.b64decode(found["executor-rpc-secret"]) == found["rpc-secret"]


async def test_warm_driver_runs_one_of_three_jobs_and_others_get_own_pods(
    api: Api, server: ApiServer, namespace: str, engine: Engine
) -> None:
    node, launcher = Node(server, namespace), Launcher(api, CONFIG)
    await waiting(launcher, node, engine, "d-0")
    jobs = [commit_of(server, namespace, f"c-{number}", engine) for number in range(3)]
    got = await asyncio.gather(*(launcher.launch(job, ["d-0"]) for job in jobs))
    found = [each["metadata"]["name"] for each in got if not isinstance(each, Refused)]
    assert len(set(found)) == 3
    assert found.count("d-0") == 1
    for job, name in zip(jobs, found, strict=True):
        assert name in ("d-0", job.job.job)
        await launcher.cancel(namespace, job.job.job, job.owner.metadata.uid)
    left = {name for name, pod in node.pods().items() if "deletionTimestamp" not in pod["metadata"]}
    assert left == set(), "each is cancelled by the name of its job"


async def test_warm_driver_with_job_is_not_stopped(api: Api, server: ApiServer, namespace: str, engine: Engine) -> None:
    node, launcher = Node(server, namespace), Launcher(api, CONFIG)
    await waiting(launcher, node, engine, "d-0")
    known = node.pods()["d-0"]
    job = commit_of(server, namespace, "c", engine)
    await launcher.launch(job, ["d-0"])
    await launcher.stop_driver(namespace, known)
    assert node.taken("c-1") == ["d-0"]


async def test_warm_driver_under_deletion_gets_no_job(
    api: Api, server: ApiServer, namespace: str, engine: Engine, proxy: FaultProxy
) -> None:
    """Also if that begins after we have looked: such a job would go down with it."""
    node, launcher = Node(server, namespace), Launcher(api, CONFIG)
    await waiting(launcher, node, engine, "d-0", "d-1")
    first = f"/api/v1/namespaces/{namespace}/pods/d-0"
    held = {"metadata": {"finalizers": ["example.com/ends-in-its-time"]}}  # as a node does, which this one has not
    server.request("PATCH", first, held, MERGE)

    def drain(_: int, call: Call) -> None:
        if call == Call("PATCH", first):
            server.request("DELETE", first)

    proxy.decide = drain
    got = await launcher.launch(commit_of(server, namespace, "c", engine), ["d-0", "d-1"])
    assert "deletionTimestamp" in node.pods()["d-0"]["metadata"], "that was the moment"
    assert not isinstance(got, Refused)
    assert got["metadata"]["name"] == "d-1"
    assert node.taken("c-1") == ["d-1"]
    server.request("PATCH", first, {"metadata": {"finalizers": None}}, MERGE)


@pytest.mark.parametrize("fault", list(Fault))
async def test_warm_launch_with_any_single_failed_call_uses_one_driver(
    api: Api, server: ApiServer, namespace: str, engine: Engine, proxy: FaultProxy, fault: Fault
) -> None:
    """Tried again, with the other driver offered first, it is given to one driver."""
    node, launcher = Node(server, namespace), Launcher(api, CONFIG)
    for position in range(5):
        drivers = [f"d-{position}-0", f"d-{position}-1"]
        await waiting(launcher, node, engine, *drivers)
        job, begun = commit_of(server, namespace, f"c-{position}", engine), len(proxy.calls)
        proxy.decide = lambda at, _, wanted=begun + position: fault if at == wanted else None  # type: ignore[misc]
        try:
            await launcher.launch(job, drivers)
        except ApiUnavailable:
            proxy.decide = lambda at, call: None
            await launcher.launch(job, drivers[::-1])
        assert len(proxy.calls) > begun + position, "there was such a call"
        proxy.decide = lambda at, call: None
        assert len(node.taken(job.job.job)) == 1
        assert len(set(drivers) & set(node.waiting())) == 1


# --- what it looks like --------------------------------------------------------------------------------------------


def test_warm_job_above_annotation_limit_gets_own_pod() -> None:
    small = {"data": {"job.json": "x" * 1000, "executor.json": "y" * 1000}}
    large = {"data": {"job.json": "x" * warm_pods.SPEC_LIMIT, "executor.json": "y"}}
    assert warm_pods.fits(small)
    assert not warm_pods.fits(large)


def test_result_without_job_signature_is_ignored() -> None:
    (key, public), (other, _) = signed.new_key(), signed.new_key()
    result = JobResult(outcome="Succeeded", reason="Succeeded", message="version 999")
    text = Ended(finished="2026-11-21T12:03:00Z", result=result).model_dump_json()
    theirs = [text, signed.sign(text, other), signed.sign(text, key)[1:], f".{text}", "é.{}", "", "AAAA.{}"]
    shown = [podshapes.pod(phase="Running", state=running(), annotations={names.RESULT: each}) for each in theirs]
    shown += [
        podshapes.pod(phase="Running", state=running(), annotations={names.RESULT: each}, result_key=public)
        for each in theirs
    ]
    shown.append(
        podshapes.pod(phase="Running", state=running(), annotations={names.RESULT: theirs[0]}, result_key="no key")
    )
    assert [outcome.end_of(trimmed_pod(each)) for each in shown] == [None] * len(shown)


def test_result_before_container_end_is_accepted_for_success_only() -> None:
    key, public = signed.new_key()

    def view(result: JobResult, **more: Any) -> Any:
        text = signed.sign(Ended(finished="2026-11-21T12:03:00Z", result=result).model_dump_json(), key)
        annotations = {names.RESULT: text}
        shown = podshapes.pod(phase="Running", state=running(), annotations=annotations, result_key=public, **more)
        return outcome.job_view(trimmed_pod(shown), datetime(2026, 11, 21, 12, 4, tzinfo=UTC))

    done = view(JobResult(outcome="Succeeded", reason="Succeeded", message=""))
    assert (done.phase, done.since) == (JobPhase.SUCCEEDED, datetime(2026, 11, 21, 12, 3, tzinfo=UTC))
    assert view(JobResult(outcome="Failed", reason="Broken", message="")).phase is JobPhase.RUNNING
    junk = podshapes.pod(phase="Running", state=running(), annotations={names.RESULT: "{"})
    assert outcome.end_of(junk) is None
    lost = podshapes.pod(phase="Running", state=running(), annotations={names.TAKES: "c-1"}, deleted=True)
    gone = outcome.lost_view(lost)
    assert (gone.name, gone.failure) == ("c-1", FailureClass.INFRASTRUCTURE)


def test_warm_job_result_is_read_once() -> None:
    state, now = ClusterState(), datetime(2026, 11, 21, 12, 6, tzinfo=UTC)
    state.put_pod(podshapes.pod(phase="Running", state=exited(1, "lost"), annotations={names.TAKES: "c-1"}, owner="u"))
    view = state.job_view("lake", "c-1", now)
    assert view is not None
    assert (view.name, view.phase) == ("c-1", JobPhase.FAILED)
    assert state.job_view("lake", "c-1", now) is view, "what ended is not read again in each round"


def test_warm_driver_pod_equals_job_pod_without_job(server: ApiServer, engine: Engine) -> None:
    spec = engine.spec.model_copy(update={"spark_conf": {"spark.sql.shuffle.partitions": "4"}})
    assert spec.warm is not None
    spec = spec.model_copy(update={"warm": spec.warm.model_copy(update={"spark_up_to": "256Mi"})})
    hot = engine.model_copy(update={"spec": spec})
    like = LaunchJob(QueryJob(job="default", uid="u", store=LAKE), hot, hot, secrets={"lake": "keys"})
    waits = warm_pods.warm_pod(StartDriver("default-warm-1", "key", like), CONFIG)
    alone = job_pod.driver_pod(like, CONFIG)
    (ours,), (theirs,) = waits["spec"]["containers"], alone["spec"]["containers"]
    assert ours["resources"] == theirs["resources"]
    assert ours["securityContext"] == theirs["securityContext"]
    assert [v["name"] for v in waits["spec"]["volumes"] if v["name"] != job_secret.VOLUME] == [
        v["name"] for v in alone["spec"]["volumes"] if v["name"] != "job"
    ]
    assert job_secret.secret_of(waits) is not None, "it may be given a job that starts Spark"
    assert "automountServiceAccountToken" not in waits["spec"]
    env = {each["name"]: each.get("value") for each in ours["env"]}
    assert "KUBOTHEK_EXECUTOR_TEMPLATE" not in env
    assert env["KUBOTHEK_WARM_SPARK_UP_TO"] == str(256 << 20)
    assert json.loads(env["KUBOTHEK_WARM_SPARK"] or "")["spark.sql.shuffle.partitions"] == "4"
    assert names.waits(waits)
    assert waits["metadata"]["labels"][names.JOB] == "default-warm-1", "the operator watches what has this label"
