"""Retries of requests with exponential backoff and jitter."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from kubothek.errors import StoreError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Seconds of retries, by the cause; the last failure is reported.

    ``unreachable``   connection refused or unknown name: mostly a wrong endpoint, and a user is waiting
    ``troubled``      the server answers 429 or 5xx, or drops a connection: mostly load, so it passes
    ``connect``, ``silence``   timeouts of one request: of the connection, and between two pieces of data
    """

    unreachable: float = 4.0
    troubled: float = 60.0
    connect: float = 3.0
    silence: float = 20.0
    first_pause: float = 0.1
    longest_pause: float = 5.0

    def pause(self, attempt: int) -> float:
        """Return the seconds to wait after failure number ``attempt`` (from 0): doubling, capped, minus up to half."""
        return min(self.longest_pause, self.first_pause * 2.0**attempt) * random.uniform(0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a failure means: the error for the caller, and the seconds to retry (0: no retry)."""

    error: StoreError
    budget: float


def with_retries(
    call: Callable[[], T],
    judge: Callable[[Exception], Verdict | None],
    patience: RetryPolicy,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """Return the call's result. Raises the verdict's error after its budget; passes errors without a verdict."""
    started = clock()
    attempt = 0
    while True:
        try:
            return call()
        except Exception as raised:
            verdict = judge(raised)
            if verdict is None:
                raise
            pause = patience.pause(attempt)
            if clock() - started + pause >= verdict.budget:
                raise verdict.error from raised
        sleep(pause)
        attempt += 1
