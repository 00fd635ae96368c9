"""Numbered pieces of work: no data passes through Spark, only numbers in and results out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import SparkSession

from kubothek.errors import LakeError
from kubothek.spark.collect import collect
from kubothek.spark.tasks import Failure, Joined, report
from kubothek.storage import Store, StoreConfig, open_store

Work = Callable[[Store, int], pa.RecordBatch]
"""Does the piece of work with the given number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """Pieces of work, each done by a worker with access to the store.

    ``pieces``  number of pieces, which are numbered from 0
    ``tasks``   number of Spark tasks, at most ``pieces``
    ``schema``  of the results, in Spark's notation
    """

    store: StoreConfig
    work: Work
    pieces: int
    tasks: int
    schema: str

    def run(self, session: SparkSession, title: str, progress: Callable[[int, int], None]) -> pa.Table:
        """Return all results; ``progress`` gets numbers of tasks: done, all. Raises as the work, and SparkFailed."""
        failures: Accumulator[list[Failure]] = session.sparkContext.accumulator([], Joined())
        numbers = session.range(0, self.pieces, 1, self.tasks)
        frame = numbers.mapInArrow(_Worker(self.store, self.work, failures), self.schema)
        found = collect(session, frame, title, failures, progress)
        if isinstance(found, Failure):
            raise found.error()
        return found


class _Worker:
    """Task for Spark's Python workers."""

    def __init__(self, store: StoreConfig, work: Work, failures: Accumulator[list[Failure]]) -> None:
        self._store = store
        self._work = work
        self._failures = failures

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = open_store(self._store)
        for batch in batches:
            for value in batch.column(0):
                number = value.as_py()
                try:
                    answer = self._work(store, number)
                except LakeError as error:
                    report(error, self._failures, number, None)
                    return
                yield answer
