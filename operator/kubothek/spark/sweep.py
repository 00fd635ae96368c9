"""Work on many items with Spark, for garbage collection and verification.

The former lists ranges of keys and deletes parts of a plan, the latter reads slices and files. No data passes through
Spark: numbers of items go in, and small results come out.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from kubothek.spark.errors import SparkFailed
from kubothek.spark.numbered import Numbered
from kubothek.storage import Store, StoreConfig
from kubothek.storage.parallel import ReportProgress, Spread

RESULT_SCHEMA: Final = "item bigint, result binary"
"""Per item, its pickled result; Spark pickles everything that it sends between our own processes."""

_MOST_TASKS: Final = 2000

T = TypeVar("T")
R = TypeVar("R")


def spread_with_spark(
    session: SparkSession, store: StoreConfig, report: ReportProgress = lambda done, total: None
) -> Spread:
    """Return a spread over this session; ``report`` gets the numbers of done and all tasks.

    It raises what the work raises, and SparkFailed.
    """

    def run(work: Callable[[Store, T], R], items: Sequence[T], title: str) -> list[R]:
        if not items:
            return []
        numbered = Numbered(
            store=store,
            work=partial(_done, work, items),
            pieces=len(items),
            tasks=min(len(items), _MOST_TASKS),
            schema=RESULT_SCHEMA,
        )
        found = numbered.run(session, title, report)
        results = {line["item"]: line["result"] for line in found.to_pylist()}
        if len(results) != len(items):
            raise SparkFailed(f"{title}: {len(results)} of {len(items)} tasks reported what they did; try again")
        # Pickled by our own workers, and received on a channel that only they have.
        return [pickle.loads(results[number]) for number in range(len(items))]  # noqa: S301

    return run


def _done(work: Callable[[Store, T], R], items: Sequence[T], store: Store, number: int) -> pa.RecordBatch:
    result = pickle.dumps(work(store, items[number]))
    return pa.RecordBatch.from_arrays(
        [pa.array([number], pa.int64()), pa.array([result], pa.binary())], names=["item", "result"]
    )
