"""The pod of a poll whose source is a container of an image of its own.

Two init containers come before the driver. ``prepare``, which is the driver with another program, writes what the
source's container is to see, and a shell for it; ``fetch`` is that container, with nothing of ours but these: no
credentials of stores, no Secrets, no token. The launcher catches its standard output, which Kubernetes has for logs
only. The driver then reads what it left.
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
    """The pod of a poll, with what fetches in front of it."""
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
    """The driver, with what its template gave it, as it reads the same store."""
    *start, _module, job = driver["args"]
    without = {key: value for key, value in driver.items() if key != "ports"}
    return {**without, "name": names.PREPARE_CONTAINER, "args": [*start, "kubothek.jobs.fetch", job]}


def _fetch(container: SourceContainer, driver: Object, *mounts: Object) -> Object:
    """Its root file system is writable, as images expect; the user is ours, as *restricted* and the volume ask for."""
    return {
        "name": names.FETCH_CONTAINER,
        "image": container.image,
        "command": container.command,
        # An init container asks for what the driver has in any case, so this costs nothing.
        "resources": driver["resources"],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": list(mounts),
    }


def _volumes() -> list[Object]:
    return [
        tokens.volume(),
        # In memory: it has the values of the Secret's variables.
        {"name": _LAUNCHER, "emptyDir": {"medium": "Memory", "sizeLimit": "32Mi"}},
        {"name": _OUTPUT, "emptyDir": {"sizeLimit": _OUTPUT_LIMIT}},
    ]
