"""A real gateway on loopback, beside the test."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import orjson

from kubothek.gateway.access import Access, Nobody, Tokens
from kubothek.gateway.app import make_app
from kubothek.gateway.catalogue import Catalogue, OneStore
from kubothek.gateway.gate import AUDIT
from kubothek.gateway.limits import Limits
from kubothek.gateway.server import Gateway
from kubothek.lake.store import Store

READER = "token-of-a-reader-0001"
WRITER = "token-of-a-writer-0002"
TOKENS = (
    {"name": "reader", "token": READER, "pull": ["planes"], "query": ["planes"]},
    {
        "name": "writer",
        "token": WRITER,
        **{verb: ["planes", "copy", "fresh"] for verb in ("pull", "push", "ingest", "query")},
    },
)


class Running:
    """``lines`` are those of the audit."""

    def __init__(self, port: int, lines: list[dict[str, Any]], loop: asyncio.AbstractEventLoop) -> None:
        self.port = port
        self.lines = lines
        self.root = f"http://127.0.0.1:{port}"
        self._loop = loop

    def url(self, dataset: str = "planes") -> str:
        return f"{self.root}/{dataset}"

    def tasks(self) -> int:
        """Of the gateway's loop."""
        return len(asyncio.all_tasks(self._loop))

    def smart(self, dataset: str = "planes") -> str:
        return f"odf+{self.url(dataset)}"


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []

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
    lines = _Lines()
    AUDIT.addHandler(lines)
    AUDIT.setLevel(logging.INFO)
    try:
        port = asyncio.run_coroutine_threadsafe(gateway.start("127.0.0.1", 0), loop).result()
        yield Running(port, lines.lines, loop)
    finally:
        asyncio.run_coroutine_threadsafe(gateway.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        AUDIT.removeHandler(lines)
