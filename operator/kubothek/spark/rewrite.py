"""Row-level deletes and updates with Spark: each task rewrites some of the files that may hold matches.

No rows travel through Spark, only numbers of bundles in and what was written out: a file's matching rows are found,
and its other rows copied, in one task, with the functions of :mod:`kubothek.lake.operations.rewrite`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import SparkSession

from kubothek.lake.commits import PartitionFile
from kubothek.lake.errors import LakeError, RowsLost
from kubothek.lake.indices import Collected
from kubothek.lake.operations.rewrite import Rewrite, Rewriter, Rewritten, require_all_rows, rewrite_files
from kubothek.lake.store import open_store
from kubothek.lake.table.plan import PlannedFile
from kubothek.spark.collect import collect
from kubothek.spark.tasks import MANIFEST_SCHEMA, Failure, Joined, report

FILES_A_TASK: Final = 4
"""Enough that the rows of small files come together in larger ones."""
_MOST_TASKS: Final = 2000

Told = Callable[[int, int, int], None]
"""Hears of tasks done, tasks in all, and rows that matched so far."""


def rewrite_with_spark(session: SparkSession, told: Told) -> Rewriter:
    """Rewriting with this session. Raises what :func:`~kubothek.lake.operations.rewrite.rewrite_files` raises, and
    SparkFailed.
    """

    def run(rewrite: Rewrite, files: Sequence[PlannedFile]) -> Rewritten:
        return _run(session, rewrite, files, told)

    return run


class Rewrites:
    """Numbers of bundles in; out a row for each new file, each file that goes (its label only), and each bundle (the
    rows that matched as ``rows``, those that did not as ``bytes``, and the index entries).
    """

    def __init__(
        self,
        rewrite: Rewrite,
        bundles: Sequence[Sequence[PlannedFile]],
        failures: Accumulator[list[Failure]],
        matched: Accumulator[int],
    ) -> None:
        self._rewrite = rewrite
        self._bundles = bundles
        self._failures = failures
        self._matched = matched

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = open_store(self._rewrite.store)
        for batch in batches:
            for value in batch.column(0):
                number = value.as_py()
                try:
                    done = rewrite_files(self._rewrite, store, self._bundles[number])
                except LakeError as error:
                    report(error, self._failures, number, None)
                    return
                self._matched.add(done.matched)
                yield _manifest(done)


def _manifest(done: Rewritten) -> pa.RecordBatch:
    lines: list[tuple[str | None, str | None, int | None, int | None, str | None]] = [
        *((file.label, file.key, file.rows, file.bytes, None) for file in done.added),
        *((label, None, None, None, None) for label in done.removed),
        (None, None, done.matched, done.kept, orjson.dumps(done.collected.to_json()).decode()),
    ]
    labels, keys, rows, sizes, indexed = zip(*lines, strict=True)
    columns: list[Any] = [
        pa.array(labels, pa.string()),
        pa.array(keys, pa.string()),
        pa.array(rows, pa.int64()),
        pa.array(sizes, pa.int64()),
        pa.array(indexed, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["label", "key", "rows", "bytes", "indexed"])


def _run(session: SparkSession, rewrite: Rewrite, files: Sequence[PlannedFile], told: Told) -> Rewritten:
    context = session.sparkContext
    size = max(FILES_A_TASK, -(-len(files) // _MOST_TASKS))
    bundles = [files[start : start + size] for start in range(0, len(files), size)]
    failures: Accumulator[list[Failure]] = context.accumulator([], Joined())
    matched: Accumulator[int] = context.accumulator(0)
    frame = session.range(0, len(bundles), 1, len(bundles)).mapInArrow(
        Rewrites(rewrite, bundles, failures, matched), MANIFEST_SCHEMA
    )
    found = collect(session, frame, f"rewrite {rewrite.table.uuid}", failures, lambda d, n: told(d, n, matched.value))
    if isinstance(found, Failure):
        raise found.error()
    return _result(rewrite, found, len(bundles))


def _result(rewrite: Rewrite, manifest: pa.Table, bundles: int) -> Rewritten:
    """What all tasks did, after the counts proved that nothing is missing."""
    added, removed, collected, matched, kept = [], [], [], 0, 0
    for row in manifest.to_pylist():
        if row["label"] is None:
            collected.append(Collected.from_json(orjson.loads(row["indexed"])))
            matched, kept = matched + row["rows"], kept + row["bytes"]
        elif row["key"] is None:
            removed.append(row["label"])
        else:
            added.append(PartitionFile(row["label"], row["key"], row["rows"], row["bytes"]))
    if len(collected) != bundles:
        raise RowsLost(f"{len(collected)} of {bundles} tasks reported what they rewrote; try again")
    done = Rewritten(tuple(removed), tuple(added), matched, kept, Collected.joined(collected))
    require_all_rows(rewrite, done)
    return done
