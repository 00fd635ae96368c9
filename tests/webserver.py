"""A web server on loopback, for whatever fetches from urls."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


@dataclass
class Answer:
    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    promised: int | None = None
    slowly: float = 0.0
    """Seconds before each piece of the body."""


class Web:
    """A web server whose answers a test sets, which understands conditions."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.conditions = True
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = {name.lower(): value for name, value in self.headers.items()}
                web.asked.append((self.path, asked))
                answer = web.answers.get(self.path, Answer(status=404))
                etag, modified = answer.headers.get("ETag"), answer.headers.get("Last-Modified")
                unchanged = (etag is not None and asked.get("if-none-match") == etag) or (
                    "if-none-match" not in asked and modified is not None and asked.get("if-modified-since") == modified
                )
                if web.conditions and unchanged:
                    self.send_response(304)
                    self.end_headers()
                    return
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header(
                    "Content-Length", str(len(answer.body) if answer.promised is None else answer.promised)
                )
                self.end_headers()
                if not answer.slowly:
                    self.wfile.write(answer.body)
                for byte in answer.body if answer.slowly else b"":
                    time.sleep(answer.slowly)
                    self.wfile.write(bytes([byte]))

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]

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
