"""The gateway's metrics: requests by the pattern of their path, and what is served (docs/metrics.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from kubothek.cluster.telemetry.metrics import encoded, process_registry

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class GatewayMetrics:
    """The metrics of one gateway. Labels are methods, patterns of paths and status codes: a few dozen series."""

    def __init__(self, served: Callable[[], int]) -> None:
        """``served``: how many Datasets are exposed now."""
        self._registry = registry = process_registry()
        datasets = Gauge("kubothek_gateway_datasets", "Datasets that are exposed.", registry=registry)
        datasets.set_function(served)
        self._requests = Counter(
            "kubothek_gateway_requests", "Requests that were answered.", ["method", "route", "code"], registry=registry
        )
        self._seconds = Histogram(
            "kubothek_gateway_request_duration_seconds",
            "How long answers took, to the end of what was sent.",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request was answered. Whatever is no method and no path of ours is ``other``: clients make those up."""
        self._requests.labels(method if method in _METHODS else "other", route or "other", str(status)).inc()
        self._seconds.labels(route or "other").observe(seconds)

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        """All metrics in the format that is asked for, and its content type."""
        return await encoded(self._registry, accept)
