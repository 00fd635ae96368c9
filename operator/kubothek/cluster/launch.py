"""Launch and cancellation of attempts: one ConfigMap and one pod each, both named like the job.

A warm driver may take the job instead of a new pod. The ConfigMap names that driver. It is created once, before the
driver gets the job, so that several operators give the job to the same driver.

A launch is idempotent by the name: an existing pod of the same owner is the attempt. A refusal by the cluster (quota,
admission, a missing service account …) is returned as reason and message. If the API server does not answer, the
launch raises ApiUnavailable and is retried.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from kubothek.cluster import names
from kubothek.cluster.api import CONFLICT, Api, ApiError, Object
from kubothek.cluster.cache.warm_pools import phase_of
from kubothek.cluster.config import OperatorConfig
from kubothek.cluster.names import controller_of
from kubothek.cluster.pods import job_pod, job_secret, warm_pods
from kubothek.cluster.pods.network_policy import network_policy
from kubothek.controller.context import LaunchJob, StartDriver

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal of the attempt by the cluster, temporary or permanent."""

    reason: str
    message: str


class Launcher:
    """Creates and deletes the objects of attempts."""

    def __init__(
        self, api: Api, config: OperatorConfig, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._api = api
        self._config = config
        self._clock = clock
        self._with_policy = set[str]()
        """Namespaces in which this process created the NetworkPolicy of jobs, or found it."""

    async def launch(self, action: LaunchJob, waiting: Iterable[str] = ()) -> Object | Refused:
        """Start the attempt unless it is started; return its pod. ``waiting``: warm drivers that may take it."""
        namespace, owner_uid = action.owner.metadata.namespace, action.owner.metadata.uid
        try:
            # Read first: an operator that crashes after each write still reaches the pod, even if a quota then
            # forbids further writes.
            pod, config_map = await asyncio.gather(
                *(self._api.get(kind, namespace, action.job.job) for kind in ("Pod", "ConfigMap"))
            )
            if pod is None:
                pod = await self._launched(action, config_map, waiting)
            elif _owner_uid(pod) == owner_uid and pod["status"].get("phase") == "Pending":
                await self._put_secret(pod, None)
            if _owner_uid(pod) != owner_uid:
                return _collision("pod", namespace, action.job.job)
            return pod
        except ApiError as error:
            if await self._going(namespace, error):
                return Refused("NamespaceTerminating", error.message)
            return refused(error)
        except _Collision as collision:
            return _collision("ConfigMap", namespace, collision.name)

    async def _launched(self, action: LaunchJob, found: Object | None, waiting: Iterable[str]) -> Object:
        """Give the job to a warm driver or to a new pod; return the pod. ``found``: the attempt's ConfigMap, if any."""
        namespace, owner_uid = action.owner.metadata.namespace, action.owner.metadata.uid
        wanted = job_pod.config_map(action, self._config)
        drivers = iter(waiting if warm_pods.fits(wanted) else ())
        while True:
            if found is None:
                if (driver := next(drivers, None)) is None:
                    break
                # If another operator assigned the job meanwhile, its ConfigMap is returned and names its driver.
                found = await self._create_or_get("ConfigMap", namespace, warm_pods.assigned(wanted, driver))
            given = warm_pods.driver_of(found) if _owner_uid(found) == owner_uid else None
            if given is None:
                break
            pod = await self._hand_over(action, found, given)
            if pod is not None:
                return pod
            await self._api.delete("ConfigMap", namespace, action.job.job, found["metadata"]["uid"])
            found = None
        await self._put_config(namespace, owner_uid, wanted, found)
        return await self._create_pod(namespace, job_pod.driver_pod(action, self._config))

    async def _hand_over(self, action: LaunchJob, config: Object, name: str) -> Object | None:
        """Give the job to the driver of this name; return its pod, or None if it is gone or has another job."""
        namespace, job = action.owner.metadata.namespace, action.job.job
        pod = await self._api.get("Pod", namespace, name)
        if pod is not None and names.waits(pod) and phase_of(pod) == "Ready" and not _is_going(pod):
            try:
                patch = warm_pods.hand_over(action, config, pod, self._config, self._clock())
                return await self._api.json_patch("Pod", namespace, name, patch)
            except ApiError as error:
                if error.status not in (404, CONFLICT, 422):
                    raise
            pod = await self._api.get("Pod", namespace, name)
        is_ours = pod is not None and names.job_of(pod) == job and _owner_uid(pod) == action.owner.metadata.uid
        return pod if is_ours else None

    async def start_driver(self, action: StartDriver) -> Object:
        """Start a warm driver unless it is started; return its pod."""
        namespace = action.like.owner.metadata.namespace
        return await self._create_pod(namespace, warm_pods.warm_pod(action, self._config))

    async def _create_pod(self, namespace: str, pod: Object) -> Object:
        """Create a driver pod, then its Secret, which the pod owns."""
        await self._put_policy(namespace)
        if job_secret.secret_of(pod) is None:
            return await self._create_or_get("Pod", namespace, pod)
        pod, key = job_secret.with_new_key(pod)
        created = await self._create_or_get("Pod", namespace, pod)
        await self._put_secret(created, key)
        return created

    async def _put_policy(self, namespace: str) -> None:
        """Create the NetworkPolicy of jobs once in each namespace.

        If the API server refuses it, jobs run without it: RPC is authenticated in any case.
        """
        if not self._config.job_network_policy or namespace in self._with_policy:
            return
        try:
            await self._api.create("NetworkPolicy", namespace, network_policy(namespace))
        except ApiError as error:
            if error.status != CONFLICT:
                log.warning("no NetworkPolicy for jobs in namespace %s: %s", namespace, error.message)
        self._with_policy.add(namespace)

    async def _put_secret(self, pod: Object, result_key: bytes | None) -> None:
        """Create the Secret of a driver pod unless it exists.

        Without ``result_key``, as after a crash between pod and Secret, the operator cannot verify the job's result and
        waits for the kubelet's report.
        """
        if job_secret.secret_of(pod) is None:
            return
        try:
            secret = job_secret.secret(pod, result_key or secrets.token_bytes(32))
            await self._api.create("Secret", pod["metadata"]["namespace"], secret)
        except ApiError as error:
            if error.status != CONFLICT or error.reason != "AlreadyExists":
                raise

    async def stop_driver(self, namespace: str, driver: Object) -> None:
        """Delete a warm driver if its resource version is the cached one: then it has no job."""
        meta = driver["metadata"]
        await self._api.delete("Pod", namespace, meta["name"], meta["uid"], meta["resourceVersion"])

    async def cancel(self, namespace: str, name: str, owner_uid: str, pod: str | None = None) -> Object | None:
        """Delete the attempt's objects if they are the owner's. Return the pod if it still has to end.

        ``pod``: the name of its pod, if known; else the ConfigMap has it. If access is denied because the namespace is
        being deleted, return None: its deletion deletes the objects too.
        """
        try:
            return await self._cancel(namespace, name, owner_uid, pod)
        except ApiError as error:
            if await self._going(namespace, error):
                return None
            raise

    async def _cancel(self, namespace: str, name: str, owner_uid: str, known: str | None) -> Object | None:
        config_map = await self._api.get("ConfigMap", namespace, name)
        driver = known or (warm_pods.driver_of(config_map) if config_map is not None else None) or name
        pod = await self._api.get("Pod", namespace, driver)
        if pod is not None and _owner_uid(pod) == owner_uid and names.job_of(pod) == name:
            pod = await self._api.delete("Pod", namespace, driver, pod["metadata"]["uid"])
        else:
            pod = None
        if config_map is not None and _owner_uid(config_map) == owner_uid:
            await self._api.delete("ConfigMap", namespace, name, config_map["metadata"]["uid"])
        return pod

    async def _going(self, namespace: str, error: ApiError) -> bool:
        """Return whether access was denied because the namespace is being deleted, our RoleBinding first."""
        return error.status == 403 and await self._api.namespace_terminating(namespace)

    async def _put_config(self, namespace: str, owner_uid: str, wanted: Object, found: Object | None) -> None:
        """Create the attempt's ConfigMap, or replace ``found`` if a refused launch left it outdated."""
        if found is None:
            found = await self._create_or_get("ConfigMap", namespace, wanted)
        if _owner_uid(found) != owner_uid:
            raise _Collision(wanted["metadata"]["name"])
        if found["data"] != wanted["data"] or warm_pods.driver_of(found) is not None:
            await self._api.delete("ConfigMap", namespace, found["metadata"]["name"], found["metadata"]["uid"])
            await self._api.create("ConfigMap", namespace, wanted)

    async def _create_or_get(self, kind: str, namespace: str, obj: Object) -> Object:
        try:
            return await self._api.create(kind, namespace, obj)
        except ApiError as error:
            if error.status != CONFLICT or error.reason != "AlreadyExists":
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
    """Classify a refused creation. Status codes are those of the Kubernetes API conventions, "HTTP Status codes"."""
    text = error.message
    reason = next((name for pattern, name in _REFUSALS if re.search(pattern, text, re.IGNORECASE)), None)
    if reason is None:
        reason = {404: "NamespaceTerminating", CONFLICT: "NameCollision", 422: "PodInvalid"}.get(
            error.status, "AdmissionDenied"
        )
    return Refused(reason, text)


# Texts of the API server's admission plugins: all are 403 Forbidden, and only the text differs.
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


def _is_going(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _owner_uid(obj: Object) -> str | None:
    owner = controller_of(obj)
    return owner["uid"] if owner else None
