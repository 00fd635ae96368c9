"""The webhook's server: one path over TLS, in the operator's process, on every replica."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from aiohttp import web

from kubothek.api.kinds import InvalidResource, parse
from kubothek.api.meta import Resource
from kubothek.cluster.api import Api, ApiError, ApiUnavailable, Object
from kubothek.cluster.config import WebhookConfig
from kubothek.cluster.webhook.certificates import Certificate, Keeper
from kubothek.controller.context import Lookup
from kubothek.controller.finding import Finding
from kubothek.controller.validation.resource_set import Gathered
from kubothek.controller.validation.rules import new_findings

log = logging.getLogger(__name__)

PATH: Final = "/validate"
_LARGEST: Final = 8 * 1024 * 1024
"""Maximum bytes of a review: it has two objects, of up to 1.5 MiB each in etcd."""
_CHECK_SECONDS: Final = 60.0
"""Seconds between two checks of the certificate."""
_RETRY: Final = 5.0


@asynccontextmanager
async def webhook(api: Api, config: WebhookConfig, there: Callable[[], Lookup | None]) -> AsyncIterator[int]:
    """Serve while the block runs; yields the port (a free one if that of ``config`` is 0).

    ``there`` returns the observed state, or None while it is incomplete.
    """
    app = web.Application(client_max_size=_LARGEST)
    app.router.add_post(PATH, _handler(api, there))
    with TemporaryDirectory(prefix="kubothek-webhook-") as directory:
        tls = _Tls(api, config, Path(directory))
        renewing = asyncio.create_task(tls.keep())
        runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await runner.setup()
        try:
            listening = _listening(config.port)
            await web.SockSite(runner, listening, ssl_context=tls.context).start()
            yield int(listening.getsockname()[1])
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            await runner.cleanup()


def _listening(port: int) -> socket.socket:
    """Return one socket for IPv4 and IPv6, where the system has both."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _handler(api: Api, there: Callable[[], Lookup | None]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handler(request: web.Request) -> web.Response:
        try:
            review = json.loads(await request.read())
            forbidden = await forbidden_secrets(api, review["request"])
            return web.json_response(answer(review, there(), forbidden))
        except (ValueError, KeyError, TypeError) as error:
            log.warning("no AdmissionReview: %r", error)
            return web.Response(status=400, text="no AdmissionReview of admission.k8s.io/v1")
        except (ApiError, ApiUnavailable) as error:
            log.warning("cannot ask whether the author of a manifest may get its Secrets: %s", error)
            return web.Response(status=503, text="cannot ask whether the author may get the Secrets of the manifest")

    return handler


class _Tls:
    """A TLS context whose certificate is replaced while in use: new connections get the new one."""

    def __init__(self, api: Api, config: WebhookConfig, directory: Path) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._keeper = Keeper(api, config)
        self._mounted = config.certificates
        self._directory = directory
        self._loaded: object = None

    async def keep(self) -> None:
        """Load the certificate and its renewals, for ever. Handshakes fail until the first is loaded."""
        while True:
            try:
                if self._mounted is not None:
                    self._load_mounted(self._mounted)
                else:
                    await self._load_own()
                await asyncio.sleep(_CHECK_SECONDS)
            except (ApiError, ApiUnavailable, OSError) as error:
                log.warning("the certificate of the webhook: will be tried again: %s", error)
                await asyncio.sleep(_RETRY)

    async def _load_own(self) -> None:
        current = await self._keeper.certificate()
        await self._keeper.trust(current)  # before its use, as API servers must trust it
        if current != self._loaded:
            self._load(current)
            self._loaded = current

    def _load(self, current: Certificate) -> None:
        certificate, key = self._directory / "tls.crt", self._directory / "tls.key"
        certificate.write_text(current.certificate)
        key.touch(mode=0o600)
        key.write_text(current.key)
        self.context.load_cert_chain(certificate, key)

    def _load_mounted(self, directory: Path) -> None:
        certificate, key = directory / "tls.crt", directory / "tls.key"
        seen = (certificate.read_bytes(), key.read_bytes())
        if seen != self._loaded:
            self.context.load_cert_chain(certificate, key)
            self._loaded = seen


# Secrets that a manifest names: its author must be allowed to read each of them.
#
# Jobs read these Secrets with the kubelet's rights and send what they hold to hosts that the manifest names. Without
# this check, any author of a manifest could read every Secret of the namespace.


