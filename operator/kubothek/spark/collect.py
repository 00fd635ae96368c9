"""Runs of a DataFrame whose tasks report what they did: each a job group of its own, cancelled at a failure."""

from __future__ import annotations

import uuid as uuids
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.accumulators import Accumulator
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from kubothek.spark.beside import beside
from kubothek.spark.errors import SparkFailed, last_words
from kubothek.spark.tasks import Failure


def collect(
    session: SparkSession,
    frame: DataFrame,
    title: str,
    failures: Accumulator[list[Failure]],
    report: Callable[[int, int], None],
) -> pa.Table | Failure:
    """Return the rows of the frame, a few per task; or the first bundle's failure, once any task reports one.

    ``title`` is shown in Spark's UI; ``report`` gets the numbers of tasks done and of all tasks. Raises SparkFailed.
    """
    context = session.sparkContext
    group = f"kubothek-{uuids.uuid4().hex}"
    context.setJobGroup(group, title, interruptOnCancel=False)
    with watched(context, group, report, stop=lambda: bool(failures.value)):
        try:
            rows = frame.toArrow()
        except (PySparkException, Py4JError) as error:
            if not failures.value:
                raise SparkFailed(last_words(error)) from error
    if failures.value:
        return min(failures.value, key=lambda failure: failure.bundle)
    return rows


# Progress and cancellation of a group of Spark jobs, from the driver.


_SECONDS: Final = 0.5


@contextmanager
def watched(
    context: SparkContext, group: str, report: Callable[[int, int], None], stop: Callable[[], bool]
) -> Iterator[None]:
    """Call ``report(tasks done, all tasks)`` during the body and after its success; cancel the group on ``stop()``."""

    def poll() -> None:
        done, total = _tasks(context, group)
        if total:
            report(done, total)

    def check() -> bool:
        if stop():
            context.cancelJobGroup(group)
            return True
        poll()
        return False

    with beside("spark-watch", _SECONDS, check):
        yield
    poll()


def _tasks(context: SparkContext, group: str) -> tuple[int, int]:
    tracker = context.statusTracker()
    stages: set[int] = set()
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        stages.update(info.stageIds if info else ())
    found = [info for stage in stages if (info := tracker.getStageInfo(stage)) is not None]
    return sum(info.numCompletedTasks for info in found), sum(info.numTasks for info in found)
