"""Pods as a real cluster shows them when they do not start, or do not end by themselves: tests/golden/pods.

    python -m tests.e2e.recording [CASE…]

makes each case in a namespace of its own and keeps the last state of each pod before it was gone (with its Warning
events), or the API server's refusal. What the node would have to die for happens on a *ghost*: a Node object without a
kubelet, which the control plane takes for a node that fell silent.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any

from tests.e2e.kubectl import Kubectl, KubectlError, Manifest, eventually
from tests.testcluster import ensure_cluster
from tests.testcluster.base import Cluster

GOLDEN = Path(__file__).parents[1] / "golden/pods"
NAMESPACE = "kubothek-recording"
IMAGE = "docker.io/kubothek/kubothek:dev"
GHOST = "ghost"
REFUSALS = "refusals"
TAINT = "kubothek.io/ghost"
SETTLED = 30.0
"""Seconds without news of a pod after which it is as it stays."""


def pod(name: str, script: str = "sleep 600", **spec: Any) -> Manifest:
    """A pod with a driver that does nothing but ``script``; ``container`` is merged into its container."""
    container = {
        "name": "driver",
        "image": IMAGE,
        "command": ["/usr/bin/tini", "--", "/bin/sh", "-c", script],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **spec.pop("container", {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"kubothek.io/attempt": "1", "kubothek.io/job": name}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2, "containers": [container], **spec},
    }


def on_ghost(name: str, **spec: Any) -> Manifest:
    """A pod that only the ghost takes."""
    toleration = {"key": TAINT, "operator": "Exists"}
    return pod(name, nodeSelector={"kubernetes.io/hostname": GHOST}, tolerations=[toleration], **spec)


BIG: dict[str, Any] = {"container": {"resources": {"requests": {"cpu": "1"}}}}
EATER = "python -c 'x = bytearray(1 << 30)'"
PODS: dict[str, Manifest] = {
    "oom-killed": pod("oom-killed", EATER, container={"resources": {"limits": {"memory": "64Mi"}}}),
    "evicted-by-the-node": pod(
        "evicted-by-the-node",
        "head -c 64M /dev/zero > /scratch/x; sleep 600",
        container={"volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]},
        volumes=[{"name": "scratch", "emptyDir": {"sizeLimit": "8Mi"}}],
        securityContext={"runAsUser": 0},
    ),
    "evicted-by-the-api": pod("evicted-by-the-api"),
    "deleted": pod("deleted"),
    "killed": pod("killed", "sleep 2; kill -9 $$$$"),  # by Kubernetes' rules one $$
    "deadline": pod("deadline", activeDeadlineSeconds=5),
    "no-such-command": pod("no-such-command", container={"command": ["/no/such/command"]}),
    "image-pull": pod("image-pull", container={"image": "registry.invalid/nobody/nothing:1"}),
    "image-name": pod("image-name", container={"image": "Not A Name"}),
    "image-never": pod("image-never", container={"image": "docker.io/kubothek/none:1", "imagePullPolicy": "Never"}),
    "config-error": pod("config-error", container={"envFrom": [{"secretRef": {"name": "nowhere"}}]}),
    "volume": pod(
        "volume",
        container={"volumeMounts": [{"name": "keys", "mountPath": "/keys"}]},
        volumes=[{"name": "keys", "secret": {"secretName": "nowhere"}}],
    ),
    "unschedulable": pod("unschedulable", container={"resources": {"requests": {"cpu": "999"}}}),
    "gated": pod("gated", schedulingGates=[{"name": "kubothek.io/recording"}]),
    "refused-by-the-kubelet": pod(
        "refused-by-the-kubelet", nodeName="", container={"resources": {"requests": {"cpu": "999"}}}
    ),
    "preempted": on_ghost("preempted", **BIG),
    "node-unreachable": on_ghost("node-unreachable"),
    "node-deleted": on_ghost("node-deleted"),
}
"""Each case by the name of its pod."""


class Recorder:
    """Makes the cases in a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.kubectl = Kubectl(cluster.kubectl, cluster.kubeconfig, NAMESPACE)
        self.node = json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"][0]["metadata"]["name"]

    def record(self, case: str) -> dict[str, Any]:
        """What became of the pod of a case."""
        manifest = json.loads(json.dumps(PODS[case]))
        if manifest["spec"].get("nodeName") == "":
            manifest["spec"]["nodeName"] = self.node
        with self.followed(case) as states:
            self.kubectl.apply(manifest)
            provoke = PROVOKE.get(case)
            seen = provoke(self) if provoke else None
            self._settle(states)
            events = self.kubectl.items("events.events.k8s.io")
        self.kubectl.delete("pod", case, force=True)
        about = [event for event in events if event["regarding"]["name"] == case and event["type"] == "Warning"]
        return {"pod": _reduced(seen or states[-1]), "events": [_told(event) for event in about]}

    @contextmanager
    def followed(self, name: str) -> Iterator[list[Manifest]]:
        """All states of a pod, as a watch tells them."""
        command: list[str | Path] = [
            self.kubectl.binary,
            "--kubeconfig",
            self.kubectl.kubeconfig,
            "-n",
            NAMESPACE,
            "get",
            "pods",
        ]
        flags = ["--field-selector", f"metadata.name={name}", "--watch", "-o", "json"]
        states: list[Manifest] = []
        with subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, text=True) as watch:
            reader = Thread(target=_read, args=(watch.stdout, states), daemon=True)
            reader.start()
            try:
                yield states
            finally:
                watch.terminate()

    def wait_for_phase(self, name: str, phase: str) -> None:
        """Wait until the pod is in this phase."""
        eventually(lambda: self.kubectl.get("pod", name)["status"].get("phase") == phase, f"{name} to be {phase}")

    @contextmanager
    def ghost(self) -> Iterator[None]:
        """A node of which nothing is heard any more; the control plane has found it ready before."""
        taint = {"key": TAINT, "effect": "NoSchedule"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": GHOST}, "spec": {"taints": [taint]}}
        node["metadata"]["labels"] = {"kubernetes.io/hostname": GHOST}  # type: ignore[index]
        self.kubectl.apply(node)
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "it was"}
        capacity = {"cpu": "1", "memory": "4Gi", "pods": "10"}
        status = {"conditions": [ready], "capacity": capacity, "allocatable": capacity}
        patch = json.dumps({"status": status})
        self.kubectl("patch", "node", GHOST, "--subresource=status", "--type=merge", "-p", patch)
        try:
            yield
        finally:
            self.kubectl.delete("node", GHOST)

    def refusals(self) -> dict[str, Any]:
        """What the API server says to pods that it does not take."""
        self.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=baseline", "--overwrite")
        found = {}
        for case, (around, manifest) in REFUSED.items():
            if around:
                self.kubectl.apply(*around)
                time.sleep(2)  # until the API server's own caches have it
            try:
                self.kubectl("create", "-f", "-", "-v=8", stdin=json.dumps(manifest))
            except KubectlError as refusal:
                body = next(line for line in str(refusal).splitlines() if '"kind":"Status"' in line)
                found[case] = json.loads(body[body.index("{") :])
            finally:
                self.kubectl.delete("pod", manifest["metadata"]["name"], force=True)
                for made in around:
                    self.kubectl.delete(made["kind"], made["metadata"]["name"])
        return found

    def _settle(self, states: list[Manifest]) -> None:
        seen, since = -1, time.monotonic()
        while time.monotonic() - since < SETTLED:
            if len(states) != seen:
                seen, since = len(states), time.monotonic()
            time.sleep(0.5)


