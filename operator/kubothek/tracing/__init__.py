"""Traces of runs for an OpenTelemetry collector, if one is configured (docs/tracing.md).

    with span("plan", files=12) as planning:        # almost free if tracing is off
        planning.set(partitions=3)

Only :func:`sending` imports OpenTelemetry, and only with a collector to send to.
"""

from __future__ import annotations

from kubothek.tracing.ids import Place, RunTrace
from kubothek.tracing.sending import sending
from kubothek.tracing.spans import Ended, Span, Stages, current, emit, process, span, started

__all__ = [
    "Ended",
    "Place",
    "RunTrace",
    "Span",
    "Stages",
    "current",
    "emit",
    "process",
    "sending",
    "span",
    "started",
]
