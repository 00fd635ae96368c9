"""How long a request is tried again, with growing pauses and jitter."""

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
    """Seconds of trying, by what is wrong; the last failure is reported.

    ``unreachable``   nobody listens, or the name is unknown: mostly a wrong endpoint, so a person is waiting
    ``troubled``      the server answers 429 or 5xx, or drops a connection: mostly load, so it passes
    ``connect``, ``silence``   of one request: until it is connected, and between two signs of life
    """

    unreachable: float = 4.0
    troubled: float = 60.0
    connect: float = 3.0
    silence: float = 20.0
    first_pause: float = 0.1
    longest_pause: float = 5.0

    def pause(self, attempt: int) -> float:
        """Seconds to wait after failure number ``attempt`` (from 0): doubling, capped, less up to half."""
        return min(self.longest_pause, self.first_pause * 2.0**attempt) * random.uniform(0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a failure means: the error for the caller, and how many seconds to try again (0: not at all)."""

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
    """Return the call's result, or the verdict's error when its budget is spent. What ``judge`` leaves, passes."""
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
