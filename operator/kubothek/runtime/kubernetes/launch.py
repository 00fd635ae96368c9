"""Starting and stopping attempts: one ConfigMap and one pod each, both named like the job.

Launching is idempotent by the name: what is there already and belongs to the same owner was launched already.
A refusal by the cluster (quota, admission, a missing service account …) is an answer, told as reason and
message; an API server that does not answer is not, it raises and is tried again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kubothek.reconcile.world import LaunchJob
from kubothek.runtime.kubernetes import pods
from kubothek.runtime.kubernetes.api import Api, ApiError, Object
from kubothek.runtime.kubernetes.config import OperatorConfig
from kubothek.runtime.kubernetes.names import controller_of


@dataclass(frozen=True, slots=True)
class Refused:
    """The cluster does not take the attempt, for now or for good."""

    reason: str
    message: str


class Launcher:
    """Makes and deletes the objects of attempts."""

    def __init__(self, api: Api, config: OperatorConfig) -> None:
        self._api = api
        self._config = config

    async def launch(self, action: LaunchJob) -> Object | Refused:
        """Start the attempt, or find it started; returns its pod."""
        namespace, owner_uid = action.owner.metadata.namespace, action.owner.metadata.uid
        try:
            pod = await self._api.get("Pod", namespace, action.job.job)
            if pod is None:
                await self._put_config(namespace, owner_uid, pods.config_map(action, self._config))
                pod = await self._create_or_get("Pod", namespace, pods.driver_pod(action, self._config))
            if _owner_uid(pod) != owner_uid:
                return _collision("pod", namespace, action.job.job)
            return pod
        except ApiError as error:
            if await self._going(namespace, error):
                return Refused("NamespaceTerminating", error.message)
            return refused(error)
        except _Collision as collision:
            return _collision("ConfigMap", namespace, collision.name)

    async def cancel(self, namespace: str, name: str, owner_uid: str) -> Object | None:
        """Delete the attempt's objects if they are the owner's. Returns the pod if it still has to end.

        A namespace under deletion takes them along, and our right to touch them first.
        """
        try:
            return await self._cancel(namespace, name, owner_uid)
        except ApiError as error:
            if await self._going(namespace, error):
                return None
            raise

    async def _cancel(self, namespace: str, name: str, owner_uid: str) -> Object | None:
        pod = await self._api.get("Pod", namespace, name)
        if pod is not None and _owner_uid(pod) == owner_uid:
            pod = await self._api.delete("Pod", namespace, name, pod["metadata"]["uid"])
        else:
            pod = None
        config_map = await self._api.get("ConfigMap", namespace, name)
        if config_map is not None and _owner_uid(config_map) == owner_uid:
            await self._api.delete("ConfigMap", namespace, name, config_map["metadata"]["uid"])
        return pod

    async def _going(self, namespace: str, error: ApiError) -> bool:
        """Whether we were denied a right because the namespace is being deleted, our RoleBinding in it first."""
        return error.status == 403 and await self._api.namespace_terminating(namespace)

    async def _put_config(self, namespace: str, owner_uid: str, wanted: Object) -> None:
        """The attempt's ConfigMap. One left by a refused launch may be outdated: it is made anew."""
        # Looked for first, so that an operator that dies after each of its writes still gets on to the pod.
        found = await self._api.get("ConfigMap", namespace, wanted["metadata"]["name"])
        if found is None:
            found = await self._create_or_get("ConfigMap", namespace, wanted)
        if _owner_uid(found) != owner_uid:
            raise _Collision(wanted["metadata"]["name"])
        if found["data"] != wanted["data"]:
            await self._api.delete("ConfigMap", namespace, found["metadata"]["name"], found["metadata"]["uid"])
            await self._api.create("ConfigMap", namespace, wanted)

    async def _create_or_get(self, kind: str, namespace: str, obj: Object) -> Object:
        try:
            return await self._api.create(kind, namespace, obj)
        except ApiError as error:
            if error.status != 409 or error.reason != "AlreadyExists":
                raise
            found = await self._api.get(kind, namespace, obj["metadata"]["name"])
            if found is None:  # deleted between the two calls
                raise
            return found


class _Collision(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def refused(error: ApiError) -> Refused:
    """What a refused creation means. Reasons are those of operator-facts §4.4."""
    text = error.message
    reason = next((name for pattern, name in _REFUSALS if re.search(pattern, text, re.IGNORECASE)), None)
    if reason is None:
        reason = {404: "NamespaceTerminating", 409: "NameCollision", 422: "PodInvalid"}.get(
            error.status, "AdmissionDenied"
        )
    return Refused(reason, text)


# Texts of the API server's admission plugins; they are all 403 Forbidden and differ in nothing else.
_REFUSALS = (
    (r"exceeded quota|failed quota", "QuotaExceeded"),
    (r"is being terminated|namespace .* is terminating", "NamespaceTerminating"),
    (r"error looking up service account|serviceaccount .* not found", "ServiceAccountNotFound"),
)


def _collision(what: str, namespace: str, name: str) -> Refused:
    message = (
        f"a {what} named {name} exists in namespace {namespace} and belongs to something else; "
        "delete or rename that, or this resource"
    )
    return Refused("NameCollision", message)


def _owner_uid(obj: Object) -> str | None:
    owner = controller_of(obj)
    return owner["uid"] if owner else None
