"""Traces of runs and their jobs, told of when they end, and of the rounds in which something was done for a run.

Each is decided by what the API server says, so another operator would tell the same: see `reconcile.tracing`.
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
    launching,
    nanoseconds,
    tell_if_ended,
    trace_of,
)
from kubothek.tracing import Ended, RunTrace, Span, tell

Json = Mapping[str, Any]


class Traces:
    """Those of one operator; ``ratio`` of the runs are traced."""

    def __init__(self, ratio: float) -> None:
        self._ratio = ratio

    def launching(self, action: LaunchJob) -> AbstractContextManager[Span]:
        """Around the launch of a job."""
        return launching(action, self._ratio)

    def round(self, kind: str, obj: Json, begin: datetime, end: datetime, *, did: list[str]) -> None:
        """A round over a run, in which this was done; none is told of in which there was nothing to do."""
        if not did or kind not in RUNS or (trace := self._trace(kind, obj["metadata"], "")) is None:
            return
        place = trace.within("reconcile", str(nanoseconds(begin)))
        told = Ended(
            name="reconcile",
            place=place,
            parent=trace.run.span,
            begin=nanoseconds(begin),
            end=nanoseconds(end),
            attributes={"kubothek.did": ", ".join(did)},
        )
        tell(told)

    def resource(self, kind: str, before: Json | None, after: Json) -> None:
        """A resource is another one than before: maybe it is a run that ended, and not before we looked."""
        if before is not None:
            tell_if_ended(kind, before, after, self._ratio)

    def pod(self, before: Json | None, pod: Json, owner: Json | None) -> None:
        """A driver pod is another one than before; its end is told of, if its life was seen."""
        if before is None or owner is None or outcome.end_of(before) is not None:
            return
        if (view := outcome.end_of(pod)) is None:
            return
        labels, meta = pod["metadata"].get("labels") or {}, pod["metadata"]
        kind = labels.get(names.KIND, "")
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
            tell(each)

    def _trace(self, kind: str, meta: Json, job: str) -> RunTrace | None:
        """The trace that a resource's job is in, if it is one of those that are told of."""
        trace = trace_of(kind, meta["uid"], parse_time(meta.get("creationTimestamp")), job)
        return trace if trace.sampled(self._ratio) else None


def _number(label: str) -> int:
    """Of an attempt; anybody may have labelled the pod."""
    return int(label) if label.isascii() and label.isdigit() else 1
