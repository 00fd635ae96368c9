"""Datasets of several stores under names of their own, some of which a resource has claimed: what a namespace has."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from kubothek.errors import DatasetNotFound, OwnedByAnother, StoreUnavailable
from kubothek.gateway.catalogue import Place
from kubothek.gateway.datasets import Datasets
from kubothek.gateway.kubernetes.process import CERTIFICATE, KEY, renew, tls_context
from kubothek.odf.dataset import Root, Table, create
from kubothek.odf.sync import Reach, pull_remote, push_remote
from kubothek.storage import Store
from kubothek.table.log import Claim, DatasetLog
from tests.gateway.running import READER, WRITER, running
from tests.gateway.test_objects import ask
from tests.odf.dataset.planes import LEDGER, OWNER, UUID, begun, planes, source
from tests.testcluster.pki import Authority

pytestmark = pytest.mark.slow

CLAIM = Claim("here/lake/planes", "1")
WITH = Reach(token=WRITER)
AS_WRITER = {"Authorization": f"Bearer {WRITER}"}


class Shelf:
    """A catalogue that is a dictionary."""

    def __init__(self, **places: Place) -> None:
        self.places = places

    def place(self, name: str) -> Place:
        try:
            return self.places[name]
        except KeyError:
            raise DatasetNotFound(f"there is no dataset {name!r}") from None

    def public(self, name: str) -> bool:
        return False

    def names(self) -> Sequence[str]:
        return sorted(self.places)

    def cubes(self) -> Sequence[str]:
        return ()

    def cube(self, name: str) -> None:
        return None


def filled(store: Store, models: dict[int, str], claim: Claim | None = None) -> Root:
    create(store, DatasetLog(store, UUID, claim=claim), begun(source(LEDGER)), OWNER)
    root = Root(store, DatasetLog(store, UUID, claim=claim))
    root.push(planes(models))
    return root


def test_catalog_maps_names_to_uuids_in_several_stores(store: Store, other: Store) -> None:
    filled(store, {1: "A"})
    theirs = filled(other, {1: "B", 2: "C"})
    shelf = Shelf(planes=Place(store, UUID), copy=Place(other, UUID))
    with running(store, catalogue=shelf) as gateway:
        query = "SELECT copy.id, planes.model a, copy.model b FROM copy LEFT JOIN planes USING (id) ORDER BY copy.id"
        answer = ask(gateway, "/query", "POST", orjson.dumps({"query": query}), **AS_WRITER)
        assert orjson.loads(answer.body) == {"data": [{"id": 1, "a": "A", "b": "B"}, {"id": 2, "a": None, "b": "C"}]}
        assert ask(gateway, "/copy/refs/head", **AS_WRITER).body.decode() == str(theirs.state.head)
        found = orjson.loads(ask(gateway, "/search", **AS_WRITER).body)["datasets"]
        assert [(each["name"], each["records"]) for each in found] == [("copy", 2), ("planes", 1)]
        tail = orjson.loads(ask(gateway, "/copy/tail", **AS_WRITER).body)["data"]
        assert [row["model"] for row in tail] == ["B", "C"]
        for name in ("fresh", UUID + "x"):
            assert ask(gateway, f"/{name}/refs/head", **AS_WRITER).status in (403, 404)
        reader = {"Authorization": f"Bearer {READER}"}
        denied = ask(gateway, "/query", "POST", orjson.dumps({"query": "SELECT * FROM copy"}), **reader)
        assert denied.status == 400
        assert b"copy" in denied.body
        del shelf.places["copy"]
        assert ask(gateway, "/copy/refs/head", **AS_WRITER).status == 404


def test_catalog_claim_lets_gateway_write_owned_dataset(store: Store, other: Store) -> None:
    filled(other, {1: "A"}, CLAIM)
    log = DatasetLog(store, UUID)
    row = b'{"id": 3, "model": "C"}\n'
    with running(other, catalogue=Shelf(planes=Place(other, UUID, CLAIM))) as gateway:
        pull_remote(store, log, gateway.smart(), reach=WITH, table=Table())
        mine = Root(store, log)
        mine.push(planes({2: "B"}))
        push_remote(mine, gateway.smart(), reach=WITH)
        assert Root(other, DatasetLog(other, UUID)).state.head == mine.state.head
        assert (
            ask(gateway, f"/{UUID}/ingest", "POST", row, **{"Content-Type": "application/x-ndjson", **AS_WRITER}).status
            == 200
        )
        assert ask(gateway, "/fresh/push", **AS_WRITER).status == 404, "there is no resource for it"
        unheard = "f1620" + "0" * 64
        assert ask(gateway, f"/fresh/data/{unheard}", "PUT", b"x", **AS_WRITER).status == 404
    for claim in (None, Claim("there/lake/planes", "1")):
        with running(other, catalogue=Shelf(planes=Place(other, UUID, claim))) as gateway:
            head = ask(gateway, f"/{UUID}/refs/head", **AS_WRITER).body
            answer = ask(
                gateway, f"/{UUID}/ingest", "POST", row, **{"Content-Type": "application/x-ndjson", **AS_WRITER}
            )
            assert (answer.status, orjson.loads(answer.body)["reason"]) == (403, "OwnedByAnother")
            assert ask(gateway, f"/{UUID}/refs/head", **AS_WRITER).body == head


def test_catalog_refuses_writes_to_store_without_conditional_writes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kubothek.storage import Capabilities

    monkeypatch.setattr(type(store), "probe", lambda self: Capabilities(False, False, 0.0))
    with pytest.raises(OwnedByAnother, match="no conditional writes"):
        Datasets(Shelf(planes=Place(store, UUID, CLAIM))).writable("planes")


def test_gateway_behind_proxy_returns_urls_with_public_address(store: Store, other: Store) -> None:
    filled(other, {1: "A"})
    told = pytest.raises(StoreUnavailable, match=r"from http://127\.0\.0\.1:1/lake/planes/data/.*port=1\b")
    with running(other, url="http://127.0.0.1:1/lake") as gateway, told:
        pull_remote(store, DatasetLog(store, UUID), gateway.smart(), reach=WITH, table=Table())


async def test_renewed_certificate_is_served_to_new_connections(tmp_path: Path) -> None:
    import asyncio

    authority = Authority("test")

    def write(name: str) -> None:
        pair = authority.issue(name, hosts=("localhost",))
        pair.write(tmp_path, "tls")

    write("first")
    authority.pair.write(tmp_path, "ca")
    assert (tmp_path / CERTIFICATE).exists()
    assert (tmp_path / KEY).exists()
    context = tls_context(tmp_path)
    task = asyncio.create_task(renew(context, tmp_path, 0.01))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    trusting = ssl.create_default_context(cafile=tmp_path / "ca.crt")

    async def shown() -> Any:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname="localhost")
        certificate = writer.get_extra_info("peercert")
        writer.close()
        return dict(part[0] for part in certificate["subject"])["commonName"]

    assert await shown() == "first"
    (tmp_path / CERTIFICATE).write_text("half")
    await asyncio.sleep(0.05)
    assert await shown() == "first", "what cannot be read is left for later"
    write("second")
    async with asyncio.timeout(60):
        while await shown() != "second":
            await asyncio.sleep(0.02)
    task.cancel()
    server.close()
