"""Middleware of every request: limits, authentication, authorization, errors and the audit log."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import IO, Any, Final, TypeVar

import orjson
from aiohttp import web

from kubothek.errors import DatasetNotFound, LakeError
from kubothek.gateway.access import Access, Principal, Verb
from kubothek.gateway.answers import refusal, status_of
from kubothek.gateway.bodies import Bodies
from kubothek.gateway.datasets import Datasets, Exposed
from kubothek.gateway.limits import Buckets, Limits
from kubothek.gateway.peers import Peers, client_of

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
T = TypeVar("T")
Answered = Callable[[str, str, int, float], None]
"""Takes method, path pattern, status and duration in seconds of every request."""

AUDIT: Final = logging.getLogger("kubothek.gateway.audit")
_LOG: Final = logging.getLogger("kubothek.gateway")
_LONGEST_TOKEN: Final = 16 << 10
_BEARER: Final = "bearer "
_NAME: Final = re.compile(r"[a-zA-Z0-9+_.\-]{1,253}")
"""The name of a dataset in a store, or of a resource."""
_AT_ONCE: Final = struct.pack("ii", 1, 0)
"""Value of SO_LINGER: on, 0 s."""
NOTE: Final = web.RequestKey("note", dict[str, Any])
"""Additional fields of the audit line."""
CLIENT: Final = web.RequestKey("client", str)
"""The client whose limits the request counts against: the principal, or the peer if there is no token."""
_PEER: Final = web.RequestKey("peer", str)
_PRINCIPAL: Final = web.RequestKey("principal", Principal)
STARTED: Final = web.RequestKey("started", bool)
"""Set before the head of a stream is sent: a later error can only abort the connection."""


class Gate:
    """The gate of one application."""

    def __init__(
        self,
        datasets: Datasets,
        access: Access,
        limits: Limits,
        peers: Peers | None = None,
        answered: Answered | None = None,
    ) -> None:
        self.datasets = datasets
        self._answered = answered
        self.access = access
        self.limits = limits
        self._peers = peers or Peers()
        self._buckets = Buckets(limits.per_second, limits.burst)
        self._under_way = 0
        self._bodies = Bodies(limits)
        self.parsing = asyncio.Semaphore()
        """Held while a large message is parsed, which takes many times the message's size in memory."""

    @web.middleware
    async def stand(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Pass a request to its handler or reject it, and write its audit line."""
        started = time.monotonic()
        request[NOTE] = {}
        request[_PEER] = self._peers.of(request)
        status = 499
        try:
            response = await self._answer(request, handler)
            status = response.status
            return response
        except web.HTTPException as error:
            status = error.status
            raise
        finally:
            seconds = time.monotonic() - started
            _audit(request, status, seconds)
            if self._answered is not None:
                self._answered(request.method, _route(request), status, seconds)

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._under_way >= self.limits.requests:
            return refusal(503, "Busy", "gateway overloaded; retry later", {"Retry-After": "1"})
        self._under_way += 1
        try:
            if wait := await self._wait(request):
                return refusal(429, "TooManyRequests", "slow down", {"Retry-After": str(int(wait) + 1)})
            return await handler(request)
        except LakeError as error:
            request[NOTE]["error"] = error.reason
            if (status := status_of(error)) >= 500:
                _LOG.error("%s %s: %s: %s", request.method, request.rel_url.raw_path, error.reason, error)
            return _broken_off(request, refusal(status, error.reason, str(error)))
        except (TimeoutError, ConnectionError):
            request[NOTE]["error"] = "Client"
            request[STARTED] = True  # the client is slow or gone: send nothing more
            return _broken_off(request, refusal(408, "TooSlow", "too slow"))
        except web.RequestPayloadError as error:
            request[NOTE]["error"] = "NoHTTP"
            return _broken_off(request, refusal(400, "BadRequest", str(error)))
        except (web.HTTPException, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - a client must not see internals
            _LOG.exception("%s %s", request.method, request.rel_url.raw_path)
            request[NOTE]["error"] = type(error).__name__
            return _broken_off(request, refusal(500, "Internal", "this is a fault of the gateway; see its log"))
        finally:
            self._under_way -= 1

    async def _wait(self, request: web.Request) -> float:
        """Authenticate the request; return the seconds to wait under the rate limit, 0 for none.

        A known principal has its own bucket, from any address. Unknown tokens count in a separate bucket per address:
        guesses must not block clients without a token at the same address. While that bucket is empty, no token from
        the address is checked.
        """
        request[CLIENT] = f"peer {client_of(request[_PEER])}"
        header = request.headers.get("Authorization")
        if header is None:
            return self._buckets.wait(request[CLIENT])
        token = header[len(_BEARER) :].strip() if header[: len(_BEARER)].lower() == _BEARER else ""
        return await self.authenticate(request, token)

    async def authenticate(self, request: web.Request, token: str) -> float:
        """Make the owner of a token the principal of the request; return the seconds to wait, 0 for none.

        For an unknown token, the request has no principal afterwards.
        """
        request.pop(_PRINCIPAL, None)
        guesses = f"guesses of {client_of(request[_PEER])}"
        if wait := self._buckets.wait(guesses, take=False):
            return wait
        found = await self.access.principal(token) if 0 < len(token) <= _LONGEST_TOKEN else None
        if found is None:
            return self._buckets.wait(guesses)
        request[_PRINCIPAL] = found
        request[NOTE]["principal"] = found.name
        request[CLIENT] = f"principal {found.name}"
        return self._buckets.wait(request[CLIENT])

    async def small_body(self, request: web.Request) -> bytes:
        """See :meth:`Bodies.small`."""
        return await self._bodies.small(request, request[CLIENT])

    def received(self, request: web.Request, most: int) -> AbstractAsyncContextManager[tuple[IO[bytes], bytes]]:
        """See :meth:`Bodies.received`."""
        return self._bodies.received(request, request[NOTE], request[CLIENT], most)

    def principal(self, request: web.Request) -> Principal | None:
        """Return the principal; None without a token. Raises HTTPUnauthorized for an unknown token."""
        if "Authorization" in request.headers and _PRINCIPAL not in request:
            raise unauthorised()
        return self.authenticated(request)

    def authenticated(self, request: web.Request) -> Principal | None:
        """Return the principal; None without a token, or for an unknown one."""
        return request.get(_PRINCIPAL)

    async def name(self, request: web.Request, verb: Verb) -> str:
        """Return the dataset of the path, after a check that the client may do this; it may have no chain yet.

        A client without the right cannot learn whether the dataset exists. Raises HTTPUnauthorized, HTTPForbidden,
        DatasetNotFound.
        """
        name = request.match_info["dataset"]
        request[NOTE].update(dataset=name, verb=verb.value)
        if not _NAME.fullmatch(name):
            raise DatasetNotFound("no dataset has such a name")
        principal = self.principal(request)
        catalogue = self.datasets.catalogue
        if verb in (Verb.PULL, Verb.QUERY) and catalogue.public(name):
            return name
        if principal is None:
            raise unauthorised()
        if not await self.access.may(principal, verb, name):
            raise web.HTTPForbidden(**_said("Forbidden", f"{principal.name} may not {verb} {name}"))
        catalogue.place(name)
        return name

    async def dataset(self, request: web.Request, verb: Verb, *, fresh: bool = False) -> Exposed:
        """Return the ledger of the path, with the same checks as :meth:`name`."""
        name = await self.name(request, verb)
        if not fresh and (known := self.datasets.recent(name)) is not None:
            return known
        return await asyncio.to_thread(self.datasets.find, name, fresh=fresh)


def _route(request: web.Request) -> str:
    """Return the pattern of the path, such as ``/{dataset}/refs/{ref}``; empty if there is none."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else ""


def _broken_off(request: web.Request, answer: web.Response) -> web.Response:
    """Return the answer; if another one has begun, abort the connection, so that the client sees it is incomplete."""
    if STARTED in request and request.transport is not None:
        break_off(request.transport)
    return answer


def break_off(transport: asyncio.BaseTransport) -> None:
    """Abort a connection and drop the kernel's send buffer, which a client that does not read would keep allocated."""
    assert isinstance(transport, asyncio.Transport)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    transport.abort()


def unauthorised() -> web.HTTPUnauthorized:
    """Return the answer to a request that needs a valid token."""
    said = _said("Unauthorized", "a bearer token that this gateway knows is needed")
    return web.HTTPUnauthorized(headers={"WWW-Authenticate": 'Bearer realm="kubothek"'}, **said)


def _said(reason: str, message: str) -> dict[str, Any]:
    text = orjson.dumps({"reason": reason, "message": message}).decode()
    return {"text": text, "content_type": "application/json"}


def _audit(request: web.Request, status: int, seconds: float) -> None:
    line: dict[str, Any] = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "peer": request[_PEER],
        "method": request.method,
        "path": request.rel_url.raw_path[:500],
        "status": status,
        "seconds": round(seconds, 4),
        "agent": request.headers.get("User-Agent", "")[:200],
    }
    if request[_PEER] != request.remote:
        line["via"] = request.remote
    note: dict[str, Any] = request[NOTE]
    line.update(note)
    AUDIT.info("%s", orjson.dumps(line, default=str).decode())
