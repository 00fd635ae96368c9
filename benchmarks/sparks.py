"""Spark's session in comparisons: what its start takes is told apart from the work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psutil
from pyspark.sql import SparkSession

from benchmarks.harness import Series
from kubothek.spark.session import running


@contextmanager
def started() -> Iterator[tuple[SparkSession, Series]]:
    """A session that has run its first job, and what it took until then."""
    start = Series("Spark's session: start")
    with ExitStack() as stack:

        def begin() -> None:
            stack.enter_context(running({"spark.master": "local[*]"})).range(1).count()

        start.time(begin, cpu_of_all)
        session = SparkSession.getActiveSession()
        assert session is not None, "it has run a job"
        yield session, start


def cpu_of_all() -> float:
    """CPU seconds of this process, Java and Python's workers, also those that have ended; not of the S3 server."""
    this = psutil.Process()
    others = (child for child in this.children(recursive=True) if child.name() != "versitygw")
    times = [process.cpu_times() for process in (this, *others)]
    return sum(time.user + time.system + time.children_user + time.children_system for time in times)
