"""A collector of OpenTelemetry in this process: OTLP over HTTP, decoded by the published schema."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Received:
    """A span as it came; ids in hexadecimal, '' for no parent."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    error: str
    begin: int
    end: int


@dataclass
class Collector:
    """``status``  that requests are answered with; None: they are not, until the collector ends
    ``asked``   is set when a request has come
    """

    status: int | None = 200
    url: str = ""
    spans: list[Received] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = next(a.value.string_value for a in resource.resource.attributes if a.key == "service.name")
            for scope in resource.scope_spans:
                self.spans += [_received(service, span) for span in scope.spans]

    def named(self, name: str) -> list[Received]:
        return [span for span in self.spans if span.name == name]


def _received(service: str, span: Any) -> Received:
    return Received(
        service=service,
        name=span.name,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        attributes={each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes},
        error=span.status.message if span.status.code == 2 else "",
        begin=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
    )


@contextmanager
def collector(status: int | None = 200) -> Iterator[Collector]:
    found = Collector(status)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            assert self.path == "/v1/traces"
            found.asked.set()
            if found.status is None:
                found.over.wait()
                return
            if found.status == 200:
                found.take(gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body)
            self.send_response(found.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Tests tell what went wrong."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield found
    finally:
        found.over.set()
        server.shutdown()
        server.server_close()


def tree(spans: Sequence[Received]) -> set[tuple[str, str]]:
    """(name of the parent, name) of each; '' for what is a part of nothing, '?' where the parent never came."""
    names = {span.id: span.name for span in spans}
    return {(names.get(span.parent, "?") if span.parent else "", span.name) for span in spans}
