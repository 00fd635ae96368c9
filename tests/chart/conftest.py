"""Rendering the chart, and a real API server that judges what comes out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.apiserver import ApiServer
from tests.cluster.conftest import make_namespace, namespace, server
from tests.testcluster.gotools import HELM, KUBERNETES, MONITORING_CRDS
from tests.testcluster.steps import run

__all__ = ["make_namespace", "namespace", "server"]

CHART = Path(__file__).resolve().parents[2] / "charts" / "kubothek"

Objects = list[dict[str, Any]]
Render = Callable[..., Objects]


def grant(server: ApiServer, objects: Objects, release: str = "kubothek") -> None:
    """Give a release the rights that its chart gives it, in the namespace that it is installed in and elsewhere."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": release}}
    rights = [obj for obj in objects if obj["apiVersion"].startswith("rbac.")]
    server.kubectl("apply", "-f", "-", stdin=yaml.dump_all([namespace, *rights], Dumper=yaml.CSafeDumper))


@pytest.fixture(scope="session")
def helm() -> Path:
    return HELM.ensure() / "helm"


@pytest.fixture(scope="session")
def monitored(server: ApiServer) -> ApiServer:
    """The API server, with the CRDs of the Prometheus Operator."""
    files = sorted(MONITORING_CRDS.ensure().iterdir())
    server.kubectl("apply", "--server-side", *(f"--filename={file}" for file in files))
    names = [yaml.safe_load(file.read_text())["metadata"]["name"] for file in files]
    server.kubectl("wait", "--for=condition=Established", "--timeout=120s", *(f"crd/{name}" for name in names))
    return server


@pytest.fixture(scope="session")
def render(helm: Path) -> Render:
    """``render(namespace="lake", **values)``: the chart's objects, in order."""

    def rendered(namespace: str = "lake", **values: object) -> Objects:
        sets = [f"--set-json={key}={json.dumps(value)}" for key, value in values.items()]
        version = f"--kube-version={KUBERNETES.version}"
        text = run([helm, "template", "kubothek", CHART, f"--namespace={namespace}", version, *sets])
        return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]

    return rendered
