"""A real API server with our CRDs for the whole session, and for each test a namespace of its own in it."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import yaml

from kubothek.runtime.kubernetes.api import Api
from tests.kubernetes.apiserver import ApiServer
from tests.kubernetes.proxy import FaultProxy

CRDS = Path(__file__).resolve().parents[2] / "crds"

_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with an API server need the programs of the test cluster: not for `make check`."""
    for item in items:
        if {"server", "helm"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        for file in sorted(CRDS.glob("*.yaml")):
            crd = yaml.safe_load(file.read_text())
            running.apply(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}", crd)
        names = [file.stem.split("_")[1] for file in CRDS.glob("*.yaml")]
        running.kubectl(
            "wait", "--for=condition=Established", "--timeout=30s", *(f"crd/{n}.kubothek.io" for n in names)
        )
        yield running


@pytest.fixture(scope="session")
def make_namespace(server: ApiServer) -> Callable[[], str]:
    """Makes namespaces that admit restricted pods only, with the service account of jobs."""

    def made() -> str:
        name = f"test-{next(_numbers)}"
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        server.apply(f"/api/v1/namespaces/{name}", space)
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "kubothek-job"}}
        server.apply(f"/api/v1/namespaces/{name}/serviceaccounts/kubothek-job", account)
        return name

    return made


@pytest.fixture
def namespace(make_namespace: Callable[[], str]) -> str:
    """A namespace of the test's own."""
    return make_namespace()


@pytest.fixture
async def proxy(server: ApiServer) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(server.port, str(server.ca)) as running:
        yield running


@pytest.fixture
async def api(server: ApiServer, proxy: FaultProxy) -> AsyncIterator[Api]:
    """The operator's client, through the proxy."""
    client = await Api.connect(str(server.kubeconfig(server=proxy.url)))
    yield client
    await client.close()
