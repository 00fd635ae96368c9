"""A client of the Kubernetes API with objects as plain dictionaries.

It uses the connection, credentials and TLS of ``kubernetes.aio``, without the generated models: the operator builds
and caches dictionaries.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final
from urllib.request import getproxies

import aiohttp
import orjson
from kubernetes.aio import client, config

from kubothek.api.meta import API_VERSION
from kubothek.cluster import names

Object = dict[str, Any]

Answered = Callable[[str, str, str], None]

_MERGE = "application/merge-patch+json"
_JSON_PATCH = "application/json-patch+json"
_APPLY = "application/apply-patch+yaml"

REQUEST_TIMEOUT = 30.0
"""Timeout of one request, in seconds."""
PAGE = 500
"""Objects per page of a listing."""
WATCH_TIME = 300
"""Seconds after which the server ends a watch."""
WATCH_SILENCE = 75.0
"""Seconds without data after which a watch counts as broken: bookmarks arrive every 60 s."""

RESOURCES: Mapping[str, tuple[str, str]] = {
    "ObjectStore": (f"/apis/{API_VERSION}", "objectstores"),
    "Engine": (f"/apis/{API_VERSION}", "engines"),
    "Cube": (f"/apis/{API_VERSION}", "cubes"),
    "Dataset": (f"/apis/{API_VERSION}", "datasets"),
    "Commit": (f"/apis/{API_VERSION}", "commits"),
    "Query": (f"/apis/{API_VERSION}", "queries"),
    "Compaction": (f"/apis/{API_VERSION}", "compactions"),
    "Verification": (f"/apis/{API_VERSION}", "verifications"),
    "GCPolicy": (f"/apis/{API_VERSION}", "gcpolicies"),
    "SkippingIndex": (f"/apis/{API_VERSION}", "skippingindices"),
    "Repository": (f"/apis/{API_VERSION}", "repositories"),
    "Sync": (f"/apis/{API_VERSION}", "syncs"),
    "LimitRange": ("/api/v1", "limitranges"),
    "ResourceQuota": ("/api/v1", "resourcequotas"),
    "Pod": ("/api/v1", "pods"),
    "ConfigMap": ("/api/v1", "configmaps"),
    "Secret": ("/api/v1", "secrets"),
    "CoreEvent": ("/api/v1", "events"),
    "Event": ("/apis/events.k8s.io/v1", "events"),
    "Lease": ("/apis/coordination.k8s.io/v1", "leases"),
    "ValidatingWebhookConfiguration": (
        "/apis/admissionregistration.k8s.io/v1",
        "validatingwebhookconfigurations",
    ),
    "NetworkPolicy": ("/apis/networking.k8s.io/v1", "networkpolicies"),
    "TokenReview": ("/apis/authentication.k8s.io/v1", "tokenreviews"),
    "SelfSubjectAccessReview": ("/apis/authorization.k8s.io/v1", "selfsubjectaccessreviews"),
    "SubjectAccessReview": ("/apis/authorization.k8s.io/v1", "subjectaccessreviews"),
}
"""API root and plural of each kind that the operator or a gateway uses."""

CONFLICT: Final = 409
"""HTTP status of a conflict: the name is taken, or the resource version has changed."""


class ApiError(Exception):
    """The API server refused a request: HTTP ``status``, the Status object's ``reason`` and ``message``."""

    def __init__(self, status: int, reason: str, message: str, request: str) -> None:
        super().__init__(f"{request}: {status} {message.strip()}")
        self.status = status
        self.reason = reason
        self.message = message


class ApiUnavailable(Exception):
    """No connection, a timeout, 429 or 5xx: the request may or may not have taken effect. Retry it."""


def path(kind: str, namespace: str | None, name: str = "", subresource: str = "") -> str:
    """Return the URL path of an object, or of a kind's list (in a namespace, or in all if it is None)."""
    root, plural = RESOURCES[kind]
    parts = [root]
    if namespace is not None:
        parts += ["namespaces", namespace]
    return "/".join([*parts, plural, *filter(None, (name, subresource))])


def default_namespace(kubeconfig: str | None, context: str | None) -> str:
    """Return the namespace of a kubeconfig's context, by default the current one; in a pod the pod's own."""
    try:
        contexts, current = config.list_kube_config_contexts(kubeconfig)
    except config.ConfigException:
        own = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
        if kubeconfig is not None or context is not None or not own.is_file():
            raise
        return own.read_text().strip()
    chosen = current if context is None else next((each for each in contexts if each["name"] == context), {})
    return str((chosen.get("context") or {}).get("namespace") or "default")


