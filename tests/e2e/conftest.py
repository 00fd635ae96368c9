"""One cluster and one Helm install for the whole suite: `make demo-cluster` makes both, the tests share them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.e2e.bad_commits import commit_all
from tests.e2e.kubectl import Kubectl
from tests.e2e.soaking import keep_house
from tests.e2e.workspace import Workspace

ROOT = Path(__file__).parents[2]
FLIGHTS = "flights"
BAD_INPUT = "bad-input"
SOAK = "soak"
WATCHED = (
    FLIGHTS,
    "commits",
    "crashes",
    "owner-a",
    "owner-b",
    "deletion",
    "doomed",
    BAD_INPUT,
    "tables",
    "cubes",
    "skipping",
    SOAK,
)
"""The namespaces of the operator; another one, with another cluster id, watches ``OTHER``."""
BEGUN_FIRST = {"test_soak.py": "soaked", "test_bad_input.py": "refused"}
"""Files whose tests judge what their fixture began."""
OTHER = "other-cluster"
JOB_IMAGE = "docker.io/kubothek/kubothek"
"""The one image that every node has: it serves as that of sources, too."""


@pytest.fixture(scope="session")
def demo(cluster: Cluster) -> subprocess.CompletedProcess[str]:
    """`make demo-cluster` as a user runs it, but for the namespaces that the rest of the suite needs."""
    kubectl = Kubectl(cluster.kubectl, cluster.kubeconfig, "default")
    _clear(cluster, kubectl)
    for namespace in (*WATCHED, OTHER):
        kubectl("create", "namespace", namespace)
        kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    done = subprocess.run(
        ["make", "demo-cluster"],
        cwd=ROOT,
        env={
            **os.environ,
            "KUBOTHEK_HELM_ARGS": f"--set namespaces={{{','.join(WATCHED)}}},allowedSourceImages={{{JOB_IMAGE}}}",
        },
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    return done


def _clear(cluster: Cluster, kubectl: Kubectl) -> None:
    """Take away what an earlier run left in a cluster that is still up: everything but the operator."""
    kubectl.delete("namespace", *WATCHED, OTHER)
    client = cluster.s3_client()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=cluster.s3_bucket):
        for found in page.get("Contents", []):
            client.delete_object(Bucket=cluster.s3_bucket, Key=found["Key"])


@pytest.fixture(scope="session")
def workspace(
    cluster: Cluster, demo: subprocess.CompletedProcess[str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Workspace]:
    """Makes the view of one namespace; its store is ``s3://lake/<prefix>``, by default the namespace's name."""
    credentials = tmp_path_factory.mktemp("credentials")
    (credentials / "AWS_ACCESS_KEY_ID").write_text(cluster.s3_access_key)
    (credentials / "AWS_SECRET_ACCESS_KEY").write_text(cluster.s3_secret_key)

    def make(namespace: str, prefix: str | None = None) -> Workspace:
        kubectl = Kubectl(cluster.kubectl, cluster.kubeconfig, namespace)
        return Workspace(cluster, kubectl, prefix or namespace, credentials)

    return make


@pytest.fixture(scope="session")
def background() -> Iterator[ThreadPoolExecutor]:
    """Threads for what mostly waits."""
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.fixture(scope="session")
def soaked(background: ThreadPoolExecutor, workspace: Callable[..., Workspace]) -> Future[None]:
    """The soak, under way."""
    return background.submit(keep_house, workspace(SOAK))


@pytest.fixture(scope="session")
def refused(background: ThreadPoolExecutor, workspace: Callable[..., Workspace]) -> Future[bytes | None]:
    """The commits that cannot be, under way; gives the head that they met."""
    return background.submit(commit_all, workspace(BAD_INPUT))


@pytest.fixture(scope="session", autouse=True)
def begun(request: pytest.FixtureRequest) -> None:
    """Begins, before the first test here, what takes long and mostly waits; the tests that judge it come last."""
    names = {item.path.name for item in request.session.items}
    for name, fixture in BEGUN_FIRST.items():
        if name in names:
            request.getfixturevalue(fixture)


@pytest.fixture(scope="session")
def flights(workspace: Callable[..., Workspace]) -> Workspace:
    """Where the demo put the flights."""
    return workspace(FLIGHTS, prefix="warehouse")


@pytest.fixture(scope="session")
def crashes(workspace: Callable[..., Workspace]) -> Workspace:
    return workspace("crashes")


@pytest.fixture(scope="session")
def commits(workspace: Callable[..., Workspace]) -> Workspace:
    return workspace("commits")


@pytest.fixture(scope="session")
def tables(workspace: Callable[..., Workspace]) -> Workspace:
    return workspace("tables")


@pytest.fixture(scope="session")
def skipping(workspace: Callable[..., Workspace]) -> Workspace:
    return workspace("skipping")


@pytest.fixture(scope="session")
def deletion(workspace: Callable[..., Workspace]) -> Workspace:
    return workspace("deletion")


@pytest.fixture(scope="session")
def other_cluster(cluster: Cluster, workspace: Callable[..., Workspace]) -> Iterator[Workspace]:
    """A second operator with a cluster id of its own, over the store of ``owner-a``."""
    helm: list[str | Path] = [cluster.helm, "--kubeconfig", cluster.kubeconfig, "--namespace", OTHER]
    subprocess.run(
        [
            *helm,
            "install",
            "kubothek-other",
            ROOT / "charts/kubothek",
            "--set",
            "crds.install=false,clusterId=another-cluster,image.tag=dev,jobImage.tag=dev",
            "--set",
            f"namespaces={{{OTHER}}}",
            "--wait",
            "--timeout=180s",
        ],
        check=True,
        capture_output=True,
    )
    yield workspace(OTHER, prefix="owner-a")
    subprocess.run([*helm, "uninstall", "kubothek-other"], check=True, capture_output=True)
