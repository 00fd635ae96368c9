"""Bounded worker places with a bounded queue; one client has at most half of both, excess requests are rejected."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from aiohttp import web

from kubothek.gateway.bodies import refused
from kubothek.gateway.limits import Limits

_WAITING: Final = 4
T = TypeVar("T")


class Workers:
    """Places for queries and ingestions together.

    A client that has its share of the places waits for its own requests and not in the common queue: requests of
    other clients overtake it.
    """

    def __init__(self, limits: Limits) -> None:
        self._slots = asyncio.Semaphore(limits.working)
        self._slots_each = max(1, limits.working // 2)
        self._shares: dict[str, asyncio.Semaphore] = {}
        self._room = limits.working * (1 + _WAITING)
        self._admitted: Counter[str] = Counter()

    @asynccontextmanager
    async def place(self, client: str) -> AsyncIterator[None]:
        """Hold one place, as soon as one is free for this client.

        Raises HTTPTooManyRequests if too many requests of the client are admitted, HTTPServiceUnavailable if too many
        of all clients are.
        """
        if self._admitted[client] >= self._room // 2:
            message = (
                f"limit of queries and ingestions exceeded: {self._room // 2} of one client running or waiting; "
                "retry after 2 s"
            )
            raise refused(web.HTTPTooManyRequests, "TooMuchWork", message)
        if self._admitted.total() >= self._room:
            raise refused(web.HTTPServiceUnavailable, "Busy", "too much work is waiting; retry after 2 s")
        share = self._shares.setdefault(client, asyncio.Semaphore(self._slots_each))
        self._admitted[client] += 1
        try:
            async with share, self._slots:
                yield
        finally:
            self._admitted[client] -= 1
            if not self._admitted[client]:
                del self._admitted[client], self._shares[client]


async def to_its_end(work: Callable[[], T]) -> T:
    """Run work in a thread. A cancelled caller still waits for its end, and keeps its slot and its files until then."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
