"""An engine of another party that runs a job's transformation, identified by its image (EN-11)."""

from __future__ import annotations

import json
import os
import ssl
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kubothek.api.jobs import ForeignEngineRef, TransformJob
from kubothek.errors import EngineFailed
from kubothek.jobs.own_pod import SERVICE_ACCOUNT
from kubothek.jobs.progress import Reporter
from kubothek.odf.derived.running import Engine
from kubothek.spark.pod import api_server

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
        told=lambda: reporter.tell("EngineRunning"),
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
