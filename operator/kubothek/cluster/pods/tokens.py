"""The service account's token for our own containers, in a pod that also has containers of other parties."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

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
