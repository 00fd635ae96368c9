"""A real gateway on loopback, beside the test."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from kubothek.gateway.access import Access, Nobody, Tokens
from kubothek.gateway.app import make_app
from kubothek.gateway.catalogue import Catalogue, OneStore
from kubothek.gateway.gate import AUDIT
from kubothek.gateway.limits import Limits
from kubothek.gateway.server import Gateway
from kubothek.storage import Store

READER = "token-of-a-reader-0001"
WRITER = "token-of-a-writer-0002"
FORCER = "token-of-one-who-forces-0003"
TOKENS = (
    {"name": "reader", "token": READER, "pull": ["planes"], "query": ["planes"]},
    {
        "name": "writer",
        "token": WRITER,
        **{verb: ["planes", "copy", "fresh"] for verb in ("pull", "push", "ingest", "query")},
    },
    {"name": "forcer", "token": FORCER, **{verb: ["planes"] for verb in ("pull", "push", "force")}},
)


class Running:
    """``lines_by_now`` are those of the audit."""

    def __init__(self, port: int, asked: _Asked, loop: asyncio.AbstractEventLoop) -> None:
        self.port = port
        self.lines_by_now = asked.lines
        self._asked = asked
        self.root = f"http://127.0.0.1:{port}"
        self._loop = loop

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The lines of all that was asked: who has an answer may look before its line is written."""
        assert self._asked.idle.wait(60)
        return self.lines_by_now

    def url(self, dataset: str = "planes") -> str:
        return f"{self.root}/{dataset}"

    def tasks(self) -> int:
        """Of the gateway's loop."""
        return len(asyncio.all_tasks(self._loop))

    def smart(self, dataset: str = "planes") -> str:
        return f"odf+{self.url(dataset)}"


class _Asked(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []
        self.idle = Event()
        self.idle.set()
        self._under_way = 0

    @web.middleware
    async def count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._under_way += 1
        self.idle.clear()
        try:
            return await handler(request)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self.idle.set()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(orjson.loads(record.getMessage()))


@contextmanager
def running(
    store: Store,
    *,
    public: tuple[str, ...] = (),
    tokens: bool = True,
    limits: Limits | None = None,
    presigned: int = 3600,
    access: Access | None = None,
    catalogue: Catalogue | None = None,
    url: str | None = None,
    proxies: tuple[str, ...] = (),
) -> Iterator[Running]:
    limits = limits or Limits()
    app = make_app(
        catalogue or OneStore(store, frozenset(public)),
        access or (Tokens(TOKENS) if tokens else Nobody()),
        limits=limits,
        presigned=presigned,
        url=url,
        proxies=proxies,
    )
    loop = asyncio.new_event_loop()
    gateway = Gateway(app, limits)
    thread = Thread(target=loop.run_forever)
    thread.start()
    asked = _Asked()
    app.middlewares.insert(0, asked.count)
    AUDIT.addHandler(asked)
    AUDIT.setLevel(logging.INFO)
    try:
        port = asyncio.run_coroutine_threadsafe(gateway.start("127.0.0.1", 0), loop).result()
        yield Running(port, asked, loop)
    finally:
        asyncio.run_coroutine_threadsafe(gateway.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        AUDIT.removeHandler(asked)
