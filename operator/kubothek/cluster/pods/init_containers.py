"""Pods in which containers of other parties run before or beside the driver: external engines, sources of polls.

An external engine is a native sidecar: an init container that keeps running and ends with the driver. It gets only the
files of the run, its input read-only: no credentials of stores, no Secrets, no token. It shares the network of the pod
(docs/engines.md), and the driver waits for its port.
"""

from __future__ import annotations

from typing import Any

from kubothek.api import pod_sizes
from kubothek.api.engine import ForeignEngine
from kubothek.api.jobs import ForeignEngineRef, SourceContainer
from kubothek.api.values import parse_quantity
from kubothek.cluster import names

Object = dict[str, Any]

# The service account's token for our own containers, in a pod that also has containers of other parties.


_TOKEN = "own-token"  # noqa: S105 - the name of a volume
_DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount"
_SECONDS = 3607
"""Lifetime of the token: Kubernetes' default."""
MOUNT: Object = {"name": _TOKEN, "mountPath": _DIRECTORY, "readOnly": True}
"""The mount for our containers; the pod's ``automountServiceAccountToken`` is false."""


def volume() -> Object:
    """Return the volume that Kubernetes would mount into every container."""
    projected: list[Object] = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": _SECONDS}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    return {"name": _TOKEN, "projected": {"sources": projected}}


def without_identity(metadata: Object, container: str) -> Object:
    """Return the metadata of a pod whose cloud identity, if any, is not mounted into this container."""
    skips = {
        "eks.amazonaws.com/skip-containers": container,
        "azure.workload.identity/skip-containers": container,
    }
    return {**metadata, "annotations": {**(metadata.get("annotations") or {}), **skips}}


def mounting(container: Object, *mounts: Object) -> Object:
    """Return the container with more mounts."""
    return {**container, "volumeMounts": [*(container.get("volumeMounts") or ()), *mounts]}


_IN = "engine-in"
_OUT = "engine-out"
_TMP = "engine-tmp"
_LIMIT = "16Gi"
"""Size limit of each of the engine's volumes: input, output and temporary files."""


def with_engine(pod: Object, engine: ForeignEngine, place: ForeignEngineRef, pull_policy: str) -> Object:
    """Return the pod of a transformation with its engine as a sidecar, with the volumes that the job expects."""
    spec, name = pod["spec"], place.container or ""
    given: Object = {"name": _IN, "mountPath": f"{place.volume_dir}/in"}
    left: Object = {"name": _OUT, "mountPath": f"{place.volume_dir}/out"}
    containers = [
        mounting(each, MOUNT, given, left) if each["name"] == names.DRIVER_CONTAINER else mounting(each, MOUNT)
        for each in spec["containers"]
    ]
    others = [mounting(each, MOUNT) for each in spec.get("initContainers") or ()]
    scratch: Object = {"name": _TMP, "mountPath": "/tmp"}  # noqa: S108
    ours = {"name": name, **_engine(engine, pull_policy, {**given, "readOnly": True}, left, scratch)}
    volumes: list[Object] = [{"name": each, "emptyDir": {"sizeLimit": _LIMIT}} for each in (_IN, _OUT, _TMP)]
    return {
        **pod,
        "metadata": without_identity(pod["metadata"], name),
        "spec": {
            **spec,
            "automountServiceAccountToken": False,
            "initContainers": [ours, *(each for each in others if each["name"] != name)],
            "containers": containers,
            "volumes": [*spec["volumes"], *volumes, volume()],
        },
    }


def _engine(engine: ForeignEngine, pull_policy: str, *mounts: Object) -> Object:
    """Return the engine's container.

    Its root file system is writable, as images expect; its user is ours, as *restricted* and the volumes require.
    """
    memory = pod_sizes.mebibytes(parse_quantity(engine.memory))
    return {
        "image": engine.image,
        "imagePullPolicy": pull_policy,
        "restartPolicy": "Always",
        "resources": {"requests": {"cpu": f"{500 * engine.cores}m", "memory": memory}, "limits": {"memory": memory}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": list(mounts),
    }


# The pod of a poll whose source is a container with an image of its own.
#
# Two init containers run before the driver. ``prepare`` is the driver with another program: it writes the input of the
# source's container, and a launcher for it. ``fetch`` is the source's container. It has no credentials of stores, no
# Secrets and no token. The launcher captures its standard output, which Kubernetes offers as a log only. The driver
# then reads that output.


_LAUNCHER = "fetch-launcher"
_OUTPUT = "fetch-output"
_OUTPUT_LIMIT = "16Gi"


def with_fetch(pod: Object, container: SourceContainer) -> Object:
    """Return the pod of a poll with its init containers."""
    spec = pod["spec"]
    launcher: Object = {"name": _LAUNCHER, "mountPath": container.launcher_dir}
    output: Object = {"name": _OUTPUT, "mountPath": container.output_dir}
    read_only: Object = {"readOnly": True}
    containers = [
        mounting(each, MOUNT, launcher | read_only, output | read_only)
        if each["name"] == names.DRIVER_CONTAINER
        else mounting(each, MOUNT)
        for each in spec["containers"]
    ]
    driver = next(each for each in spec["containers"] if each["name"] == names.DRIVER_CONTAINER)
    ours = [_prepare(mounting(driver, launcher)), _fetch(container, driver, launcher | read_only, output)]
    used_names = {each["name"] for each in ours}
    others = [mounting(each, MOUNT) for each in spec.get("initContainers") or () if each["name"] not in used_names]
    return {
        **pod,
        "metadata": without_identity(pod["metadata"], names.FETCH_CONTAINER),
        "spec": {
            **spec,
            "automountServiceAccountToken": False,
            "initContainers": [*others, *ours],
            "containers": containers,
            "volumes": [*spec["volumes"], *_volumes()],
        },
    }


def _prepare(driver: Object) -> Object:
    """Return the init container ``prepare``: the driver with its pod template, as it reads the same store."""
    *start, _module, job = driver["args"]
    without = {key: value for key, value in driver.items() if key != "ports"}
    return {**without, "name": names.PREPARE_CONTAINER, "args": [*start, "kubothek.jobs.fetch", job]}


def _fetch(container: SourceContainer, driver: Object, *mounts: Object) -> Object:
    """Return the source's container.

    Its root file system is writable, as images expect; its user is ours, as *restricted* and the volume require.
    """
    return {
        "name": names.FETCH_CONTAINER,
        "image": container.image,
        "command": container.command,
        # The pod's request is the larger of init containers and driver, so this adds nothing.
        "resources": driver["resources"],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": list(mounts),
    }


def _volumes() -> list[Object]:
    return [
        volume(),
        # In memory, as it holds values of Secrets.
        {"name": _LAUNCHER, "emptyDir": {"medium": "Memory", "sizeLimit": "32Mi"}},
        {"name": _OUTPUT, "emptyDir": {"sizeLimit": _OUTPUT_LIMIT}},
    ]
