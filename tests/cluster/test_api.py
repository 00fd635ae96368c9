"""The API client against a real API server."""

from __future__ import annotations

import pytest

from kubothek.cluster.api import Api, ApiError, ApiUnavailable
from tests.cluster.apiserver import ApiServer
from tests.cluster.proxy import Fault, FaultProxy


def config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}}


async def test_api_created_object_can_be_read_and_deleted(api: Api, namespace: str) -> None:
    made = await api.create("ConfigMap", namespace, config_map("one"))
    assert await api.get("ConfigMap", namespace, "one") == made
    await api.delete("ConfigMap", namespace, "one", made["metadata"]["uid"])
    assert await api.get("ConfigMap", namespace, "one") is None


async def test_api_create_with_existing_name_raises_already_exists(api: Api, namespace: str) -> None:
    await api.create("ConfigMap", namespace, config_map("one"))
    with pytest.raises(ApiError) as caught:
        await api.create("ConfigMap", namespace, config_map("one"))
    assert (caught.value.status, caught.value.reason) == (409, "AlreadyExists")


async def test_api_delete_of_missing_or_recreated_object_does_nothing(api: Api, namespace: str) -> None:
    assert await api.delete("ConfigMap", namespace, "none") is None
    await api.create("ConfigMap", namespace, config_map("one"))
    assert await api.delete("ConfigMap", namespace, "one", uid="another") is None
    assert await api.get("ConfigMap", namespace, "one") is not None


async def test_api_list_returns_pages(
    api: Api, namespace: str, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubothek.cluster.api.PAGE", 2)
    for index in range(5):
        await api.create("ConfigMap", namespace, config_map(f"c{index}"))
    pages = [page async for page in api.pages("ConfigMap", namespace)]
    assert [len(items) for items, _ in pages] == [2, 2, 1]
    assert len({version for _, version in pages}) == 1
    everywhere = [obj async for items, _ in api.pages("ConfigMap", None) for obj in items]
    assert len(everywhere) >= 5


@pytest.mark.parametrize("fault", Fault)
async def test_api_call_with_network_fault_raises_unavailable(
    api: Api, namespace: str, proxy: FaultProxy, fault: Fault
) -> None:
    proxy.decide = lambda position, call: fault
    with pytest.raises(ApiUnavailable):
        await api.create("ConfigMap", namespace, config_map("one"))
    proxy.decide = lambda position, call: None
    assert (await api.get("ConfigMap", namespace, "one") is not None) == (fault is Fault.LOST)


async def test_api_without_server_raises_unavailable(server: ApiServer) -> None:
    client = await Api.connect(str(server.kubeconfig(server="http://127.0.0.1:1")))
    with pytest.raises(ApiUnavailable):
        await client.cluster_uid()
    await client.close()


async def test_api_status_of_missing_object_is_ignored(api: Api, namespace: str) -> None:
    missing = {
        "apiVersion": "kubothek.io/v1alpha1",
        "kind": "Engine",
        "metadata": {"name": "gone", "namespace": namespace},
        "status": {"observedGeneration": 1},
    }
    assert await api.apply_status(missing) is None