class Api:
    """A connection to one API server. Methods raise :class:`ApiError` and :class:`ApiUnavailable`."""

    def __init__(self, configuration: client.Configuration, answered: Answered | None = None) -> None:
        configuration.connection_pool_maxsize = 32
        # With trust_env aiohttp looks for a .netrc at every request, in another thread. Only a proxy needs it.
        configuration.client_session_kwargs = {"trust_env": bool(getproxies())}
        self._client = client.ApiClient(configuration)
        self._answered = answered
        self.clock = ServerClock()
        """The time by which the server stamps objects."""

    @classmethod
    async def connect(cls, kubeconfig: str | None, context: str | None = None, answered: Answered | None = None) -> Api:
        """Connect by the given kubeconfig file, else as the pod's service account, else by the user's kubeconfig.

        ``context`` is one of a kubeconfig; default: its current one. ``answered`` is called after every request with
        the method, the kind of object, and the status or ``unreachable``.
        """
        configuration = client.Configuration()
        if kubeconfig is not None or context is not None:
            await config.load_kube_config(kubeconfig, context, client_configuration=configuration)
        else:
            try:
                config.load_incluster_config(client_configuration=configuration)
            except config.ConfigException:
                await config.load_kube_config(client_configuration=configuration)
        return cls(configuration, answered)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def get(self, kind: str, namespace: str | None, name: str) -> Object | None:
        """Return the object, namespaced or cluster-scoped; None if it does not exist."""
        try:
            return await self._call("GET", path(kind, namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def cluster_uid(self) -> str:
        """Return the uid of the namespace kube-system, which exists as long as the cluster."""
        namespace = await self._call("GET", "/api/v1/namespaces/kube-system")
        return str(namespace["metadata"]["uid"])

    async def namespace_terminating(self, name: str) -> bool:
        """Return whether the namespace is being deleted, or is gone. False if we may not read it."""
        try:
            namespace = await self._call("GET", f"/api/v1/namespaces/{name}")
        except ApiError as error:
            if error.status in (403, 404):
                return error.status == 404
            raise
        return "deletionTimestamp" in namespace["metadata"]

    async def pages(
        self, kind: str, namespace: str | None, *, labels: str = "", fields: str = ""
    ) -> AsyncIterator[tuple[list[Object], int]]:
        """Yield all objects of a kind, page by page, each with the resource version of the whole listing.

        ``labels`` and ``fields`` are selectors. The pages together are one consistent state of the cluster. Raises
        ApiError 410 if the continue token expires.
        """
        query = {"limit": str(PAGE), "labelSelector": labels, "fieldSelector": fields}
        token = ""
        while True:
            answer = await self._call("GET", path(kind, namespace), {**query, "continue": token})
            yield answer["items"], int(answer["metadata"]["resourceVersion"])
            token = answer["metadata"].get("continue") or ""
            if not token:
                return

    async def watch(self, kind: str, namespace: str, version: int) -> AsyncIterator[tuple[str, Object]]:
        """Yield the changes since a listing of this version: ``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``, and
        the object.

        The server ends a watch after a while; resume from the version of the last object. ApiError 410: list again.
        """
        query = {
            "watch": "true",
            "resourceVersion": str(version),
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_TIME),
        }
        where = path(kind, namespace)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_TIMEOUT, sock_read=WATCH_SILENCE)
        try:
            response = await self._send("GET", where, query, timeout=timeout)
            try:
                if response.status >= 400:
                    raise _refused("GET", where, response.status, await response.read())
                async for line in response.content:
                    event = orjson.loads(line)
                    if event["type"] == "ERROR":
                        status = event["object"]
                        raise _refused("GET", where, int(status.get("code") or 500), json.dumps(status).encode())
                    yield event["type"], event["object"]
            finally:
                response.close()
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise ApiUnavailable(f"watching {where}: {error or type(error).__name__}") from error

    async def create(self, kind: str, namespace: str | None, obj: Object) -> Object:
        """Create an object, namespaced or cluster-scoped; ApiError 409 if the name is taken."""
        return await self._call("POST", path(kind, namespace), {"fieldManager": names.FIELD_MANAGER}, obj)

    async def try_out(self, obj: Object, there: Object | None) -> Object:
        """Dry-run a manifest that has a namespace: return the object as admitted, with defaults, without storing it.

        ``there``: the existing object that it would replace. Unknown fields are an ApiError.
        """
        kind, meta = obj["kind"], obj["metadata"]
        query = {"dryRun": "All", "fieldValidation": "Strict", "fieldManager": names.FIELD_MANAGER}
        if there is None:
            return await self._call("POST", path(kind, meta["namespace"]), query, obj)
        kept = {**there["metadata"], "labels": meta.get("labels"), "annotations": meta.get("annotations")}
        body = {**obj, "metadata": kept, "status": there.get("status")}
        return await self._call("PUT", path(kind, meta["namespace"], meta["name"]), query, body)

    async def delete(
        self, kind: str, namespace: str, name: str, uid: str | None = None, version: str | None = None
    ) -> Object | None:
        """Delete an object, only with this uid and resource version if given. None if no such object exists."""
        options: Object = {"propagationPolicy": "Background"}
        if uid is not None:
            options["preconditions"] = {"uid": uid} | ({"resourceVersion": version} if version is not None else {})
        try:
            return await self._call("DELETE", path(kind, namespace, name), {}, options)
        except ApiError as error:
            if error.status == 404 or (error.status == CONFLICT and uid is not None):
                return None
            raise

    async def apply_status(self, obj: Object) -> Object | None:
        """Server-side apply of ``obj['status']`` in full; None if the object is gone."""
        meta = obj["metadata"]
        where = path(obj["kind"], meta["namespace"], meta["name"], "status")
        query = {"fieldManager": names.STATUS_MANAGER, "force": "true"}
        try:
            return await self._call("PATCH", where, query, obj, _APPLY)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def json_patch(self, kind: str, namespace: str | None, name: str, patch: Sequence[Object]) -> Object:
        """Apply a JSON patch (RFC 6902); a failed ``test`` is ApiError 422."""
        return await self._call("PATCH", path(kind, namespace, name), {}, list(patch), _JSON_PATCH)

    async def merge_patch(self, kind: str, namespace: str, name: str, patch: Object) -> Object:
        """Apply a merge patch (RFC 7386)."""
        return await self._call("PATCH", path(kind, namespace, name), {}, patch, _MERGE)

    async def _call(
        self,
        method: str,
        where: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content: str = "application/json",
    ) -> Object:
        try:
            response = await self._send(
                method, where, query, body, content, timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT)
            )
            text = await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise ApiUnavailable(f"{method} {where}: {error or type(error).__name__}") from error
        if response.status < 400:
            return dict(orjson.loads(text))
        raise _refused(method, where, response.status, text)

    async def _send(
        self,
        method: str,
        where: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
        content: str = "application/json",
        *,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        method, url, headers, data, _ = await self._client.param_serialize(
            method,
            where,
            query_params=[(k, v) for k, v in (query or {}).items() if v],
            header_params={"Accept": "application/json", "Content-Type": content},
            body=body,
            auth_settings=["BearerToken"],
        )
        code, sent = "unreachable", self.clock.ticks()
        try:
            answer = await self._client.call_api(method, url, headers, data, _request_timeout=timeout)
            found: aiohttp.ClientResponse = answer.response
            code = str(found.status)
            self.clock.heard(found.headers.get("Date"), sent)
        finally:
            if self._answered is not None:
                self._answered(method, _resource(where), code)
        return found


def _resource(where: str) -> str:
    """Return the plural of a path's kind with its subresource, such as ``datasets/status``."""
    parts = where.split("/")
    base = 3 if parts[1] == "api" else 4  # /api/v1/…, /apis/<group>/<version>/…
    if parts[base] == "namespaces" and len(parts) > base + 2:
        base += 2
    return "/".join([parts[base], *parts[base + 2 :]])


def _refused(method: str, where: str, status: int, text: bytes) -> ApiError | ApiUnavailable:
    try:
        answer = json.loads(text)
    except ValueError:
        answer = {}
    reason, message = answer.get("reason") or "", answer.get("message") or text[:200].decode(errors="replace")
    if status == 429 or status >= 500:
        return ApiUnavailable(f"{method} {where}: {status} {message}")
    return ApiError(status, reason, message, f"{method} {where}")


# The API server's clock stamps every object. Our own clock may differ from it, or be set.


_TRUSTED: Final = timedelta(seconds=2)
"""Tolerated difference of the clocks; the ``Date`` header has whole seconds only."""


class ServerClock:
    """A monotonic clock that starts with our own time and follows the ``Date`` of the API server's answers."""

    def __init__(
        self,
        own: Callable[[], datetime] = lambda: datetime.now(UTC),
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ticks = ticks
        self._shown, self._at = own(), ticks()

    def __call__(self) -> datetime:
        return self._time(self.ticks())

    def heard(self, date: str | None, sent: float) -> None:
        """Adjust to the ``Date`` of an answer to a request sent at this tick; ignore a value that is not a date."""
        try:
            date_time = parsedate_to_datetime(date or "")
        except ValueError:
            return
        date_time, now = date_time if date_time.tzinfo else date_time.replace(tzinfo=UTC), self.ticks()
        if not self._time(sent) - _TRUSTED <= date_time <= self._time(now) + _TRUSTED:
            self._shown, self._at = date_time, now

    def _time(self, tick: float) -> datetime:
        return self._shown + timedelta(seconds=tick - self._at)
