"""One cluster and one Helm install for the whole suite: `make demo-cluster` makes both, the tests share them.

The tests run beside each other (:mod:`tests.e2e.beside`), and beside the end of the demo. They begin with the first of
them, so their fixtures are those of the package, and none of these waits for long. What they installed goes with the
last of them, and leaves the processors to the tests that follow.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e import beside
from tests.e2e.chaos import Stage
from tests.e2e.demo import Demo
from tests.e2e.exchanging import GIVERS, TAKERS, Exchange
from tests.e2e.former import FormerOperator
from tests.e2e.gateways import Gateway
from tests.e2e.helm import helm
from tests.e2e.kubectl import Kubectl
from tests.e2e.operators import SHARE, Operator
from tests.e2e.weather import Weather
from tests.e2e.workspace import Workspace
from tests.faultproxy import FaultProxy
from tests.testcluster import Cluster

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
FLIGHTS = "flights"
WATCHED = (
    FLIGHTS,
    "commits",
    "crashes",
    "owner-a",
    "owner-b",
    "deletion",
    "doomed",
    "bad-input",
    "tables",
    "cubes",
    "skipping",
    "soak",
    "warming",
    "writers",
    GIVERS,
)
"""The namespaces of the operator."""
CHAOS = "chaos"
"""Of an operator that is killed now and then."""
UPGRADED = "upgraded"
"""Of an operator of an earlier commit."""
OTHER = "other-cluster"
WATCHED_BY_ANOTHER = (OTHER, TAKERS)
"""Those of another operator, with another cluster id."""
JOB_IMAGE = "docker.io/kubothek/kubothek"
"""The one image that every node has: it serves as that of sources, too."""

LONGEST_FIRST = (
    "test_chaos.py",
    "test_soak.py",
    "test_exchange.py",
    "test_upgrade.py",
    "test_writers.py",
    "test_exactly_once.py",
    "test_tables.py",
    "test_cubes.py",
)
"""So that none of them is alone at the end."""
AT_ONCE = 3
"""Files beside each other: more would wait for the processors."""
LIMIT = 30 * 60
"""Seconds to wait for one test; what it waits for has limits of its own."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In the order in which they are begun."""
    places = [place for place, item in enumerate(items) if item.path.parent == HERE]
    last = len(LONGEST_FIRST)
    order = {name: position for position, name in enumerate(LONGEST_FIRST)}
    ours = sorted((items[place] for place in places), key=lambda item: order.get(item.path.name, last))
    for place, item in zip(places, ours, strict=True):
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LIMIT))
        items[place] = item


@pytest.fixture(scope="package", autouse=True)
def begun(request: pytest.FixtureRequest) -> Iterator[None]:
    """All tests here, under way."""
    ours = [item for item in request.session.items if item.path.parent == HERE and isinstance(item, pytest.Function)]
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="tests") as pool:
        beside.begin(pool, ours, request.getfixturevalue)
        yield
        beside.give_up(ours)
        pool.shutdown(cancel_futures=True)


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """What became of a test, in place of running it."""
    return beside.judge(pyfuncitem) or None


@pytest.fixture(scope="package")
def demo(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """`make demo-cluster` as a user runs it, but for the namespaces that the rest of the suite needs; its commits are
    made, and the rest goes on.
    """
    kubectl = Kubectl(cluster.kubectl, cluster.kubeconfig, "default")
    _clear(cluster, kubectl)
    for namespace in (*WATCHED, *WATCHED_BY_ANOTHER):
        kubectl("create", "namespace", namespace)
        kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    values = {
        "namespaces": f"{{{','.join(WATCHED)}}}",
        "allowedSourceImages": f"{{{JOB_IMAGE}}}",
        "resources.requests.cpu": SHARE,
    }
    arguments = f"--set {','.join(f'{name}={value}' for name, value in values.items())}"
    environment = {**os.environ, "KUBOTHEK_HELM_ARGS": arguments}
    with Demo(ROOT, environment, tmp_path_factory.mktemp("demo") / "log") as demo:
        demo.wait_for_commits()
        yield demo


def _clear(cluster: Cluster, kubectl: Kubectl) -> None:
    """Take away what an earlier run left in a cluster that is still up: everything but the operator."""
    kubectl.delete("namespace", *WATCHED, *WATCHED_BY_ANOTHER, CHAOS, UPGRADED)
    client = cluster.s3_client()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=cluster.s3_bucket):
        for found in page.get("Contents", []):
            client.delete_object(Bucket=cluster.s3_bucket, Key=found["Key"])


@pytest.fixture(scope="package")
def workspace(cluster: Cluster, demo: Demo, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Workspace]:
    """Makes the view of one namespace; its store is ``s3://lake/<prefix>``, by default the namespace's name."""
    credentials = tmp_path_factory.mktemp("credentials")
    (credentials / "AWS_ACCESS_KEY_ID").write_text(cluster.s3_access_key)
    (credentials / "AWS_SECRET_ACCESS_KEY").write_text(cluster.s3_secret_key)

    def make(namespace: str, prefix: str | None = None) -> Workspace:
        kubectl = Kubectl(cluster.kubectl, cluster.kubeconfig, namespace)
        return Workspace(cluster, kubectl, prefix or namespace, credentials)

    return make


