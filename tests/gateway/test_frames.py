"""What a WebSocket carries, in the forms of three parties; what it can be made to carry, test_hostile.py tries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import aiohttp
import orjson
import pytest

from kubothek.gateway.limits import Limits
from kubothek.odf import Layout, Multihash, read_chain
from kubothek.odf.sync.smart.batch import batch_of
from kubothek.odf.sync.smart.messages import Dialect
from kubothek.storage import Store
from kubothek.table.log.model import keys
from tests.gateway.running import WRITER, Running, running
from tests.gateway.test_objects import ask
from tests.odf.dataset.planes import LEDGER, UUID, made, opened, push

pytestmark = pytest.mark.slow

WRITES = {"Authorization": f"Bearer {WRITER}"}


@pytest.fixture
def gateway(store: Store) -> Iterator[Running]:
    made(store, LEDGER)
    push(store, {1: "A"})
    limits = Limits(message_bytes=1 << 20, patience=2.0, burst=10**6)
    with running(store, public=(UUID,), limits=limits) as gateway:
        yield gateway


async def said(gateway: Running, side: str, *frames: Any, headers: dict[str, str] = WRITES) -> list[Any]:
    """All that is answered to these messages."""
    found: list[Any] = []
    async with aiohttp.ClientSession() as session, session.ws_connect(gateway.url() + side, headers=headers) as socket:
        for frame in frames:
            if isinstance(frame, bytes):
                await socket.send_bytes(frame)
            else:
                await socket.send_str(frame if isinstance(frame, str) else orjson.dumps(frame).decode())
            message = await socket.receive(10)
            if message.type is not aiohttp.WSMsgType.TEXT:
                break
            found.append(orjson.loads(message.data))
    return found


def head(store: Store) -> str:
    return str(opened(store).state.head)


@pytest.mark.requirement("TP-09", "TP-10")
def test_published_protocol_messages_are_answered_in_published_form(store: Store, gateway: Running) -> None:
    layout = Layout(keys.chain(UUID))
    chain = read_chain(store, layout)
    last = chain[-1].decode().content.event.new_data  # type: ignore[union-attr]
    assert last is not None
    named = {"objectType": "DataSlice", "physicalHash": str(last.physical_hash)}
    plan, blocks, places = asyncio.run(
        said(gateway, "/pull", {"datasetId": "did:odf:x"}, {}, {"objectFiles": [named]}, headers={})
    )
    assert plan["sizeEstimation"]["numBlocks"] == len(chain)
    assert (blocks["blocks"]["objectType"], blocks["blocks"]["encoding"]) == ("MetadataBlock", "base64")
    (place,) = places["objectTransferStrategies"]
    assert (place["pullStrategy"], place["downloadFrom"]["url"].startswith(gateway.root)) == ("HttpDownload", True)
    estimation = {"numBlocks": 1, "numObjects": 0, "bytesInRawBlocks": 1, "bytesInRawObjects": 1}
    asked = {"datasetId": "did:odf:x", "currentHead": head(store), "sizeEstimation": estimation}
    batch = batch_of([], Dialect.SPEC)
    spelled = {"objectsCount": 0, "objectType": "MetadataBlock", "mediaType": "application/tar", "encoding": "base64"}
    answers = asyncio.run(said(gateway, "/push", asked, {"newBlocks": {**spelled, "payload": batch["payload"]}}, {}))
    assert answers == [{}, {}, {}]
    (wrong,) = asyncio.run(said(gateway, "/push", {**asked, "currentHead": None}))
    assert wrong["errorDetails"]["errorCode"] == "InvalidHead"


@pytest.mark.requirement("TP-13")
def test_kamu_protocol_messages_are_answered_in_kamu_form(store: Store, gateway: Running) -> None:
    plan, blocks = asyncio.run(said(gateway, "/pull", {"begin_after": None, "stop_at": None}, {}))
    assert [*plan["Ok"]["transfer_plan"]] == [
        "num_blocks",
        "num_objects",
        "num_records",
        "bytes_in_raw_blocks",
        "bytes_in_raw_objects",
    ]
    assert [*blocks["blocks"]] == ["num_blocks", "media_type", "encoding", "payload"]
    nothing = str(Multihash.sha3(b"nothing"))
    (found,) = asyncio.run(said(gateway, "/pull", {"begin_after": nothing, "stop_at": None}))
    assert found == {"Err": {"InvalidInterval": {"head": head(store), "tail": nothing}}}
    plan = dict.fromkeys(plan["Ok"]["transfer_plan"], 0)
    (found,) = asyncio.run(said(gateway, "/push", {"current_head": nothing, "transfer_plan": plan}))
    assert found == {"Err": {"InvalidHead": {"actual_head": head(store), "expected_head": nothing}}}
    (found,) = asyncio.run(said(gateway, "/pull", {}, headers={**WRITES, "x-odf-smtp-version": "2"}))
    message = "Incompatible version. x-odf-smtp-version is '2', and this server has 1: use a client of version 1"
    assert found["Err"]["Internal"]["error_message"].startswith(message)
    (found,) = asyncio.run(said(gateway, "/pull", "no json", headers={"x-odf-smtp-version": "1"}))
    assert found["Err"]["Internal"]["phase"] == {"Pull": "InitialRequest"}


def test_pull_of_unchanged_chain_lists_no_blocks(store: Store, gateway: Running) -> None:
    (plan,) = asyncio.run(said(gateway, "/pull", {"begin_after": head(store), "stop_at": None}))
    assert plan["Ok"]["transfer_plan"]["num_blocks"] == 0


def test_pull_of_abandoned_blocks_is_refused(store: Store, gateway: Running) -> None:
    left = opened(store).state.head
    opened(store).reset(next(iter(opened(store).blocks())).content.prev_block_hash)  # type: ignore[arg-type]
    (found,) = asyncio.run(said(gateway, "/pull", {"begin_after": None, "stop_at": str(left)}))
    assert "InvalidInterval" in found["Err"]


def test_message_above_size_limit_closes_connection(gateway: Running) -> None:
    assert asyncio.run(said(gateway, "/push", "x" * ((1 << 20) + 1))) == []


def test_silent_websocket_client_is_disconnected(store: Store) -> None:
    made(store, LEDGER)

    async def silent(gateway: Running) -> Any:
        async with aiohttp.ClientSession() as session, session.ws_connect(gateway.url() + "/pull") as socket:
            return (await socket.receive(10)).type

    with running(store, public=(UUID,), limits=Limits(patience=0.3)) as gateway:
        assert asyncio.run(silent(gateway)) is aiohttp.WSMsgType.CLOSE
        assert ask(gateway, f"/{UUID}/pull").status == 426
