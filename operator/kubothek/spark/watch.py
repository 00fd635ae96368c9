"""Watching a group of Spark jobs from the driver: how far it is, and when to stop it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from pyspark import SparkContext

from kubothek.spark.beside import beside

_SECONDS: Final = 0.5


@contextmanager
def watched(
    context: SparkContext, group: str, told: Callable[[int, int], None], stop: Callable[[], bool]
) -> Iterator[None]:
    """Meanwhile, and at a good end, tell ``told(tasks done, tasks in all)``; cancel the group when ``stop()``."""

    def tell() -> None:
        done, total = _tasks(context, group)
        if total:
            told(done, total)

    def look() -> bool:
        if stop():
            context.cancelJobGroup(group)
            return True
        tell()
        return False

    with beside("spark-watch", _SECONDS, look):
        yield
    tell()


def _tasks(context: SparkContext, group: str) -> tuple[int, int]:
    tracker = context.statusTracker()
    stages: set[int] = set()
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        stages.update(info.stageIds if info else ())
    found = [info for stage in stages if (info := tracker.getStageInfo(stage)) is not None]
    return sum(info.numCompletedTasks for info in found), sum(info.numTasks for info in found)
