"""Series of single resources and of the content of ObjectStores, read from statuses."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from kubothek.api.values import parse_time

Json = Mapping[str, Any]

NAMED: Final = ("ObjectStore", "Engine", "Cube", "Dataset", "GCPolicy", "SkippingIndex", "Repository", "Sync")
"""Long-lived kinds. Runs have counts only, as their series would come and go with them."""

_SIZES: Final = {
    "rows": "Rows of the current version.",
    "files": "Data files of the current version.",
    "bytes": "Size of the data files of the current version.",
}
_HEALTH: Final = {
    "small_files": ("smallFiles", "Files of less than half of the size that files should have."),
    "history_bytes": ("historyBytes", "Size of files that only older versions need."),
    "garbage_bytes": ("garbageBytes", "Size of files that no version needs."),
}
_OF_DATASETS: Final = {
    "version": ("version", "The current version."),
    "partitions": ("partitions", "Partitions of the current version."),
}
_TIMES: Final = {
    "last_commit": ("lastCommitTime", "When the current version was committed."),
    "inspected": ("inspectedTime", "Start time of the last inspection that found a change."),
}
_OF_SOURCES: Final = {
    "lag_files": "Files that landed and are not taken.",
    "lag_bytes": "Their size.",
    "quarantined_files": "Files that were passed over, as they cannot be read.",
    "failures": "Jobs in a row that failed.",
}


class StoreGauges:
    """Sums over the Datasets of each ObjectStore: one series of each metric per ObjectStore."""

    def __init__(self, stores: set[tuple[str, str]]) -> None:
        self._stores = stores
        self._datasets: Counter[tuple[str, str]] = Counter()
        self._corrupt: Counter[tuple[str, str]] = Counter()
        self._sums: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        self._inspected = _family("kubothek_store_inspected_timestamp_seconds", "Time of the last inspection.", "store")

    def add(self, dataset: Json) -> None:
        """Add a Dataset. If its ObjectStore does not exist, the label of the store is empty."""
        namespace, store = dataset["metadata"]["namespace"], dataset["spec"].get("storeRef", {}).get("name", "")
        key = (namespace, store if (namespace, store) in self._stores else "")
        status = dataset.get("status") or {}
        health = status.get("health") or {}
        self._datasets[key] += 1
        self._corrupt[key] += bool(status.get("corrupt"))
        for name in _SIZES:
            self._sums[name][key] += status.get(name) or 0
        for name, (field, _) in _HEALTH.items():
            self._sums[name][key] += health.get(field) or 0

    def inspected(self, store: Json) -> None:
        """Add the time of an ObjectStore's last inspection."""
        inspection = (store.get("status") or {}).get("lastInspection") or {}
        finished = parse_time(inspection.get("finished") or inspection.get("previousStarted"))
        if finished is not None:
            self._inspected.add_metric(_name(store), finished.timestamp())

    def families(self) -> Iterator[Metric]:
        """Yield the metrics of all added objects."""
        yield self._inspected
        yield _counted("kubothek_store_datasets", "Datasets.", self._datasets)
        yield _counted("kubothek_store_corrupt_datasets", "Datasets of which data is lost.", self._corrupt)
        for name, text in (*_SIZES.items(), *((name, text) for name, (_, text) in _HEALTH.items())):
            yield _counted(f"kubothek_store_{name}", f"Of its Datasets: {text}", self._sums[name])


class ObjectGauges:
    """One series for each resource, whose labels have its state."""

    def __init__(self) -> None:
        self._info = GaugeMetricFamily(
            "kubothek_resource_info", "1 for each resource.", labels=["kind", "namespace", "name", "state", "reason"]
        )
        self._collected = _family("kubothek_gcpolicy_last_timestamp_seconds", "When its last round was over.", "name")
        self._due = _family("kubothek_gcpolicy_next_timestamp_seconds", "When its next slot is.", "name")
        self._failed = _family("kubothek_gcpolicy_failed_datasets", "Datasets that its last round failed for.", "name")
        self._synced = _family("kubothek_sync_last_timestamp_seconds", "When both sides were last the same.", "name")

    def add(self, kind: str, obj: Json, state: str) -> None:
        """Add a resource."""
        status = obj.get("status") or {}
        reasons = (c.get("reason", "") for c in status.get("conditions") or () if c["type"] == "Ready")
        self._info.add_metric([kind, *_name(obj), state, next(reasons, "")], 1)
        if kind == "GCPolicy":
            _add_time(self._collected, _name(obj), status.get("lastTime"))
            _add_time(self._due, _name(obj), status.get("nextTime"))
            self._failed.add_metric(_name(obj), (status.get("last") or {}).get("failed") or 0)
        if kind == "Sync":
            _add_time(self._synced, _name(obj), status.get("lastSyncTime"))

    def families(self) -> Iterator[Metric]:
        """Yield the metrics of all added objects."""
        yield from (self._info, self._collected, self._due, self._failed, self._synced)


