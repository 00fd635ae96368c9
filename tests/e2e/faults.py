"""What strikes a :class:`~tests.e2e.chaos.Stage`. Each returns when it is over; what follows is recovery.

``OWN``     harms nobody beyond the stage
``SHARED``  parts of the cluster that everybody needs
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from tests.e2e import clocks
from tests.e2e.chaos import HEAD, STEP, Stage
from tests.e2e.kubectl import KubectlError, eventually
from tests.e2e.operators import CONTAINER, signal_processes
from tests.faultproxy import LostResponse, Reset

DRIVER, EXECUTOR = "driver", "spark-kubernetes-executor"
HOUR = 3600
HOG = "import os; f = os.memfd_create('hog'); [os.write(f, bytes(1 << 20)) for _ in range(1 << 14)]"
"""Fills the memory of a container with what belongs to none of its processes, so that the kernel takes the largest."""


def operator_killed(stage: Stage) -> None:
    """Of two the one that works, without a word: its second life goes on, or the other one follows."""
    stage.operator.kill(stage.operator.leader())


def operator_frozen(stage: Stage) -> None:
    """The one that works, until the other one has followed; then it goes on, and must find out."""
    operator, before = stage.operator, stage.operator.leader()
    restarts = operator.restarts(before)
    with operator.frozen(before):
        eventually(lambda: operator.leader() != before, "the other operator to follow")
    stage.commit("plain")
    stage.apply()
    stage.settle()
    assert operator.restarts(before) == restarts, "to lose the Lease is no failure"


def all_operators_killed(stage: Stage) -> None:
    for pod in stage.operator.pods():
        stage.operator.kill(pod)


def operator_alone_killed(stage: Stage) -> None:
    """There is one only, and its second life finds what its first one has left."""
    stage.operator.scale(1)
    stage.operator.kill(stage.operator.leader())
    stage.operator.scale(2)


def driver_killed(stage: Stage) -> None:
    """Right before it swaps the head."""
    with stage.held("parts") as pod:
        signal_processes(stage.place.kubectl, pod, DRIVER, "KILL")
        _await_end(stage, pod)
    stage.expect(pod, failures=1, reason="Killed")


def driver_evicted(stage: Stage) -> None:
    with stage.held("ledger") as pod:
        stage.place.kubectl.evict(pod)
        _await_end(stage, pod)
    stage.expect(pod, disruptions=1, reason="Disrupted")


def driver_out_of_memory(stage: Stage) -> None:
    with stage.held("plain") as pod:
        with suppress(KubectlError):  # it may die of it as well
            stage.place.kubectl("exec", pod, "-c", DRIVER, "--", "python", "-c", HOG)
        _await_end(stage, pod)
    stage.expect(pod, failures=1, reason="OutOfMemory")


def executor_killed(stage: Stage) -> None:
    """Spark makes another one, and the job goes on."""
    kubectl = stage.place.kubectl
    name = stage.commit("parts", engineRef={"name": "spark"})
    stage.apply()

    def executor() -> str | None:
        found = kubectl.items("pods", f"kubothek.io/name={name},app.kubernetes.io/component=executor")
        return next((each["metadata"]["name"] for each in found if each["status"]["phase"] == "Running"), None)

    signal_processes(kubectl, eventually(executor, "an executor"), EXECUTOR, "KILL")


def bad_weather(stage: Stage) -> None:
    """Every fifth request is spoiled until all is done."""
    with stage.proxy.bad(0.2):
        stage.settle()


def lost_swaps(stage: Stage) -> None:
    """The connection breaks before the head is swapped, and then after: the job does not know, and must find out."""
    for fault in (Reset(), LostResponse()):
        lost = stage.proxy.inject(fault, method="PUT", path=f"parts{HEAD}", times=2)
        stage.commit("parts")
        stage.apply()
        stage.settle()
        assert lost.arrived.is_set()


def clocks_of_jobs(stage: Stage) -> None:
    """Ten minutes ahead, with a collection, then ten minutes behind."""
    for offset in (STEP, -STEP):
        stage.engine(podTemplate={"driver": clocks.template(DRIVER, offset)})
        for table in ("plain", "ledger"):
            stage.commit(table)
        stage.apply()
        stage.collect()
        stage.settle()
    stage.engine()


def clock_of_the_operator(stage: Stage) -> None:
    """An hour ahead, an hour behind, and right again, while work comes in."""
    for offset in (HOUR, -HOUR, 0):
        for pod in stage.operator.pods():
            clocks.step(stage.operator.kubectl, pod, CONTAINER, offset)
        stage.commit("plain")
        stage.apply()
        stage.settle()


def _await_end(stage: Stage, pod: str) -> None:
    def ended() -> bool:
        found = stage.place.kubectl.find("pod", pod)
        return found is None or found["status"]["phase"] in ("Succeeded", "Failed")

    eventually(ended, f"the end of {pod}")


# --- of the cluster --------------------------------------------------------------------------------------------


def _restarted(component: str) -> Callable[[Stage], None]:
    def strike(stage: Stage) -> None:
        stage.place.cluster.restart(component)

    return strike


def control_plane_stopped(stage: Stage) -> None:
    """Nothing is scheduled and nothing collected for a while; then the Commits that came meanwhile are made."""
    cluster = stage.place.cluster
    stopped = ("kube-controller-manager", "kube-scheduler")
    for component in stopped:
        cluster.stop(component)
    try:
        stage.commit("plain")
        stage.apply()
        time.sleep(5)
    finally:
        for component in stopped:
            cluster.start(component)


def drained(stage: Stage) -> None:
    """The node is cordoned, and all jobs are evicted; then it comes back."""
    kubectl = stage.place.kubectl
    (node,) = (each["metadata"]["name"] for each in kubectl.items("nodes"))
    ours = "kubothek.io/job,kubothek.io/run"
    try:
        with stage.held("parts"):
            kubectl("drain", node, f"--pod-selector={ours}", "--force", "--ignore-daemonsets", "--delete-emptydir-data")
    finally:
        kubectl("uncordon", node)


OWN: dict[str, Callable[[Stage], None]] = {
    "operator killed": operator_killed,
    "operator frozen": operator_frozen,
    "all operators killed": all_operators_killed,
    "the only operator killed": operator_alone_killed,
    "driver killed": driver_killed,
    "driver evicted": driver_evicted,
    "driver out of memory": driver_out_of_memory,
    "executor killed": executor_killed,
    "bad weather at S3": bad_weather,
    "lost swaps": lost_swaps,
    "clocks of jobs": clocks_of_jobs,
    "clock of the operator": clock_of_the_operator,
}
SHARED: dict[str, Callable[[Stage], None]] = {
    "API server restarted": _restarted("kube-apiserver"),
    "etcd restarted": _restarted("etcd"),
    "controllers stopped": control_plane_stopped,
    "kubelet restarted": _restarted("kubelet"),
    "node drained": drained,
}
