"""One gateway process of a namespace: it follows the cluster, serves the ledgers and reloads the certificate."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from kubothek.cluster.api import Api
from kubothek.cluster.telemetry.metrics import encoded, process_registry
from kubothek.cluster.telemetry.probes import metrics, probes
from kubothek.gateway.app import make_app
from kubothek.gateway.kubernetes.access import ClusterAccess
from kubothek.gateway.kubernetes.catalogue import NamespaceCatalogue
from kubothek.gateway.limits import Limits
from kubothek.gateway.server import serve

_LOG: Final = logging.getLogger("kubothek.gateway.cluster")
_RENEWED: Final = 60.0
"""Seconds between checks of the certificate: a renewal replaces the files of the mounted Secret."""
CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
"""The keys of a Secret of type kubernetes.io/tls."""


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Configuration; :mod:`kubothek.gateway.__main__` explains each flag."""

    namespace: str
    audience: str
    cluster_id: str = ""
    """Empty = the uid of the namespace kube-system."""
    host: str = "0.0.0.0"  # noqa: S104 - clients are outside of the pod
    port: int = 8080
    probe_port: int = 8081
    metrics_port: int = 8082
    tls_dir: Path | None = None
    presigned: int = 0
    url: str | None = None
    proxies: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    kubeconfig: str | None = None


async def run(config: GatewayConfig, listening: Callable[[int], None]) -> None:
    """Run until SIGTERM or SIGINT, or raise when a part fails for good.

    ``listening`` gets the port. Raises ApiUnavailable, ApiError, OSError.
    """
    tls = None if config.tls_dir is None else tls_context(config.tls_dir)
    api = await Api.connect(config.kubeconfig)
    try:
        cluster = config.cluster_id or await api.cluster_uid()
        catalogue = NamespaceCatalogue(api, config.namespace, cluster)
        access = ClusterAccess(api, config.namespace, config.audience)
        counted = GatewayMetrics(lambda: catalogue.exposed)
        app = make_app(
            catalogue,
            access,
            limits=config.limits,
            namespace=config.namespace,
            presigned=config.presigned,
            url=config.url,
            answered=counted.answered,
            proxies=config.proxies,
        )
        async with (
            probes(config.probe_port, healthy=lambda: True, ready=lambda: catalogue.ready),
            metrics(config.metrics_port, counted.exposition),
            asyncio.TaskGroup() as tasks,
        ):
            helpers = [tasks.create_task(catalogue.run())]
            if tls is not None and config.tls_dir is not None:
                helpers.append(tasks.create_task(renew(tls, config.tls_dir)))
            await serve(app, config.limits, config.host, config.port, tls, listening)
            for helper in helpers:
                helper.cancel()
    finally:
        await api.close()


def tls_context(directory: Path) -> ssl.SSLContext:
    """Return the TLS context of a mounted Secret. Raises OSError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(directory / CERTIFICATE, directory / KEY)
    return context


async def renew(context: ssl.SSLContext, directory: Path, seconds: float = _RENEWED) -> None:
    """Reload the certificate when its file changes, for new connections; retry later if it cannot be read."""
    loaded = _changed(directory)
    while True:
        await asyncio.sleep(seconds)
        if (changed := _changed(directory)) == loaded:
            continue
        try:
            context.load_cert_chain(directory / CERTIFICATE, directory / KEY)
        except OSError as error:
            _LOG.warning("the certificate in %s cannot be taken up: %s", directory, error)
        else:
            _LOG.info("the certificate was renewed")
            loaded = changed


def _changed(directory: Path) -> float:
    with suppress(OSError):
        return (directory / CERTIFICATE).stat().st_mtime
    return 0.0


# The gateway's metrics: requests by path pattern, and the number of served Datasets (docs/metrics.md).


_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class GatewayMetrics:
    """The metrics of one gateway. Labels are methods, patterns of paths and status codes: a few dozen series."""

    def __init__(self, served: Callable[[], int]) -> None:
        """``served``: returns the number of exposed Datasets."""
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
        """Count an answered request. Unknown methods and paths have the label ``other``, as clients can invent them."""
        self._requests.labels(method if method in _METHODS else "other", route or "other", str(status)).inc()
        self._seconds.labels(route or "other").observe(seconds)

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics in the requested format, and its content type."""
        return await encoded(self._registry, accept)
