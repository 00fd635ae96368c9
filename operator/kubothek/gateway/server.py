"""The server: sockets, threads, signals, and timeouts of silent connections."""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import orjson
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from kubothek.gateway.gate import AUDIT, break_off
from kubothek.gateway.limits import Limits
from kubothek.sandbox import limited

_THREADS: Final = 32
_BACKLOG: Final = 1024
_LEAVE: Final = 20.0
"""Seconds for running requests to end when the gateway stops."""


class _Malformed(logging.Filter):
    """Filter that logs malformed HTTP as one audit line: aiohttp's tracebacks would let a client fill the disk."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError | web.RequestPayloadError):
            return True
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "status": 400, "error": "NoHTTP"}
        AUDIT.info("%s", orjson.dumps(line).decode())
        return False


_LOG: Final = logging.getLogger("kubothek.gateway.wire")
_LOG.addFilter(_Malformed())


class Gateway:
    """A running gateway, which serves in the background."""

    def __init__(self, app: web.Application, limits: Limits, tls: ssl.SSLContext | None = None) -> None:
        self._limits = limits
        self._tls = tls
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_LOG,
            keepalive_timeout=limits.idle_seconds,
            handler_cancellation=True,
            auto_decompress=False,  # bodies are decompressed as they are read, within limits
            shutdown_timeout=_LEAVE,
        )
        self._watch: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port, which the system chooses for ``port`` 0. Raises OSError."""
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "gateway"))
        await asyncio.to_thread(limited.start)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=self._tls, backlog=_BACKLOG)
        await site.start()
        self._watch = asyncio.create_task(self._close_silent())
        found: int = self._runner.addresses[0][1]
        return found

    async def stop(self) -> None:
        """Wait for requests to end, then close."""
        if self._watch is not None:
            self._watch.cancel()
            with suppress(asyncio.CancelledError):
                await self._watch
        await self._runner.cleanup()

    async def _close_silent(self) -> None:
        """Close connections that stay without a first request, for which aiohttp has no timeout."""
        seen: set[Any] = set()
        while True:
            await asyncio.sleep(self._limits.head_seconds)
            server = self._runner.server
            silent = {each for each in (server.connections if server else ()) if _is_silent(each)}
            for each in silent & seen:
                each.force_close()
                if each.transport is not None:
                    break_off(each.transport)
            seen = silent


def _is_silent(connection: Any) -> bool:
    return connection._request_count == 0 and connection._current_request is None


async def serve(
    app: web.Application, limits: Limits, host: str, port: int, tls: ssl.SSLContext | None, listening: Any
) -> None:
    """Serve until SIGINT or SIGTERM. ``listening`` gets the port."""
    gateway = Gateway(app, limits, tls)
    listening(await gateway.start(host, port))
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    await gateway.stop()
    limited.stop()
