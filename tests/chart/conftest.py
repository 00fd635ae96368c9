"""Rendering the chart, and a real API server that judges what comes out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.gotools import HELM, KUBERNETES
from tests.cluster.steps import run
from tests.kubernetes.conftest import make_namespace, namespace, server

__all__ = ["make_namespace", "namespace", "server"]

CHART = Path(__file__).resolve().parents[2] / "charts" / "kubothek"

Objects = list[dict[str, Any]]
Render = Callable[..., Objects]


@pytest.fixture(scope="session")
def helm() -> Path:
    return HELM.ensure() / "helm"


@pytest.fixture(scope="session")
def render(helm: Path) -> Render:
    """``render(namespace="lake", **values)``: the chart's objects, in order."""

    def rendered(namespace: str = "lake", **values: object) -> Objects:
        sets = [f"--set-json={key}={json.dumps(value)}" for key, value in values.items()]
        version = f"--kube-version={KUBERNETES.version}"
        text = run([helm, "template", "kubothek", CHART, f"--namespace={namespace}", version, *sets])
        return [document for document in yaml.safe_load_all(text) if document]

    return rendered
