"""Garbage collection with Spark: each task lists some ranges of keys, or deletes some parts of a plan.

No keys travel through Spark: numbers of items go in, and counts and the names of parts come out.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import SparkSession

from kubothek.lake.collector.spread import Spread
from kubothek.lake.errors import LakeError
from kubothek.lake.store import Store, StoreConfig, open_store
from kubothek.spark.collect import collect
from kubothek.spark.errors import SparkFailed
from kubothek.spark.tasks import Failure, Joined, report

RESULT_SCHEMA: Final = "item bigint, result binary"
"""By the number of the item: what came of it, pickled as all that Spark sends between our own processes."""

_MOST_TASKS: Final = 2000

T = TypeVar("T")
R = TypeVar("R")
Told = Callable[[int, int], None]
"""Hears of tasks done, and of all tasks."""


def spread_with_spark(session: SparkSession, store: StoreConfig, told: Told = lambda done, total: None) -> Spread:
    """Doing it with this session. Raises what the work raises, and SparkFailed."""

    def run(work: Callable[[Store, T], R], items: Sequence[T], title: str) -> list[R]:
        if not items:
            return []
        context = session.sparkContext
        failures: Accumulator[list[Failure]] = context.accumulator([], Joined())
        frame = session.range(0, len(items), 1, min(len(items), _MOST_TASKS)).mapInArrow(
            Works(store, work, items, failures), RESULT_SCHEMA
        )
        found = collect(session, frame, title, failures, told)
        if isinstance(found, Failure):
            raise found.error()
        results = {line["item"]: line["result"] for line in found.to_pylist()}
        if len(results) != len(items):
            raise SparkFailed(f"{title}: {len(results)} of {len(items)} tasks reported what they did; try again")
        # What our own workers pickled, on a channel that only they have.
        return [pickle.loads(results[number]) for number in range(len(items))]  # noqa: S301

    return run


class Works:
    """Numbers of items in, :data:`RESULT_SCHEMA` out."""

    def __init__(
        self,
        store: StoreConfig,
        work: Callable[[Store, Any], Any],
        items: Sequence[Any],
        failures: Accumulator[list[Failure]],
    ) -> None:
        self._store = store
        self._work = work
        self._items = items
        self._failures = failures

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = open_store(self._store)
        for batch in batches:
            for value in batch.column(0):
                number = value.as_py()
                try:
                    result = self._work(store, self._items[number])
                except LakeError as error:
                    report(error, self._failures, number, None)
                    return
                yield pa.RecordBatch.from_arrays(
                    [pa.array([number], pa.int64()), pa.array([pickle.dumps(result)], pa.binary())],
                    names=["item", "result"],
                )