def _read(stream: Any, states: list[Manifest]) -> None:
    """A stream of JSON documents, one after the other."""
    decoder, text = json.JSONDecoder(), ""
    for line in stream:
        text += line
        if line == "}\n":
            states.append(decoder.decode(text))
            text = ""


def _reduced(found: Manifest) -> Manifest:
    """What the operator's cache keeps of a pod, more or less."""
    metadata, spec = found["metadata"], found["spec"]
    kept = ("name", "namespace", "uid", "labels", "creationTimestamp", "deletionTimestamp")
    return {
        "metadata": {field: metadata[field] for field in kept if field in metadata},
        "spec": {field: spec[field] for field in ("nodeName", "activeDeadlineSeconds") if field in spec},
        "status": found["status"],
    }


def _told(event: Manifest) -> dict[str, Any]:
    return {field: event[field] for field in ("reason", "note", "type", "eventTime") if event.get(field)}


def _evict(recorder: Recorder) -> None:
    recorder.wait_for_phase("evicted-by-the-api", "Running")
    recorder.kubectl.evict("evicted-by-the-api")


def _delete(recorder: Recorder) -> None:
    recorder.wait_for_phase("deleted", "Running")
    recorder.kubectl.delete("pod", "deleted", wait=False)


def _run_on_ghost(recorder: Recorder, name: str) -> None:
    """The ghost's last word: it runs the pod."""
    eventually(lambda: recorder.kubectl.get("pod", name)["spec"].get("nodeName") == GHOST, f"{name} to have its node")
    state = {"running": {"startedAt": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}}
    container = {"name": "driver", "image": IMAGE, "imageID": "", "ready": True, "restartCount": 0, "state": state}
    patch = json.dumps({"status": {"phase": "Running", "containerStatuses": [container]}})
    recorder.kubectl("patch", "pod", name, "--subresource=status", "--type=merge", "-p", patch)


