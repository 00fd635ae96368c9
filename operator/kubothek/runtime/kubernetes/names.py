"""Names that the operator gives in a cluster: labels, annotations, containers, paths, managers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from kubothek.resources import pod_templates
from kubothek.resources.meta import GROUP

# Labels of driver pods, ConfigMaps and (all but JOB) executor pods.
KIND = f"{GROUP}/kind"
NAME = f"{GROUP}/name"
RUN = f"{GROUP}/run"
ATTEMPT = f"{GROUP}/attempt"
VERB = f"{GROUP}/verb"
"""What the job does: `commit`, `compact` …"""
STORE = f"{GROUP}/store"
"""The ObjectStore that it works on."""
JOB = f"{GROUP}/job"
"""Only on driver pods: what the operator watches."""

PROGRESS = f"{GROUP}/progress"
"""Annotation that a job patches on its own pod: a :class:`kubothek.resources.jobs.Progress` as JSON."""

FIELD_MANAGER = "kubothek-operator"
STATUS_MANAGER = "kubothek-status"

DRIVER_CONTAINER = pod_templates.DRIVER_CONTAINER
EXECUTOR_CONTAINER = pod_templates.EXECUTOR_CONTAINER
PREPARE_CONTAINER = "prepare"
"""Init container of ours, before FETCH_CONTAINER."""
FETCH_CONTAINER = "fetch"
"""Init container of a source's own image."""

JOB_DIRECTORY = "/etc/kubothek/job"

_LABEL_LIMIT = 63


def label_value(text: str) -> str:
    """``text`` as a label value: itself, or if it is too long its beginning and a hash."""
    if len(text) <= _LABEL_LIMIT:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    return f"{text[: _LABEL_LIMIT - 11].rstrip('-._')}-{digest}"


def controller_of(obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The owner reference of the object's controller, if it has one."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return dict(reference)
    return None
