"""The Secret of a driver pod, by which its executors and the operator recognise it.

``rpc-secret`` authenticates Spark's driver and executors to each other; ``result-key`` signs the result that a job
writes on its pod (:mod:`kubothek.resources.jobs.signed`). The Secret belongs to the pod and goes with it. The operator
never reads it.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Mapping
from typing import Any, Final

from kubothek.resources.jobs.signed import new_key
from kubothek.runtime.kubernetes import names

Object = dict[str, Any]

DIRECTORY: Final = "/var/run/kubothek/private"
VOLUME: Final = "kubothek-private"
MOUNT: Final[Object] = {"name": VOLUME, "mountPath": DIRECTORY, "readOnly": True}
_RPC_SECRET: Final = "rpc-secret"  # noqa: S105 - the name of a file
_RESULT_KEY: Final = "result-key"


def secret_name(owner_uid: str, job: str) -> str:
    """Return the name of the Secret: no earlier pod of the same name had it, whose Secret may be about to go."""
    return f"{job}-{hashlib.sha256(f'{owner_uid}/{job}'.encode()).hexdigest()[:8]}"


def volume(secret: str, *, executor: bool) -> Object:
    """Return the volume; an executor gets nothing to sign with."""
    source: Object = {"secretName": secret, "defaultMode": 0o440}
    if executor:
        source["items"] = [{"key": _RPC_SECRET, "path": _RPC_SECRET}]
    return {"name": VOLUME, "secret": source}


def secret_of(pod: Mapping[str, Any]) -> str | None:
    """Return the name of the Secret that a driver pod mounts; None if it mounts none."""
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    return next((str(each["secret"]["secretName"]) for each in volumes if each["name"] == VOLUME), None)


def of_driver(executor_template: Object, driver: Mapping[str, Any]) -> Object:
    """Return the template of executors that belong to this driver pod."""
    secret, spec = secret_of(driver), executor_template["spec"]
    others = [each for each in spec["volumes"] if each["name"] != VOLUME]
    added = [volume(secret, executor=True)] if secret is not None and len(others) < len(spec["volumes"]) else []
    return {**executor_template, "spec": {**spec, "volumes": [*others, *added]}}


def with_new_key(pod: Object) -> tuple[Object, bytes]:
    """Return the driver pod with a new public key in its spec, and the private key."""
    private, public = new_key()
    variable = {"name": names.RESULT_KEY, "value": public}
    containers = [
        {**each, "env": [*(each.get("env") or ()), variable]} if each["name"] == names.DRIVER_CONTAINER else each
        for each in pod["spec"]["containers"]
    ]
    return {**pod, "spec": {**pod["spec"], "containers": containers}}, private


def secret(pod: Mapping[str, Any], result_key: bytes) -> Object:
    """Return the Secret of a driver pod that exists."""
    meta = pod["metadata"]
    data = {_RPC_SECRET: secrets.token_hex(32).encode(), _RESULT_KEY: result_key}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "immutable": True,
        "metadata": {
            "name": secret_of(pod),
            "namespace": meta["namespace"],
            "labels": {
                "app.kubernetes.io/name": "kubothek",
                "app.kubernetes.io/part-of": "kubothek",
                "app.kubernetes.io/managed-by": "kubothek-operator",
                "app.kubernetes.io/component": "driver",
            },
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}],
        },
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }
