"""Skipping metadata of plain files, collected with Spark: each task describes some files and stores their entries.

No rows pass through Spark: numbers of pieces go in, and manifests of the stored entries come out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.sql import SparkSession

from kubothek.errors import RowsLost
from kubothek.external.collect import Described, Work, describe
from kubothek.external.refresh import Describe, Place
from kubothek.external.state import PlainPart
from kubothek.spark.numbered import Numbered
from kubothek.storage import Store, StoreConfig, open_store

RESULT_SCHEMA: Final = "piece bigint, described string"

ReportProgress = Callable[[int, int], None]
"""Takes the numbers of tasks done and of all tasks."""


def describe_with_spark(
    session: SparkSession, place: Place, report: ReportProgress = lambda done, total: None
) -> Describe:
    """Return a function that describes files with this session.

    It raises what :func:`~kubothek.external.collect.describe` raises, and SparkFailed.
    """

    def run(work: Work, pieces: list[pa.Table]) -> list[Described]:
        numbered = Numbered(
            store=place.files.config,
            work=partial(_described, work, pieces, place.metadata.config),
            pieces=len(pieces),
            tasks=len(pieces),
            schema=RESULT_SCHEMA,
        )
        found = numbered.run(session, f"describe {place.name}", report)
        return _joined(found, len(pieces))

    return run


def _described(
    work: Work, pieces: Sequence[pa.Table], metadata: StoreConfig, store: Store, number: int
) -> pa.RecordBatch:
    done = describe(store, open_store(metadata), work, pieces[number])
    text = orjson.dumps({"parts": [asdict(part) for part in done.parts], "left_out": done.left_out}).decode()
    return pa.RecordBatch.from_pydict({"piece": pa.array([number], pa.int64()), "described": pa.array([text])})


def _joined(found: pa.Table, pieces: int) -> list[Described]:
    """Join the results of all tasks. Raises RowsLost if one is missing."""
    numbers: Any = found.column("piece").to_pylist()
    if sorted(numbers) != list(range(pieces)):
        raise RowsLost(f"{found.num_rows} of {pieces} tasks reported what they described; try again")
    texts: Any = found.column("described").to_pylist()
    read = map(orjson.loads, texts)
    return [Described(tuple(PlainPart(**part) for part in each["parts"]), tuple(each["left_out"])) for each in read]
