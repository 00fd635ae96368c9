"""Skipping metadata of existing files, collected with Spark: each task reads some files and stores their entries.

No rows pass through Spark: numbers of pieces of work go in, and the places of entries come out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import orjson
import pyarrow as pa
from pyspark.sql import SparkSession

from kubothek.errors import RowsLost
from kubothek.spark.numbered import Numbered
from kubothek.storage import Store
from kubothek.table.log.update_skipping import Builder, Files
from kubothek.table.skipping.collect.collect_files import Described, ReportProgress, describe_files, in_few
from kubothek.table.skipping.model import Part

RESULT_SCHEMA: Final = "piece bigint, parts string"
_FILES_A_TASK: Final = 16
_MOST_TASKS: Final = 2000


def describe_with_spark(
    session: SparkSession, report: Callable[[int, int], None] = lambda done, total: None
) -> Builder:
    """Return a builder for this session, which raises SparkFailed; ``report`` gets numbers of tasks: done, all."""

    def run(described: Described, store: Store, files: Files, _: ReportProgress) -> tuple[Part, ...]:
        size = max(_FILES_A_TASK, -(-len(files) // _MOST_TASKS))
        pieces = [files[start : start + size] for start in range(0, len(files), size)]
        work = Numbered(
            store=store.config,
            work=partial(_described, described, pieces),
            pieces=len(pieces),
            tasks=len(pieces),
            schema=RESULT_SCHEMA,
        )
        found = work.run(session, f"describe {described.uuid}", report).to_pylist()
        if len(found) != len(pieces):
            raise RowsLost(f"{len(found)} of {len(pieces)} tasks reported what they described; try again")
        parts = [Part.from_json(each) for line in found for each in orjson.loads(line["parts"])]
        return in_few(described, store, parts)

    return run


def _described(described: Described, pieces: Sequence[Files], store: Store, number: int) -> pa.RecordBatch:
    parts = orjson.dumps([part.to_json() for part in describe_files(described, store, pieces[number])]).decode()
    return pa.RecordBatch.from_arrays([pa.array([number], pa.int64()), pa.array([parts])], names=["piece", "parts"])
