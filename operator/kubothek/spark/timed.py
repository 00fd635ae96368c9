"""How long tasks took, for the trace that a job is in: they tell the driver, which alone speaks to the collector."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

from pyspark import TaskContext
from pyspark.accumulators import Accumulator

from kubothek.tracing import Ended, Place, current, tell
from kubothek.tracing.spans import fresh

Times: TypeAlias = "Accumulator[list[tuple[str, int, int, int, int, str]]]"
"""Of each task that succeeded: name, begin and end in nanoseconds, number, attempt from 0, host."""


class Timed:
    """Times what tasks do; ``times`` is None where nobody traces."""

    def __init__(self, times: Times | None) -> None:
        self._times = times

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Around what a task does."""
        begin = time.time_ns()
        yield
        task = TaskContext.get()
        if self._times is not None and task is not None:
            end, host = time.time_ns(), socket.gethostname()
            self._times.add([(name, begin, end, task.partitionId(), task.attemptNumber(), host)])

    def tell(self) -> None:
        """In the driver, when the tasks are over: a span each, of what is under way there."""
        above = current()
        if self._times is None or above is None:
            return
        for name, begin, end, number, attempt, host in self._times.value:
            about = {"spark.task": number, "spark.attempt": attempt + 1, "host.name": host}
            place = Place(above.trace, fresh())
            tell(Ended(name=name, place=place, parent=above.span, begin=begin, end=end, attributes=about))
