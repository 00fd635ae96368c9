"""Names that the operator gives in a cluster: labels, annotations, containers, paths, managers."""

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
"""What the job does: `commit`, `compact` …"""
STORE = f"{GROUP}/store"
"""The ObjectStore that it works on."""
JOB = f"{GROUP}/job"
"""Only on driver pods: what the operator watches."""

PROGRESS = f"{GROUP}/progress"
"""Annotation that a job patches on its own pod: a :class:`kubothek.api.jobs.Progress` as JSON."""

RESULT = f"{GROUP}/result"
"""Annotation that a job patches on its own pod when it has done its work: a :class:`kubothek.api.jobs.Ended` as
JSON, signed (:mod:`kubothek.api.jobs.signed`). The kubelet reports the end as well, a second or two later."""

WARM = f"{GROUP}/warm"
"""Label of drivers that wait for a job, or did: the key of the jobs that they take."""
READY = f"{GROUP}/ready"
"""Annotation that such a driver patches on its own pod once it can take a job."""
TAKES = f"{GROUP}/takes"
"""Annotation: the job that it was given."""
TAKEN_AT = f"{GROUP}/taken-at"
"""Annotation: when it was given that."""
PART_OF = f"{GROUP}/traceparent"
"""The trace that the job is a part of, in the same way."""
JOB_SPEC = f"{GROUP}/job-spec"
"""Annotation: the job itself, as JSON."""
EXECUTOR_TEMPLATE = f"{GROUP}/executor-template"
"""Annotation: what Spark makes executors from, as JSON."""
DRIVER = f"{GROUP}/driver"
"""Annotation of a job's ConfigMap: the waiting driver that it is for."""

RESULT_KEY = "KUBOTHEK_RESULT_KEY"
"""Variable of the driver's container: the public key of what :data:`RESULT` is signed with."""

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


def job_of(pod: Mapping[str, Any]) -> str:
    """The name of the job that a driver pod runs: its own, or what it was given."""
    meta = pod["metadata"]
    return str((meta.get("annotations") or {}).get(TAKES) or meta["name"])


def waits(pod: Mapping[str, Any]) -> bool:
    """Whether it is a driver that has no job yet."""
    meta = pod["metadata"]
    return WARM in (meta.get("labels") or {}) and TAKES not in (meta.get("annotations") or {})


def controller_of(obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The owner reference of the object's controller, if it has one."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return dict(reference)
    return None
