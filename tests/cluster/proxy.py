"""A proxy in front of a real API server that counts what passes and lets chosen requests go wrong."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from aiohttp import ClientSession, TCPConnector, web
from yarl import URL


class Fault(StrEnum):
    """What becomes of a request."""

    REFUSED = "refused"
    """The server answers 500 and has done nothing."""
    THROTTLED = "throttled"
    """The server answers 429 and has done nothing."""
    LOST = "lost"
    """The server has done it, but the connection breaks before the answer arrives."""


@dataclass(frozen=True)
class Call:
    """One request that passed."""

    method: str
    path: str

    @property
    def is_write(self) -> bool:
        return self.method != "GET"


class FaultProxy:
    """Forwards plain HTTP on ``url`` to the API server. Belongs to one event loop."""

    def __init__(self, port: int, ca: str) -> None:
        self._upstream = f"https://127.0.0.1:{port}"
        self._context = ssl.create_default_context(cafile=ca)
        self.calls: list[Call] = []
        self.decide: Callable[[int, Call], Fault | None] = lambda position, call: None
        """Asked for each request, with its position among all; says what goes wrong with it."""
        self._streams: set[asyncio.Transport] = set()

    async def __aenter__(self) -> FaultProxy:
        self._session = ClientSession(
            connector=TCPConnector(ssl=self._context, limit=0),
            auto_decompress=False,
            skip_auto_headers=["Accept", "Accept-Encoding"],  # the answer is passed on as it is
        )
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        await self._runner.cleanup()

    def cut(self) -> None:
        """Break every answer that is under way, such as the watches."""
        for transport in [*self._streams]:
            transport.abort()

    @property
    def streams(self) -> int:
        """How many answers are under way; one that has begun is not missed by a cut."""
        return len(self._streams)

    @property
    def writes(self) -> list[Call]:
        """The requests that change something."""
        return [call for call in self.calls if call.is_write]

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        call = Call(request.method, request.path)
        self.calls.append(call)
        fault = self.decide(len(self.calls) - 1, call)
        if fault is Fault.REFUSED:
            return web.json_response({"kind": "Status", "code": 500, "message": "injected"}, status=500)
        if fault is Fault.THROTTLED:
            return web.json_response({"kind": "Status", "code": 429, "message": "injected"}, status=429)
        headers = {k: v for k, v in request.headers.items() if k not in ("Host", "Content-Length", "Accept-Encoding")}
        url = URL(self._upstream + request.raw_path, encoded=True)
        async with self._session.request(request.method, url, headers=headers, data=await request.read()) as answer:
            if fault is Fault.LOST:
                await answer.read()
                assert request.transport is not None
                request.transport.close()
                raise asyncio.CancelledError
            response = web.StreamResponse(status=answer.status)
            response.content_type = answer.content_type
            await response.prepare(request)
            assert request.transport is not None
            self._streams.add(stream := request.transport)
            try:
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
            finally:
                self._streams.discard(stream)
            return response
