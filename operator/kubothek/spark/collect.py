"""Running a DataFrame whose tasks report what they did: as a job of its own, watched, and stopped at a failure."""

from __future__ import annotations

import uuid as uuids
from collections.abc import Callable

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.accumulators import Accumulator
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from kubothek.spark.errors import SparkFailed, last_words
from kubothek.spark.tasks import Failure
from kubothek.spark.watch import watched


def collect(
    session: SparkSession,
    frame: DataFrame,
    title: str,
    failures: Accumulator[list[Failure]],
    told: Callable[[int, int], None],
) -> pa.Table | Failure:
    """The rows of the frame, a few per task; or the first bundle's failure, as soon as any task reports one.

    ``title`` is the job's in Spark's UI; ``told`` hears of tasks done and tasks in all. Raises SparkFailed.
    """
    context = session.sparkContext
    group = f"kubothek-{uuids.uuid4().hex}"
    context.setJobGroup(group, title, interruptOnCancel=False)
    with watched(context, group, told, stop=lambda: bool(failures.value)):
        try:
            rows = frame.toArrow()
        except (PySparkException, Py4JError) as error:
            if not failures.value:
                raise SparkFailed(last_words(error)) from error
    if failures.value:
        return min(failures.value, key=lambda failure: failure.bundle)
    return rows
