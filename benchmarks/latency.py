"""From `kubectl apply` of a small Commit to Ready, stage by stage; and a cold Spark commit beside spark-submit.

The peer is spark-submit in client mode, in a pod like that of the Commit: same image, resources and executors.
In cluster mode a second JVM, which only submits, would come before the driver's and end after it: that is slower. What
it runs is one empty task, so that both wait for an executor; both have come to an end when a watch tells of it.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.latencies import Latencies
from benchmarks.watched import Watched
from tests.e2e import manifests
from tests.e2e.helm import helm
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.workspace import Workspace
from tests.testcluster import Cluster
from tests.testcluster.ensure import ensure_cluster

ROOT: Final = Path(__file__).resolve().parents[1]
RELEASE: Final = "kubothek-latency"
SYSTEM: Final = "latency-system"
SPACE: Final = "latency"
ROWS: Final = 1_000
WARM: Final = {"min": 1, "max": 1}
ON_SPARK: Final = {"sparkFrom": "1Ki"}
_REST_SECONDS: Final = 2.0


@dataclass(frozen=True)
class Case:
    """Commits on an Engine; ``beside``: what takes turns with them."""

    title: str
    name: str
    bar: str = ""
    engine: Mapping[str, Any] = field(default_factory=dict)
    beside: str = ""

    @property
    def warm(self) -> bool:
        """Whether they wait until a driver does."""
        return "warm" in self.engine


SUBMIT: Final = "spark-submit of an empty job"
COLD: Final = Case("Spark, a pod of its own", "cold", "1.3 ×", ON_SPARK, SUBMIT)
CASES: Final = (
    Case("no JVM, a driver that waited", "waited", "3 s", {"warm": WARM}),
    Case(
        "Spark, a driver that waited",
        "spark-waited",
        "3 s and its work",
        {**ON_SPARK, "warm": {**WARM, "sparkUpTo": "256Mi"}},
    ),
    COLD,
    Case("no JVM, a pod of its own", "plain"),
)


def run(rounds: int, tag: str | None) -> Latencies:
    """Measure. ``tag`` is that of images that were published before; without they are built from this tree.

    A case that fails is told, and the next one begins; who interrupts gets what there is.
    """
    cluster = ensure_cluster(images=tag is None)
    kubectl = Kubectl(cluster.kubectl, cluster.kubeconfig, SPACE)
    found = Latencies()
    # A commit id is made once in a store, so each run of this program has one of its own.
    space = Workspace(cluster, kubectl, f"{SPACE}-{time.time_ns()}", Path())
    with installed(cluster, kubectl, tag or "dev"), thrown_away(space):
        kubectl.apply(
            manifests.secret(cluster.s3_access_key, cluster.s3_secret_key),
            manifests.object_store(space.url, cluster.s3_endpoint),
        )
        space.put_rows("rows.csv", 0, ROWS)
        with Watched(kubectl) as watched:
            for case in CASES:
                try:
                    measure(case, rounds, kubectl, watched, found)
                except (AssertionError, subprocess.SubprocessError) as error:
                    found.fail(case.title, str(error))
                except KeyboardInterrupt:
                    found.fail(case.title, "interrupted")
                    break
                forget(kubectl)
    return found


def forget(kubectl: Kubectl) -> None:
    """Delete all Commits, Datasets and Engines, with their pods: what they hold of the node is for others."""
    for kind in ("kcm", "kds", "keng"):
        kubectl.delete(kind, "--all")


@contextmanager
def thrown_away(space: Workspace) -> Iterator[None]:
    """A store that is deleted with all that is in it."""
    try:
        yield
    finally:
        space.bucket.objects.filter(Prefix=f"{space.prefix}/").delete()


def render(found: Latencies) -> str:
    """As Markdown."""
    return f"{found.render(f'apply to Ready: {ROWS:,} rows')}\n{found.ratio(COLD.title, SUBMIT, '1.3')}"


def measure(case: Case, rounds: int, kubectl: Kubectl, watched: Watched, found: Latencies) -> None:
    """All runs of a case, after one that makes the table and does not count."""
    found.say(f"{case.title}: an Engine and a Dataset")
    kubectl.apply(
        manifests.engine(case.name, **case.engine), manifests.dataset(case.name, engineRef={"name": case.name})
    )
    kubectl.wait_for("Ready", f"keng/{case.name}", "kos/lake")
    for number in range(rounds + 1):
        name = f"{case.name}-{number}"
        if case.warm:
            eventually(lambda: _is_warm(kubectl.get("keng", case.name)), "a driver to wait", every=0.5)
            time.sleep(_REST_SECONDS)  # it has just started: let it and the node come to rest
        moments = commit(kubectl, watched, name, case.name)
        empty = submit(kubectl, watched, name) if case.beside else {}
        if not number:
            found.say(f"{case.title}: the table is there")
            continue
        found.add(case.title, case.bar, moments)
        if empty:
            found.add(case.beside, "", empty)


def commit(kubectl: Kubectl, watched: Watched, name: str, dataset: str) -> dict[str, float]:
    """Apply a Commit; when what happened."""
    moments = {"begun": time.monotonic()}
    kubectl.apply(manifests.commit(name, dataset, "rows.csv"))
    moments["apply"] = time.monotonic()
    return watched.until(name, "Ready") | moments


def submit(kubectl: Kubectl, watched: Watched, name: str) -> dict[str, float]:
    """The pod of a Commit again, with spark-submit of a job of one task that does nothing; when it ended."""
    like, config = kubectl.get("pod", f"{name}-1"), kubectl.get("configmap", f"{name}-1")
    conf = json.loads(config["data"]["job.json"])["spark"]["conf"]
    ours = f"empty-{name}"
    conf |= {"spark.app.name": ours, "spark.kubernetes.executor.podNamePrefix": ours}
    conf.pop("spark.app.id", None)
    inside = {
        "spark.kubernetes.namespace": "$POD_NAMESPACE",
        "spark.kubernetes.driver.pod.name": "$POD_NAME",
        "spark.kubernetes.container.image": "$KUBOTHEK_IMAGE",
        "spark.kubernetes.executor.podTemplateFile": "$KUBOTHEK_EXECUTOR_TEMPLATE",
        "spark.driver.host": "$POD_IP",
        "spark.driver.bindAddress": "$POD_IP",
        "spark.local.dir": "$KUBOTHEK_SCRATCH",
    }
    options = " ".join(f'--conf "{key}={value}"' for key, value in (conf | inside).items())
    program = "from pyspark.sql import SparkSession; SparkSession.builder.getOrCreate().range(1).count()"
    script = (
        f"echo '{program}' > /tmp/empty.py; exec $SPARK_HOME/bin/spark-submit "
        f"--master k8s://https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT {options} /tmp/empty.py"
    )
    spec = {key: value for key, value in like["spec"].items() if key not in ("nodeName", "priority")}
    spec["containers"][0]["args"] = ["driver", "bash", "-c", script]
    labels = {"app.kubernetes.io/name": "kubothek", "app.kubernetes.io/component": "driver", "kubothek.io/name": ours}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": ours, "labels": labels}, "spec": spec}
    moments = {"begun": time.monotonic()}
    kubectl.apply(pod)
    moments["apply"] = time.monotonic()
    seen = watched.until(ours, "ended")
    assert kubectl.get("pod", ours)["status"]["phase"] == "Succeeded", kubectl("logs", ours)[-2000:]
    kubectl.delete("pod", ours, wait=False)
    return seen | moments | {"Ready": seen["ended"]}


@contextmanager
def installed(cluster: Cluster, kubectl: Kubectl, tag: str) -> Iterator[None]:
    """An operator of its own, with a namespace; gone afterwards."""
    values = {"crds.install": "false", "clusterId": SPACE, "image.tag": tag, "jobImage.tag": tag}
    sets = [f"--set={name}={value}" for name, value in values.items()] + [f"--set=namespaces={{{SPACE}}}"]
    if tag == "dev":  # what is published under another name may be for others
        kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    chart = ROOT / "charts/kubothek"
    helm(cluster, SYSTEM, "upgrade", "--install", RELEASE, chart, *sets, "--create-namespace", "--wait")
    try:
        forget(kubectl)  # what a run that was killed has left
        yield
    finally:
        kubectl.delete("namespace", SPACE)
        helm(cluster, SYSTEM, "uninstall", RELEASE)
        kubectl.delete("namespace", SYSTEM, wait=False)


def _is_warm(engine: dict[str, Any]) -> bool:
    return bool((engine.get("status", {}).get("warm") or {}).get("ready"))
