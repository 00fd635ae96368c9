"""Informer for one kind in one namespace: list, then watch, and list again after a gap."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from kubothek.cluster.api import Api, ApiError, ApiUnavailable, Object
from kubothek.cluster.queue import Backoff

_LOG: Final = logging.getLogger("kubothek.gateway.cluster")
_FORGOTTEN: Final = 410


class Known(Protocol):
    """Receiver of a follower's changes."""

    async def seen(self, obj: Object) -> None:
        """Handle an object that exists in this state."""

    async def gone(self, name: str) -> None:
        """Handle an object that no longer exists."""


class Follower:
    """Informer; ``heard`` is the time of the API server's last message, None before the first complete list."""

    def __init__(
        self,
        api: Api,
        kind: str,
        namespace: str,
        known: Known,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.heard: float | None = None
        self._api = api
        self._kind = kind
        self._namespace = namespace
        self._known = known
        self._backoff = Backoff(initial=0.5, limit=15)
        self._clock = clock
        self._names: set[str] = set()
        self._version = 0
        self._failures = 0

    async def run(self) -> None:
        """Follow until cancelled; errors are logged and retried with backoff."""
        step: Callable[[], Awaitable[None]] = self._list
        while True:
            try:
                await step()
                step, self._failures = self._watch, 0
            except (ApiError, ApiUnavailable) as error:
                step = self._list
                if isinstance(error, ApiError) and error.status == _FORGOTTEN:
                    continue
                self._failures += 1
                delay = self._backoff.delay(self._failures, random.Random())
                _LOG.warning("%s of %s: %s; again in %.1f s", self._kind, self._namespace, error, delay)
                await asyncio.sleep(delay)

    async def _list(self) -> None:
        found: set[str] = set()
        listed = 0
        async for page, version in self._api.pages(self._kind, self._namespace):
            listed = version
            for obj in page:
                found.add(obj["metadata"]["name"])
                await self._known.seen(obj)
        for name in self._names - found:
            await self._known.gone(name)
        self._names, self._version, self.heard = found, listed, self._clock()

    async def _watch(self) -> None:
        """Apply changes. Bookmarks and the end of a watch count as contact, so a quiet namespace is not stale."""
        async for change, obj in self._api.watch(self._kind, self._namespace, self._version):
            self.heard, self._failures = self._clock(), 0
            self._version = int(obj["metadata"]["resourceVersion"])
            if change == "BOOKMARK":
                continue
            name = obj["metadata"]["name"]
            if change == "DELETED":
                self._names.discard(name)
                await self._known.gone(name)
            else:
                self._names.add(name)
                await self._known.seen(obj)
        self.heard = self._clock()
