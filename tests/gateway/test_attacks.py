"""Attacks that took down a gateway: SQL and bodies that take memory, time or places. Small versions of each."""

from __future__ import annotations

import asyncio
import gzip
import os
import select
import socket
import subprocess
import sys
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import orjson
import psutil
import pytest
from aiohttp import WSCloseCode

from kubothek.gateway.limits import Limits
from kubothek.storage import Store
from tests.gateway.running import READER, WRITER, Running, running
from tests.gateway.test_objects import Answered, ask
from tests.gateway.wire import LONG, connected, told
from tests.odf.dataset.planes import LEDGER, UUID, made, push, table

pytestmark = pytest.mark.slow

AS_READER = {"Authorization": f"Bearer {READER}"}
AS_WRITER = {"Authorization": f"Bearer {WRITER}"}
MEMORY = "64MB"
BOMB = "SELECT damerau_levenshtein(repeat('x', 12000), repeat('y', 12000)) AS n"
"""576 MB in one call of a function, which nothing interrupts."""
ENDLESS = f"SELECT levenshtein(repeat('x', 400000), repeat('y', 400000)) AS n FROM {UUID}"
"""Minutes in one call of a function."""
_AT_WORK = 0.3
LIMITS = Limits(query_memory=MEMORY, query_seconds=300, working=2, head_seconds=2, bodies=8, bodies_each=4)


@pytest.fixture
def gateway(store: Store) -> Iterator[Running]:
    made(store, LEDGER)
    push(store, {1: "A"})
    with running(store, public=(UUID,), limits=LIMITS) as gateway:
        yield gateway


def query(gateway: Running, sql: str, **headers: str) -> Answered:
    return ask(gateway, f"/query?query={quote(sql)}", **headers)


def workers() -> list[psutil.Process]:
    """Of this process, that are at work: to be ready takes less."""
    found = []
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            forked = each.ppid() != os.getpid()
            if forked and each.status() == psutil.STATUS_RUNNING and each.cpu_times().user > _AT_WORK:
                found.append(each)
    return found


def until(condition: Any) -> None:
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("sql", [BOMB, "SELECT 1", "WITH t AS (SELECT 1) FROM t", "FROM range(10)"])
def test_query_without_dataset_and_token_is_refused(gateway: Running, sql: str) -> None:
    found = query(gateway, sql)
    assert (found.status, orjson.loads(found.body)["reason"]) == (401, "Unauthorized")


def test_query_beyond_memory_limit_fails_and_leaves_gateway_small(gateway: Running) -> None:
    assert query(gateway, f"SELECT id FROM {UUID}").status == 200
    before = psutil.Process().memory_info().rss
    found = query(gateway, BOMB, **AS_READER)
    assert (found.status, "more than 64MB of memory" in found.body.decode()) == (400, True), found.body
    found = query(gateway, BOMB.replace(" AS n", f" FROM {UUID}"))
    assert found.status == 400
    assert psutil.Process().memory_info().rss < before + (32 << 20)


