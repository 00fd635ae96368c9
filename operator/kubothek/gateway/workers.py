"""Work that takes memory and time: so much of it at once, some more that waits, and the rest is sent away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import orjson
from aiohttp import web

from kubothek.gateway.limits import Limits

_WAITING: Final = 4
T = TypeVar("T")


class Workers:
    """Places for work, for all kinds of it together."""

    def __init__(self, limits: Limits) -> None:
        self._places = asyncio.Semaphore(limits.working)
        self._room = limits.working * (1 + _WAITING)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """One, once there is one. Raises HTTPServiceUnavailable if too many wait already."""
        if not self._room:
            body = orjson.dumps({"reason": "Busy", "message": "too much work is waiting; try again"})
            raise web.HTTPServiceUnavailable(body=body, content_type="application/json", headers={"Retry-After": "2"})
        self._room -= 1
        try:
            async with self._places:
                yield
        finally:
            self._room += 1


async def to_its_end(work: Callable[[], T]) -> T:
    """Do work in a thread. A caller that is cancelled waits for its end, and keeps its place and its files so long."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
