"""Names that the operator uses in a cluster: labels, annotations, containers, paths, field managers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from kubothek.api import pod_templates
from kubothek.api.meta import GROUP

# Labels of driver pods, ConfigMaps and (all but JOB) executor pods.
KIND = f"{GROUP}/kind"
NAME = f"{GROUP}/name"
RUN = f"{GROUP}/run"
ATTEMPT = f"{GROUP}/attempt"
VERB = f"{GROUP}/verb"
"""The verb of the job: `commit`, `compact` …"""
STORE = f"{GROUP}/store"
"""The ObjectStore of the job."""
JOB = f"{GROUP}/job"
"""Label of driver pods and ConfigMaps only: the operator watches pods with it."""

PROGRESS = f"{GROUP}/progress"
"""Annotation that a job patches on its own pod: a :class:`kubothek.api.jobs.Progress` as JSON."""

RESULT = f"{GROUP}/result"
"""Annotation that a job patches on its own pod when it has done its work: a :class:`kubothek.api.jobs.Ended` as
JSON, signed (:mod:`kubothek.api.jobs.signed`). The kubelet reports the end as well, a second or two later."""

WARM = f"{GROUP}/warm"
"""Label of warm drivers, also after they took a job: the key of the jobs that they can take."""
READY = f"{GROUP}/ready"
"""Annotation that a warm driver patches on its own pod once it can take a job."""
TAKES = f"{GROUP}/takes"
"""Annotation of a warm driver: the job that it was given."""
CLAIMED_AT = f"{GROUP}/taken-at"
"""Annotation of a warm driver: when it was given that job."""
PART_OF = f"{GROUP}/traceparent"
"""Annotation of a warm driver: the trace that the job is part of."""
JOB_SPEC = f"{GROUP}/job-spec"
"""Annotation of a warm driver: the job spec as JSON."""
EXECUTOR_TEMPLATE = f"{GROUP}/executor-template"
"""Annotation of a warm driver: the pod template of executors as JSON."""
DRIVER = f"{GROUP}/driver"
"""Annotation of a job's ConfigMap: the warm driver that takes the job."""

RESULT_KEY = "KUBOTHEK_RESULT_KEY"
"""Variable of the driver's container: the public key that verifies :data:`RESULT`."""

FIELD_MANAGER = "kubothek-operator"
STATUS_MANAGER = "kubothek-status"

DRIVER_CONTAINER = pod_templates.DRIVER_CONTAINER
EXECUTOR_CONTAINER = pod_templates.EXECUTOR_CONTAINER
PREPARE_CONTAINER = "prepare"
"""Our init container, before FETCH_CONTAINER."""
FETCH_CONTAINER = "fetch"
"""Init container of a source's own image."""

JOB_DIRECTORY = "/etc/kubothek/job"

_LABEL_LIMIT = 63


def label_value(text: str) -> str:
    """Return ``text`` as a label value; if it is too long, its beginning and a hash."""
    if len(text) <= _LABEL_LIMIT:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    return f"{text[: _LABEL_LIMIT - 11].rstrip('-._')}-{digest}"


def job_of(pod: Mapping[str, Any]) -> str:
    """Return the name of the job that a driver pod runs: the one it was given, else its own name."""
    meta = pod["metadata"]
    return str((meta.get("annotations") or {}).get(TAKES) or meta["name"])


def waits(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod is a warm driver without a job."""
    meta = pod["metadata"]
    return WARM in (meta.get("labels") or {}) and TAKES not in (meta.get("annotations") or {})


def controller_of(obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the owner reference of the object's controller; None if it has none."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return dict(reference)
    return None
