"""Retry budget and backoff. Computes only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from kubothek.api.engine import Engine
from kubothek.api.values import parse_duration
from kubothek.controller.context import FailureClass

DISRUPTION_LIMIT = 10
"""How many attempts the cluster may lose: enough for a rolling upgrade of nodes, but not endless."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Number of failed attempts that are retried, and the wait before each: ``initial`` doubled up to ``maximum``.

    ``limit`` None means unlimited.
    """

    limit: int | None = 3
    initial: timedelta = timedelta(seconds=2)
    maximum: timedelta = timedelta(minutes=5)

    def delay(self, spent: int) -> timedelta:
        """Return the wait after failure number ``spent``, counted from 1."""
        doublings = min(max(spent, 1) - 1, 32)  # keeps the power within the range of a timedelta
        return min(self.initial * (1 << doublings), self.maximum)

    def allows(self, failure: FailureClass, *, failures: int, disruptions: int) -> bool:
        """Return whether another attempt is allowed after these failures by class, the last of class ``failure``."""
        if failure is FailureClass.REPORT:
            return False
        if self.limit is None:
            return True
        return failures <= self.limit if failure is FailureClass.RETRY else disruptions <= DISRUPTION_LIMIT


def budget_of(engine: Engine | None, limit: int | None = None) -> Budget:
    """Return the budget that an Engine grants; a run's own ``limit`` has precedence."""
    if engine is None:
        return Budget() if limit is None else Budget(limit=limit)
    retry = engine.spec.retry
    return Budget(
        limit=retry.limit if limit is None else limit,
        initial=parse_duration(retry.backoff.initial),
        maximum=parse_duration(retry.backoff.max),
    )
