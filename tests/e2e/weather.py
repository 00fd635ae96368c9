"""Bad weather on the way to an S3 server: any request may be spoiled, each in one of the ways that happen."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tests.faultproxy import Fault, FaultProxy, Injected, LostResponse, Request, Reset, Slow, Status, Truncated

FAULTS: dict[str, Fault] = {
    "429": Status(429, "TooManyRequests"),
    "500": Status(500, "InternalError"),
    "503": Status(503, "SlowDown"),
    "504": Status(504, "GatewayTimeout", body="<html>upstream timed out</html>"),
    "reset": Reset(),
    "lost response": LostResponse(),
    "truncated": Truncated(17),
    "slow": Slow(3.0),
}


class Weather(FaultProxy):
    """Fair until somebody asks for something else. Faults that are injected come first."""

    def __init__(self, upstream: str, host: str, seed: int) -> None:
        super().__init__(upstream, host)
        self.spoiled: Counter[str] = Counter()
        """How many requests were, by the name of the fault."""
        self._random = random.Random(seed)
        self._rate = 0.0

    @contextmanager
    def bad(self, rate: float) -> Iterator[None]:
        """One of ``1 / rate`` requests is spoiled."""
        self._rate = rate
        try:
            yield
        finally:
            self._rate = 0.0

    def fault_for(self, request: Request) -> Injected | None:
        injected = super().fault_for(request)
        if injected is not None or self._random.random() >= self._rate:
            return injected
        name = self._random.choice([*FAULTS])
        self.spoiled[name] += 1
        return Injected(FAULTS[name], request.method, request.path, 0)
