"""The pod of a transformation that an external engine runs.

The engine is a native sidecar: an init container that keeps running and ends with the driver. It gets only the files of
the run, its input read-only: no credentials of stores, no Secrets, no token. It shares the network of the pod
(docs/engines.md), and the driver waits for its port.
"""

from __future__ import annotations

from typing import Any

from kubothek.api import pod_sizes
from kubothek.api.engine import ForeignEngine
from kubothek.api.jobs import ForeignEngineRef
from kubothek.api.values import parse_quantity
from kubothek.cluster import names
from kubothek.cluster.pods import tokens
from kubothek.cluster.pods.tokens import mounting

Object = dict[str, Any]

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
        mounting(each, tokens.MOUNT, given, left)
        if each["name"] == names.DRIVER_CONTAINER
        else mounting(each, tokens.MOUNT)
        for each in spec["containers"]
    ]
    others = [mounting(each, tokens.MOUNT) for each in spec.get("initContainers") or ()]
    scratch: Object = {"name": _TMP, "mountPath": "/tmp"}  # noqa: S108
    ours = {"name": name, **_engine(engine, pull_policy, {**given, "readOnly": True}, left, scratch)}
    volumes: list[Object] = [{"name": each, "emptyDir": {"sizeLimit": _LIMIT}} for each in (_IN, _OUT, _TMP)]
    return {
        **pod,
        "metadata": tokens.without_identity(pod["metadata"], name),
        "spec": {
            **spec,
            "automountServiceAccountToken": False,
            "initContainers": [ours, *(each for each in others if each["name"] != name)],
            "containers": containers,
            "volumes": [*spec["volumes"], *volumes, tokens.volume()],
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
