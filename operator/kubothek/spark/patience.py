"""Timeout for work without executors: a job whose executors never start would otherwise wait for ever."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pyspark import SparkContext

from kubothek.spark.beside import beside

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 5.0


@dataclass
class ExecutorTimeout:
    """State of the timeout; ``lost`` is True once the work was cancelled after ``seconds``."""

    seconds: float
    lost: bool = False


@contextmanager
def patience(
    context: SparkContext,
    seconds: float,
    *,
    look: float = _LOOK_SECONDS,
    executors: Callable[[], int] | None = None,
) -> Iterator[ExecutorTimeout]:
    """Cancel all work of a context that had work and no executor for ``seconds``.

    ``look``       seconds between checks
    ``executors``  returns the number of executors; default: that of the context
    """
    found = ExecutorTimeout(seconds)
    count = executors or (lambda: _known(context))
    idle_since: float | None = None

    def seen_enough() -> bool:
        nonlocal idle_since
        if not context.statusTracker().getActiveJobsIds() or count():
            idle_since = None
            return False
        idle_since = time.monotonic() if idle_since is None else idle_since
        if time.monotonic() - idle_since < seconds:
            return False
        log.error("no executor came in %d s: all work is cancelled", seconds)
        found.lost = True
        context.cancelAllJobs()
        return True

    with beside("spark-executors", min(look, seconds), seen_enough):
        yield found


def _known(context: SparkContext) -> int:
    """Return the number of block managers without the driver's."""
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1
