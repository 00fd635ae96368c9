"""A gateway over a bucket: streams, and URLs of the store itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from kubothek.odf import Layout, Multihash, verify
from kubothek.odf.dataset import Root, Table
from kubothek.odf.sync import Reach, pull_remote, push_remote
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys
from tests.gateway.running import WRITER, Running, running
from tests.gateway.test_objects import ask
from tests.odf.dataset.planes import LEDGER, UUID, made, opened, push, sound, table
from tests.s3server import S3Server

pytestmark = pytest.mark.slow

WITH = Reach(token=WRITER)


@pytest.fixture
def bucketed(s3: S3Server, secret: Path, bucket: str) -> Store:
    return open_store(StoreConfig(f"s3://{bucket}/lake", endpoint=s3.endpoint, credentials_dir=str(secret)))


def paths(gateway: Running) -> set[str]:
    return {line["path"].split("/")[2] for line in gateway.lines}


@pytest.mark.requirement("TP-11")
@pytest.mark.s3
@pytest.mark.parametrize("presigned", [3600, 0])
def test_push_and_pull_transfer_objects_through_bucket(store: Store, bucketed: Store, presigned: int) -> None:
    made(store, LEDGER)
    push(store, {1: "A", 2: "B"})
    with running(bucketed, presigned=presigned) as gateway:
        push_remote(opened(store), gateway.smart("fresh"), reach=WITH)
        assert (
            verify(bucketed, Layout(keys.chain("fresh"))).problems == verify(store, Layout(keys.chain(UUID))).problems
        )
        copy = DatasetLog(store, "copy")
        done = pull_remote(store, copy, gateway.smart("fresh"), reach=WITH, table=Table())
        assert done.brought.fetched_objects == 1
        assert Root(store, copy).state == opened(store).state
        assert ("data" in paths(gateway)) == (presigned == 0)
        path = next(iter(bucketed.list(f"{keys.chain('fresh')}data/"))).key
        data = bucketed.get(path)
        url = f"/fresh/data/{path.rpartition('/')[2]}"
        token = {"Authorization": f"Bearer {WRITER}"}
        assert ask(gateway, url, **token).body == data
        assert ask(gateway, url, Range="bytes=10-19", **token).body == data[10:20]


@pytest.mark.s3
def test_presigned_url_never_replaces_existing_object(bucketed: Store) -> None:
    from http import HTTPMethod

    key = f"data/{Multihash.sha3(b'right')}"
    there = bucketed.presigned(HTTPMethod.PUT, key, 60)
    assert there is not None

    async def put(body: bytes, headers: dict[str, str]) -> int:
        async with aiohttp.ClientSession() as session, session.put(there.url, data=body, headers=headers) as answer:
            return answer.status

    assert asyncio.run(put(b"right", {})) == 403  # the condition is signed
    assert asyncio.run(put(b"right", dict(there.headers))) == 200
    assert asyncio.run(put(b"wrong", dict(there.headers))) == 412
    assert bucketed.get(key) == b"right"


@pytest.mark.s3
def test_bucket_serves_as_repository_without_gateway(
    store: Store, other: Store, bucketed: Store, s3: S3Server, secret: Path
) -> None:
    made(store, LEDGER)
    push(store, {1: "A"})
    place = bucketed.url.removesuffix("/lake") + "/planes"
    reach = Reach(endpoint=s3.endpoint, credentials_dir=str(secret))
    assert push_remote(opened(store), place, reach=reach).objects == 1
    pull_remote(other, DatasetLog(other, UUID), place, reach=reach, table=Table())
    assert table(other) == {1: "A"}
    sound(other)
