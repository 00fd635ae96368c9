"""Requests that took down a gateway: each is refused by default, with no option of the gateway for it."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import aiohttp
import orjson
import pytest

from kubothek.errors import LakeError
from kubothek.gateway.access import Tokens
from kubothek.gateway.limits import Limits
from kubothek.odf.sync import Reach
from kubothek.storage import Store
from tests.gateway.running import READER, TOKENS, WRITER, Running, running
from tests.gateway.test_objects import ask
from tests.gateway.test_smart import pulled, pushed
from tests.gateway.wire import LONG, told
from tests.odf.dataset.planes import LEDGER, UUID, made, opened, planes, push, table

pytestmark = pytest.mark.slow

ACCESS = Tokens(TOKENS[:2])


@pytest.fixture
def gateway(other: Store) -> Iterator[Running]:
    made(other, LEDGER)
    push(other, {1: "A"})
    with running(
        other, public=(UUID,), access=ACCESS, limits=Limits(query_memory="64MB", query_seconds=300)
    ) as gateway:
        yield gateway


def test_default_limits_refuse_query_without_dataset_and_token(gateway: Running) -> None:
    found = ask(gateway, "/query?query=SELECT+1")
    assert found.status == 401, found.body


def test_default_limits_refuse_compressed_or_large_query_body(gateway: Running) -> None:
    head = b"POST /query HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert told(gateway.port, head + 3 * (b"10000\r\n" + b"x" * 65536 + b"\r\n")).status == 413
    packed = gzip.compress(orjson.dumps({"query": f"SELECT id FROM {UUID}"}))
    assert ask(gateway, "/query", "POST", packed, Content_Encoding="gzip").status == 415


def test_default_limits_refuse_first_pull_message_above_64_kib(gateway: Running) -> None:
    async def talk() -> Any:
        async with aiohttp.ClientSession() as session, session.ws_connect(f"{gateway.url()}/pull") as connection:
            await connection.send_str('{"x": "' + "a" * (70 << 10) + '"}')
            return (await connection.receive(LONG)).data

    assert "at most 65,536 bytes" in asyncio.run(talk())


def test_default_limits_stop_query_at_memory_limit(gateway: Running) -> None:
    greedy = f"SELECT damerau_levenshtein(repeat('x', 12000), repeat('y', 12000)) FROM {UUID}"
    found = ask(gateway, f"/query?query={quote(greedy)}", Authorization=f"Bearer {READER}")
    assert (found.status, "memory" in found.body.decode()) == (400, True), found.body


def test_forced_push_with_push_right_only_is_refused(store: Store, other: Store, gateway: Running) -> None:
    pulled(store, gateway)
    push(other, {2: "theirs"})
    opened(store).push(planes({3: "mine"}))
    with pytest.raises(LakeError, match="right"):
        pushed(store, gateway, force=True, reach=Reach(token=WRITER))
    assert table(other) == {1: "A", 2: "theirs"}
