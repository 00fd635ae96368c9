"""The operator of commit b765f9b, from the history, in images of its own."""

from __future__ import annotations

from pathlib import Path

from tests.compatibility.former import extract_former
from tests.e2e.operators import Operator
from tests.testcluster import JOB_IMAGE, OPERATOR_IMAGE, Cluster
from tests.testcluster.ensure import image_engine
from tests.testcluster.images import build_wheel, ensure_built, heavy_builds, project_builds

TAG = "former"


class FormerOperator(Operator):
    """A release of the former chart; its images come into the cluster when it is installed."""

    def __init__(self, cluster: Cluster, name: str, namespace: str, directory: Path) -> None:
        super().__init__(cluster, name, namespace, tag=TAG, chart=directory / "charts" / "kubothek")
        self._directory = directory

    def install(self, replicas: int) -> None:
        extract_former(self._directory, "charts/kubothek", "operator", "spark-images")
        wheel = build_wheel(self._directory / "wheel", self._directory / "operator")
        builds = project_builds(heavy_builds(), wheel, self._directory / "spark-images")
        engine = image_engine(self._cluster)
        for image in (JOB_IMAGE, OPERATOR_IMAGE):
            ensure_built(engine, builds[image])
            engine.publish(builds[image].tag, f"{image.partition(':')[0]}:{TAG}")
        super().install(replicas)
