"""The API server, which the tests of the CRDs ask what it takes."""

from __future__ import annotations

import pytest

from tests.cluster.apiserver import ApiServer


@pytest.fixture(scope="session")
def server(api_server: ApiServer) -> ApiServer:
    return api_server