class DatasetGauges:
    """The size and health of each Dataset, and the lag of its sources."""

    def __init__(self) -> None:
        texts = {**_SIZES, **{name: text for name, (_, text) in (_OF_DATASETS | _HEALTH).items()}}
        self._gauges = {name: _family(f"kubothek_dataset_{name}", text, "name") for name, text in texts.items()}
        self._gauges["ailments"] = _family("kubothek_dataset_ailments", "What is missing or lags.", "name")
        self._gauges["corrupt"] = _family("kubothek_dataset_corrupt", "1 if data is lost.", "name")
        self._gauges["iceberg_lag"] = _family(
            "kubothek_dataset_iceberg_lag_versions", "By how many versions its Iceberg metadata is behind.", "name"
        )
        self._times = {
            name: _family(f"kubothek_dataset_{name}_timestamp_seconds", text, "name")
            for name, (_, text) in _TIMES.items()
        }
        self._sources = {
            name: _family(f"kubothek_source_{name}", text, "dataset", "source") for name, text in _OF_SOURCES.items()
        }
        self._current = _family(
            "kubothek_source_current_until_timestamp_seconds",
            "All that landed before is taken, or in quarantine.",
            "dataset",
            "source",
        )

    def add(self, dataset: Json) -> None:
        """Add a Dataset; without a commit it has no size."""
        name, status = _name(dataset), dataset.get("status") or {}
        self._gauges["corrupt"].add_metric(name, bool(status.get("corrupt")))
        self._gauges["ailments"].add_metric(name, len(status.get("ailments") or ()))
        for key, (field, _) in _TIMES.items():
            _add_time(self._times[key], name, status.get(field))
        if (exported := status.get("iceberg")) is not None:
            self._gauges["iceberg_lag"].add_metric(name, exported.get("lag") or 0)
        if status.get("version") is not None:
            health = status.get("health") or {}
            for key in _SIZES:
                self._gauges[key].add_metric(name, status.get(key) or 0)
            for key, (field, _) in _OF_DATASETS.items():
                self._gauges[key].add_metric(name, status.get(field) or 0)
            for key, (field, _) in _HEALTH.items():
                self._gauges[key].add_metric(name, health.get(field) or 0)
        for source in status.get("sources") or ():
            self._add_source([*name, source["name"]], source)

    def _add_source(self, labels: list[str], source: Json) -> None:
        lag = source.get("lag") or {}
        self._sources["lag_files"].add_metric(labels, lag.get("files") or 0)
        self._sources["lag_bytes"].add_metric(labels, lag.get("bytes") or 0)
        self._sources["quarantined_files"].add_metric(labels, source.get("quarantined") or 0)
        self._sources["failures"].add_metric(labels, source.get("failures") or 0)
        _add_time(self._current, labels, source.get("currentUntil"))

    def families(self) -> Iterator[Metric]:
        """Yield the metrics of all added Datasets."""
        yield from self._gauges.values()
        yield from self._times.values()
        yield from self._sources.values()
        yield self._current


def _name(obj: Json) -> list[str]:
    return [obj["metadata"]["namespace"], obj["metadata"]["name"]]


def _family(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=["namespace", *labels])


def _counted(name: str, text: str, counts: Mapping[tuple[str, str], float]) -> GaugeMetricFamily:
    family = _family(name, text, "store")
    for labels, count in counts.items():
        family.add_metric(labels, count)
    return family


def _add_time(family: GaugeMetricFamily, labels: list[str], text: str | None) -> None:
    since = parse_time(text)
    if since is not None:
        family.add_metric(labels, since.timestamp())
