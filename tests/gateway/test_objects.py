"""TP-02 … TP-07, TP-14: four kinds of objects, and nothing else, whatever is asked."""

from __future__ import annotations

import http.client
import os
import socket
import string
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubothek.errors import InputError
from kubothek.gateway.limits import Limits
from kubothek.odf import Multihash
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys
from tests.gateway.running import READER, WRITER, Running, running
from tests.odf.dataset.planes import LEDGER, UUID, made, opened, push

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Of all tests here that only look."""
    store = open_store(StoreConfig(tmp_path_factory.mktemp("store").as_uri()))
    made(store, LEDGER)
    push(store, {1: "A", 2: "B"})
    store.put("secret.txt", b"secret")
    store.put(f"{keys.chain(UUID)}elsewhere", b"secret")
    return store


@pytest.fixture(scope="module")
def gateway(store: Store) -> Iterator[Running]:
    with running(store, public=(UUID,), limits=Limits(burst=10**6)) as gateway:
        yield gateway


class Answered:
    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.body = answer.status, answer.headers, answer.read()


def ask(gateway: Running, path: str, method: str = "GET", body: bytes | None = None, /, **headers: str) -> Answered:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        return Answered(connection.getresponse())
    finally:
        connection.close()


def raw(gateway: Running, data: bytes, seconds: float = 5.0) -> bytes:
    """All that is answered to these bytes until the connection ends, or nothing more comes."""
    found = b""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=seconds) as connection, suppress(OSError):
        connection.sendall(data)
        while piece := connection.recv(65536):
            found += piece
    return found


def one(store: Store, kind: str) -> tuple[str, bytes]:
    key = next(iter(store.list(f"{keys.chain(UUID)}{kind}/"))).key
    return f"/{UUID}/{kind}/{key.rpartition('/')[2]}", store.get(key)


def test_objects_of_all_kinds_are_served_with_headers(store: Store, gateway: Running) -> None:
    head = ask(gateway, f"/{UUID}/refs/head")
    assert (head.status, head.body) == (200, str(opened(store).state.head).encode())
    assert (head.headers["Content-Type"], head.headers["Cache-Control"]) == ("text/plain", "no-cache")
    assert ask(gateway, f"/{UUID}/refs/head", If_None_Match=head.headers["ETag"]).status == 304
    for kind in ("blocks", "data"):
        path, data = one(store, kind)
        found = ask(gateway, path)
        assert (found.status, found.body) == (200, data)
        assert found.headers["Content-Type"] == "application/octet-stream"
        assert "immutable" in found.headers["Cache-Control"]
        assert found.headers["ETag"] == f'"{path.rpartition("/")[2]}"'
        known = ask(gateway, path, If_None_Match=found.headers["ETag"])
        assert (known.status, known.body) == (304, b"")
        looked = ask(gateway, path, "HEAD")
        assert (looked.status, looked.body, looked.headers["Content-Length"]) == (200, b"", str(len(data)))


@pytest.mark.requirement("HS-05")
def test_object_hash_in_other_base_names_same_object(store: Store, gateway: Running) -> None:
    from kubothek.odf.spec import multibase

    path, data = one(store, "blocks")
    text = path.rpartition("/")[2]
    upper = "F" + text[1:].upper()
    assert multibase.decode(upper) == bytes(Multihash.parse(text))
    assert ask(gateway, f"/{UUID}/blocks/{upper}").body == data


def test_range_request_returns_requested_bytes(store: Store, gateway: Running) -> None:
    path, data = one(store, "data")
    size = len(data)
    for asked, part in (
        ("bytes=0-9", data[:10]),
        ("bytes=10-", data[10:]),
        ("bytes=-7", data[-7:]),
        (f"bytes=5-{size * 2}", data[5:]),
    ):
        found = ask(gateway, path, Range=asked)
        assert (found.status, found.body) == (206, part)
        start = data.index(part)
        assert found.headers["Content-Range"] == f"bytes {start}-{start + len(part) - 1}/{size}"
    assert ask(gateway, path, Range=f"bytes={size}-").status == 416
    for nonsense in ("bytes=9-3", "bytes=a-b", "lines=1-2", "bytes=0-1,4-5", "bytes=-"):
        assert ask(gateway, path, Range=nonsense).status in (200, 416), nonsense
    etag = f'"{path.rpartition("/")[2]}"'
    assert ask(gateway, path, Range="bytes=0-9", If_Range=etag).status == 206
    assert ask(gateway, path, Range="bytes=0-9", If_Range='"another"').body == data


@pytest.mark.parametrize(
    "path",
    [
        "/secret.txt",
        f"/{UUID}/elsewhere",
        f"/{UUID}/data/elsewhere",
        f"/{UUID}/data/..%2felsewhere",
        f"/{UUID}/data/%2e%2e/elsewhere",
        f"/{UUID}/blocks/../elsewhere",
        f"/{UUID}/refs/HEAD",
        f"/{UUID}/refs/..%2Felsewhere",
        f"/..%2f{UUID}/refs/head",
        f"/.kubothek%2f{UUID}/refs/head",
        f"/{UUID}%00/refs/head",
        f"/{UUID}//refs/head",
        f"/{UUID}/data/f1620{'0' * 64}",
        f"/{UUID}/data/f9680c00120{'0' * 64}",
        f"/{UUID}/data/f1620{'0' * 63}",
        f"/{UUID}/data/{'f' * 5000}",
        f"/++{UUID}/refs/head",
        "/%ff%fe/refs/head",
        "//etc/passwd",
    ],
)
def test_path_outside_dataset_is_refused(gateway: Running, path: str) -> None:
    for headers in ({}, {"Authorization": f"Bearer {WRITER}"}):
        found = ask(gateway, path, **headers)
        assert found.status in (400, 401, 403, 404, 405), path
        assert b"secret" not in found.body


def test_unauthorized_request_does_not_reveal_existing_datasets(store: Store, gateway: Running) -> None:
    made_up, private = "/nothing/refs/head", "/fresh/refs/head"
    assert ask(gateway, made_up).status == ask(gateway, private).status == 401
    reader = {"Authorization": f"Bearer {READER}"}
    assert ask(gateway, made_up, **reader).status == ask(gateway, private, **reader).status == 403
    assert ask(gateway, private, Authorization=f"Bearer {WRITER}").status == 404
    for token in ("Bearer wrong-token-wrong", "Bearer ", "Basic abc", "Bearer " + "x" * 7000):
        assert ask(gateway, f"/{UUID}/refs/head", Authorization=token).status == 401
    for line in gateway.lines:
        assert READER not in str(line)
    assert {line["principal"] for line in gateway.lines if "principal" in line} >= {"reader", "writer"}


def test_object_put_with_wrong_hash_is_refused(store: Store, gateway: Running) -> None:
    data = b"some bytes"
    named = Multihash.sha3(data)
    path = f"/fresh/data/{named}"
    writer = {"Authorization": f"Bearer {WRITER}"}
    assert ask(gateway, path, "PUT", data).status == 401
    assert ask(gateway, path, "PUT", data, Authorization=f"Bearer {READER}").status == 403
    assert ask(gateway, path, "PUT", data + b"!", **writer).status == 400
    assert not [*store.list(".kubothek/fresh/")]
    assert ask(gateway, path.replace("data", "blocks"), "PUT", data, **writer).status == 405
    assert b" 411 " in raw(
        gateway,
        f"PUT {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {WRITER}\r\n"
        "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".encode(),
    )
    assert ask(gateway, path, "PUT", data, **writer).status == 200
    assert store.get(f"{keys.chain('fresh')}data/{named}") == data


def test_deleted_dataset_is_not_served(other: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    made(other, LEDGER)
    path, _ = one(other, "blocks")
    monkeypatch.setattr("kubothek.gateway.datasets._SECONDS", 0.0)
    with running(other, public=(UUID,)) as gateway:
        assert ask(gateway, path).status == 200
        DatasetLog(other, UUID).delete()
        assert ask(gateway, f"/{UUID}/refs/head").status == 404
        assert ask(gateway, path).status == 404


# --- limits ----------------------------------------------------------------------------------------------------------


def test_client_above_rate_limit_gets_429(store: Store) -> None:
    with running(store, public=(UUID,), limits=Limits(per_second=0.001, burst=3)) as gateway:
        found = [ask(gateway, f"/{UUID}/refs/head") for _ in range(5)]
        assert [each.status for each in found] == [200] * 3 + [429] * 2
        assert int(found[-1].headers["Retry-After"]) >= 1


def test_rate_limit_key_is_principal_or_address_from_trusted_proxy(store: Store) -> None:
    limits = Limits(per_second=1e-6, burst=2)
    reader = {"Authorization": f"Bearer {READER}"}

    def asked(gateway: Running, *peers: str, **headers: str) -> list[int]:
        return [ask(gateway, f"/{UUID}/refs/head", X_Forwarded_For=peer, **headers).status for peer in peers]

    with running(store, public=(UUID,), limits=limits, proxies=("127.0.0.0/8", "10.9.0.0/16")) as gateway:
        assert asked(gateway, *["10.0.0.1"] * 3) == [200, 200, 429]
        assert asked(gateway, "6.6.6.6, 10.0.0.1", "6.6.6.6, 10.0.0.1, 10.9.0.1") == [429, 429], "who forges is seen"
        assert asked(gateway, "2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1") == [200, 200, 429, 200]
        assert asked(gateway, *["10.0.0.2"] * 3, Authorization="Bearer wrong-token-wrong") == [401, 401, 429]
        assert asked(gateway, "10.0.0.2") == [200], "others there are not hindered"
        assert asked(gateway, "10.0.0.1", "10.0.0.3", "10.0.0.4", **reader) == [200, 200, 429]
        assert {line["peer"] for line in gateway.lines} >= {"10.0.0.1", "10.0.0.4", "2001:db8::2"}
        assert {line["via"] for line in gateway.lines} == {"127.0.0.1"}
    with running(store, public=(UUID,), limits=limits) as gateway:
        assert asked(gateway, "10.0.0.1", "10.0.0.2", "10.0.0.3") == [200, 200, 429]
    with pytest.raises(InputError, match="trusted proxy"), running(store, proxies=("proxy.example.com",)):
        pass


def test_client_with_incomplete_request_is_disconnected(store: Store) -> None:
    with running(store, public=(UUID,), limits=Limits(head_seconds=1)) as gateway:
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as silent:
            silent.sendall(b"GET /planes/refs/head HTT")
            with suppress(ConnectionResetError):
                assert silent.recv(1) == b""
        assert ask(gateway, f"/{UUID}/refs/head").status == 200


def test_client_that_reads_too_slowly_is_disconnected(store: Store) -> None:
    data = os.urandom(32 << 20)
    key = f"{keys.chain(UUID)}data/{Multihash.sha3(data)}"
    store.put(key, data)
    limits = Limits(patience=0.5, slowest=1 << 30)
    with running(store, public=(UUID,), limits=limits) as gateway:
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as slow:
            slow.sendall(f"GET /{UUID}/data/{Multihash.sha3(data)} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            while not gateway.lines_by_now:  # until it is given up
                time.sleep(0.02)
            found = 0
            with suppress(ConnectionResetError):
                while piece := slow.recv(1 << 20):
                    found += len(piece)
        assert found < len(data)
        assert gateway.lines[-1]["error"] == "Client"
    with running(store, public=(UUID,)) as gateway:
        assert ask(gateway, f"/{UUID}/data/{Multihash.sha3(data)}").body == data
    store.delete([key])


# --- hostile ---------------------------------------------------------------------------------------------------------

_TEXT = st.text(string.ascii_letters + string.digits + "/%.+-_~?#\\ :\0\r\n\"'é", max_size=60)


@settings(max_examples=30, deadline=None)
@given(text=_TEXT)
def test_object_hash_is_validated_before_lookup(text: str) -> None:
    from kubothek.errors import ObjectNotFound
    from kubothek.gateway.objects import parse_hash

    try:
        found = parse_hash(text)
    except ObjectNotFound:
        return
    assert str(found).isalnum()
