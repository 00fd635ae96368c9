"""Compaction with Spark: each task rewrites some bundles of small files.

No rows pass through Spark: task numbers go in, and manifests of the written files come out. pyarrow reads and writes
in the workers, with the functions of :mod:`kubothek.table.maintenance.rewriting`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.sql import SparkSession

from kubothek.errors import RowsLost
from kubothek.spark.numbered import Numbered
from kubothek.storage import Store
from kubothek.table.log import PartitionFile
from kubothek.table.maintenance import Bundle, Compactor
from kubothek.table.maintenance.grouping import tasks
from kubothek.table.maintenance.rewriting import TASK_BYTES, Compacting, Replaced, Rewritten, rewrite_bundles
from kubothek.table.operations.written import Gathered

RESULT_SCHEMA: Final = "task bigint, added string, gathered string"
"""Per task, a line for each of its bundles, in order, with the new files; and one line with index entries."""

ReportProgress = Callable[[int, int], None]
"""Takes the numbers of tasks done and of all tasks."""


def compact_with_spark(session: SparkSession, report: ReportProgress = lambda done, total: None) -> Compactor:
    """Return a compactor that uses this session.

    It raises what :func:`~kubothek.table.maintenance.rewriting.rewrite_bundles` raises, and SparkFailed.
    """

    def run(compacting: Compacting, bundles: Sequence[Bundle]) -> Rewritten:
        cores = session.sparkContext.defaultParallelism
        return _run(session, compacting, tasks(bundles, most_bytes=TASK_BYTES, at_least=cores), report)

    return run


def _rewritten(compacting: Compacting, parts: Sequence[Sequence[Bundle]], store: Store, number: int) -> pa.RecordBatch:
    return _result(number, rewrite_bundles(compacting, store, parts[number]))


def _result(number: int, done: Rewritten) -> pa.RecordBatch:
    added = [orjson.dumps([file.to_json() for file in each.added]).decode() for each in done.replaced]
    gathered = orjson.dumps(done.gathered.to_json()).decode()
    columns: list[Any] = [
        pa.array([number] * (len(added) + 1), pa.int64()),
        pa.array([*added, None], pa.string()),
        pa.array([*[None] * len(added), gathered], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["task", "added", "gathered"])


def _run(
    session: SparkSession, compacting: Compacting, parts: Sequence[tuple[Bundle, ...]], report: ReportProgress
) -> Rewritten:
    work = Numbered(
        store=compacting.store,
        work=partial(_rewritten, compacting, parts),
        pieces=len(parts),
        tasks=len(parts),
        schema=RESULT_SCHEMA,
    )
    return _joined(parts, work.run(session, f"compact {compacting.table.uuid}", report))


def _joined(parts: Sequence[tuple[Bundle, ...]], found: pa.Table) -> Rewritten:
    """Join the results of all tasks. Raises RowsLost if one is missing."""
    added: list[list[tuple[PartitionFile, ...]]] = [[] for _ in parts]
    gathered = []
    for line in found.to_pylist():
        if line["added"] is None:
            gathered.append(Gathered.from_json(orjson.loads(line["gathered"])))
        else:
            added[line["task"]].append(tuple(PartitionFile(*file) for file in orjson.loads(line["added"])))
    if [len(each) for each in added] != [len(part) for part in parts] or len(gathered) != len(parts):
        raise RowsLost(f"{len(gathered)} of {len(parts)} tasks reported what they rewrote; try again")
    replaced = tuple(
        Replaced(bundle.group.path, bundle.files, files)
        for part, each in zip(parts, added, strict=True)
        for bundle, files in zip(part, each, strict=True)
    )
    return Rewritten(replaced, Gathered.joined(gathered))
