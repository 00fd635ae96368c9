"""kubectl as the tests use it: the same binary a user types, with JSON in and out."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

Manifest = dict[str, Any]
T = TypeVar("T")
PATIENCE = 600
"""Seconds for anything that is awaited; most comes within ten, and much later where the machine has much else to do."""


class KubectlError(AssertionError):
    """kubectl ended with an error; the message is its own."""


class Kubectl:
    """One namespace of one cluster."""

    def __init__(self, binary: Path, kubeconfig: Path, namespace: str) -> None:
        self.binary = binary
        self.kubeconfig = kubeconfig
        self.namespace = namespace

    def in_namespace(self, namespace: str) -> Kubectl:
        """The same cluster, another namespace."""
        return Kubectl(self.binary, self.kubeconfig, namespace)

    def __call__(self, *args: str, stdin: str | None = None, timeout: float = PATIENCE) -> str:
        """Run ``kubectl ARGS`` and return what it printed."""
        done = subprocess.run(
            [self.binary, "--kubeconfig", self.kubeconfig, "--namespace", self.namespace, *args],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if done.returncode:
            raise KubectlError(f"kubectl {' '.join(args)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def apply(self, *manifests: Manifest | Path) -> None:
        """Apply manifests (objects or files), all in one call."""
        documents = [
            manifest.read_text() if isinstance(manifest, Path) else yaml.safe_dump(manifest) for manifest in manifests
        ]
        self("apply", "--server-side", "--force-conflicts", "-f", "-", stdin="\n---\n".join(documents))

    def find(self, kind: str, name: str) -> Manifest | None:
        """The object, or None."""
        found = self("get", kind, name, "--ignore-not-found", "-o", "json")
        return json.loads(found) if found.strip() else None

    def get(self, kind: str, name: str) -> Manifest:
        """The object, which must exist."""
        found = self.find(kind, name)
        assert found is not None, f"no {kind}/{name} in {self.namespace}"
        return found

    def wait_for_object(self, kind: str, name: str) -> Manifest:
        """Wait until the object exists."""
        return eventually(lambda: self.find(kind, name), f"{kind}/{name} to exist")

    def items(self, kind: str, selector: str = "") -> list[Manifest]:
        """All objects of a kind, or those that a label selector picks."""
        chosen = ["-l", selector] if selector else []
        return list(json.loads(self("get", kind, *chosen, "-o", "json"))["items"])

    def delete(self, kind: str, *names: str, force: bool = False, wait: bool = True) -> None:
        """Delete objects; ``force`` is ``--force --grace-period=0``."""
        flags = ["--force", "--grace-period=0"] if force else []
        self("delete", kind, *names, "--ignore-not-found", f"--wait={str(wait).lower()}", *flags)

    def kill(self, pod: str) -> None:
        """Delete a pod, and return when none of its processes is left: two seconds, whatever they have to say to it."""
        self("delete", "pod", pod, "--grace-period=1")

    def evict(self, pod: str) -> None:
        """Have a pod go by the API for it, as a drain does."""
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/eviction"
        self("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))

    def wait_for(self, condition: str, *objects: str) -> None:
        """``kubectl wait --for=condition=…``, as a user would; on a timeout the objects and their pods are shown."""
        try:
            self("wait", f"--for=condition={condition}", *objects, f"--timeout={PATIENCE}s", timeout=PATIENCE + 30)
        except KubectlError as failed:
            raise KubectlError(f"{failed}\n{self.situation(*objects)}") from None

    def situation(self, *objects: str) -> str:
        """What a person would look at: the objects, the pods, the last events."""
        parts = [self("get", *objects, "-o", "yaml")] if objects else []
        parts += [self("get", "pods", "-o", "wide"), self("get", "events.events.k8s.io")[-4000:]]
        return "\n".join(parts)

    def condition(self, kind: str, name: str, type_: str) -> Manifest | None:
        """One condition of an object's status, or None."""
        conditions = self.get(kind, name).get("status", {}).get("conditions", [])
        return next((condition for condition in conditions if condition["type"] == type_), None)

    def wait_for_reason(self, kind: str, name: str, reason: str) -> Manifest:
        """Wait until the Ready condition has this reason, and an event has told it; returns the condition."""

        def ready() -> Manifest | None:
            found = self.condition(kind, name, "Ready")
            return found if found and found["reason"] == reason else None

        condition = eventually(ready, f"{kind}/{name} to be {reason}")
        eventually(lambda: reason in self.event_reasons(name), f"an event {reason} about {kind}/{name}")
        return condition

    def event_reasons(self, name: str) -> list[str]:
        """The reasons of the events about the resources of ours with this name."""
        return [
            event["reason"]
            for event in self.items("events.events.k8s.io")
            if event["regarding"]["name"] == name and event["regarding"]["apiVersion"].startswith("kubothek.io/")
        ]


def eventually(look: Callable[[], T | None], what: str, every: float = 1.0) -> T:
    """Ask until there is an answer; fail with ``what`` was awaited."""
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = look()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"waited {PATIENCE} s for {what}"
        time.sleep(every)


def names(manifests: Sequence[Manifest]) -> list[str]:
    """The names of objects."""
    return [manifest["metadata"]["name"] for manifest in manifests]
