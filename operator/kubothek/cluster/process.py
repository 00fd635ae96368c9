"""One operator process: the controller, its workers and the informer, started in order and stopped together."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
from contextlib import nullcontext
from functools import partial
from uuid import uuid4

from kubothek.cluster.api import Api
from kubothek.cluster.config import OperatorConfig
from kubothek.cluster.controller import Controller
from kubothek.cluster.informer import Watch
from kubothek.cluster.launch import Launcher
from kubothek.cluster.leader_election import Lease
from kubothek.cluster.namespaces import Scopes
from kubothek.cluster.resync import Resync
from kubothek.cluster.telemetry.events import EventRecorder
from kubothek.cluster.telemetry.metrics import Metrics
from kubothek.cluster.telemetry.metrics_state import state_metrics
from kubothek.cluster.telemetry.probes import metrics, probes
from kubothek.cluster.telemetry.traces import Traces
from kubothek.cluster.webhook.server import webhook
from kubothek.controller.context import Settings
from kubothek.controller.reconcilers import RECONCILERS
from kubothek.tracing import sending

log = logging.getLogger(__name__)


async def run(config: OperatorConfig) -> None:
    """Run the operator until SIGTERM or SIGINT. Raises the unrecoverable error of any of its tasks."""
    with nullcontext() if config.tracing is None else sending(config.tracing.endpoint, "kubothek-operator"):
        await _run(config)


async def _run(config: OperatorConfig) -> None:
    counted = Metrics()
    api = await Api.connect(config.kubeconfig, answered=counted.request)
    try:
        controller, recorder = await build(api, config, counted)
        resync = Resync(api, controller, config.scopes)
        scopes = Scopes(api, config.namespaces, controller, resync) if config.namespaces else None
        watch = Watch(config, controller, resync, scopes)
        working: list[asyncio.Task[None]] = []
        async with (
            probes(
                config.probe_port,
                healthy=lambda: not any(task.done() for task in working),
                ready=lambda: bool(working) and watch.ready,
            ),
            metrics(config.metrics_port, partial(exposition, controller, config.metrics_objects)) as metrics_port,
            webhook(api, config.webhook, lambda: controller.context() if watch.ready else None)
            if config.webhook is not None
            else nullcontext(),
        ):
            log.info("metrics are on port %d", metrics_port)
            # Fill the caches first: with half of the cluster a worker would decide wrongly.
            await resync.until_done()
            # Long-lived objects without cycles: exclude them from further garbage collections of Python.
            gc.collect()
            gc.freeze()
            log.info("serving %s with %d resources", config.namespaces or "all namespaces", len(controller.queue))
            # Start before kopf: at its end it cancels every task of the loop that was started after it.
            helpers = [asyncio.create_task(recorder.run()), asyncio.create_task(resync.run())]
            # Until this operator leads, observed changes stay in the queue.
            led = partial(work, controller, config.concurrency)
            namespace, _, name = config.lease.partition("/")
            lease = Lease(api, namespace, name, identity(config)) if name else None
            working.append(asyncio.create_task(lease.run(led) if lease else led()))
            if scopes:
                helpers.append(asyncio.create_task(scopes.run()))
            watching = asyncio.create_task(watch.run())
            await _until_any_ends(watching, *working, *helpers)
    finally:
        await api.close()


async def exposition(controller: Controller, objects: int, accept: str) -> tuple[bytes, str]:
    """Return the operator's metrics for an Accept header, and their content type."""
    state = partial(state_metrics, controller.state, controller.queue, objects, controller.clock())
    return await controller.metrics.exposition(accept, state)


async def build(api: Api, config: OperatorConfig, counted: Metrics) -> tuple[Controller, EventRecorder]:
    """Return the controller and its event recorder; read the cluster's id unless it is configured."""
    recorder = EventRecorder(api, instance=socket.gethostname(), clock=api.clock)
    settings = Settings(
        cluster_id=config.cluster_id or await api.cluster_uid(),
        default_image=config.job_image,
        default_service_account=config.job_service_account,
        allowed_source_hosts=config.allowed_source_hosts,
        open_lineage_url=config.open_lineage_url or None,
        allowed_source_images=config.allowed_source_images,
        inspect_interval=config.inspect_interval,
        limits=config.limits,
        engine_defaults=config.engine_defaults,
        engine_limits=config.engine_limits,
        logs=config.logs,
    )
    controller = Controller(
        api=api,
        settings=settings,
        launcher=Launcher(api, config, api.clock),
        recorder=recorder,
        reconcilers=RECONCILERS,
        metrics=counted,
        traces=Traces(config.tracing.ratio if config.tracing is not None else 0.0),
        clock=api.clock,
    )
    return controller, recorder


def identity(config: OperatorConfig) -> str:
    """Return the operator's identity in its Lease: the host name, outside a cluster with a random suffix.

    So a restarted container of the same pod takes the Lease at once: its predecessor has certainly ended.
    """
    return socket.gethostname() if config.kubeconfig is None else f"{socket.gethostname()}-{uuid4().hex[:8]}"


async def work(controller: Controller, workers: int) -> None:
    """Run this many workers until cancelled."""
    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(controller.work())


async def _until_any_ends(*tasks: asyncio.Task[None]) -> None:
    """Wait for the first task to end, stop the others, and raise what the first one raised."""
    ended, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    for task in ended:
        task.result()
