"""The operator's own health over HTTP: ``/healthz`` (kill me if not) and ``/readyz`` (I see the cluster)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def probes(port: int, *, healthy: Callable[[], bool], ready: Callable[[], bool]) -> AsyncIterator[int]:
    """Serve both probes while the block runs; yields the port (a free one if ``port`` is 0).

    An answer at all tells that the event loop turns; the callables add what the loop cannot know.
    """

    def answer(check: Callable[[], bool]) -> Callable[[web.Request], object]:
        async def handler(_: web.Request) -> web.Response:
            return web.Response(text="ok") if check() else web.Response(status=503, text="not ok")

        return handler

    app = web.Application()
    app.router.add_get("/healthz", answer(healthy))  # type: ignore[arg-type]
    app.router.add_get("/readyz", answer(ready))  # type: ignore[arg-type]
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        site = web.TCPSite(runner, port=port)
        await site.start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
