"""Writes of a source into a partitioned table with Spark.

Spark moves bytes and never decodes them (as measured with Spark 4.3). Two stages of Python tasks read and write, with
the functions of :mod:`kubothek.ingest` and :mod:`kubothek.table`:

1. *Read.* A task reads splits, validates rows, divides them by partition and bucket, and emits *fat rows*: a
   partition path, a bucket, the number of rows and the rows themselves as one compressed Arrow batch of some MiB.
2. Spark groups fat rows by partition and bucket. Adaptive execution cuts groups that are larger than a target file, and
   packs small groups into one task (``REBALANCE``).
3. *Write.* A task feeds its fat rows to a :class:`PartitionedWriter`, which sorts them, and returns only a manifest.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import SparkSession

from kubothek.errors import InputError, RowsLost
from kubothek.ingest import Ingest, SourceReader
from kubothek.ingest.write import require_all_rows
from kubothek.spark import fatrows, tasks
from kubothek.spark.collect import collect
from kubothek.spark.tasks import Failure, Joined, Reads, Timed, Writes
from kubothek.table.log import PartitionFile
from kubothek.table.operations.written import Gathered, Gatherer
from kubothek.tracing import current

READ_TASK_BYTES: Final = 32 << 20
"""Stored source bytes that one task reads, if the source can be split."""

_PAYLOAD_PER_FILE_BYTE: Final = 1.9
"""Bytes of payload per byte of the resulting Parquet file: measured 1.0 (weather) to 1.9 (flights)."""
_SHUFFLE_BYTES: Final = 16 << 20
_SHUFFLE_PARTITIONS: Final = (32, 2000)

ReportProgress = Callable[[int, int, int], None]
"""Takes the numbers of tasks done, of all tasks, and of rows read so far."""


def write_with_spark(
    session: SparkSession, ingest: Ingest, reader: SourceReader, report: ReportProgress, gatherer: Gatherer
) -> list[PartitionFile]:
    """Read, validate and write with Spark; return the written files, of which none is visible yet.

    ``gatherer`` gets where the tasks stored index entries and skipping metadata; the entries do not pass the driver.
    Raises what :func:`~kubothek.ingest.ingest_here` raises, for the same sources, and SparkFailed.
    """
    while True:
        result = _run(session, ingest, report, gatherer)
        if not isinstance(result, Failure):
            return result
        error, split = result.error(), result.split
        if split is None or not split.is_range or not isinstance(error, InputError) or error.transient:
            raise error
        # A range does not know the numbers of its rows, nor whether it was cut inside a quoted value.
        found = reader.diagnose(split.file, ingest.reading, ingest.layout.partition_on)
        if found is not None:
            raise found
        ingest = ingest.with_plan(ingest.plan.with_unsplit_files([split.file.name]))


def _run(
    session: SparkSession, ingest: Ingest, report: ReportProgress, gatherer: Gatherer
) -> list[PartitionFile] | Failure:
    context = session.sparkContext
    bundles = ingest.plan.bundles(READ_TASK_BYTES)
    failures: Accumulator[list[Failure]] = context.accumulator([], Joined())
    rows_read: Accumulator[int] = context.accumulator(0)
    timed = Timed(None if current() is None else context.accumulator([], Joined()))
    least, most = _SHUFFLE_PARTITIONS
    parts = min(most, max(least, ingest.plan.total_bytes // _SHUFFLE_BYTES))
    advisory = int(ingest.layout.target_file_bytes * _PAYLOAD_PER_FILE_BYTE)
    session.conf.set("spark.sql.adaptive.advisoryPartitionSizeInBytes", str(advisory))
    frame = (
        session.range(0, len(bundles), 1, len(bundles))
        .mapInArrow(Reads(ingest, bundles, failures, rows_read, timed), fatrows.SPARK_SCHEMA)
        .hint("rebalance", parts, *fatrows.GROUP)
        .mapInArrow(Writes(ingest, failures, timed), tasks.SCHEMA)
    )
    found = collect(session, frame, f"write {ingest.uuid}", failures, lambda d, n: report(d, n, rows_read.value))
    timed.emit_spans()
    return found if isinstance(found, Failure) else _files(ingest, found, len(bundles), gatherer)


def _files(ingest: Ingest, found: pa.Table, bundles: int, gatherer: Gatherer) -> list[PartitionFile]:
    """Return the files in the manifest. Raises RowsLost if a bundle or rows are missing, SourceEmpty without rows."""
    files, rows, reported = [], 0, 0
    for row in found.to_pylist():
        if row["label"] is None:
            rows, reported = rows + row["rows"], reported + row["bytes"]
            gatherer.add(Gathered.from_json(json.loads(row["indexed"])))
        else:
            files.append(tasks.file_of(row))
    if reported != bundles:
        raise RowsLost(f"{reported} of {bundles} tasks reported what they read; try again")
    require_all_rows(ingest, rows, files)
    return files
