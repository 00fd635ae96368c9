"""A web server on loopback, for whatever fetches from urls."""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest


@dataclass
class Answer:
    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    promised: int | None = None
    slowly: float = 0.0
    """Seconds before each piece of the body."""


@dataclass
class Fault:
    """What happens in the place of one answer, or to it.

    ``status``   is answered, with ``headers``, and nothing else
    ``after``    so many bytes of the body the connection ends, after it was silent for ``stalls`` seconds
    ``resets``   it ends by a reset, which takes bytes along that are on their way
    ``headers``  that the answer has in addition
    """

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    after: int | None = None
    stalls: float = 0.0
    resets: bool = False


class Server(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """A client that goes away is none."""


class Web:
    """A web server whose answers a test sets, which understands conditions, and ranges where it knows an ETag.

    ``faults``  by path, one for each request until there are no more
    """

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.posted: list[tuple[str, bytes]] = []
        self.taken = 201
        """How what is posted is answered."""
        self.faults: dict[str, list[Fault]] = {}
        self.conditions = True
        self.ranges = True
        self.server = Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"web": self}))
        self.port = self.server.server_address[1]

    def first_of(self, asked: Mapping[str, str], etag: str | None) -> int:
        """The first byte that a request is for."""
        wanted = re.fullmatch(r"bytes=(\d+)-", asked.get("range", ""))
        if wanted is None or not self.ranges or etag is None or asked.get("if-range") != etag:
            return 0
        return int(wanted[1])

    @property
    def visited(self) -> list[str]:
        """Host and path of each request."""
        return [f"{headers['host']}{path}" for path, headers in self.asked]

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def put(self, path: str, body: bytes, status: int = 200, promised: int | None = None, **headers: str) -> str:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers[path] = Answer(body, status, named, promised)
        return self.url(path)


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web()
    thread = threading.Thread(target=web.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield web
    web.server.shutdown()
    thread.join()
    web.server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """Answers for the web that it belongs to."""

    web: ClassVar[Web]

    def do_GET(self) -> None:
        asked = {name.lower(): value for name, value in self.headers.items()}
        self.web.asked.append((self.path, asked))
        answer = self.web.answers.get(self.path, Answer(status=404))
        etag, modified = answer.headers.get("ETag"), answer.headers.get("Last-Modified")
        unchanged = (etag is not None and asked.get("if-none-match") == etag) or (
            "if-none-match" not in asked and modified is not None and asked.get("if-modified-since") == modified
        )
        if self.web.conditions and unchanged:
            self.send_response(304)
            self.end_headers()
            return
        fault = next(iter(self.web.faults.get(self.path, ())), Fault())
        if self.web.faults.get(self.path):
            del self.web.faults[self.path][0]
        if fault.status is not None:
            answer = Answer(status=fault.status)
        self._send(answer, fault, self.web.first_of(asked, etag) if answer.status == 200 else 0)

    def _send(self, answer: Answer, fault: Fault, start: int) -> None:
        body = answer.body[start:]
        self.send_response(206 if start else answer.status)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(answer.body) - 1}/{len(answer.body)}")
            answer = replace(answer, headers={"ETag": answer.headers["ETag"]})
        for name, value in {**answer.headers, **fault.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if answer.promised is None else answer.promised))
        self.end_headers()
        if fault.after is not None:
            self.wfile.write(body[: fault.after])
            self.wfile.flush()
            time.sleep(fault.stalls)
            if fault.resets:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            return
        if not answer.slowly:
            self.wfile.write(body)
        for byte in body if answer.slowly else b"":
            time.sleep(answer.slowly)
            self.wfile.write(bytes([byte]))

    def do_POST(self) -> None:
        self.web.posted.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self._send(self.web.answers.get(self.path, Answer(status=self.web.taken)), Fault(), 0)

    do_PUT = do_POST  # noqa: N815 - http.server's name

    def log_message(self, *_: Any) -> None:
        pass
