"""A proxy that spoils chosen HTTP requests on their way to a real server.

    with S3Server() as s3, FaultProxy(s3.endpoint) as proxy:
        proxy.inject(Status(503, "SlowDown"), method="GET", times=2)
        proxy.inject(LostResponse(), method="PUT", path="metadata.json")
        store = open_store(StoreConfig("s3://lake", endpoint=proxy.endpoint))

Faults apply in the order of injection, each to the next ``times`` requests that match; all others pass.
``requests`` records every request that came in.
"""

from __future__ import annotations

import http.client
import socket
import struct
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True)
class Reset:
    """The connection breaks before the server sees the request."""


@dataclass(frozen=True)
class LostResponse:
    """The server does what was asked, and the connection breaks before its response."""


@dataclass(frozen=True)
class Truncated:
    """The response's headers promise the whole body, and the connection ends after ``body_bytes`` of it."""

    body_bytes: int


@dataclass(frozen=True)
class Short:
    """The response has ``body_bytes`` of the body, and its headers promise no more."""

    body_bytes: int


@dataclass(frozen=True)
class Slow:
    """The body of the response trickles in, over so many ``seconds``."""

    seconds: float


@dataclass(frozen=True)
class Silence:
    """The server does what was asked, and the response does not come until released, or the proxy stops."""


@dataclass(frozen=True)
class Hold:
    """The request does not reach the server until released; it then goes on, even if nobody waits for it any more."""


@dataclass(frozen=True)
class Status:
    """The answer is this status with an S3 error code, or a ``body``; the server sees nothing."""

    status: int
    code: str = ""
    body: str | None = None

    def render(self) -> bytes:
        error = f"<Error><Code>{self.code}</Code><Message>injected</Message></Error>"
        return (error if self.body is None else self.body).encode()


_PIECES = 10
"""In which a slow body comes."""

Fault = Reset | LostResponse | Truncated | Short | Slow | Silence | Hold | Status


@dataclass(frozen=True)
class Request:
    """``path`` is percent-decoded and has the query string."""

    method: str
    path: str
    body: bytes


@dataclass
class Injected:
    """A fault in place: ``arrived`` is set by the first request that it spoils, and ``request`` is the last of them."""

    fault: Fault
    method: str | tuple[str, ...]
    path: str
    times: int
    skips: int = 0
    request: Request | None = None
    arrived: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Let the held requests go on."""
        self.released.set()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no error of the proxy."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class FaultProxy:
    """A context manager; the endpoint is on a free port of ``host``, an address of this machine."""

    def __init__(self, upstream: str, host: str = "127.0.0.1") -> None:
        address = urlsplit(upstream)
        self.upstream = (address.hostname or "", address.port or 80)
        self.requests: list[Request] = []
        self._rules: list[Injected] = []
        self._lock = threading.Lock()
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = _Server((host, 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://{host}:{self._server.server_address[1]}"

    def inject(
        self, fault: Fault, *, method: str | tuple[str, ...] = "", path: str = "", times: int = 1, skips: int = 0
    ) -> Injected:
        """Spoil the next ``times`` requests with this method, or one of these, whose path or query contains ``path``,
        after the first ``skips`` of them.
        """
        injected = Injected(fault, method, path, times, skips)
        with self._lock:
            self._rules.append(injected)
        return injected

    def reset(self) -> None:
        """Forget faults and requests."""
        with self._lock:
            self._rules.clear()
            self.requests.clear()

    def fault_for(self, request: Request) -> Injected | None:
        """Record the request, and use up a fault that matches it."""
        with self._lock:
            self.requests.append(request)
            for rule in self._rules:
                if rule.times and request.method.startswith(rule.method) and rule.path in request.path:
                    if rule.skips:
                        rule.skips -= 1
                        continue
                    rule.times -= 1
                    rule.request = request
                    rule.arrived.set()
                    return rule
        return None

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for rule in self._rules:
            rule.release()
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: FaultProxy

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing: ``requests`` is the record."""

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        injected = self.owner.fault_for(Request(self.command, unquote(self.path), body))
        fault = injected.fault if injected else None
        if isinstance(fault, Reset):
            self._break()
        elif isinstance(fault, Status):
            self._respond(fault.status, {"Content-Type": "application/xml"}, fault.render())
        else:
            if injected and isinstance(fault, Hold):
                injected.released.wait()
            self._forward(body, injected)

    def _forward(self, body: bytes, injected: Injected | None) -> None:
        fault = injected.fault if injected else None
        upstream = http.client.HTTPConnection(*self.owner.upstream, timeout=60)
        try:
            # The signature covers the Host header, so it goes through as it is.
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() != "expect":
                    upstream.putheader(name, value)
            upstream.endheaders(body)
            response = upstream.getresponse()
            data = response.read()
        finally:
            upstream.close()
        if injected and isinstance(fault, Silence):
            injected.released.wait()
        if isinstance(fault, LostResponse | Silence):
            self._break()
            return
        data = data[: fault.body_bytes] if isinstance(fault, Short) else data
        cut = fault.body_bytes if isinstance(fault, Truncated) else None
        pause = fault.seconds / _PIECES if isinstance(fault, Slow) else 0.0
        self._respond(response.status, dict(response.getheaders()), data, cut, pause)
        if (
            cut is not None
        ):  # whatever else is answered in full, and the connection goes on: to close it unsaid is a fault
            self.close_connection = True

    def _respond(
        self, status: int, headers: dict[str, str], body: bytes, cut: int | None = None, pause: float = 0.0
    ) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
        self.send_header("Content-Length", length)
        self.end_headers()
        sent = body if cut is None else body[:cut]
        step = max(1, -(-len(sent) // _PIECES)) if pause else max(1, len(sent))
        for start in range(0, len(sent), step):
            time.sleep(pause)
            self.wfile.write(sent[start : start + step])

    def _break(self) -> None:
        """Close with RST, so that the client sees a reset and not an end."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815 - names that the base class looks up
