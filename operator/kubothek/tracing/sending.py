"""Sending spans to a collector of OpenTelemetry, by OTLP over HTTP: in the background, and never at the cost of a run.

What a collector does not take is lost: there is room for so many spans, a request has so long, and the end of a process
waits so long for the rest. What was lost is noted in the log, once.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self, cast

from kubothek.tracing.spans import Ended, started

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
    from opentelemetry.trace import SpanContext

ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
"""The variable that names the collector, and without which nothing is traced."""
RATIO: Final = "OTEL_TRACES_SAMPLER_ARG"
"""The variable that says which part of the runs is traced, 0 to 1."""
_PATH: Final = "/v1/traces"
_SPANS: Final = 2048
_DELAY_MS: Final = 500
_TIMEOUT: Final = "OTEL_EXPORTER_OTLP_TIMEOUT"
_SECONDS: Final = 2.0
"""Of a request, where that variable says nothing; the end of a process waits as long."""

log = logging.getLogger(__name__)


def ratio_of(environ: Mapping[str, str] = os.environ) -> float:
    """The part of the runs that is traced; all, if nothing is said. Raises ValueError."""
    text = environ.get(RATIO) or "1"
    try:
        ratio = float(text)
    except ValueError:
        ratio = math.nan
    if not 0 <= ratio <= 1:
        raise ValueError(f"{RATIO} is {text!r}: it is a part, from 0 to 1")
    return ratio


@contextmanager
def sending(endpoint: str, service: str) -> Iterator[None]:
    """Send spans to the collector at a URL; ``service`` says who tells. What is wrong is logged, and nothing sent."""
    sender = _Sender.to(endpoint, service)
    if sender is None:
        yield
        return
    try:
        with started(sender.take):
            yield
    finally:
        sender.close()


class _Sender:
    def __init__(self, endpoint: str, service: str) -> None:
        # All that takes a while to be imported is imported here: only those who trace pay for it.
        from importlib.metadata import version

        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it tells of each request; we do once
        self._endpoint = endpoint
        self._seconds = float(os.environ.get(_TIMEOUT) or _SECONDS)
        self._exporter = _Counting(OTLPSpanExporter(f"{endpoint.rstrip('/')}{_PATH}", timeout=self._seconds))
        exporter = cast("SpanExporter", self._exporter)  # a subclass would be made where nobody traces
        self._processor = BatchSpanProcessor(exporter, _SPANS, _DELAY_MS, _SPANS // 4)
        self._resource = Resource.create({"service.name": service, "service.version": version("kubothek")})
        self._taken = 0

    @classmethod
    def to(cls, endpoint: str, service: str) -> Self | None:
        """None if there is nobody to send to, or nothing to send with."""
        from urllib.parse import urlsplit

        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            log.warning("no traces: %s is %r, which is no URL that begins with http:// or https://", ENDPOINT, endpoint)
            return None
        try:
            return cls(endpoint, service)
        except ImportError as error:
            log.warning("no traces: %s; install kubothek[tracing]", error)
        except Exception:
            log.warning("no traces: OpenTelemetry does not start", exc_info=True)
        return None

    def take(self, ended: Ended) -> None:
        """Send it some time soon."""
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import Status, StatusCode

        self._taken += 1
        status = Status() if ended.error is None else Status(StatusCode.ERROR, ended.error)
        made = ReadableSpan(
            name=ended.name,
            context=_context(ended.place.trace, ended.place.span),
            parent=None if ended.parent is None else _context(ended.place.trace, ended.parent),
            resource=self._resource,
            attributes=dict(ended.attributes),
            status=status,
            start_time=ended.begin,
            end_time=max(ended.begin, ended.end),
        )
        self._processor.on_end(made)

    def close(self) -> None:
        """Send the rest, for as long as that may take."""
        ending = threading.Thread(target=self._processor.shutdown, name="traces", daemon=True)
        ending.start()
        ending.join(self._seconds)
        if lost := self._taken - self._exporter.sent:
            log.info("%d of %d spans were not taken by %s", lost, self._taken, self._endpoint)


class _Counting:
    """An exporter that knows how many spans were taken."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.sent = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        from opentelemetry.sdk.trace.export import SpanExportResult

        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            self.sent += len(spans)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def _context(trace: int, span: int) -> SpanContext:
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(trace, span, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