def _preempt(recorder: Recorder) -> Manifest:
    with recorder.ghost():
        _run_on_ghost(recorder, "preempted")
        above = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
        recorder.kubectl.apply({**above, "metadata": {"name": NAMESPACE}})
        try:
            recorder.kubectl.apply(on_ghost("important", priorityClassName=NAMESPACE, **BIG))
            return eventually(lambda: _going(recorder, "preempted"), "the preemption")
        finally:  # they outlive the namespace, or keep the node
            recorder.kubectl.delete("pod", "important", force=True)
            recorder.kubectl.delete("priorityclass", NAMESPACE)


def _fall_silent(recorder: Recorder) -> Manifest:
    with recorder.ghost():
        _run_on_ghost(recorder, "node-unreachable")
        # As the node controller's own, without five minutes of patience.
        recorder.kubectl("taint", "node", GHOST, "kubothek.io/silent:NoExecute")
        return eventually(lambda: _going(recorder, "node-unreachable"), "the taint's effect")


def _delete_node(recorder: Recorder) -> None:
    with recorder.ghost():
        _run_on_ghost(recorder, "node-deleted")
    eventually(lambda: recorder.kubectl.find("pod", "node-deleted") is None, "the collection of the pod")


def _going(recorder: Recorder, name: str) -> Manifest | None:
    found = recorder.kubectl.get("pod", name)
    return found if found["metadata"].get("deletionTimestamp") else None


PROVOKE: dict[str, Callable[[Recorder], Manifest | None]] = {
    "evicted-by-the-api": _evict,
    "deleted": _delete,
    "preempted": _preempt,
    "node-unreachable": _fall_silent,
    "node-deleted": _delete_node,
}
"""What happens to pods that would run for ever; the state to keep, if it is not the last."""

QUOTA = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
RANGE = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "small"},
    "spec": {"limits": [{"type": "Container", "max": {"cpu": "1m"}}]},
}
REFUSED: dict[str, tuple[list[Manifest], Manifest]] = {
    "quota": ([QUOTA], pod("over-quota")),
    "limit-range": ([RANGE], pod("too-large", **BIG)),
    "service-account": ([], pod("nobody", serviceAccountName="nobody")),
    "priority-class": ([], pod("unimportant", priorityClassName="no-such-class")),
    "invalid": ([], pod("invalid", restartPolicy="Sometimes")),
    "pod-security": ([], pod("insecure", hostNetwork=True)),
}


def main(cases: list[str]) -> None:
    """Record these cases, or all."""
    recorder = Recorder(ensure_cluster())
    recorder.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    GOLDEN.mkdir(parents=True, exist_ok=True)
    try:
        for case in cases or [*PODS, REFUSALS]:
            recorded = recorder.refusals() if case == REFUSALS else recorder.record(case)
            (GOLDEN / f"{case}.json").write_text(json.dumps(recorded, indent=1) + "\n")
            print(case, flush=True)
    finally:
        recorder.kubectl.delete("namespace", NAMESPACE, wait=False)


if __name__ == "__main__":
    main(sys.argv[1:])
