"""Gauges of the state, read from the caches at each scrape: they cannot drift, and a restart changes nothing.

The number of series is bounded (docs/metrics.md) by kinds, namespaces and ObjectStores. A kind with at most ``limit``
resources has series of each; a kind with more has none of these, and a metric counts the omitted resources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from kubothek.api.kinds import KINDS
from kubothek.api.values import parse_time
from kubothek.cluster import names
from kubothek.cluster.cache.state import ClusterState
from kubothek.cluster.cache.warm_pools import phase_of
from kubothek.cluster.queue import WorkQueue
from kubothek.cluster.telemetry.metrics import verb_of
from kubothek.cluster.telemetry.metrics_objects import NAMED, DatasetGauges, ObjectGauges, StoreGauges

Json = Mapping[str, Any]

RUNS: Final = ("Commit", "Query", "Compaction", "Verification")
"""Kinds of runs, which end."""


def state_metrics(state: ClusterState, queue: WorkQueue, limit: int, now: datetime) -> Iterator[Metric]:
    """Yield the metrics of the state. ``limit``: maximum number of resources of a kind with series of their own."""
    yield from _queue(queue)
    yield from _resources(state, now)
    yield from _jobs(state)
    yield from _by_name(state, limit)


def _queue(queue: WorkQueue) -> Iterator[Metric]:
    """Yield the metrics of the queue: 0 without the Lease, as the leader reconciles the keys queued here."""
    works = queue.served
    yield _one("kubothek_leading", "Whether this operator works: others wait for its Lease.", works)
    yield _one("kubothek_workqueue_depth", "Resources that wait for a worker.", works and len(queue))
    yield _one("kubothek_workqueue_busy", "Resources that are worked on.", queue.busy)
    yield _one("kubothek_workqueue_oldest_seconds", "How long the first of them has waited.", works and queue.oldest)
    yield _one(
        "kubothek_workqueue_failing",
        "Resources whose last round failed: they are tried again.",
        works and queue.failing,
    )


def _resources(state: ClusterState, now: datetime) -> Iterator[Metric]:
    counts: Counter[tuple[str, str, str]] = Counter()
    oldest: dict[tuple[str, str], datetime] = {}
    for kind in KINDS:
        for obj in state.resources[kind].objects():
            namespace, phase = obj["metadata"]["namespace"], state_of(obj)
            counts[kind, namespace, phase] += 1
            if kind in RUNS and phase in ("Unseen", "Progressing", "Waiting"):
                created = parse_time(obj["metadata"].get("creationTimestamp")) or now
                key = (kind, namespace)
                oldest[key] = min(oldest.get(key, created), created)
    resources = GaugeMetricFamily(
        "kubothek_resources", "How many resources are in which state.", labels=["kind", "namespace", "state"]
    )
    for labels, count in counts.items():
        resources.add_metric(labels, count)
    yield resources
    ages = GaugeMetricFamily(
        "kubothek_run_oldest_seconds",
        "How long ago the oldest run was created that has neither ended nor is suspended.",
        labels=["kind", "namespace"],
    )
    for run, created in oldest.items():
        ages.add_metric(run, max((now - created).total_seconds(), 0.0))
    yield ages


def _jobs(state: ClusterState) -> Iterator[Metric]:
    counts: Counter[tuple[str, str, str]] = Counter()
    waiting: Counter[tuple[str, str]] = Counter()
    for pod in state.pods.objects():
        phase = pod["status"].get("phase") or "Pending"
        if names.waits(pod):
            waiting[pod["metadata"]["namespace"], phase_of(pod)] += 1
        elif phase in ("Pending", "Running"):
            counts[pod["metadata"]["namespace"], verb_of(pod), phase] += 1
    jobs = GaugeMetricFamily("kubothek_jobs", "Jobs whose pods exist.", labels=["namespace", "verb", "phase"])
    for labels, count in counts.items():
        jobs.add_metric(labels, count)
    yield jobs
    drivers = GaugeMetricFamily(
        "kubothek_warm_drivers", "Drivers that wait for a job, or will.", labels=["namespace", "state"]
    )
    for where, count in waiting.items():
        drivers.add_metric(where, count)
    yield drivers
    load = state.job_slots.load
    slots = GaugeMetricFamily("kubothek_job_places", "Places of jobs that are held, or waited for.", labels=["state"])
    slots.add_metric(["held"], sum(load.held.values()))
    slots.add_metric(["wanted"], sum(load.wanted.values()))
    yield slots


def _by_name(state: ClusterState, limit: int) -> Iterator[Metric]:
    stores = StoreGauges({(o["metadata"]["namespace"], o["metadata"]["name"]) for o in _objects(state, "ObjectStore")})
    objects, datasets = ObjectGauges(), DatasetGauges()
    withheld = GaugeMetricFamily(
        "kubothek_objects_withheld", "Resources that have no series of their own: there are too many.", labels=["kind"]
    )
    for kind in NAMED:
        count = state.count(kind)
        listed = count <= limit
        withheld.add_metric([kind], 0 if listed else count)
        for obj in _objects(state, kind):
            if listed:
                objects.add(kind, obj, state_of(obj))
            if kind == "Dataset":
                stores.add(obj)
                if listed:
                    datasets.add(obj)
            if kind == "ObjectStore":
                stores.inspected(obj)
    yield withheld
    for group in (stores, objects, datasets):
        yield from group.families()


def _objects(state: ClusterState, kind: str) -> Iterator[Json]:
    return state.resources[kind].objects()


def state_of(obj: Json) -> str:
    """Return the state of a resource in one word, as in :mod:`kubothek.api.conditions`.

    ``Unseen``: the operator has not observed its present generation.
    """
    meta, conditions = obj["metadata"], _conditions(obj)
    ready = conditions.get("Ready")
    if meta.get("deletionTimestamp"):
        return "Deleting"
    if ready is None or ready.get("observedGeneration", -1) < meta.get("generation", 1):
        return "Unseen"
    if "Failed" in conditions:
        return "Failed"
    if "Stalled" in conditions:
        return "Stalled"
    if ready["status"] == "True":
        return "Ready"
    if "Reconciling" in conditions:
        return "Progressing" if ready["status"] == "Unknown" else "Waiting"
    return "Suspended"


def _conditions(obj: Json) -> dict[str, Json]:
    """Return the condition Ready, and all others that are True, by type."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return {c["type"]: c for c in conditions if c["type"] == "Ready" or c["status"] == "True"}


def _one(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)
