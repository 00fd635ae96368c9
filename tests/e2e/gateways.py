"""A gateway as its chart installs it: a pod in the namespace of a workspace, with https, and what it writes down."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.e2e import manifests
from tests.e2e.helm import helm
from tests.e2e.kubectl import KubectlError, eventually
from tests.e2e.workspace import Workspace
from tests.faultproxy import FaultProxy
from tests.testcluster.layout import API_PORT
from tests.testcluster.pki import Authority

CHART = Path(__file__).parents[2] / "charts/kubothek-gateway"
RELEASE = "gw"
NAME = f"{RELEASE}-kubothek-gateway"
TLS = "gateway-tls"


class Gateway:
    """One replica, whose way to the store is ``proxy``."""

    def __init__(self, place: Workspace, proxy: FaultProxy) -> None:
        self.proxy = proxy
        self._place = place
        self._kubectl = place.kubectl
        self._authority = Authority("the givers")
        self._kept: list[dict[str, Any]] = []

    def install(self) -> None:
        """What a tenant does; the certificate comes after the Service, whose address it names."""
        cluster = self._place.cluster
        self._kubectl.apply(manifests.secret(cluster.s3_access_key, cluster.s3_secret_key))
        ports = f"{{443,{API_PORT},{urlsplit(self.proxy.endpoint).port}}}"
        self._helm(
            *("upgrade", "--install", RELEASE, CHART, "--set", "image.tag=dev,replicas=1,service.port=443"),
            *("--set", f"tls.secretName={TLS},networkPolicy.egressPorts={ports}"),
            *("--set", "stores[0].name=lake,stores[0].credentialsSecret=lake-credentials"),
        )
        pair = self._authority.issue("gateway", hosts=(self.address,))
        certificate = {"tls.crt": pair.certificate_pem, "tls.key": pair.key_pem}
        meta = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": TLS}, "type": "kubernetes.io/tls"}
        self._kubectl.apply({**meta, "stringData": certificate})

    def uninstall(self) -> None:
        """Away with it, and with its roles in the whole cluster."""
        self._helm("uninstall", RELEASE, "--ignore-not-found")

    @property
    def address(self) -> str:
        """That of the Service: there is no DNS in a native cluster."""
        return str(self._kubectl.get("service", NAME)["spec"]["clusterIP"])

    @property
    def authority(self) -> str:
        """The certificate of whoever signed the gateway's."""
        return self._authority.pair.certificate_pem

    def let_in(self, account: str, right: str) -> None:
        """Bind one of the chart's roles to a service account of the namespace."""
        who = f"--serviceaccount={self._kubectl.namespace}:{account}"
        self._kubectl("create", "rolebinding", f"{account}-{right}", f"--role={NAME}-{right}", who)

    def token(self, account: str) -> str:
        """One that is good for this gateway only."""
        audience = f"{NAME}.{self._kubectl.namespace}.svc"
        return self._kubectl("create", "token", account, f"--audience={audience}", "--duration=1h").strip()

    def kill(self) -> None:
        """Its pod ends before its requests do, and the Deployment makes another one."""
        self._kept = self.audit()
        self._kubectl.kill(self._pod())

    def audit(self) -> list[dict[str, Any]]:
        """All audit lines, also those of a pod that was killed."""
        try:
            lines = self._kubectl("logs", self._pod(), "--tail=-1").splitlines()
        except KubectlError:  # it is just starting
            lines = []
        return [*self._kept, *(json.loads(line) for line in lines if line.startswith("{"))]

    def moved(self, method: str, dataset: str) -> Counter[str]:
        """How often each slice of a dataset went through, whole or in part."""
        return Counter(
            line["path"].rpartition("/")[2]
            for line in self.audit()
            if (line["method"], line.get("dataset")) == (method, dataset)
            and "/data/" in line["path"]
            and line["status"] in (200, 206)
        )

    def _pod(self) -> str:
        selector = f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component=gateway"

        def running() -> str | None:
            pods = self._kubectl.items("pods", selector)
            alive = [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
            return alive[0] if alive else None

        return eventually(running, "the gateway's pod")

    def _helm(self, *arguments: str | Path) -> None:
        helm(self._place.cluster, self._kubectl.namespace, *arguments)
