"""The API client against a real API server."""

from __future__ import annotations

import pytest

from kubothek.cluster.api import Api, ApiError, ApiUnavailable
from tests.cluster.apiserver import ApiServer
from tests.cluster.proxy import Fault, FaultProxy


def config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}}


async def test_create_get_delete(api: Api, namespace: str) -> None:
    made = await api.create("ConfigMap", namespace, config_map("one"))
    assert await api.get("ConfigMap", namespace, "one") == made
    await api.delete("ConfigMap", namespace, "one", made["metadata"]["uid"])
    assert await api.get("ConfigMap", namespace, "one") is None


async def test_a_name_that_is_taken_is_an_error_that_says_so(api: Api, namespace: str) -> None:
    await api.create("ConfigMap", namespace, config_map("one"))
    with pytest.raises(ApiError) as caught:
        await api.create("ConfigMap", namespace, config_map("one"))
    assert (caught.value.status, caught.value.reason) == (409, "AlreadyExists")


async def test_deleting_what_is_gone_or_re_created_does_nothing(api: Api, namespace: str) -> None:
    assert await api.delete("ConfigMap", namespace, "none") is None
    await api.create("ConfigMap", namespace, config_map("one"))
    assert await api.delete("ConfigMap", namespace, "one", uid="another") is None
    assert await api.get("ConfigMap", namespace, "one") is not None


async def test_listing_goes_page_by_page(
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
async def test_what_may_pass_is_told_from_what_will_not(
    api: Api, namespace: str, proxy: FaultProxy, fault: Fault
) -> None:
    proxy.decide = lambda position, call: fault
    with pytest.raises(ApiUnavailable):
        await api.create("ConfigMap", namespace, config_map("one"))
    proxy.decide = lambda position, call: None
    assert (await api.get("ConfigMap", namespace, "one") is not None) == (fault is Fault.LOST)


async def test_a_server_that_is_not_there_is_unavailable(server: ApiServer) -> None:
    client = await Api.connect(str(server.kubeconfig(server="http://127.0.0.1:1")))
    with pytest.raises(ApiUnavailable):
        await client.cluster_uid()
    await client.close()


async def test_the_status_of_an_object_that_is_gone_is_nobodys(api: Api, namespace: str) -> None:
    missing = {
        "apiVersion": "kubothek.io/v1alpha1",
        "kind": "Engine",
        "metadata": {"name": "gone", "namespace": namespace},
        "status": {"observedGeneration": 1},
    }
    assert await api.apply_status(missing) is None
