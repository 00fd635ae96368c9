"""HTTP endpoints of a process: ``/healthz`` (liveness), ``/readyz`` (readiness), and ``/metrics`` on another port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

Exposition = Callable[[str], Awaitable[tuple[bytes, str]]]
"""The metrics for an Accept header, and their content type."""

_COMPRESSED: Final = 16 << 10
"""Minimum bytes of a compressed answer."""


@asynccontextmanager
async def probes(port: int, *, healthy: Callable[[], bool], ready: Callable[[], bool]) -> AsyncIterator[int]:
    """Serve both probes while the block runs; yields the port (a free one if ``port`` is 0).

    Any answer shows that the event loop runs; the callables check the rest.
    """

    def answer(check: Callable[[], bool]) -> Handler:
        async def handler(_: web.Request) -> web.StreamResponse:
            return web.Response(text="ok") if check() else web.Response(status=503, text="not ok")

        return handler

    async with _serve(port, {"/healthz": answer(healthy), "/readyz": answer(ready)}) as found:
        yield found


@asynccontextmanager
async def metrics(port: int, exposition: Exposition) -> AsyncIterator[int]:
    """Serve the metrics while the block runs; yields the port (a free one if ``port`` is 0)."""

    async def handler(request: web.Request) -> web.StreamResponse:
        body, content_type = await exposition(request.headers.get("Accept", ""))
        response = web.Response(body=body, headers={"Content-Type": content_type})
        if len(body) >= _COMPRESSED:
            response.enable_compression()
        return response

    async with _serve(port, {"/metrics": handler}) as found:
        yield found


@asynccontextmanager
async def _serve(port: int, handlers: Mapping[str, Handler]) -> AsyncIterator[int]:
    app = web.Application()
    for path, handler in handlers.items():
        app.router.add_get(path, handler)
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        site = web.TCPSite(runner, port=port)
        await site.start()
        # With port 0, IPv4 and IPv6 get different ports, in any order: take that of IPv4, if any.
        yield int(min(runner.addresses, key=len)[1])
    finally:
        await runner.cleanup()
