"""What a process tells of itself over HTTP: ``/healthz`` (kill me if not), ``/readyz`` (I see the cluster), and on a
port of its own ``/metrics``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

Exposition = Callable[[str], Awaitable[tuple[bytes, str]]]
"""The metrics for an Accept header, and their content type."""

_COMPRESSED: Final = 16 << 10
"""Bytes from which an answer is worth compressing."""


@asynccontextmanager
async def probes(port: int, *, healthy: Callable[[], bool], ready: Callable[[], bool]) -> AsyncIterator[int]:
    """Serve both probes while the block runs; yields the port (a free one if ``port`` is 0).

    An answer at all tells that the event loop turns; the callables add what the loop cannot know.
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
        # A free port is another one for IPv4 than for IPv6, and they come in any order: that of IPv4, if there is one.
        yield int(min(runner.addresses, key=len)[1])
    finally:
        await runner.cleanup()
