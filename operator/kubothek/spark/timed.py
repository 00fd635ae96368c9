"""Durations of tasks for a job's trace: tasks report to the driver, and only the driver sends to the collector."""

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
"""For each task that succeeded: name, begin and end in nanoseconds, number, attempt from 0, host."""


class Timed:
    """Timer of tasks; ``times`` is None without a trace."""

    def __init__(self, times: Times | None) -> None:
        self._times = times

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Measure the body of a task."""
        begin = time.time_ns()
        yield
        task = TaskContext.get()
        if self._times is not None and task is not None:
            end, host = time.time_ns(), socket.gethostname()
            self._times.add([(name, begin, end, task.partitionId(), task.attemptNumber(), host)])

    def tell(self) -> None:
        """Send one span per task, below the current span; call this in the driver when the tasks are over."""
        above = current()
        if self._times is None or above is None:
            return
        for name, begin, end, number, attempt, host in self._times.value:
            about = {"spark.task": number, "spark.attempt": attempt + 1, "host.name": host}
            place = Place(above.trace, fresh())
            tell(Ended(name=name, place=place, parent=above.span, begin=begin, end=end, attributes=about))
