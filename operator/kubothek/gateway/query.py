"""Queries over HTTP: one SELECT over datasets that the client may query, and the last records of a ledger.

Worker processes (:mod:`kubothek.sandboxed_sql`) run both, and send the bytes of the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, Protocol

import orjson
from aiohttp import web

from kubothek.errors import DatasetNotFound, LakeError, QueryInvalid
from kubothek.gateway import rows
from kubothek.gateway.access import Principal, Verb
from kubothek.gateway.bodies import SMALL
from kubothek.gateway.gate import CLIENT, NOTE, STARTED, Gate, unauthorised
from kubothek.gateway.workers import Workers
from kubothek.sandbox import limited
from kubothek.sandboxed_sql import Pieces, expect, run
from kubothek.sql import Limits as SqlLimits
from kubothek.storage import Store

_ARROW: Final = "application/vnd.apache.arrow.stream"
_JSON: Final = "application/json"
_USUAL: Final = 100

limited.preload(rows.__name__)


class _Work(Protocol):
    """The stream of bytes from a worker."""

    def __iter__(self) -> Iterator[bytes]: ...

    def __next__(self) -> bytes: ...

    def close(self) -> None: ...


class Queries:
    """The handlers of queries."""

    def __init__(self, gate: Gate, workers: Workers) -> None:
        self._gate = gate
        self._workers = workers
        self._limits = SqlLimits(memory=gate.limits.query_memory, seconds=gate.limits.query_seconds)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.get("/query", self.query),
            web.post("/query", self.query),
            web.get("/{dataset}/tail", self.tail),
        ]

    async def query(self, request: web.Request) -> web.StreamResponse:
        """Return ``limit`` rows of ``query`` after ``skip`` rows, as JSON, or as Arrow if the client accepts it.

        Without a token, a client can query only public datasets. A statement without datasets is answered 401, as it
        would only use the gateway's CPU.
        """
        finder = _Finder(self._gate, self._gate.principal(request), asyncio.get_running_loop())
        asked: Any = request.query
        if request.method == "POST":
            try:
                asked = orjson.loads(await self._gate.small_body(request))
            except orjson.JSONDecodeError:
                asked = None
            if not isinstance(asked, dict):
                raise QueryInvalid('a JSON object is expected, such as {"query": "SELECT …", "limit": 100}')
        text = asked.get("query")
        if not isinstance(text, str) or not text or len(text) > SMALL:
            raise QueryInvalid(f"query is one SELECT of at most {SMALL:,} characters")
        limit, skip = self._number(asked, "limit", _USUAL), self._number(asked, "skip", 0)
        arrow = _ARROW in request.headers.get("Accept", "")
        shape = partial(rows.arrow_part if arrow else rows.json_part, limit, skip)
        make = partial(Pieces, text, shape, self._limits, finder, lines=not arrow)
        try:
            return await self._answer(request, make, _ARROW if arrow else _JSON)
        except LakeError:
            if finder.needs_token:
                raise unauthorised() from None
            raise

    async def tail(self, request: web.Request) -> web.StreamResponse:
        """Return the last records of a ledger, as its slices hold them."""
        dataset = await self._gate.dataset(request, Verb.QUERY, fresh=True)
        limit, skip = self._number(request.query, "limit", _USUAL), self._number(request.query, "skip", 0)
        place = dataset.place
        make = partial(run, rows.tail, place.store, place.uuid, limit, skip, limits=self._limits)
        return await self._answer(request, make, _JSON)

    def _number(self, asked: Any, name: str, usual: int) -> int:
        """Return an integer parameter. Raises QueryInvalid."""
        try:
            found = int(asked.get(name, usual))
        except (TypeError, ValueError, OverflowError):
            found = -1
        if not 0 <= found <= self._gate.limits.query_rows:
            raise QueryInvalid(f"{name} is a number up to {self._gate.limits.query_rows:,}")
        return found

    async def _answer(self, request: web.Request, make: Callable[[], _Work], kind: str) -> web.StreamResponse:
        """Send what a worker makes. The place is taken until its process has ended: at once, if the client goes."""
        async with self._workers.place(request[CLIENT]):
            pieces = await asyncio.to_thread(make)
            try:
                first = await asyncio.to_thread(next, pieces, b"")  # most errors of a query appear here
                if isinstance(pieces, Pieces):
                    request[NOTE]["reads"] = [read.name for read in pieces.reads]
                response = web.StreamResponse(
                    headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
                )
                response.content_type = kind
                request[STARTED] = True
                await response.prepare(request)
                piece: bytes | None = first
                while piece is not None:
                    async with asyncio.timeout(self._gate.limits.seconds_for(len(piece))):
                        await response.write(piece)
                    piece = await asyncio.to_thread(next, pieces, None)
                await response.write_eof()
                return response
            finally:
                await asyncio.shield(asyncio.to_thread(pieces.close))


class _Finder:
    """The datasets that a statement may read; called from a thread."""

    def __init__(self, gate: Gate, principal: Principal | None, loop: asyncio.AbstractEventLoop) -> None:
        self._gate = gate
        self._principal = principal
        self._loop = loop
        self.needs_token = False

    def begin(self, tables: int) -> None:
        if not tables and self._principal is None:
            self.needs_token = True
            raise QueryInvalid("a statement without a dataset needs a token")

    def find(self, name: str) -> tuple[Store, str]:
        if not self._may(name):
            raise DatasetNotFound(f"there is no dataset {name!r} that may be queried")
        place = self._gate.datasets.catalogue.place(name)
        expect(place.store)
        return place.store, place.uuid

    def names(self) -> list[str]:
        catalogue = self._gate.datasets.catalogue
        return [name for name in catalogue.names() if catalogue.public(name)]

    def _may(self, name: str) -> bool:
        if self._gate.datasets.catalogue.public(name):
            return True
        if self._principal is None:
            return False
        asked = self._gate.access.may(self._principal, Verb.QUERY, name)
        return asyncio.run_coroutine_threadsafe(asked, self._loop).result()
