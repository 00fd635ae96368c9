"""Counters of events: reconciliations, API calls, watch events, ends of jobs and runs (docs/metrics.md).

They start at zero after a restart, as Prometheus expects. Gauges of the state are in
:mod:`~kubothek.cluster.telemetry.metrics_state`, which reads the caches at each scrape. Every label has a closed set of
values, without names of resources.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from importlib.metadata import version
from typing import Any, Final, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from kubothek.api.jobs import AnyJob
from kubothek.api.kinds import KINDS
from kubothek.api.values import parse_time
from kubothek.cluster import names
from kubothek.cluster.pod_status import outcome

disable_created_metrics()  # type: ignore[no-untyped-call]  # they double the series, and nothing here reads them

Json = Mapping[str, Any]
State = Callable[[], Iterable[Metric]]

VERBS: Final = frozenset(job.model_fields["verb"].default for job in get_args(AnyJob))
OTHER: Final = "other"
"""Replacement of a value outside the closed set, such as a label that a user gave a pod."""
_REASONS: Final = 200
"""Maximum number of distinct reasons: ours are fewer, but a foreign image may invent some."""
_ROUND: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_JOB: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)
_STAGE: Final = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)


class Metrics:
    """The metrics of one process. Belongs to one event loop, like the caches."""

    def __init__(self) -> None:
        self._registry = registry = process_registry()
        self._reasons: set[str] = set()
        self._rounds = Counter("kubothek_reconcile", "Rounds over one resource.", ["kind", "result"], registry=registry)
        self._round_seconds = Histogram(
            "kubothek_reconcile_duration_seconds", "How long rounds take.", ["kind"], buckets=_ROUND, registry=registry
        )
        self._requests = Counter(
            "kubothek_api_requests",
            "Requests to the API server but for the watches.",
            ["verb", "resource", "code"],
            registry=registry,
        )
        self._watched = Counter("kubothek_watch_events", "What the watches delivered.", ["resource"], registry=registry)
        self._corrected = Counter(
            "kubothek_resync_corrections",
            "Changes that a listing reported and no watch had reported.",
            ["resource"],
            registry=registry,
        )
        for kind in (*KINDS, "Pod"):  # start at 0: `increase` ignores the first value of a series
            self._watched.labels(kind)
            self._corrected.labels(kind)
        self._resynced = Gauge(
            "kubothek_resync_last_timestamp_seconds", "When all was last listed and compared.", registry=registry
        )
        self._jobs = Counter("kubothek_job_ends", "Jobs that ended.", ["verb", "result", "reason"], registry=registry)
        self._job_seconds = Histogram(
            "kubothek_job_duration_seconds",
            "From the creation of a job's pod to its end.",
            ["verb", "result"],
            buckets=_JOB,
            registry=registry,
        )
        self._stage_seconds = Histogram(
            "kubothek_job_stage_seconds",
            "How long jobs were waiting for a node, starting there, and running.",
            ["verb", "stage"],
            buckets=_STAGE,
            registry=registry,
        )
        self._runs = Counter(
            "kubothek_run_ends", "Commits, Queries and other runs that ended.", ["kind", "result"], registry=registry
        )
        self._written = {
            what: Counter(f"kubothek_commit_{what}", f"The {what} that Commits added.", registry=registry)
            for what in ("rows", "files", "bytes")
        }

    # --- events -----------------------------------------------------------------------------------------------

    @contextmanager
    def round_of(self, kind: str) -> Iterator[None]:
        """Count and time the block as a reconciliation of this kind, which fails if the block raises."""
        started, result = time.monotonic(), "error"
        try:
            yield
            result = "success"
        except TimeoutError:
            result = "timeout"
            raise
        finally:
            self._rounds.labels(kind, result).inc()
            self._round_seconds.labels(kind).observe(time.monotonic() - started)

    def request(self, verb: str, resource: str, code: str) -> None:
        """Count a request to the API server with the code of its answer, or ``unreachable``."""
        self._requests.labels(verb, resource, code).inc()

    def watched(self, kind: str) -> None:
        """Count an event of a watch."""
        self._watched.labels(kind).inc()

    def resynced(self, news: Mapping[str, int]) -> None:
        """Record a resync, with the number of objects per kind that the watches had missed."""
        for kind, count in news.items():
            self._corrected.labels(kind).inc(count)
        self._resynced.set_to_current_time()

    def pod(self, before: Json | None, pod: Json) -> None:
        """Count the end of a driver's job, if its pod was observed before the end: not again after a restart."""
        if before is None or names.waits(pod) or outcome.end_of(before) is not None:
            return
        view = outcome.end_of(pod)
        if view is not None:
            self._job_ended(pod, view.failure or "Succeeded", view.reason)

    def pod_deleted(self, before: Json | None, pod: Json, *, cancelled: bool) -> None:
        """Count the end of a job whose driver pod was deleted; ``cancelled``: by us."""
        if before is None or names.waits(pod) or outcome.end_of(before) is not None:
            return
        view = outcome.lost_view(pod)
        self._job_ended(pod, "Cancelled" if cancelled else view.failure or "Succeeded", view.reason)

    def resource(self, kind: str, before: Json | None, after: Json) -> None:
        """Count the end of a run, if the resource is one and has just ended."""
        ended = _end(after)
        if before is None or ended is None or _end(before) is not None:
            return
        self._runs.labels(kind, ended).inc()
        if kind == "Commit" and ended == "Complete":
            for what, counter in self._written.items():
                counter.inc(after["status"].get(what) or 0)

    def _job_ended(self, pod: Json, result: str, reason: str) -> None:
        verb = verb_of(pod)
        self._jobs.labels(verb, result, "" if result in ("Succeeded", "Cancelled") else self._reason(reason)).inc()
        moments = moments_of(pod)
        created, ended = moments["created"], moments["ended"]
        if created is not None and ended is not None:
            self._job_seconds.labels(verb, result).observe(_between(created, ended))
        for stage, begin, end in (
            ("scheduling", "created", "scheduled"),
            ("starting", "scheduled", "started"),
            ("running", "started", "ended"),
        ):
            since, until = moments[begin], moments[end]
            if since is not None and until is not None:
                self._stage_seconds.labels(verb, stage).observe(_between(since, until))

    def _reason(self, reason: str) -> str:
        if reason not in self._reasons:
            if len(self._reasons) >= _REASONS:
                return OTHER
            self._reasons.add(reason)
        return reason

    # --- exposition -------------------------------------------------------------------------------------------

    async def exposition(self, accept: str, state: State) -> tuple[bytes, str]:
        """Return all metrics in the format of an Accept header, and their content type.

        The state is read on the event loop, where alone it changes; a thread encodes it.
        """
        return await encoded(_Together(self._registry, list(state())), accept)


