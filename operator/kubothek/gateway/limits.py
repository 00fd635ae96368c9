"""Limits of a gateway, per client and in total."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_MOST_CLIENTS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits; sizes are bytes, times are seconds. A client is a principal, or an address without a token.

    ``object_bytes``      of a pushed slice or checkpoint; ``ingest_bytes`` of an ingested body
    ``message_bytes``     of one message of the smart protocol
    ``slowest``           bytes a second below which a client is too slow, after ``patience``
    ``head_seconds``      until the first request of a connection is there; ``idle_seconds`` between two of them
    ``requests``          at a time; one more is answered 503
    ``bodies``            that are on their way at a time, 1 MiB of memory each; of one client ``bodies_each``
    ``per_second``        requests of one client, on average, after a first ``burst``; more are answered 429. That is a
                          principal, or an address from which somebody asks without a token
    ``store_streams``     objects that are read from a store without files at a time: each takes 1.5 MB of memory
    ``sessions``          of the smart protocol at a time; of one client ``sessions_each``
    ``working``           ingests and queries at a time; four times as many may wait. Of one client half of both, and
                          at least one at a time; more are answered 429
    ``ingest_seconds``, ``ingest_memory``   of one ingestion, from the whole body to the commit
    ``query_seconds``, ``query_memory``, ``query_rows``   of one query
    """

    object_bytes: int = 8 << 30
    ingest_bytes: int = 1 << 30
    message_bytes: int = 256 << 20
    slowest: int = 16 << 10
    patience: float = 30.0
    head_seconds: float = 10.0
    idle_seconds: float = 60.0
    requests: int = 2000
    bodies: int = 128
    bodies_each: int = 32
    per_second: float = 200.0
    burst: int = 2000
    store_streams: int = 32
    sessions: int = 16
    sessions_each: int = 4
    working: int = 4
    ingest_seconds: float = 600.0
    ingest_memory: str = "3GB"
    query_seconds: float = 60.0
    query_memory: str = "1GB"
    query_rows: int = 1_000_000

    def seconds_for(self, size: int) -> float:
        """Return how long the transfer of ``size`` bytes may take."""
        return self.patience + size / self.slowest


class Buckets:
    """One token bucket per client, refilled over time; only the most recent clients are kept."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_second
        self._burst = burst
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str, *, take: bool = True) -> float:
        """Take a token, or only check for one; return the seconds until one is available, 0 if it is now."""
        now = self._clock()
        left, then = self._left.pop(client, (float(self._burst), now))
        left = min(self._burst, left + (now - then) * self._rate)
        short = 1.0 - left
        self._left[client] = (left if short > 0 or not take else left - 1.0), now
        if len(self._left) > _MOST_CLIENTS:
            self._left.popitem(last=False)
        return max(0.0, short / self._rate)
