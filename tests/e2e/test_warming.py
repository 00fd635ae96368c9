"""Drivers that wait for jobs, on a real node."""

from __future__ import annotations

import pytest

from tests.e2e import manifests
from tests.e2e.kubectl import PATIENCE, Kubectl, Manifest, eventually
from tests.e2e.workspace import Workspace
from tests.faultproxy import Hold

pytestmark = pytest.mark.cluster

KILL = (
    "import os; [os.kill(int(p), 9) for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid() "
    "and b'kubothek.jobs.warm' in open(f'/proc/{p}/cmdline', 'rb').read()]"
)
"""As the kernel does for memory; the first process of a container is safe from its own."""


def test_warm_driver_commits_and_killed_warm_driver_commits_exactly_once(warming: Workspace) -> None:
    kubectl = warming.kubectl
    with warming.spoiled() as proxy:
        kubectl.apply(manifests.engine(warm={"min": 1, "max": 2}), manifests.dataset("events", ["p"]))
        warming.put_rows("sources/first.csv", first=0)
        warming.put_rows("sources/second.csv", first=10)
        a_driver_waits(kubectl)
        kubectl.apply(manifests.commit("first", "events", "sources/first.csv"))
        kubectl.wait_for("Ready", "kcm/first")
        assert "-warm-" in driver_of(kubectl, "first", 1)["metadata"]["name"]

        a_driver_waits(kubectl)
        held = proxy.inject(Hold(), method="PUT", path="events/commits/")
        kubectl.apply(manifests.commit("second", "events", "sources/second.csv"))
        assert held.arrived.wait(PATIENCE), kubectl.situation("kcm/second")
        at_work = driver_of(kubectl, "second", 1)["metadata"]["name"]
        assert "-warm-" in at_work
        kubectl("exec", at_work, "-c", "driver", "--", "python", "-c", KILL)
        driver_of(kubectl, "second", 2)
        held.release()
        kubectl.wait_for("Ready", "kcm/second")
        status = kubectl.get("kcm", "second")["status"]
        assert (status["attempt"], status["failures"], status["rows"]) == (2, 1, 10)
        kubectl.apply(manifests.engine())
        eventually(lambda: not waiting(kubectl), "the drivers that wait to be let go")

    assert warming.column("events") == list(range(20))
    assert warming.commit_ids("events")[-2:] == [f"{kubectl.namespace}/first", f"{kubectl.namespace}/second"]


def waiting(kubectl: Kubectl) -> list[Manifest]:
    """The drivers without a job."""
    return kubectl.items("pods", "kubothek.io/warm,kubothek.io/kind=Engine")


def a_driver_waits(kubectl: Kubectl) -> None:
    def ready() -> bool:
        found = kubectl.get("keng", "default")["status"].get("warm") or {}
        annotated = ("kubothek.io/ready" in (pod["metadata"].get("annotations") or {}) for pod in waiting(kubectl))
        return found.get("ready", 0) >= 1 and any(annotated)

    eventually(ready, "a driver to wait for a job")


def driver_of(kubectl: Kubectl, commit: str, attempt: int) -> Manifest:
    """The pod of an attempt."""
    selector = f"kubothek.io/name={commit},kubothek.io/attempt={attempt}"
    found = eventually(lambda: kubectl.items("pods", selector), f"attempt {attempt} of {commit}")
    return found[0]
