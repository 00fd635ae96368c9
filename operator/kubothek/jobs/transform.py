"""Update of a derivative to the current state of its inputs, in as many runs as needed."""

from __future__ import annotations

import json
import os
import ssl
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, Final

from kubothek.api.jobs import ForeignEngineRef, JobResult, TransformJob, TransformOutcome
from kubothek.errors import EngineFailed
from kubothek.jobs import derivative_lineage, translate
from kubothek.jobs.chains import inputs_among
from kubothek.jobs.deriving import ON_CHANGE, Derived, derive
from kubothek.jobs.own_pod import SERVICE_ACCOUNT
from kubothek.jobs.progress import Reporter
from kubothek.jobs.state import state_of
from kubothek.odf.derived import Derivative
from kubothek.odf.derived.dividing import DividedEngine
from kubothek.odf.derived.running import Engine
from kubothek.spark.pod import api_server
from kubothek.storage import Store
from kubothek.storage.parallel import Spread


def run(job: TransformJob, store: Store, reporter: Reporter) -> JobResult:
    """Commit once per run, each with new records of the inputs up to a limit. A repetition continues after them.

    Raises LakeError: InputMissing, InputDiverged, TransformInvalid, SchemaMismatch; from an engine of another party
    EngineFailed and EngineMisbehaved. The dataset stays as the last run left it.
    """
    reporter.report("Starting")
    log = translate.dataset_log(store, job.dataset, conditional_writes=job.store.conditional_writes)
    derivative = Derivative(store, log, by=job.dataset.claim.owner)

    def report(so_far: Derived) -> None:
        reporter.report("Transforming", so_far.runs, so_far.runs, so_far.consumed)

    inputs = inputs_among(store, job.inputs)
    with ExitStack() as stack:
        ours = DividedEngine(job.dataset.uuid, _with_spark(job, store, reporter, stack), job.spark.from_bytes)
        engine = ours if job.foreign is None else foreign_engine(job, job.foreign, reporter)
        end = stack.enter_context(
            derivative_lineage.reporting(job.lineage, derivative, inputs, run=f"{job.uid}/{job.attempt}")
        )
        done = end(derive(derivative, inputs, on_change=ON_CHANGE[job.on_change], report=report, engine=engine))
    return JobResult(
        outcome="Succeeded",
        reason="Succeeded",
        message=f"{done}{_divided(ours)}",
        transform=TransformOutcome(version=done.version, records=done.records),
        dataset=state_of(store, log, job.dataset),
    )


def _with_spark(job: TransformJob, store: Store, reporter: Reporter, stack: ExitStack) -> Callable[[], Spread]:
    """Return a function that starts one Spark session, for all divided runs of the job."""

    @cache
    def spread() -> Spread:
        # PySpark takes half a second to import, and jobs below the limit must not need it at all.
        from kubothek.spark.session import running
        from kubothek.spark.sweep import spread_with_spark

        reporter.report("StartingSpark")
        session = stack.enter_context(running(job.spark.conf))
        return spread_with_spark(
            session, store.config, lambda done, total: reporter.report("Transforming", done, total)
        )

    return spread


def _divided(engine: DividedEngine) -> str:
    found = f"; divided over Spark: {engine.divided:,} of its runs" if engine.divided else ""
    return found + (f"; too large for one process, and not to be divided: {engine.whole:,}" if engine.whole else "")


# An engine of another party that runs a job's transformation, identified by its image (EN-11).


_PATIENCE_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.5
_REQUEST_SECONDS: Final = 10.0


def foreign_engine(job: TransformJob, foreign: ForeignEngineRef, reporter: Reporter) -> Engine:
    """Return the engine that runs the transformation. Raises EngineFailed if its image digest cannot be determined."""
    # gRPC takes 0.1 s to import, and is in the extra "engine" only.
    from kubothek.odf.engines import ForeignEngine

    image, container = foreign.image, foreign.container
    if container is not None:
        image = running_image(image, container, pod_url(os.environ))
    return ForeignEngine(
        foreign.address,
        image,
        alias=job.dataset.uuid,
        volume=Path(foreign.volume_dir),
        timeout=foreign.timeout_seconds,
        told=lambda: reporter.report("EngineRunning"),
    )


def pod_url(environ: Mapping[str, str]) -> str:
    """Return the URL of this pod at the API server."""
    return f"{api_server(environ)}/api/v1/namespaces/{environ['POD_NAMESPACE']}/pods/{environ['POD_NAME']}"


def running_image(
    image: str, container: str, url: str, *, account: Path = SERVICE_ACCOUNT, patience: float = _PATIENCE_SECONDS
) -> str:
    """Return the image of a container of this pod, with the digest that really runs. Raises EngineFailed.

    ``image``  the image in the pod's specification
    """
    end = time.monotonic() + patience
    while True:
        why = f"container {container!r} has not been started"
        try:
            found = _image_id(_pod(url, account), container)
        except (OSError, ValueError) as error:
            found, why = None, str(error)
        if found:
            return _named(image, found)
        if time.monotonic() >= end:
            raise EngineFailed(f"cannot determine the image digest of engine {image!r}, which the chain records: {why}")
        time.sleep(_PAUSE_SECONDS)


def _named(image: str, found: str) -> str:
    """Return ``repository@sha256:…``; for an image without a digest from a registry, append its image id."""
    found = found.rpartition("://")[2]
    return found if "@" in found else f"{image}@{found}"


def _image_id(pod: Mapping[str, Any], container: str) -> str | None:
    statuses = pod.get("status", {}).get("initContainerStatuses") or ()
    return next((each.get("imageID") for each in statuses if each.get("name") == container), None)


def _pod(url: str, account: Path) -> Mapping[str, Any]:
    headers = {"Authorization": f"Bearer {(account / 'token').read_text()}"}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - the API server's own address
    trust = ssl.create_default_context(cafile=account / "ca.crt") if url.startswith("https") else None
    with urllib.request.urlopen(request, timeout=_REQUEST_SECONDS, context=trust) as answer:  # noqa: S310
        found: Mapping[str, Any] = json.load(answer)
    return found
