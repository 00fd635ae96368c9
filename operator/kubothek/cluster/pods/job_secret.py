"""The Secret of a driver pod, by which its executors and the operator authenticate it.

``rpc-secret`` authenticates Spark's driver and executors to each other; ``result-key`` signs the result that a job
writes on its pod (:mod:`kubothek.api.jobs.signed`). The pod owns the Secret. The operator never reads it.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Mapping
from typing import Any, Final

from kubothek.api.jobs.signed import new_key
from kubothek.cluster import names

Object = dict[str, Any]

DIRECTORY: Final = "/var/run/kubothek/private"
VOLUME: Final = "kubothek-private"
MOUNT: Final[Object] = {"name": VOLUME, "mountPath": DIRECTORY, "readOnly": True}
_RPC_SECRET: Final = "rpc-secret"  # noqa: S105 - the name of a file
_EXECUTOR_RPC_SECRET: Final = "executor-rpc-secret"  # noqa: S105 - the same
_RESULT_KEY: Final = "result-key"
_EXECUTOR_VARIABLE: Final = "_SPARK_AUTH_SECRET"
"""Variable from which an executor reads the secret, in base64 (``SecurityManager.ENV_AUTH_SECRET``).

A file would not work: Spark reads one only if the master is Kubernetes, and an executor learns its master from the
driver.
"""


def secret_name(owner_uid: str, job: str) -> str:
    """Return the name of the Secret, unique per owner: that of a re-created owner may still be in deletion."""
    return f"{job}-{hashlib.sha256(f'{owner_uid}/{job}'.encode()).hexdigest()[:8]}"


def volume(secret: str) -> Object:
    """Return the volume of a driver."""
    return {"name": VOLUME, "secret": {"secretName": secret, "defaultMode": 0o440}}


def secret_of(pod: Mapping[str, Any]) -> str | None:
    """Return the name of the Secret that a driver pod mounts; None if it mounts none."""
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    return next((str(each["secret"]["secretName"]) for each in volumes if each["name"] == VOLUME), None)


def executor_variable(secret: str) -> Object:
    """Return the variable of an executor's container."""
    reference = {"name": secret, "key": _EXECUTOR_RPC_SECRET}
    return {"name": _EXECUTOR_VARIABLE, "valueFrom": {"secretKeyRef": reference}}


def of_driver(executor_template: Object, driver: Mapping[str, Any]) -> Object:
    """Return the template of executors that belong to this driver pod."""
    if (secret := secret_of(driver)) is None:
        return executor_template
    spec = executor_template["spec"]
    containers = [{**each, "env": _env_of(each, secret)} for each in spec["containers"]]
    return {**executor_template, "spec": {**spec, "containers": containers}}


def _env_of(container: Mapping[str, Any], secret: str) -> list[Object]:
    variables = container.get("env") or ()
    return [executor_variable(secret) if each["name"] == _EXECUTOR_VARIABLE else each for each in variables]


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
    meta, rpc_secret = pod["metadata"], secrets.token_bytes(32)
    # Spark encodes the content of the file in base64; the variable has to be encoded here.
    data = {_RPC_SECRET: rpc_secret, _EXECUTOR_RPC_SECRET: base64.b64encode(rpc_secret), _RESULT_KEY: result_key}
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
