"""The service account's token for our own containers of a pod, where others of it are another party's."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

_TOKEN = "own-token"  # noqa: S105 - the name of a volume
_DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount"
_SECONDS = 3607
"""What Kubernetes asks for in pods that say nothing of it."""
MOUNT: Object = {"name": _TOKEN, "mountPath": _DIRECTORY, "readOnly": True}
"""For the containers that are to have it; the pod's ``automountServiceAccountToken`` is false."""


def volume() -> Object:
    """What Kubernetes would mount into every container."""
    projected: list[Object] = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": _SECONDS}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    return {"name": _TOKEN, "projected": {"sources": projected}}


def without_identity(metadata: Object, container: str) -> Object:
    """The metadata of a pod whose cloud identity, if it has one, is not mounted into this container."""
    skips = {
        "eks.amazonaws.com/skip-containers": container,
        "azure.workload.identity/skip-containers": container,
    }
    return {**metadata, "annotations": {**(metadata.get("annotations") or {}), **skips}}


def mounting(container: Object, *mounts: Object) -> Object:
    """The container with more mounts."""
    return {**container, "volumeMounts": [*(container.get("volumeMounts") or ()), *mounts]}
