"""A gateway's view of a real API server: whose tokens are good, who may what, and which Datasets are exposed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError, OAuthError

from kubothek.api.meta import API_VERSION
from kubothek.catalog import Lake
from kubothek.cluster.api import Api
from kubothek.errors import DatasetNotFound, OwnedByAnother, StoreUnavailable
from kubothek.gateway.access import Principal, Verb
from kubothek.gateway.app import make_app
from kubothek.gateway.datasets import Datasets
from kubothek.gateway.kubernetes import access as access_module
from kubothek.gateway.kubernetes.access import ClusterAccess, Remembered
from kubothek.gateway.kubernetes.catalogue import STALE, NamespaceCatalogue
from kubothek.gateway.limits import Limits
from kubothek.gateway.server import Gateway
from kubothek.storage import StoreConfig, open_store
from tests.cluster.apiserver import ADMIN, OPERATOR, ApiServer
from tests.cluster.harness import PATIENCE, Clock, manifest, resource_path, until
from tests.cluster.proxy import Fault, FaultProxy
from tests.cube import small as cube

AUDIENCE = "gateway.test.svc"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces"


class People:
    """Service accounts of a namespace, and what they may."""

    def __init__(self, server: ApiServer, namespace: str) -> None:
        self._server = server
        self._namespace = namespace

    def token(self, name: str, *audiences: str) -> str:
        """Of a service account, which is made if need be."""
        where = f"/api/v1/namespaces/{self._namespace}/serviceaccounts"
        self._server.apply(
            f"{where}/{name}", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        )
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": audiences}}
        return str(self._server.request("POST", f"{where}/{name}/token", request)["status"]["token"])

    def forget(self, name: str) -> None:
        """Delete a service account."""
        self._server.request("DELETE", f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{name}")

    def allow(self, name: str, verbs: list[str], *datasets: str) -> None:
        """Give a service account a role."""
        rule: dict[str, Any] = {"apiGroups": ["kubothek.io"], "resources": ["datasets"], "verbs": verbs}
        if datasets:
            rule["resourceNames"] = datasets
        group = "rbac.authorization.k8s.io"
        role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": name}, "rules": [rule]}
        self._server.apply(f"{RBAC}/{self._namespace}/roles/{name}", role)
        binding = {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": self._namespace}],
        }
        self._server.apply(f"{RBAC}/{self._namespace}/rolebindings/{name}", binding)

    def disallow(self, name: str) -> None:
        """Take the role away."""
        self._server.request("DELETE", f"{RBAC}/{self._namespace}/rolebindings/{name}")


@pytest.fixture
def people(server: ApiServer, namespace: str) -> People:
    return People(server, namespace)


@pytest.fixture
def access(api: Api, namespace: str) -> ClusterAccess:
    return ClusterAccess(api, namespace, AUDIENCE)


async def known(access: ClusterAccess, token: str) -> Principal:
    found = await access.principal(token)
    assert found is not None
    return found


async def test_gateway_token_is_accepted_only_for_its_audience(
    access: ClusterAccess, people: People, namespace: str
) -> None:
    found = await known(access, people.token("partner", AUDIENCE))
    assert found.name == f"system:serviceaccount:{namespace}:partner"
    assert await access.principal(people.token("partner", "another")) is None
    assert await access.principal(people.token("partner", "another", AUDIENCE)) is not None
    assert await access.principal(people.token("partner")) is None, "the usual token of a pod"
    for stranger in (ADMIN, OPERATOR, "x", "a b", "nul\0", "é", people.token("partner", AUDIENCE)[:-3] + "abc"):
        assert await access.principal(stranger) is None


async def test_gateway_roles_grant_verbs_on_datasets(access: ClusterAccess, people: People) -> None:
    wide = await known(access, people.token("wide", AUDIENCE))
    narrow = await known(access, people.token("narrow", AUDIENCE))
    nobody = await known(access, people.token("nobody", AUDIENCE))
    people.allow("wide", ["get", "ingest"])
    people.allow("narrow", ["push", "get"], "flights")

    async def rights(user: Principal, dataset: str) -> set[Verb]:
        return {verb for verb in Verb if await access.may(user, verb, dataset)}

    assert await rights(wide, "flights") == await rights(wide, "unheard-of") == {Verb.PULL, Verb.QUERY, Verb.INGEST}
    assert await rights(narrow, "flights") == {Verb.PULL, Verb.QUERY, Verb.PUSH}
    assert await rights(narrow, "planes") == set()
    assert await rights(nobody, "flights") == set()
    assert await rights(Principal(wide.name), "flights") == set(), "whom the cluster has not named"


async def test_gateway_roles_of_other_namespace_are_ignored(
    api: Api, server: ApiServer, make_namespace: Callable[[], str], people: People
) -> None:
    elsewhere = ClusterAccess(api, make_namespace(), AUDIENCE)
    people.allow("partner", ["get", "push"])
    assert not await elsewhere.may(await known(elsewhere, people.token("partner", AUDIENCE)), Verb.PULL, "flights")


async def test_gateway_review_results_are_cached_for_seconds(
    access: ClusterAccess, people: People, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    people.allow("partner", ["get"])
    token = people.token("partner", AUDIENCE)
    calls: list[str] = []

    def count(position: int, call: Any) -> None:
        calls.append(str(call))

    proxy.decide = count
    found = await asyncio.gather(*(known(access, token) for _ in range(50)))
    assert all(await asyncio.gather(*(access.may(each, Verb.PULL, "flights") for each in found)))
    assert len(calls) == 2, "50 requests, one review of each kind"
    people.disallow("partner")
    assert await access.may(found[0], Verb.PULL, "flights"), "that is what remembering means"
    monkeypatch.setattr(access_module, "GOOD", 0.0)
    forgetful = ClusterAccess(access._api, access._namespace, AUDIENCE)
    async with asyncio.timeout(PATIENCE):  # the API server itself hears of roles a little later
        while await forgetful.may(found[0], Verb.PULL, "flights"):
            await asyncio.sleep(0.02)


async def test_gateway_token_of_deleted_account_is_refused(access: ClusterAccess, people: People) -> None:
    token = people.token("former", AUDIENCE)  # not shown before: the API server remembers, too, for 10 s
    people.forget("former")
    assert await access.principal(token) is None


@pytest.mark.parametrize("fault", Fault)
async def test_gateway_failed_review_denies_access_and_is_not_cached(
    access: ClusterAccess, people: People, proxy: FaultProxy, fault: Fault
) -> None:
    token = people.token("partner", AUDIENCE)
    people.allow("partner", ["get"])
    user = await known(access, token)
    other = people.token("other", AUDIENCE)
    proxy.decide = lambda position, call: fault
    with pytest.raises(StoreUnavailable):
        await access.principal(other)
    with pytest.raises(StoreUnavailable):
        await access.may(user, Verb.PULL, "flights")
    proxy.decide = lambda position, call: None
    assert await access.may(user, Verb.PULL, "flights")
    assert await access.principal(other) is not None


async def test_gateway_without_own_rights_denies_access(server: ApiServer, namespace: str, people: People) -> None:
    powerless = people.token("powerless")
    client = await Api.connect(str(server.kubeconfig(powerless)))
    try:
        with pytest.raises(StoreUnavailable, match="forbidden"):
            await ClusterAccess(client, namespace, AUDIENCE).principal(people.token("partner", AUDIENCE))
    finally:
        await client.close()


async def test_review_cache_is_bounded_expires_and_asks_once() -> None:
    now, asked = 0.0, 0

    async def ask() -> int:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return asked

    kept: Remembered[int, int] = Remembered(2, lambda answer: 10.0, lambda: now)
    assert list(await asyncio.gather(kept.get(1, ask), kept.get(1, ask))) == [1, 1]
    now = 9.9
    assert await kept.get(1, ask) == 1
    now = 10.0
    assert await kept.get(1, ask) == 2
    await kept.get(2, ask)
    await kept.get(1, ask)
    await kept.get(3, ask)
    assert [await kept.get(1, ask), await kept.get(3, ask)] == [2, 4]
    assert await kept.get(2, ask) == 5, "the one that was used longest ago was forgotten"

    async def fail() -> int:
        raise StoreUnavailable("no")

    with pytest.raises(StoreUnavailable):
        await kept.get(9, fail)
    assert await kept.get(9, ask) == 6
    gone = asyncio.create_task(kept.get(10, ask))
    waiting = asyncio.create_task(kept.get(10, ask))
    await asyncio.sleep(0)
    gone.cancel()
    assert await waiting == 7


# --- what is exposed ---


def put(server: ApiServer, kind: str, namespace: str, name: str, spec: dict[str, Any]) -> None:
    server.apply(resource_path(kind, namespace, name), manifest(kind, namespace, name, spec))


def delete(server: ApiServer, kind: str, namespace: str, name: str) -> None:
    server.request("DELETE", resource_path(kind, namespace, name))


EXPOSED = {"storeRef": {"name": "lake"}, "sharing": {"exposed": True}}


@asynccontextmanager
async def following(api: Api, namespace: str, clock: Clock | None = None) -> AsyncIterator[NamespaceCatalogue]:
    catalogue = NamespaceCatalogue(api, namespace, "here", clock=clock or Clock())
    task = asyncio.create_task(catalogue.run())
    try:
        await until(lambda: catalogue.ready or task.done())
        yield catalogue
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_gateway_follows_dataset_changes_immediately(api: Api, server: ApiServer, namespace: str) -> None:
    put(server, "ObjectStore", namespace, "lake", {"url": "s3://lake", "credentialsSecretRef": {"name": "secret"}})
    put(server, "Dataset", namespace, "hidden", {"storeRef": {"name": "lake"}})
    put(server, "Dataset", namespace, "closed", {"storeRef": {"name": "lake"}, "sharing": {"exposed": False}})
    put(server, "Dataset", namespace, "flights", {**EXPOSED, "uuid": "flights-2013"})
    async with following(api, namespace) as catalogue:
        assert catalogue.names() == ["flights"]
        place = catalogue.place("flights")
        assert place.uuid == "flights-2013"
        assert place.claim is not None
        assert place.claim.owner == f"here/{namespace}/flights"
        assert place.store.config.credentials_dir == "/var/run/kubothek/credentials/lake"
        assert not catalogue.public("flights")
        for name in ("hidden", "closed", "flights-2013", "none"):
            assert not catalogue.public(name)
            with pytest.raises(DatasetNotFound):
                catalogue.place(name)
        put(
            server,
            "Dataset",
            namespace,
            "flights",
            {**EXPOSED, "uuid": "flights-2013", "sharing": {"exposed": True, "public": True}},
        )
        await until(lambda: catalogue.public("flights"))
        assert catalogue.place("flights") == place, "what is remembered of it still holds"
        put(server, "Dataset", namespace, "more", EXPOSED)
        await until(lambda: catalogue.names() == ["flights", "more"])
        put(server, "Dataset", namespace, "flights", {"storeRef": {"name": "lake"}, "uuid": "flights-2013"})
        await until(lambda: catalogue.names() == ["more"])
        with pytest.raises(DatasetNotFound):
            catalogue.place("flights")
        assert not catalogue.public("flights")
        delete(server, "ObjectStore", namespace, "lake")
        await until(lambda: _raises(StoreUnavailable, lambda: catalogue.place("more")))
        delete(server, "Dataset", namespace, "more")
        await until(lambda: not catalogue.names())


async def test_cube_is_a_namespace_of_datasets_that_gateway_may_not_write(
    api: Api, server: ApiServer, namespace: str, tmp_path: Path
) -> None:
    cube.build(open_store(StoreConfig(tmp_path.as_uri())))
    put(server, "ObjectStore", namespace, "lake", {"url": tmp_path.as_uri(), "volume": {"claimName": "data"}})
    owner = {
        "apiVersion": API_VERSION,
        "kind": "Cube",
        "name": "sites",
        "uid": "d9607e19-f88f-11e6-a518-42010a800195",
        "controller": True,
    }

    def put_member(name: str, spec: dict[str, Any]) -> None:
        member = manifest("Dataset", namespace, f"sites-{name}", {**spec, "uuid": f"geo++{name}"})
        member["metadata"]["ownerReferences"] = [owner]
        server.apply(resource_path("Dataset", namespace, f"sites-{name}"), member)

    put_member("seed", EXPOSED)
    put_member("extra", {"storeRef": {"name": "lake"}})
    async with following(api, namespace) as catalogue:
        assert catalogue.cubes() == ["sites"]
        assert catalogue.cube("sites") is None, "one of its datasets is not exposed"
        assert catalogue.place("sites-seed").claim is None
        with pytest.raises(OwnedByAnother, match=r"geo\+\+seed"):
            Datasets(catalogue).writable("sites-seed")
        put_member("extra", EXPOSED)
        await until(lambda: catalogue.cube("sites") is not None)
        found = catalogue.cube("sites")
        assert found is not None
        assert found.datasets.keys() == {"sites-seed", "sites-extra"}
        assert catalogue.cube("geo") is catalogue.cube("none") is None
        delete(server, "Dataset", namespace, "sites-seed")
        delete(server, "Dataset", namespace, "sites-extra")
        await until(lambda: not catalogue.cubes())


async def test_iceberg_token_of_other_namespace_lists_and_loads_nothing(
    api: Api, server: ApiServer, namespace: str, make_namespace: Callable[[], str], people: People, tmp_path: Path
) -> None:
    Lake(open_store(StoreConfig(tmp_path.as_uri()))).create_dataset("flights-2013").append(pa.table({"seats": [1, 2]}))
    put(server, "ObjectStore", namespace, "lake", {"url": tmp_path.as_uri(), "volume": {"claimName": "data"}})
    put(server, "Dataset", namespace, "flights", {**EXPOSED, "uuid": "flights-2013"})
    elsewhere = People(server, make_namespace())
    put(server, "Dataset", namespace, "off", {**EXPOSED, "export": {"iceberg": {"enabled": False}}})
    people.allow("reader", ["get"])
    elsewhere.allow("reader", ["get"])
    limits = Limits()
    async with following(api, namespace) as catalogue:
        gateway = Gateway(
            make_app(catalogue, ClusterAccess(api, namespace, AUDIENCE), limits=limits, namespace=namespace), limits
        )
        uri = f"http://127.0.0.1:{await gateway.start('127.0.0.1', 0)}/iceberg"

        server_uris = {"uri": uri, "oauth2-server-uri": f"{uri}/v1/oauth/tokens"}

        def check(mine: str, theirs: str, without_audience: str) -> None:
            found = RestCatalog("gateway", credential=f"reader:{mine}", **server_uris)
            assert found.list_namespaces() == [(namespace,)]
            assert found.list_tables(namespace) == [(namespace, "flights")]
            assert found.load_table((namespace, "flights")).scan().to_arrow().num_rows == 2
            with pytest.raises(NoSuchTableError, match=r"set spec\.export\.iceberg\.enabled of the Dataset to true"):
                found.load_table((namespace, "off"))
            found = RestCatalog("gateway", uri=uri, token=theirs)
            assert found.list_namespaces() == found.list_tables(namespace) == []
            with pytest.raises(NoSuchTableError):
                found.load_table((namespace, "flights"))
            with pytest.raises(OAuthError, match="invalid_client"):
                RestCatalog("gateway", credential=f"reader:{without_audience}", **server_uris)

        try:
            tokens = people.token("reader", AUDIENCE), elsewhere.token("reader", AUDIENCE), people.token("reader")
            await asyncio.to_thread(check, *tokens)
        finally:
            await gateway.stop()


async def test_dataset_public_without_exposed_is_refused_by_api_server(server: ApiServer, namespace: str) -> None:
    import urllib.error

    with pytest.raises(urllib.error.HTTPError) as caught:
        put(server, "Dataset", namespace, "d", {"storeRef": {"name": "lake"}, "sharing": {"public": True}})
    assert b"sharing.public goes with sharing.exposed" in caught.value.read()


async def test_gateway_resumes_after_watch_gap_without_loss(
    api: Api, server: ApiServer, namespace: str, proxy: FaultProxy
) -> None:
    put(server, "ObjectStore", namespace, "lake", {"url": "s3://lake"})
    for name in ("one", "two"):
        put(server, "Dataset", namespace, name, EXPOSED)
    clock = Clock()
    async with following(api, namespace, clock) as catalogue:
        await until(lambda: proxy.streams == 2)
        proxy.decide = lambda position, call: Fault.REFUSED
        proxy.cut()
        delete(server, "Dataset", namespace, "one")
        put(server, "Dataset", namespace, "three", EXPOSED)
        await asyncio.sleep(0.3)
        assert catalogue.names() == ["one", "two"]
        clock.now = STALE + 1
        assert not catalogue.ready
        with pytest.raises(StoreUnavailable):
            catalogue.place("two")
        with pytest.raises(StoreUnavailable):
            catalogue.public("two")
        proxy.decide = lambda position, call: None
        await until(lambda: catalogue.ready and catalogue.names() == ["three", "two"])


async def test_gateway_relists_after_expired_resource_version(
    api: Api, server: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(server, "ObjectStore", namespace, "lake", {"url": "s3://lake"})
    put(server, "Dataset", namespace, "one", EXPOSED)
    watched = api.watch
    tried = 0

    def forgetful(kind: str, space: str, version: int) -> Any:
        nonlocal tried
        tried += 1
        return watched(kind, space, 1 if tried <= 2 else version)

    monkeypatch.setattr(api, "watch", forgetful)
    async with following(api, namespace) as catalogue:
        put(server, "Dataset", namespace, "two", EXPOSED)
        await until(lambda: catalogue.names() == ["one", "two"])


async def test_gateway_opens_store_once_per_configuration(
    api: Api, server: ApiServer, namespace: str, tmp_path: Path
) -> None:
    opened: list[StoreConfig] = []

    def note(config: StoreConfig) -> Any:
        opened.append(config)
        return open_store(StoreConfig(tmp_path.as_uri()))

    put(server, "ObjectStore", namespace, "lake", {"url": "s3://lake"})
    catalogue = NamespaceCatalogue(api, namespace, "here", opened=note)
    task = asyncio.create_task(catalogue.run())
    await until(lambda: catalogue.ready)
    put(server, "ObjectStore", namespace, "lake", {"url": "s3://lake", "interval": "1h"})
    put(server, "ObjectStore", namespace, "lake", {"url": "s3://lake", "region": "eu-1"})
    await until(lambda: len(opened) == 2)
    assert [config.region for config in opened] == [None, "eu-1"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _raises(kind: type[Exception], act: Callable[[], object]) -> bool:
    try:
        act()
    except kind:
        return True
    return False
