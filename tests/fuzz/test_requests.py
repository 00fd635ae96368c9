"""Fuzzing of what clients send to a gateway: requests as bytes, and messages of the smart protocol."""

from __future__ import annotations

import atexit
import socket
import tempfile
from contextlib import ExitStack, suppress
from functools import lru_cache
from random import Random
from typing import Any

import orjson
import pytest

from kubothek.gateway.limits import Limits
from kubothek.gateway.smart import _references
from kubothek.odf.chain import read_chain
from kubothek.odf.sync.smart.batch import batch_of, blocks_of
from kubothek.odf.sync.smart.messages import Dialect, optional_hash, parse, render
from kubothek.storage import StoreConfig, open_store
from tests.fuzz.harness import fuzz
from tests.gateway.running import WRITER, Running, running
from tests.gateway.wire import LONG
from tests.odf.dataset.planes import LEDGER, UUID, made, opened, push

pytestmark = pytest.mark.slow

LIMITS = Limits(
    patience=0.3,
    slowest=1 << 30,
    head_seconds=0.3,
    idle_seconds=1,
    burst=10**9,
    query_memory="64MB",
    query_seconds=5,
    message_bytes=1 << 20,
    object_bytes=1 << 20,
    ingest_bytes=1 << 20,
)
_HEAD = f"HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {WRITER}\r\n"
_DEEP = "stands for a value that is nested deeply"
_ARROW = "application/vnd.apache.arrow.stream"
_KEY = "dGhlIHNhbXBsZSBub25jZQ=="
_HASH = "f1620" + "ab" * 32


def _request(line: str, body: bytes = b"", **headers: str) -> bytes:
    fields = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return f"{line} {_HEAD}{fields}{length}\r\n".encode() + body


CHEAP = [
    _request(f"GET /{UUID}/refs/head", If_None_Match=f'"{_HASH}"'),
    _request(f"GET /{UUID}/blocks/{_HASH}", Range="bytes=1-7,9-", If_Range='"x"'),
    _request(f"HEAD /{UUID}/data/{_HASH}", X_Forwarded_For="10.0.0.1, ::1"),
    _request(f"PUT /{UUID}/data/{_HASH}", b"bytes", Content_Encoding="gzip"),
    _request(f"POST /{UUID}/ingest?sourceName=x", b"id,model\n", Content_Type="text/csv", odf_event_time="2026-11-27"),
    _request("GET /search?query=planes%20and"),
    _request("GET /platform/token/validate"),
    _request(
        f"GET /{UUID}/pull",
        Upgrade="websocket",
        Sec_WebSocket_Version="13",
        Sec_WebSocket_Key=_KEY,
    ).replace(b"Connection: close", b"Connection: Upgrade")
    + b"\x81\x82\0\0\0\0{}",
    _request("POST /query", orjson.dumps({"query": 1, "limit": 10, "skip": "0"}), Content_Type="application/json"),
    _request("GET /query?query=&limit=-1"),
]
QUERIES = [
    _request(f"GET /query?query=SELECT%20id%20FROM%20{UUID}&limit=10&skip=1"),
    _request("POST /query", orjson.dumps({"query": f"SELECT * FROM {UUID} AS OF VERSION 2", "limit": 10})),
    _request("POST /query", orjson.dumps({"query": f"WITH a AS (SELECT 1 AS x) SELECT * FROM a, {UUID}"})),
    _request(f"GET /{UUID}/tail?limit=2&skip=1"),
    _request("POST /query", orjson.dumps({"query": "SELECT CASE WHEN 1 < 2 THEN 'x' END"}), Accept=_ARROW),
]  # fmt: skip


@lru_cache(maxsize=1)
def _gateway() -> Running:
    stack = ExitStack()
    store = open_store(StoreConfig(f"file://{stack.enter_context(tempfile.TemporaryDirectory())}"))
    made(store, LEDGER)
    push(store, {1: "A", 2: "B"})
    atexit.register(stack.close)
    return stack.enter_context(running(store, public=(UUID,), limits=LIMITS))


def answer_request(data: bytes) -> None:
    """Raises AssertionError for an answer that is the gateway's fault."""
    gateway = _gateway()
    answer = b""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=LONG) as connection, suppress(ConnectionError):
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        while piece := connection.recv(1 << 16):
            answer += piece
    assert not answer.startswith(b"HTTP/1.1 500"), answer


def take_message(data: bytes) -> None:
    """Do with a message what the two sides of a transfer do."""
    message, _ = parse(data)
    optional_hash(message, "begin_after")
    optional_hash(message, "current_head")
    _references(message)
    if "new_blocks" in message:
        blocks_of(message["new_blocks"])


def _change_value(random: Random, data: bytes) -> bytes:
    """Another value somewhere in a message, which stays JSON."""
    message = orjson.loads(data)
    place, key = message, random.choice(list(message))
    while isinstance(place[key], dict | list) and place[key] and random.random() < 0.8:
        place = place[key]
        key = random.choice(list(place)) if isinstance(place, dict) else random.randrange(len(place))
    values: list[Any] = [None, True, -1, 2**63, 1e300, "", "x" * 70, "f1620", [], {}, [[]], {"a": {}}, "\ud7ff", "e30="]
    place[key] = random.choice([*values, _DEEP])
    nested = b'[{"x":' * 490 + b"1" + b"}]" * 490
    return orjson.dumps(message).replace(orjson.dumps(_DEEP), nested)


def _messages(directory: str) -> list[bytes]:
    store = open_store(StoreConfig(f"file://{directory}"))
    made(store, LEDGER)
    push(store, {1: "A"})
    root = opened(store)
    blocks = read_chain(store, root.layout, root.state.head)
    found = []
    for dialect in Dialect:
        found.append(render({"new_blocks": batch_of(blocks, dialect)}, dialect))
        objects = [{"object_type": "DataSlice", "physical_hash": _HASH, "size": 7}]
        found.append(render({"object_files": objects, "is_truncated": False}, dialect))
        found.append(render({"begin_after": _HASH, "stop_at": None, "current_head": _HASH}, dialect))
    return [*found, b'{"Err": {"Internal": {"phase": "Pull", "error_message": "x"}}}', b'{"aB": [[[{"cD": 1}]]]}']


def test_fuzzed_request_causes_no_internal_error_of_gateway() -> None:
    report = fuzz(answer_request, [*CHEAP, *QUERIES], variants=60, soak=100_000)
    print(report.check())


def test_fuzzed_message_gives_named_error(tmp_path_factory: Any) -> None:
    seeds = _messages(str(tmp_path_factory.mktemp("messages")))
    report = fuzz(take_message, seeds, variants=300, soak=100_000, mutate=_change_value)
    print(report.check())