def process_registry() -> CollectorRegistry:
    """Return a registry with the metrics of every process: version, memory, CPU time and open files."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    build = Gauge("kubothek_build_info", "The version that runs.", ["version"], registry=registry)
    build.labels(version("kubothek")).set(1)
    return registry


async def encoded(metrics: Collector, accept: str) -> tuple[bytes, str]:
    """Return the text for an Accept header, encoded in a thread, and its content type."""
    encode, content_type = choose_encoder(accept)
    return await asyncio.to_thread(encode, metrics), content_type


class _Together(Collector):
    """The metrics of a registry and of a list together, for an encoder."""

    def __init__(self, registry: CollectorRegistry, state: list[Metric]) -> None:
        self._registry = registry
        self._state = state

    def collect(self) -> Iterator[Metric]:
        yield from self._registry.collect()
        yield from self._state


def verb_of(pod: Json) -> str:
    """Return the verb of a driver pod's job."""
    verb = (pod["metadata"].get("labels") or {}).get(names.VERB, "")
    return verb if verb in VERBS else OTHER


def _between(since: datetime, until: datetime) -> float:
    """Return the seconds between two times; 0 if the clocks of API server and node make them negative."""
    return max((until - since).total_seconds(), 0.0)


def _end(resource: Json) -> str | None:
    """Return Complete or Failed for a run that ended; else None."""
    conditions = (resource.get("status") or {}).get("conditions") or ()
    return next((c["type"] for c in conditions if c["type"] in ("Complete", "Failed") and c["status"] == "True"), None)


def moments_of(pod: Json) -> dict[str, datetime | None]:
    """Return when the job was created, scheduled, started and ended; for a warm driver the first three are the same."""
    meta, status = pod["metadata"], pod["status"]
    nothing: Json = {}
    scheduled = next((c for c in status.get("conditions") or () if c["type"] == "PodScheduled"), nothing)
    drivers = (c for c in status.get("containerStatuses") or () if c["name"] == names.DRIVER_CONTAINER)
    state = next(drivers, nothing).get("state") or {}
    ran = state.get("terminated") or state.get("running") or {}
    reported = outcome.reported_end(pod)
    ended = parse_time(reported.finished if reported is not None else ran.get("finishedAt"))
    claimed = parse_time((meta.get("annotations") or {}).get(names.CLAIMED_AT))
    if claimed is not None:
        return {"created": claimed, "scheduled": claimed, "started": claimed, "ended": ended}
    return {
        "created": parse_time(meta.get("creationTimestamp")),
        "scheduled": parse_time(scheduled.get("lastTransitionTime")) if scheduled.get("status") == "True" else None,
        "started": parse_time(ran.get("startedAt")),
        "ended": ended,
    }