@pytest.fixture(scope="package")
def flights(workspace: Callable[..., Workspace]) -> Workspace:
    """Where the demo puts the flights."""
    return workspace(FLIGHTS, prefix="warehouse")


@pytest.fixture(scope="package")
def crashes(workspace: Callable[..., Workspace]) -> Workspace:
    return workspace("crashes")


@pytest.fixture(scope="package")
def commits(workspace: Callable[..., Workspace]) -> Workspace:
    return workspace("commits")


@pytest.fixture(scope="package")
def bad_input(workspace: Callable[..., Workspace]) -> Workspace:
    return workspace("bad-input")


@pytest.fixture(scope="package")
def tables(workspace: Callable[..., Workspace]) -> Workspace:
    return workspace("tables")


@pytest.fixture(scope="package")
def cubes(workspace: Callable[..., Workspace]) -> Workspace:
    return workspace("cubes")


@pytest.fixture(scope="package")
def skipping(workspace: Callable[..., Workspace]) -> Workspace:
    return workspace("skipping")


@pytest.fixture(scope="package")
def deletion(workspace: Callable[..., Workspace]) -> Workspace:
    return workspace("deletion")


@pytest.fixture(scope="package")
def soak(workspace: Callable[..., Workspace]) -> Workspace:
    return workspace("soak")


@pytest.fixture(scope="package")
def warming(workspace: Callable[..., Workspace]) -> Workspace:
    return workspace("warming")


@pytest.fixture(scope="package")
def writers(workspace: Callable[..., Workspace]) -> Workspace:
    return workspace("writers")


@pytest.fixture(scope="package")
def gateway(cluster: Cluster, workspace: Callable[..., Workspace]) -> Iterator[Gateway]:
    """The gateway of ``GIVERS``, installed and perhaps not there yet."""
    with FaultProxy(cluster.s3_host_endpoint, host=cluster.node_ip) as proxy:
        installed = Gateway(workspace(GIVERS), proxy)
        installed.install()
        yield installed
        installed.uninstall()


@pytest.fixture(scope="package")
def other_operator(cluster: Cluster, gateway: Gateway) -> Iterator[None]:
    """A second operator with a cluster id of its own, installed and perhaps not there yet. It may ask the gateway."""
    values = {
        "crds.install": "false",
        "clusterId": "another-cluster",
        "image.tag": "dev",
        "jobImage.tag": "dev",
        "namespaces": f"{{{','.join(WATCHED_BY_ANOTHER)}}}",
        "allowedSourceHosts": f"{{{gateway.address}}}",
        "resources.requests.cpu": SHARE,
    }
    sets = [f"--set={name}={value}" for name, value in values.items()]
    helm(cluster, OTHER, "upgrade", "--install", "kubothek-other", ROOT / "charts/kubothek", *sets)
    yield
    helm(cluster, OTHER, "uninstall", "kubothek-other")


@pytest.fixture(scope="package")
def other_cluster(workspace: Callable[..., Workspace], other_operator: None) -> Workspace:
    """A namespace of the second operator, over the store of ``owner-a``."""
    return workspace(OTHER, prefix="owner-a")


@pytest.fixture(scope="package")
def chaos(cluster: Cluster, workspace: Callable[..., Workspace]) -> Iterator[Stage]:
    """A namespace with two operators of its own, installed and perhaps not there yet."""
    seed = int(os.environ.get("KUBOTHEK_SEED", "1"))
    operator = Operator(cluster, "kubothek-chaos", CHAOS)
    with Weather(cluster.s3_host_endpoint, host=cluster.node_ip, seed=seed) as proxy:
        operator.install(replicas=2)
        yield Stage(workspace(CHAOS), operator, proxy, random.Random(seed))
        operator.uninstall()


@pytest.fixture(scope="package")
def upgraded(workspace: Callable[..., Workspace]) -> Workspace:
    return workspace(UPGRADED)


@pytest.fixture(scope="package")
def former(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """The operator of an earlier commit, not installed."""
    operator = FormerOperator(cluster, "kubothek-upgraded", UPGRADED, tmp_path_factory.mktemp("former"))
    yield operator
    operator.uninstall()


@pytest.fixture(scope="package")
def exchange(
    cluster: Cluster, workspace: Callable[..., Workspace], gateway: Gateway, other_operator: None
) -> Iterator[Exchange]:
    """Two sides that know nothing of each other, with nothing in them."""
    with FaultProxy(cluster.s3_host_endpoint, host=cluster.node_ip) as proxy:
        yield Exchange(workspace(GIVERS), workspace(TAKERS), gateway, proxy)
