"""Export of spans to an OpenTelemetry collector, by OTLP over HTTP: in the background, and never at the cost of a run.

Spans that the collector does not accept are lost: the buffer is bounded, requests have a timeout, and the exit of the
process waits for a limited time. The number of lost spans is logged once.
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
"""Environment variable with the URL of the collector; without it, tracing is off."""
RATIO: Final = "OTEL_TRACES_SAMPLER_ARG"
"""Environment variable with the share of runs that are traced, 0 to 1."""
_PATH: Final = "/v1/traces"
_SPANS: Final = 2048
_DELAY_MS: Final = 500
_TIMEOUT: Final = "OTEL_EXPORTER_OTLP_TIMEOUT"
_SECONDS: Final = 2.0
"""Default timeout of a request in seconds; the exit of the process waits for the same time."""

log = logging.getLogger(__name__)


def ratio_of(environ: Mapping[str, str] = os.environ) -> float:
    """Return the share of runs that are traced; the default is all. Raises ValueError."""
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
    """Send spans to the collector at a URL; ``service`` is the service name. Errors are logged, and disable tracing."""
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
        # Slow imports are here, so that only processes with tracing pay for them.
        from importlib.metadata import version

        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it logs every request; we log once
        self._endpoint = endpoint
        self._seconds = float(os.environ.get(_TIMEOUT) or _SECONDS)
        self._exporter = _Counting(OTLPSpanExporter(f"{endpoint.rstrip('/')}{_PATH}", timeout=self._seconds))
        exporter = cast("SpanExporter", self._exporter)  # a subclass would need the import at module level
        self._processor = BatchSpanProcessor(exporter, _SPANS, _DELAY_MS, _SPANS // 4)
        self._resource = Resource.create({"service.name": service, "service.version": version("kubothek")})
        self._received = 0

    @classmethod
    def to(cls, endpoint: str, service: str) -> Self | None:
        """Return a sender; None for an invalid URL, or without OpenTelemetry."""
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
        """Queue the span for sending."""
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import Status, StatusCode

        self._received += 1
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
        """Send the rest, for a limited time."""
        ending = threading.Thread(target=self._processor.shutdown, name="traces", daemon=True)
        ending.start()
        ending.join(self._seconds)
        if lost := self._received - self._exporter.sent:
            log.info("%d of %d spans were not taken by %s", lost, self._received, self._endpoint)


class _Counting:
    """Exporter that counts the spans that were accepted."""

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
