"""Connections to a server that closes them, that is not the one it claims to be, or that a proxy stands before."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSRequest
from botocore.exceptions import SSLError
from botocore.httpsession import get_cert_path

from kubothek.errors import StoreUnavailable
from kubothek.storage import StoreConfig
from kubothek.storage.retry import RetryPolicy
from kubothek.storage.s3 import S3Store
from kubothek.storage.s3_wire import Wire
from kubothek.storage.urls import S3Location
from tests.testcluster.pki import Authority


class Server(ThreadingHTTPServer):
    """Echoes bodies; ``connections`` counts those it accepted.

    ``close`` ends each after its answer, unannounced; ``refuse`` answers before the body, and takes none of it.
    """

    daemon_threads = True
    connections = 0
    close = False
    refuse = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Echo)
        self.closed = threading.Semaphore(0)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self.closed.release()


class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def setup(self) -> None:
        self.server.connections += 1
        super().setup()

    def do_PUT(self) -> None:
        if self.server.refuse:
            self.send_response(412)
            self.send_header("Content-Length", "0")
            self.end_headers()
            self.connection.shutdown(socket.SHUT_WR)
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = self.server.close

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server()
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def put(server: Server, body: bytes, scheme: str = "http") -> AWSPreparedRequest:
    return AWSRequest("PUT", f"{scheme}://127.0.0.1:{server.server_address[1]}/k", {}, body).prepare()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority that nobody has heard of, and a server of its."""
    directory, authority = tmp_path_factory.mktemp("tls"), Authority("test")
    authority.pair.write(directory, "authority")
    authority.issue("server", hosts=("127.0.0.1",)).write(directory, "server")
    return directory


@pytest.fixture
def wire(certificates: Path) -> Wire:
    return Wire(str(certificates / "authority.crt"), connect=60, silence=60)


def test_s3_connection_is_reused_for_sequential_requests(wire: Wire) -> None:
    with serving() as server:
        assert [wire.send(put(server, body)).content for body in (b"a", b"", bytes(1 << 20))] == [
            b"a",
            b"",
            bytes(1 << 20),
        ]
        assert server.connections == 1


def test_s3_connection_closed_by_server_is_not_reused(wire: Wire) -> None:
    with serving() as server:
        server.close = True
        for number in range(3):
            assert wire.send(put(server, b"a")).content == b"a"
            assert server.closed.acquire(timeout=60)
            assert server.connections == number + 1


def test_s3_response_before_end_of_body_is_returned(wire: Wire) -> None:
    with serving() as server:
        server.refuse = True
        assert wire.send(put(server, bytes(32 << 20))).status_code == 412
        server.refuse = False
        assert wire.send(put(server, b"a")).content == b"a"
        assert server.connections == 2


def test_s3_server_with_untrusted_certificate_is_refused(wire: Wire, certificates: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.crt", certificates / "server.key")
    with serving(context) as server:
        assert wire.send(put(server, b"a", "https")).content == b"a"
        with pytest.raises(SSLError, match="certificate"):
            Wire(str(get_cert_path(verify=True)), connect=60, silence=60).send(put(server, b"a", "https"))


@pytest.mark.s3
def test_s3_requests_use_configured_proxy(bucket_config: StoreConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "")
    store = S3Store(
        replace(bucket_config, endpoint="http://s3.example"), S3Location("lake", ""), RetryPolicy(unreachable=0)
    )
    with pytest.raises(StoreUnavailable, match=r"proxy.*http://127.0.0.1:1"):
        store.get("k")
