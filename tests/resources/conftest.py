"""A real API server with our CRDs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.kubernetes.apiserver import ApiServer

CRDS = Path(__file__).resolve().parents[2] / "crds"


@pytest.fixture(scope="package")
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        crds = [yaml.safe_load(file.read_text()) for file in sorted(CRDS.iterdir())]
        names = [crd["metadata"]["name"] for crd in crds]
        for name, crd in zip(names, crds, strict=True):
            running.apply(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}", crd)
        running.kubectl("wait", "--for=condition=Established", "--timeout=30s", *(f"crd/{name}" for name in names))
        yield running
