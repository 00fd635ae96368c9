"""Kubernetes Events about our resources, on transitions only.

A repeated event (same object, reason and note) extends the series of the first one. One task sends the queued events. A
token bucket limits the writes after many transitions, and a full queue drops the newest events: the conditions have the
state in any case.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from kubothek.api.meta import GROUP
from kubothek.cluster.api import Api, ApiError, ApiUnavailable, Object
from kubothek.controller.context import Event

log = logging.getLogger(__name__)

_NOTE_LIMIT = 1024
_QUEUE_LIMIT = 1000
_SERIES_LIMIT = 5000


class _Series(NamedTuple):
    name: str
    seen: int
    last: float


class TokenBucket:
    """A token bucket: ``rate`` tokens per second, at most ``burst`` of them saved."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        self._filled: float | None = None

    async def take(self) -> None:
        """Wait for a token."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._filled is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
        self._tokens -= 1
        if self._tokens < 0:
            await asyncio.sleep(-self._tokens / self._rate)


class EventRecorder:
    """Queue of events to send; :meth:`run` is the sending task."""

    def __init__(
        self,
        api: Api,
        instance: str,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        bucket: TokenBucket | None = None,
        series_window: float = 600.0,
    ) -> None:
        self._api = api
        self._instance = instance
        self._clock = clock
        self._bucket = bucket or TokenBucket(rate=5, burst=50)
        self._window = series_window
        self._queue: asyncio.Queue[tuple[Object, Event]] = asyncio.Queue(_QUEUE_LIMIT)
        self._dropping = False
        self._series: OrderedDict[str, _Series] = OrderedDict()

    def emit(self, regarding: Object, event: Event) -> None:
        """Queue an event about an object without waiting; drop it if the queue is full."""
        if self._queue.full():
            if not self._dropping:
                log.warning("too many events: dropping until the queue has room again")
            self._dropping = True
            return
        self._dropping = False
        self._queue.put_nowait((regarding, event))

    async def drain(self) -> None:
        """Wait until all queued events were sent, or failed."""
        await self._queue.join()

    async def run(self) -> None:
        """Send queued events, for ever."""
        while True:
            regarding, event = await self._queue.get()
            try:
                await self._bucket.take()
                await self._send(regarding, event)
            except (ApiError, ApiUnavailable) as error:
                log.warning("event %s for %s was not recorded: %s", event.reason, regarding["metadata"]["name"], error)
            finally:
                self._queue.task_done()

    async def _send(self, regarding: Object, event: Event) -> None:
        meta = regarding["metadata"]
        identity = "\0".join((meta["uid"], event.type, event.reason, event.message))
        now = asyncio.get_running_loop().time()
        series = self._series.pop(identity, None)
        if series is not None and now - series.last < self._window:
            series = await self._repeat(meta["namespace"], series, now)
        else:
            series = await self._first(regarding, event, now)
        self._series[identity] = series
        if len(self._series) > _SERIES_LIMIT:
            self._series.popitem(last=False)

    async def _first(self, regarding: Object, event: Event, now: float) -> _Series:
        stamp = self._clock()
        meta = regarding["metadata"]
        digest = hashlib.sha256(f"{meta['uid']}{event.reason}{event.message}{stamp.timestamp()}".encode()).hexdigest()
        name = f"{meta['name'][:200]}.{digest[:16]}"
        await self._api.create("Event", meta["namespace"], event_object(name, regarding, event, stamp, self._instance))
        return _Series(name, 1, now)

    async def _repeat(self, namespace: str, series: _Series, now: float) -> _Series:
        count = series.seen + 1
        patch = {"series": {"count": count, "lastObservedTime": _micro(self._clock())}}
        await self._api.merge_patch("Event", namespace, series.name, patch)
        return _Series(series.name, count, now)


def event_object(name: str, regarding: Object, event: Event, stamp: datetime, instance: str) -> Object:
    """Return an Event of events.k8s.io/v1."""
    meta = regarding["metadata"]
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": meta["namespace"]},
        "eventTime": _micro(stamp),
        "type": event.type,
        "reason": event.reason,
        "note": event.message[:_NOTE_LIMIT],
        "action": "Reconcile",
        "reportingController": f"{GROUP}/operator",
        "reportingInstance": instance[:128],
        "regarding": {
            "apiVersion": regarding["apiVersion"],
            "kind": regarding["kind"],
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
        },
    }


def _micro(stamp: datetime) -> str:
    return stamp.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
