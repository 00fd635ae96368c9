"""A release from its installation to its end, by Helm on a real API server: CRDs are upgraded, and nothing is lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

from tests.chart.conftest import CHART
from tests.cluster.apiserver import ApiServer
from tests.cluster.harness import manifest, resource_path
from tests.testcluster.steps import run

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/repositories.kubothek.io"
FILE = Path("files") / "crds" / "kubothek.io_repositories.yaml"


def older(directory: Path) -> Path:
    """The chart as an earlier version might have been: its Repositories were shown with fewer columns."""
    chart = Path(shutil.copytree(CHART, directory / "kubothek"))
    crd = yaml.safe_load((chart / FILE).read_text())
    del crd["spec"]["versions"][0]["additionalPrinterColumns"]
    (chart / FILE).write_text(yaml.safe_dump(crd))
    return chart


def test_crds_are_upgraded_with_release_and_kept_after_uninstall(
    server: ApiServer, namespace: str, helm: Path, tmp_path: Path
) -> None:
    def release(*command: str | Path) -> None:
        run([helm, *command, f"--namespace={namespace}", f"--kubeconfig={server.kubeconfig()}"], timeout=100)

    def columns() -> Any:
        return server.request("GET", CRD)["spec"]["versions"][0].get("additionalPrinterColumns")

    wanted = yaml.safe_load((CHART / FILE).read_text())["spec"]["versions"][0]["additionalPrinterColumns"]
    # The session's server has the CRDs already, as if from a release of another name.
    release("install", "kubothek", older(tmp_path), "--take-ownership")
    assert columns() != wanted
    server.request("POST", resource_path("Engine", namespace), manifest("Engine", namespace, "default", {}))
    release("upgrade", "kubothek", CHART, "--reset-then-reuse-values", "--set=logFormat=json")
    assert columns() == wanted
    release("uninstall", "kubothek")
    assert columns() == wanted
    deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    assert server.request("GET", deployments)["items"] == []
    assert server.request("GET", resource_path("Engine", namespace, "default"))["metadata"]["name"] == "default"