def test_query_of_disconnected_client_is_killed(gateway: Running) -> None:
    with connected(gateway.port) as connection:
        connection.sendall(f"GET /query?query={quote(ENDLESS)} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        until(workers)
    until(lambda: not workers())
    assert query(gateway, f"SELECT id FROM {UUID}").status == 200


def test_queries_of_one_client_leave_slots_to_others(gateway: Running) -> None:
    most = 5  # half of 2 that run and 8 that wait
    asked = f"GET /query?query={quote(ENDLESS)} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    with ExitStack() as stack:
        held = [stack.enter_context(connected(gateway.port)) for _ in range(most + 1)]
        for each in held:
            each.sendall(asked)
        [refused], _, _ = select.select(held, [], [], LONG)
        answer = refused.recv(4096)
        assert answer.startswith(b"HTTP/1.1 429 "), answer
        assert b"\r\nRetry-After: 2\r\n" in answer
        assert b"5 of one client running or waiting; retry after 2 s" in answer
        assert query(gateway, f"SELECT id FROM {UUID}", **AS_READER).status == 200
    until(lambda: query(gateway, f"SELECT id FROM {UUID}").status == 200)


def test_query_with_endless_chunked_body_is_refused(gateway: Running) -> None:
    head = b"POST /query HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert told(gateway.port, head + b"10000\r\n" + b"x" * 65536 + b"\r\n" + b"10000\r\n" + b"x" * 65536).status == 413


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
def test_query_with_compressed_body_is_refused(gateway: Running, encoding: str) -> None:
    bomb = gzip.compress(b" " * (16 << 20))
    assert len(bomb) < 64 << 10
    assert ask(gateway, "/query", "POST", bomb, Content_Encoding=encoding).status == 415


def test_query_bodies_that_never_end_block_no_other_client(gateway: Running) -> None:
    head = b"POST /query HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"
    with ExitStack() as stack:
        held = [stack.enter_context(connected(gateway.port)) for _ in range(20)]
        for each in held:
            each.sendall(head)
        assert query(gateway, f"SELECT id FROM {UUID}").status == 200
        answers = [first_line(each) for each in held]
        assert answers.count(b"") == LIMITS.bodies_each  # broken off, when their time is over
        assert sum(b" 429 " in each for each in answers) == 20 - LIMITS.bodies_each
    found = ask(gateway, "/query", "POST", orjson.dumps({"query": f"SELECT id FROM {UUID}"}))
    assert found.status == 200


def first_line(connection: socket.socket) -> bytes:
    with closing(connection.makefile("rb")) as answer, suppress(ConnectionError):
        return answer.readline()
    return b""


@pytest.mark.parametrize(("pack", "encoding"), [(gzip.compress, "gzip"), (zlib.compress, "deflate")])
def test_ingest_body_is_decompressed_while_arriving(store: Store, gateway: Running, pack: Any, encoding: str) -> None:
    headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": encoding, **AS_WRITER}
    assert ask(gateway, f"/{UUID}/ingest", "POST", pack(b'{"id": 2, "model": "B"}\n'), **headers).status == 200
    assert table(store) == {1: "A", 2: "B"}
    half = pack(b'{"id": 3, "model": "C"}\n' * 100)[:-8]
    assert ask(gateway, f"/{UUID}/ingest", "POST", half, **headers).status == 400
    assert ask(gateway, f"/{UUID}/ingest", "POST", b"not packed", **headers).status == 400


def test_ingest_body_that_decompresses_beyond_limit_is_refused(store: Store) -> None:
    made(store, LEDGER)
    headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip", **AS_WRITER}
    body = gzip.compress(b" " * (64 << 20))
    with running(store, limits=Limits(ingest_bytes=1 << 20)) as gateway:
        tracemalloc.start()
        try:
            assert ask(gateway, f"/{UUID}/ingest", "POST", body, **headers).status == 413
            assert tracemalloc.get_traced_memory()[1] < 16 << 20
        finally:
            tracemalloc.stop()


def test_ingest_body_that_never_ends_uses_no_slot(gateway: Running) -> None:
    head = f"POST /{UUID}/ingest HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {WRITER}\r\nContent-Length: 9\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(LIMITS.bodies_each):
            stack.enter_context(connected(gateway.port)).sendall(head.encode())
        assert query(gateway, f"SELECT id FROM {UUID}").status == 200


def test_first_pull_message_above_size_limit_is_refused(gateway: Running) -> None:
    async def talk(size: int) -> Any:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"{gateway.url()}/pull", max_msg_size=0) as connection,
        ):
            await connection.send_str('{"x": "' + "a" * size + '"}')
            return (await connection.receive(LONG)).data

    assert "at most 65,536 bytes" in asyncio.run(talk(70 << 10))
    with suppress(ConnectionError):  # it may be over before all is sent
        assert asyncio.run(talk(8 << 20)) == WSCloseCode.MESSAGE_TOO_BIG


_SERVING = """
import sys
from kubothek.gateway.access import Nobody
from kubothek.gateway.app import make_app
from kubothek.gateway.catalogue import OneStore
from kubothek.gateway.limits import Limits
from kubothek.gateway.server import serve
from kubothek.storage import StoreConfig, open_store
import asyncio, kubothek.gateway.server as server
server._LEAVE = 0.5
limits = Limits(query_seconds=600)
app = make_app(OneStore(open_store(StoreConfig(sys.argv[1])), frozenset([sys.argv[2]])), Nobody(), limits=limits)
asyncio.run(serve(app, limits, "127.0.0.1", 0, None, lambda port: print(port, flush=True)))
"""


def test_gateway_stop_kills_running_queries(store: Store, tmp_path: Path) -> None:
    made(store, LEDGER)
    push(store, {1: "A"})
    command = [sys.executable, "-c", _SERVING, store.url, UUID]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with connected(port) as connection:
            connection.sendall(f"GET /query?query={quote(ENDLESS)} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            running_now = psutil.Process(process.pid)
            until(lambda: any(each.status() == "running" for each in running_now.children(recursive=True)))
            family = running_now.children(recursive=True)
            process.terminate()
            assert process.wait(LONG) == 0
    until(lambda: not any(each.is_running() for each in family))
