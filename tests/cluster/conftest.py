"""For each test a namespace of its own in the API server, and a client of it that can be disturbed."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable

import pytest

from kubothek.cluster.api import Api
from tests.cluster.apiserver import ApiServer
from tests.cluster.proxy import FaultProxy

_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with an API server need the programs of the test cluster: not for `make check`."""
    for item in items:
        if {"server", "helm"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def server(api_server: ApiServer) -> ApiServer:
    return api_server


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
