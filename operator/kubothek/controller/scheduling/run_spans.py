"""Spans of runs and their jobs, derived from manifests alone.

A run (Commit, Query, Compaction, Verification) is a trace from its creation to its end, with its queue wait and each of
its jobs. A job of any other kind is a trace of its own, and so is a job of a standing Query, which never ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Final

from kubothek.api.meta import Resource
from kubothek.api.query import Query
from kubothek.api.values import parse_time
from kubothek.controller.context import LaunchJob
from kubothek.tracing import Ended, RunTrace, Span, emit, span

RUNS: Final = frozenset({"Commit", "Query", "Compaction", "Verification"})
"""Kinds whose runs are one trace each."""
_STANDING_QUERY: Final = "standing Query"
Json = Mapping[str, Any]


def run_kind(resource: Resource) -> str:
    """Return the kind of a resource, which is in ``RUNS`` only if the resource is one run."""
    standing = isinstance(resource, Query) and resource.spec.is_standing
    return _STANDING_QUERY if standing else resource.kind


def run_kind_of(kind: str, manifest: Json) -> str:
    """Return what :func:`run_kind` returns for a manifest, which may be invalid."""
    spec = manifest.get("spec") or {}
    return _STANDING_QUERY if kind == "Query" and ("schedule" in spec or spec.get("follow")) else kind


def trace_of(kind: str, uid: str, created: datetime | None, job: str) -> RunTrace:
    """Return the trace of a job of a resource; ``kind`` is its :func:`run_kind`.

    Outside a cluster uids repeat, so the creation time is part of it.
    """
    moment = 0 if created is None else int(created.timestamp())
    return RunTrace(f"{uid}@{moment}" if kind in RUNS else f"{uid}@{moment}/{job}")


def trace_of_job(action: LaunchJob) -> RunTrace:
    """Return the trace of a job that is launched."""
    meta = action.owner.metadata
    return trace_of(run_kind(action.owner), meta.uid, meta.creation_timestamp, action.job.job)


def traceparent(action: LaunchJob, ratio: float) -> str | None:
    """Return the parent span for the environment of a job; None if not traced. ``ratio``: share of traced runs."""
    trace = trace_of_job(action)
    return trace.attempt(action.job.attempt).header if trace.sampled(ratio) else None


def launching(action: LaunchJob, ratio: float) -> AbstractContextManager[Span]:
    """Return a span around the launch of a job; ``ratio`` is the share of runs that are traced."""
    trace = trace_of_job(action)
    return span("launch", trace.attempt(action.job.attempt) if trace.sampled(ratio) else None)


def emit_if_ended(kind: str, before: Json, after: Json, ratio: float) -> None:
    """Emit the spans of a run if this change of its manifest is its end."""
    if kind not in RUNS or has_ended(before) or not has_ended(after):
        return
    meta = after["metadata"]
    if trace_of(kind, meta["uid"], parse_time(meta.get("creationTimestamp")), "").sampled(ratio):
        for ended in run_ended(kind, after):
            emit(ended)


def run_ended(kind: str, manifest: Json) -> list[Ended]:
    """Return the spans of a run whose manifest says that it ended: the whole run, and its queue wait."""
    meta, status = manifest["metadata"], manifest.get("status") or {}
    failed = next((c for c in _conditions(manifest) if c["type"] == "Failed" and c["status"] == "True"), None)
    created = parse_time(meta.get("creationTimestamp"))
    ended = parse_time(status.get("completionTime") or (failed or {}).get("lastTransitionTime"))
    if kind not in RUNS or created is None or ended is None:
        return []
    trace = trace_of(kind, meta["uid"], created, "")
    started = parse_time(status.get("startTime"))
    about = {
        "kubothek.kind": kind,
        "kubothek.namespace": meta.get("namespace", "default"),
        "kubothek.name": meta["name"],
    }
    counted = {f"kubothek.{name}": status[name] for name in ("version", "rows", "files", "bytes") if name in status}
    run = Ended(
        name=kind,
        place=trace.run,
        parent=None,
        begin=nanoseconds(created),
        end=nanoseconds(ended),
        attributes=about | counted,
        error=None if failed is None else f"{failed.get('reason', '')}: {failed.get('message', '')}",
    )
    if started is None:
        return [run]
    waited = Ended(
        name="queue wait",
        place=trace.within("queue wait"),
        parent=trace.run.span,
        begin=run.begin,
        end=nanoseconds(started),
    )
    return [waited, run]


def has_ended(manifest: Json) -> bool:
    """Return whether the manifest is that of a run that is complete or failed."""
    return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in _conditions(manifest))


def attempt_ended(
    kind: str,
    trace: RunTrace,
    number: int,
    *,
    created: datetime,
    started: datetime | None,
    ended: datetime,
    attributes: Mapping[str, str] | None = None,
    error: str | None = None,
) -> list[Ended]:
    """Return the spans of a job that ended: the whole attempt, and the time that its pod was pending."""
    place = trace.attempt(number)
    attempt = Ended(
        name="attempt",
        place=place,
        parent=trace.run.span if kind in RUNS else None,
        begin=nanoseconds(created),
        end=nanoseconds(ended),
        attributes={"kubothek.attempt": number, **(attributes or {})},
        error=error,
    )
    if started is None:
        return [attempt]
    pending = Ended(
        name="pending",
        place=trace.within("pending", str(number)),
        parent=place.span,
        begin=attempt.begin,
        end=nanoseconds(started),
    )
    return [pending, attempt]


def nanoseconds(moment: datetime) -> int:
    """Return a moment in nanoseconds since 1970."""
    return int(moment.timestamp() * 1_000_000) * 1000


def _conditions(manifest: Json) -> Any:
    return (manifest.get("status") or {}).get("conditions") or ()
