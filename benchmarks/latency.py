"""From `kubectl apply` of a small Commit to Ready, stage by stage; and a cold Spark job beside spark-submit.

Moments are those at which a watch shows them to this process, so each is as late as a user would see it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from tests.cluster import Cluster
from tests.cluster.ensure import ensure_cluster
from tests.e2e import manifests
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.workspace import Workspace

ROOT: Final = Path(__file__).resolve().parents[1]
RELEASE: Final = "kubothek-latency"
SYSTEM: Final = "latency-system"
SPACE: Final = "latency"
ROWS: Final = 1_000
STAGES: Final = ("apply", "decided", "driver", "started", "done", "Ready")
WARM: Final = {"min": 1, "max": 1}
ON_SPARK: Final = {"sparkFrom": "1Ki"}
_COMMIT: Final = '{.metadata.name}|{.status.attempt}|{.status.conditions[?(@.type=="Complete")].status}{"\\n"}'
_POD: Final = (
    "{.metadata.labels.kubothek\\.io/name}|{.status.phase}|"
    '{.metadata.annotations.kubothek\\.io/progress}|{.metadata.annotations.kubothek\\.io/result}{"\\n"}'
)


@dataclass
class Latencies:
    """Seconds of each run of each case, in all and by stage."""

    bars: dict[str, str] = field(default_factory=dict)
    runs: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def add(self, case: str, bar: str, moments: dict[str, float]) -> None:
        """A run, of which the moments were these, from ``begun``."""
        stages: dict[str, float] = {}
        last = moments["begun"]
        for stage in STAGES:
            if stage in moments:
                stages[stage] = max(0.0, moments[stage] - last)
                last = max(last, moments[stage])
        self.bars[case] = bar
        self.runs.setdefault(case, []).append({**stages, "all": moments["Ready"] - moments["begun"]})
        told = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self.runs[case][-1].items())
        print(f"{case}: {told}", file=sys.stderr, flush=True)

    def render(self) -> str:
        """As Markdown: medians, and the least and most in all."""
        lines = [
            f"### apply to Ready: {ROWS:,} rows",
            "",
            f"| case | {' | '.join(STAGES)} | median | least | most | n | bar |",
            f"|---|{'---|' * (len(STAGES) + 5)}",
        ]
        for case, runs in self.runs.items():
            stages = [f"{median(found):.2f}" if (found := _of(runs, stage)) else "–" for stage in STAGES]
            whole = _of(runs, "all")
            figures = [f"**{median(whole):.2f} s**", f"{min(whole):.2f}", f"{max(whole):.2f}", str(len(runs))]
            lines.append(f"| {' | '.join([case, *stages, *figures, self.bars[case]])} |")
        ours, theirs = (self.runs.get(case) for case in (COLD, SUBMIT))
        if ours and theirs:
            ratio = median(_of(ours, "all")) / median(_of(theirs, "all"))
            lines += ["", f"cold Spark commit / spark-submit of an empty job: **{ratio:.2f}** (bar: 1.3)"]
        return "\n".join(lines) + "\n"


PLAIN: Final = "no JVM, a pod of its own"
WAITED: Final = "no JVM, a driver that waited"
SPARK_WAITED: Final = "Spark, a driver that waited"
COLD: Final = "Spark, a pod of its own"
SUBMIT: Final = "spark-submit of an empty job"


def run(rounds: int, tag: str | None) -> Latencies:
    """Measure. ``tag`` is that of images that were published before; without they are built from this tree."""
    cluster = ensure_cluster(images=tag is None)
    kubectl = Kubectl(cluster.kubectl, cluster.kubeconfig, SPACE)
    found = Latencies()
    with installed(cluster, kubectl, tag or "dev"):
        space = Workspace(cluster, kubectl, SPACE, Path())
        kubectl.apply(
            manifests.secret(cluster.s3_access_key, cluster.s3_secret_key),
            manifests.object_store(space.url, cluster.s3_endpoint),
        )
        space.put_rows("rows.csv", 0, ROWS)
        with Watched(cluster) as watched:
            for case, bar, engine in (
                (PLAIN, "", {}),
                (WAITED, "3 s", {"warm": WARM}),
                (SPARK_WAITED, "3 s and its work", {**ON_SPARK, "warm": {**WARM, "sparkUpTo": "256Mi"}}),
            ):
                prepare(kubectl, case, engine)
                for number in range(rounds + 1):  # the first makes the table, and does not count
                    moments = commit(kubectl, watched, f"{_name(case)}-{number}", case, warm="warm" in engine)
                    if number:
                        found.add(case, bar, moments)
                kubectl.delete("kcm", "--all")
                kubectl.delete("keng", _name(case))
            prepare(kubectl, COLD, ON_SPARK)
            for number in range(rounds + 1):
                name = f"{_name(COLD)}-{number}"
                moments = commit(kubectl, watched, name, COLD)
                empty = submit(kubectl, watched, name)
                if number:
                    found.add(COLD, "1.3 ×", moments)
                    found.add(SUBMIT, "", empty)
    return found


def prepare(kubectl: Kubectl, case: str, engine: dict[str, Any]) -> None:
    """An Engine and a Dataset on it."""
    name = _name(case)
    kubectl.apply(manifests.engine(name, **engine), manifests.dataset(name, engineRef={"name": name}))
    kubectl.wait_for("Ready", f"keng/{name}", "kos/lake")


def commit(kubectl: Kubectl, watched: Watched, name: str, case: str, *, warm: bool = False) -> dict[str, float]:
    """Apply a Commit; when what happened."""
    if warm:
        eventually(lambda: _is_warm(kubectl.get("keng", _name(case))), "a driver to wait", every=0.5)
        time.sleep(2)  # it has just started: let it and the node come to rest
    moments = {"begun": time.monotonic()}
    kubectl.apply(manifests.commit(name, _name(case), "rows.csv"))
    moments["apply"] = time.monotonic()
    watched.until(name, "Ready")
    return moments | watched.moments[name]


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
    labels = {"app.kubernetes.io/name": "kubothek", "kubothek.io/name": ours}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": ours, "labels": labels}, "spec": spec}
    moments = {"begun": time.monotonic()}
    kubectl.apply(pod)
    moments["apply"] = time.monotonic()
    watched.until(ours, "ended")
    assert kubectl.get("pod", ours)["status"]["phase"] == "Succeeded", kubectl("logs", ours)[-2000:]
    return moments | {"Ready": watched.moments[ours]["ended"]}


class Watched:
    """When each Commit came how far, by watches of Commits and pods."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._changed = threading.Condition()
        self._processes: list[subprocess.Popen[str]] = []
        self.moments: dict[str, dict[str, float]] = {}

    def __enter__(self) -> Watched:
        for kind, columns, take in (("kcm", _COMMIT, self._commit), ("pods", _POD, self._pod)):
            command: list[str | Path] = [
                self._cluster.kubectl,
                "--kubeconfig",
                self._cluster.kubeconfig,
                "--namespace",
                SPACE,
            ]
            watch = subprocess.Popen(  # noqa: S603 - our own words
                [*command, "get", kind, "--watch", "-o", f"jsonpath={columns}"], stdout=subprocess.PIPE, text=True
            )
            self._processes.append(watch)
            threading.Thread(target=self._follow, args=(watch, take), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
            process.wait()

    def until(self, name: str, moment: str) -> None:
        """Wait until it has come so far."""
        with self._changed:
            assert self._changed.wait_for(lambda: moment in self.moments.get(name, {}), timeout=600), (
                f"no {moment}: {name}"
            )

    def _follow(self, watch: subprocess.Popen[str], take: Any) -> None:
        assert watch.stdout is not None
        for line in watch.stdout:
            with self._changed:
                take(line.rstrip("\n").split("|", 3))
                self._changed.notify_all()

    def _commit(self, columns: Sequence[str]) -> None:
        name, attempt, complete = columns
        self._note(name, decided=attempt not in ("", "0"), Ready=complete == "True")

    def _pod(self, columns: Sequence[str]) -> None:
        name, phase, progress, result = columns
        if name:
            self._note(
                name, driver=True, started=bool(progress), done=bool(result), ended=phase in ("Succeeded", "Failed")
            )

    def _note(self, name: str, **came: bool) -> None:
        for moment, so in came.items():
            if so:
                self.moments.setdefault(name, {}).setdefault(moment, time.monotonic())


@contextmanager
def installed(cluster: Cluster, kubectl: Kubectl, tag: str) -> Iterator[None]:
    """An operator of its own, with a namespace; gone afterwards."""
    helm: list[str | Path] = [cluster.helm, "--kubeconfig", cluster.kubeconfig, "--namespace", SYSTEM]
    values = {"crds.install": "false", "clusterId": SPACE, "image.tag": tag, "jobImage.tag": tag}
    sets = [f"--set={name}={value}" for name, value in values.items()] + [f"--set=namespaces={{{SPACE}}}"]
    if tag == "dev":  # what is published under another name may be for others
        kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    install = [*helm, "upgrade", "--install", RELEASE, ROOT / "charts/kubothek", *sets, "--create-namespace", "--wait"]
    subprocess.run(install, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    try:
        yield
    finally:
        kubectl.delete("namespace", SPACE)
        subprocess.run([*helm, "uninstall", RELEASE], check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        kubectl.delete("namespace", SYSTEM, wait=False)


def _is_warm(engine: dict[str, Any]) -> bool:
    return bool((engine.get("status", {}).get("warm") or {}).get("ready"))


def _name(case: str) -> str:
    return {PLAIN: "plain", WAITED: "waited", SPARK_WAITED: "spark-waited", COLD: "cold"}[case]


def _of(runs: Sequence[dict[str, float]], stage: str) -> list[float]:
    return [run[stage] for run in runs if stage in run]