def named_secrets(value: object, path: str = "spec") -> Iterator[tuple[str, str]]:
    """Yield the path and the name of each Secret that a spec refers to, in pod templates too."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            where = f"{path}.{key}"
            refers = key in ("secret", "secretRef", "secretKeyRef") or key.endswith("SecretRef")
            if key == "secretName" and isinstance(inner, str):
                yield where, inner
            elif refers and isinstance(inner, Mapping) and isinstance(inner.get("name"), str):
                yield f"{where}.name", inner["name"]
            else:
                yield from named_secrets(inner, where)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from named_secrets(inner, f"{path}[{index}]")


async def forbidden_secrets(api: Api, request: Mapping[str, Any]) -> Sequence[Finding]:
    """Return a finding for each Secret that an admission request newly refers to and its author may not get.

    Raises ApiError and ApiUnavailable: then the API server does what the webhook's failurePolicy says.
    """
    if request["operation"] not in ("CREATE", "UPDATE") or request["object"]["metadata"].get("deletionTimestamp"):
        return ()
    known = {name for _, name in named_secrets((request.get("oldObject") or {}).get("spec"))}
    new = {path: name for path, name in named_secrets(request["object"].get("spec")) if name not in known}
    names = sorted(set(new.values()))
    answers = await asyncio.gather(*(_may_get(api, request, name) for name in names))
    allowed = dict(zip(names, answers, strict=True))
    user = request["userInfo"].get("username", "")
    return [
        Finding(
            "SecretForbidden",
            path,
            f"user {user!r} may not get Secret {name!r}, which jobs would read; grant the right, or apply the manifest "
            "as a user who has it",
        )
        for path, name in new.items()
        if not allowed[name]
    ]


async def _may_get(api: Api, request: Mapping[str, Any], name: str) -> bool:
    user = request["userInfo"]
    attributes = {
        "namespace": request["namespace"],
        "verb": "get",
        "version": "v1",
        "resource": "secrets",
        "name": name,
    }
    spec: Object = {
        "user": user.get("username"),
        "uid": user.get("uid"),
        "groups": user.get("groups"),
        "extra": user.get("extra"),
        "resourceAttributes": attributes,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {key: value for key, value in spec.items() if value},
    }
    answer = await api.create("SubjectAccessReview", None, review)
    return bool(answer["status"].get("allowed"))


# The answer to an AdmissionReview (``admission.k8s.io/v1``), as a pure function of it and the observed state.


_WARNING: Final = 250
"""Longest warning in characters: API servers cut them at 256."""
_NOTHING: Final = Gathered(())


def answer(review: Object, there: Lookup | None, found_before: Sequence[Finding] = ()) -> Object:
    """Return the review with its response; ``found_before``: findings of other checks of the object.

    ``there``: the observed state; None while the operator starts: then only the resource itself is checked. Raises
    KeyError or TypeError if ``review`` is not an AdmissionReview.
    """
    request = review["request"]
    found = [*found_before, *_found(request, there)]
    denials = [each for each in found if each.denies]
    response: Object = {"uid": request["uid"], "allowed": not denials}
    warnings = [_short(str(each)) for each in found if not each.denies]
    if warnings:
        response["warnings"] = warnings
    if denials:
        causes = [{"reason": "FieldValueInvalid", "field": e.path, "message": e.message} for e in denials]
        message = "; ".join(map(str, denials))
        response["status"] = {"code": 422, "reason": "Invalid", "message": message, "details": {"causes": causes}}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def _found(request: Object, there: Lookup | None) -> Iterator[Finding]:
    if request["operation"] not in ("CREATE", "UPDATE"):
        return
    new, old = request["object"], request.get("oldObject")
    if new["metadata"].get("deletionTimestamp"):
        return  # never block a deletion
    if old is not None and old.get("spec") == new.get("spec"):
        return  # no rule checks metadata
    resource, before = _parsed(new), _parsed(old) if old is not None else None
    if isinstance(resource, InvalidResource):
        known = set(before.problems) if isinstance(before, InvalidResource) else set()
        for problem in resource.problems:
            yield Finding("InvalidSpec", problem.path, problem.message, denies=problem not in known)
        return
    earlier = before if isinstance(before, Resource) else None
    for each in new_findings(resource, earlier, _NOTHING if there is None else there):
        if there is not None or not each.reason.endswith("NotFound"):
            yield each


def _parsed(obj: Object) -> Resource | InvalidResource:
    try:
        return parse(obj)
    except InvalidResource as error:
        return error


def _short(text: str) -> str:
    return text if len(text) <= _WARNING else f"{text[: _WARNING - 1]}…"
