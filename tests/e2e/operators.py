"""An operator of a test's own, beside the suite's: it may be killed without any harm to others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.e2e import clocks
from tests.e2e.helm import helm
from tests.e2e.kubectl import Kubectl, KubectlError, eventually
from tests.testcluster import Cluster

CHART = Path(__file__).parents[2] / "charts/kubothek"
CONTAINER = "operator"
SHARE = "50m"
"""Of a processor, for each operator here: of two processors there is enough left for three drivers."""


class Operator:
    """A release of the chart, in a namespace of its own, that serves ``namespace``."""

    def __init__(self, cluster: Cluster, name: str, namespace: str, *, tag: str = "dev", chart: Path = CHART) -> None:
        self.name, self.namespace, self.tag, self.chart = name, namespace, tag, chart
        self.system = f"{namespace}-system"
        self.kubectl = Kubectl(cluster.kubectl, cluster.kubeconfig, self.system)
        self._cluster = cluster

    def install(self, replicas: int) -> None:
        """Two namespaces, and the release, which need not be there yet."""
        for namespace in (self.system, self.namespace):
            meta = {"name": namespace, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
            self.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        values = {
            "crds.install": "false",
            "clusterId": self.name,
            "image.tag": self.tag,
            "jobImage.tag": self.tag,
            "namespaces": f"{{{self.namespace}}}",
            "replicas": "0",
            "resources.requests.cpu": SHARE,
        }
        sets = [f"--set={name}={value}" for name, value in values.items()]
        helm(self._cluster, self.system, "upgrade", "--install", self.name, self.chart, *sets)
        # Pods of which a test can set the clock.
        self.kubectl.apply(*clocks.config_maps())
        template = json.dumps({"spec": {"template": clocks.template(CONTAINER)}})
        self.kubectl("patch", "deployment", self.name, "--type=strategic", "-p", template)
        self.kubectl("scale", f"deployment/{self.name}", f"--replicas={replicas}")

    def upgrade(self) -> None:
        """Upgrade the release to the chart and the images of this checkout; return when its pod is ready."""
        tags = [f"--set={image}.tag=dev" for image in ("image", "jobImage")]
        helm(
            self._cluster,
            self.system,
            "upgrade",
            self.name,
            CHART,
            "--reset-then-reuse-values",
            *tags,
            "--set=replicas=1",
        )
        self.kubectl("rollout", "status", f"deployment/{self.name}")

    def uninstall(self) -> None:
        """All of it, and what it served."""
        self.kubectl.in_namespace(self.namespace).delete("kcm,kcp,kgc,kds,kos,keng", "--all")
        helm(self._cluster, self.system, "uninstall", self.name, "--ignore-not-found")
        self.kubectl.delete("namespace", self.namespace, self.system, wait=False)

    def scale(self, replicas: int) -> None:
        """So many, and they are ready."""
        self.kubectl("scale", f"deployment/{self.name}", f"--replicas={replicas}")
        self.kubectl("rollout", "status", f"deployment/{self.name}")

    def pods(self) -> list[str]:
        """Those that are there to stay."""
        found = self.kubectl.items("pods", "app.kubernetes.io/component=operator")
        return [pod["metadata"]["name"] for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def leader(self) -> str:
        """The pod that holds the Lease."""

        def holder() -> str | None:
            lease = self.kubectl.find("lease", self.name)
            identity = (lease or {}).get("spec", {}).get("holderIdentity")
            return next((pod for pod in self.pods() if pod == identity), None)

        return eventually(holder, "one of the operators to hold the Lease")

    def restarts(self, pod: str) -> int:
        """How often its container was started anew."""
        (container,) = self.kubectl.get("pod", pod)["status"]["containerStatuses"]
        return int(container["restartCount"])

    def kill(self, pod: str) -> None:
        """``kill -9``: nothing is given back, and the kubelet starts the container anew."""
        signal_processes(self.kubectl, pod, CONTAINER, "KILL")

    @contextmanager
    def frozen(self, pod: str) -> Iterator[None]:
        """Its processes stand still, and know nothing of it."""
        signal_processes(self.kubectl, pod, CONTAINER, "STOP")
        try:
            yield
        finally:
            signal_processes(self.kubectl, pod, CONTAINER, "CONT")


def signal_processes(kubectl: Kubectl, pod: str, container: str, signal: str) -> None:
    """A signal to all processes of a container but the first, which does nothing but wait for them."""
    with suppress(KubectlError):  # whoever is killed has no time to say that it went well
        kubectl("exec", pod, "-c", container, "--", "/bin/sh", "-c", f"kill -{signal} -1")
