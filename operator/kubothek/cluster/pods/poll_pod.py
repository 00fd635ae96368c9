"""The pod of a poll whose source is a container with an image of its own.

Two init containers run before the driver. ``prepare`` is the driver with another program: it writes the input of the
source's container, and a launcher for it. ``fetch`` is the source's container. It has no credentials of stores, no
Secrets and no token. The launcher captures its standard output, which Kubernetes offers as a log only. The driver then
reads that output.
"""

from __future__ import annotations

from typing import Any

from kubothek.api.jobs import SourceContainer
from kubothek.cluster import names
from kubothek.cluster.pods import tokens
from kubothek.cluster.pods.tokens import mounting

Object = dict[str, Any]

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
        mounting(each, tokens.MOUNT, launcher | read_only, output | read_only)
        if each["name"] == names.DRIVER_CONTAINER
        else mounting(each, tokens.MOUNT)
        for each in spec["containers"]
    ]
    driver = next(each for each in spec["containers"] if each["name"] == names.DRIVER_CONTAINER)
    ours = [_prepare(mounting(driver, launcher)), _fetch(container, driver, launcher | read_only, output)]
    taken = {each["name"] for each in ours}
    others = [mounting(each, tokens.MOUNT) for each in spec.get("initContainers") or () if each["name"] not in taken]
    return {
        **pod,
        "metadata": tokens.without_identity(pod["metadata"], names.FETCH_CONTAINER),
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
        tokens.volume(),
        # In memory, as it holds values of Secrets.
        {"name": _LAUNCHER, "emptyDir": {"medium": "Memory", "sizeLimit": "32Mi"}},
        {"name": _OUTPUT, "emptyDir": {"sizeLimit": _OUTPUT_LIMIT}},
    ]
