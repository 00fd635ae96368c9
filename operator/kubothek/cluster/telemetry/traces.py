"""Traces: spans of runs and their jobs, sent when they end, and of reconciliations that changed something for a run.

All follow from the state in the API server, so another operator would send the same:
see :mod:`kubothek.controller.scheduling.run_spans`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from kubothek.api.values import parse_time
from kubothek.cluster import names
from kubothek.cluster.pod_status import outcome
from kubothek.cluster.telemetry.metrics import moments_of
from kubothek.controller.context import JobPhase, LaunchJob
from kubothek.controller.scheduling.run_spans import (
    RUNS,
    attempt_ended,
    emit_if_ended,
    launching,
    nanoseconds,
    run_kind_of,
    trace_of,
)
from kubothek.tracing import Ended, RunTrace, Span, emit

Json = Mapping[str, Any]


class Traces:
    """The traces of one operator; ``ratio`` is the part of the runs that is traced."""

    def __init__(self, ratio: float) -> None:
        self._ratio = ratio

    def launching(self, action: LaunchJob) -> AbstractContextManager[Span]:
        """Return a span around the launch of a job."""
        return launching(action, self._ratio)

    def round(self, kind: str, obj: Json, begin: datetime, end: datetime, *, did: list[str]) -> None:
        """Send the span of a run's reconciliation, unless ``did`` is empty."""
        kind = run_kind_of(kind, obj)
        if not did or kind not in RUNS or (trace := self._trace(kind, obj["metadata"], "")) is None:
            return
        place = trace.within("reconcile", str(nanoseconds(begin)))
        ended = Ended(
            name="reconcile",
            place=place,
            parent=trace.run.span,
            begin=nanoseconds(begin),
            end=nanoseconds(end),
            attributes={"kubothek.did": ", ".join(did)},
        )
        emit(ended)

    def resource(self, kind: str, before: Json | None, after: Json) -> None:
        """Send the span of a run, if the resource is one and ended since ``before``."""
        if before is not None:
            emit_if_ended(kind, before, after, self._ratio)

    def pod(self, before: Json | None, pod: Json, owner: Json | None) -> None:
        """Send the spans of an attempt, if its driver pod was observed before it ended."""
        if before is None or owner is None or outcome.end_of(before) is not None:
            return
        if (view := outcome.end_of(pod)) is None:
            return
        labels, meta = pod["metadata"].get("labels") or {}, pod["metadata"]
        kind = run_kind_of(labels.get(names.KIND, ""), owner)
        trace = self._trace(kind, owner["metadata"], names.job_of(pod))
        moments = moments_of(pod)
        created, ended = moments["created"], moments["ended"]
        if trace is None or created is None or ended is None:
            return
        failed = view.phase is JobPhase.FAILED
        about = {"kubothek.verb": labels.get(names.VERB, ""), "k8s.pod.name": meta["name"]}
        node = (pod.get("spec") or {}).get("nodeName")
        for each in attempt_ended(
            kind,
            trace,
            _number(labels.get(names.ATTEMPT, "")),
            created=created,
            started=moments["started"],
            ended=ended,
            attributes=about | ({"k8s.node.name": node} if node else {}),
            error=f"{view.reason}: {view.message}" if failed else None,
        ):
            emit(each)

    def _trace(self, kind: str, meta: Json, job: str) -> RunTrace | None:
        """Return the trace of a resource's job; None if it is not sampled."""
        trace = trace_of(kind, meta["uid"], parse_time(meta.get("creationTimestamp")), job)
        return trace if trace.sampled(self._ratio) else None


def _number(label: str) -> int:
    """Return the number of an attempt; 1 if the label is invalid, as users may edit it."""
    return int(label) if label.isascii() and label.isdigit() else 1
