"""Traces of a run over manifests, if OTEL_EXPORTER_OTLP_ENDPOINT names a collector (docs/tracing.md)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime

from kubothek.api.kinds import manifest_of
from kubothek.api.meta import Resource
from kubothek.controller.context import ENDED, JobPhase, JobView, LaunchJob
from kubothek.controller.scheduling.run_spans import (
    attempt_ended,
    emit_if_ended,
    launching,
    run_kind,
    trace_of,
    traceparent,
)
from kubothek.local.attempt import Attempt
from kubothek.local.errors import LocalError
from kubothek.tracing import Span, emit, sending
from kubothek.tracing.sending import ENDPOINT, ratio_of

_SERVICE = "kubothek-run"


class Traces:
    """Traces of one run. Raises LocalError for an invalid ratio."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._endpoint = environ.get(ENDPOINT, "")
        try:
            self._ratio = ratio_of(environ) if self._endpoint else 0.0
        except ValueError as error:
            raise LocalError(str(error)) from error

    def sending(self) -> AbstractContextManager[None]:
        """Send the spans that are reported inside the context."""
        return sending(self._endpoint, _SERVICE) if self._endpoint else nullcontext()

    def traceparent(self, action: LaunchJob) -> str | None:
        """Return the trace context for the environment of a job; None if it is not traced."""
        return traceparent(action, self._ratio)

    def launching(self, action: LaunchJob) -> AbstractContextManager[Span]:
        """Return a span around the launch of a job."""
        return launching(action, self._ratio)

    def job_ended(self, owner: Resource, attempt: Attempt, view: JobView | None) -> None:
        """Report the end of a job's process; ``view`` has its result."""
        if view is None or view.phase not in ENDED or attempt.launched is None or view.since is None:
            return
        meta, kind = owner.metadata, run_kind(owner)
        trace = trace_of(kind, meta.uid, meta.creation_timestamp, attempt.job)
        if not trace.sampled(self._ratio):
            return
        error = f"{view.reason}: {view.message}" if view.phase is JobPhase.FAILED else None
        for ended in attempt_ended(
            kind,
            trace,
            attempt.number,
            created=attempt.launched,
            started=_started(attempt),
            ended=view.since,
            attributes={"kubothek.job": attempt.job},
            error=error,
        ):
            emit(ended)

    def changed(self, before: Resource, after: Resource) -> None:
        """Report a changed status, in case the resource is a run that ended."""
        if self._ratio:
            emit_if_ended(after.kind, manifest_of(before), manifest_of(after), self._ratio)


def _started(attempt: Attempt) -> datetime | None:
    """Return when its last process was started, or None."""
    try:
        return datetime.fromtimestamp((attempt.directory / "pid").stat().st_mtime, UTC)
    except FileNotFoundError:
        return None
