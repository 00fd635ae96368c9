"""What stands before every request: limits, who asks, what they may; and behind it the audit line."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import orjson
from aiohttp import web

from kubothek.gateway.access import Access, Principal, Verb
from kubothek.gateway.answers import refusal, status_of
from kubothek.gateway.datasets import Datasets, Exposed
from kubothek.gateway.limits import Buckets, Limits
from kubothek.lake.errors import DatasetNotFound, LakeError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
T = TypeVar("T")

AUDIT: Final = logging.getLogger("kubothek.gateway.audit")
_LOG: Final = logging.getLogger("kubothek.gateway")
_LONGEST_TOKEN: Final = 16 << 10
_BEARER: Final = "bearer "
_NAME: Final = re.compile(r"[a-zA-Z0-9+_.\-]{1,253}")
"""Of a dataset in a store, or of a resource."""
NOTE: Final = web.RequestKey("note", dict[str, Any])
"""What the audit line says besides."""
STARTED: Final = web.RequestKey("started", bool)
"""Set before a stream's head is sent: what goes wrong from then on can only break it off."""


class Gate:
    """One for an app."""

    def __init__(self, datasets: Datasets, access: Access, limits: Limits) -> None:
        self.datasets = datasets
        self.access = access
        self.limits = limits
        self._buckets = Buckets(limits.per_second, limits.burst)
        self._under_way = 0

    @web.middleware
    async def stand(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let a request through, or answer it; write its line."""
        started = time.monotonic()
        request[NOTE] = {}
        status = 499
        try:
            response = await self._answer(request, handler)
            status = response.status
            return response
        except web.HTTPException as error:
            status = error.status
            raise
        finally:
            _audit(request, status, time.monotonic() - started)

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if wait := self._buckets.wait(request.remote or ""):
            return refusal(429, "TooManyRequests", "slow down", {"Retry-After": str(int(wait) + 1)})
        if self._under_way >= self.limits.requests:
            return refusal(503, "Busy", "the gateway has all that it can do", {"Retry-After": "1"})
        self._under_way += 1
        try:
            return await handler(request)
        except LakeError as error:
            request[NOTE]["error"] = error.reason
            if (status := status_of(error)) >= 500:
                _LOG.error("%s %s: %s: %s", request.method, request.rel_url.raw_path, error.reason, error)
            return _broken_off(request, refusal(status, error.reason, str(error)))
        except (TimeoutError, ConnectionError):
            request[NOTE]["error"] = "Client"
            request[STARTED] = True  # whether it is slow or gone, it gets no more
            return _broken_off(request, refusal(408, "TooSlow", "too slow"))
        except (web.HTTPException, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - one bad request must not show another one's insides
            _LOG.exception("%s %s", request.method, request.rel_url.raw_path)
            request[NOTE]["error"] = type(error).__name__
            return _broken_off(request, refusal(500, "Internal", "this is a fault of the gateway; its log tells more"))
        finally:
            self._under_way -= 1

    async def principal(self, request: web.Request) -> Principal | None:
        """Who asks; None: nobody says. Raises HTTPUnauthorized for a token that is nobody's."""
        header = request.headers.get("Authorization")
        if header is None:
            return None
        token = header[len(_BEARER) :].strip() if header[: len(_BEARER)].lower() == _BEARER else ""
        found = await self.access.principal(token) if 0 < len(token) <= _LONGEST_TOKEN else None
        if found is None:
            raise _unauthorised()
        request[NOTE]["principal"] = found.name
        return found

    async def name(self, request: web.Request, verb: Verb) -> str:
        """The dataset of the path, which whoever asks may do this to; it may still have no chain.

        Who may not, does not learn whether it is. Raises HTTPUnauthorized, HTTPForbidden, DatasetNotFound.
        """
        name = request.match_info["dataset"]
        request[NOTE].update(dataset=name, verb=verb.value)
        if not _NAME.fullmatch(name):
            raise DatasetNotFound("no dataset has such a name")
        principal = await self.principal(request)
        catalogue = self.datasets.catalogue
        if verb in (Verb.PULL, Verb.QUERY) and catalogue.public(name):
            return name
        if principal is None:
            raise _unauthorised()
        if not await self.access.may(principal, verb, name):
            raise web.HTTPForbidden(**_said("Forbidden", f"{principal.name} may not {verb} {name}"))
        catalogue.place(name)
        return name

    async def dataset(self, request: web.Request, verb: Verb, *, fresh: bool = False) -> Exposed:
        """The ledger of the path. As :meth:`name`."""
        name = await self.name(request, verb)
        if not fresh and (known := self.datasets.recent(name)) is not None:
            return known
        return await asyncio.to_thread(self.datasets.look, name, fresh=fresh)


def _broken_off(request: web.Request, answer: web.Response) -> web.Response:
    """The answer, unless another one has begun: then the connection ends, and the client sees that it is not whole."""
    if STARTED in request and request.transport is not None:
        request.transport.abort()
    return answer


def _unauthorised() -> web.HTTPUnauthorized:
    said = _said("Unauthorized", "a bearer token that this gateway knows is needed")
    return web.HTTPUnauthorized(headers={"WWW-Authenticate": 'Bearer realm="kubothek"'}, **said)


def _said(reason: str, message: str) -> dict[str, Any]:
    text = orjson.dumps({"reason": reason, "message": message}).decode()
    return {"text": text, "content_type": "application/json"}


def _audit(request: web.Request, status: int, seconds: float) -> None:
    line: dict[str, Any] = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "peer": request.remote,
        "method": request.method,
        "path": request.rel_url.raw_path[:500],
        "status": status,
        "seconds": round(seconds, 4),
        "agent": request.headers.get("User-Agent", "")[:200],
    }
    note: dict[str, Any] = request[NOTE]
    line.update(note)
    AUDIT.info("%s", orjson.dumps(line, default=str).decode())
