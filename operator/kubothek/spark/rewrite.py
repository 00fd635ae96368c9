"""Row-level deletes and updates with Spark: each task rewrites some of the files that may have matches.

No rows pass through Spark: bundle numbers go in, and manifests of the written files come out. One task finds the
matching rows of a file and copies the others, with the functions of :mod:`kubothek.table.operations.rewrite`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import orjson
import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import SparkSession

from kubothek.errors import RowsLost
from kubothek.spark import tasks
from kubothek.spark.numbered import Numbered
from kubothek.storage import Store
from kubothek.table.operations.rewrite import Rewrite, Rewriter, Rewritten, require_all_rows, rewrite_files
from kubothek.table.operations.written import Gathered
from kubothek.table.scan.plan import PlannedFile

FILES_A_TASK: Final = 4
"""Enough to merge the rows of small files into larger files."""
_MOST_TASKS: Final = 2000

ReportProgress = Callable[[int, int, int], None]
"""Takes the numbers of tasks done, of all tasks, and of rows that matched so far."""


def rewrite_with_spark(session: SparkSession, report: ReportProgress) -> Rewriter:
    """Return a rewriter that uses this session.

    It raises what :func:`~kubothek.table.operations.rewrite.rewrite_files` raises, and SparkFailed.
    """

    def run(rewrite: Rewrite, files: Sequence[PlannedFile]) -> Rewritten:
        return _run(session, rewrite, files, report)

    return run


def _rewritten(
    rewrite: Rewrite, bundles: Sequence[Sequence[PlannedFile]], matched: Accumulator[int], store: Store, number: int
) -> pa.RecordBatch:
    """Rewrite one bundle and return its manifest.

    It has a row for each new file, a row for each removed file (its label only), and one row for the bundle:
    ``rows`` is the number of matching rows, ``bytes`` that of the other rows, ``indexed`` the gathered entries.
    """
    done = rewrite_files(rewrite, store, bundles[number])
    matched.add(done.matched)
    return _manifest(done)


def _manifest(done: Rewritten) -> pa.RecordBatch:
    gathered = orjson.dumps(done.gathered.to_json()).decode()
    return tasks.batch_of(
        [
            *map(tasks.written, done.added),
            *({"label": label} for label in done.removed),
            {"rows": done.matched, "bytes": done.kept, "indexed": gathered},
        ]
    )


def _run(session: SparkSession, rewrite: Rewrite, files: Sequence[PlannedFile], report: ReportProgress) -> Rewritten:
    size = max(FILES_A_TASK, -(-len(files) // _MOST_TASKS))
    bundles = [files[start : start + size] for start in range(0, len(files), size)]
    matched: Accumulator[int] = session.sparkContext.accumulator(0)
    work = Numbered(
        store=rewrite.store,
        work=partial(_rewritten, rewrite, bundles, matched),
        pieces=len(bundles),
        tasks=len(bundles),
        schema=tasks.SCHEMA,
    )
    found = work.run(session, f"rewrite {rewrite.table.uuid}", lambda done, total: report(done, total, matched.value))
    return _result(rewrite, found, len(bundles))


def _result(rewrite: Rewrite, found: pa.Table, bundles: int) -> Rewritten:
    """Join the results of all tasks. Raises RowsLost if one is missing."""
    added, removed, gathered, matched, kept = [], [], [], 0, 0
    for row in found.to_pylist():
        if row["label"] is None:
            gathered.append(Gathered.from_json(orjson.loads(row["indexed"])))
            matched, kept = matched + row["rows"], kept + row["bytes"]
        elif row["key"] is None:
            removed.append(row["label"])
        else:
            added.append(tasks.file_of(row))
    if len(gathered) != bundles:
        raise RowsLost(f"{len(gathered)} of {bundles} tasks reported what they rewrote; try again")
    done = Rewritten(tuple(removed), tuple(added), matched, kept, Gathered.joined(gathered))
    require_all_rows(rewrite, done)
    return done
