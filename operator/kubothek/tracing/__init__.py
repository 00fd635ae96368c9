"""Traces of runs, for a collector of OpenTelemetry, if one is named (docs/tracing.md).

with span("plan", files=12) as planning:        # costs next to nothing where nobody traces
    planning.set(partitions=3)

Nothing of OpenTelemetry is imported before there is something to be sent: `sending` alone does that.
"""

from __future__ import annotations

from kubothek.tracing.ids import Place, RunTrace
from kubothek.tracing.sending import sending
from kubothek.tracing.spans import Ended, Span, Stages, current, process, span, started, tell

__all__ = [
    "Ended",
    "Place",
    "RunTrace",
    "Span",
    "Stages",
    "current",
    "process",
    "sending",
    "span",
    "started",
    "tell",
]
