"""Writing a source into a partitioned table with Spark.

Spark moves bytes and never looks into them (as measured with Spark 4.3). Two stages of Python tasks, which read and
write
with the functions of :mod:`kubothek.lake`:

1. *Read.* A task reads splits, validates and splits the rows by partition and bucket, and emits *fat rows*: a
   partition path, a bucket, the number of rows and the rows themselves as one compressed Arrow batch of some MiB.
2. Spark brings fat rows of a partition and bucket together; adaptive execution cuts those that are larger than a
   target file and packs small ones into a task (``REBALANCE``).
3. *Write.* A task feeds its fat rows to a :class:`PartitionedWriter`, which sorts them, and returns only what it wrote.
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
from kubothek.spark import fatrows, manifest
from kubothek.spark.collect import collect
from kubothek.spark.tasks import Failure, Joined, Reads, Writes
from kubothek.spark.timed import Timed
from kubothek.table.log import PartitionFile
from kubothek.table.operations.gathering import Gathered, Gatherer
from kubothek.tracing import current

READ_TASK_BYTES: Final = 32 << 20
"""Stored source bytes that one task reads, if the source can be cut so."""

_PAYLOAD_PER_FILE_BYTE: Final = 1.9
"""Size of payloads in terms of the Parquet file that is made of them: measured 1.0 (weather) to 1.9 (flights)."""
_SHUFFLE_BYTES: Final = 16 << 20
_SHUFFLE_PARTITIONS: Final = (32, 2000)

Told = Callable[[int, int, int], None]
"""Hears of tasks done, tasks in all, and rows read so far."""


def write_with_spark(
    session: SparkSession, ingest: Ingest, reader: SourceReader, told: Told, gatherer: Gatherer
) -> list[PartitionFile]:
    """Read, validate and write with Spark; the files that were written, none of them visible yet.

    ``gatherer`` is told what the tasks stored of index entries and descriptions; none of them passes the driver.
    Raises what :func:`~kubothek.ingest.ingest_here` raises, for the same sources, and SparkFailed.
    """
    while True:
        result = _run(session, ingest, told, gatherer)
        if not isinstance(result, Failure):
            return result
        error, split = result.error(), result.split
        if split is None or not split.is_range or not isinstance(error, InputError) or error.transient:
            raise error
        # A range does not know its rows' numbers, nor whether it was cut inside of a quoted value.
        found = reader.diagnose(split.file, ingest.reading, ingest.layout.partition_on)
        if found is not None:
            raise found
        ingest = ingest.with_plan(ingest.plan.with_whole_files([split.file.name]))


def _run(session: SparkSession, ingest: Ingest, told: Told, gatherer: Gatherer) -> list[PartitionFile] | Failure:
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
        .mapInArrow(Writes(ingest, failures, timed), manifest.SCHEMA)
    )
    found = collect(session, frame, f"write {ingest.uuid}", failures, lambda d, n: told(d, n, rows_read.value))
    timed.tell()
    return found if isinstance(found, Failure) else _files(ingest, found, len(bundles), gatherer)


def _files(ingest: Ingest, found: pa.Table, bundles: int, gatherer: Gatherer) -> list[PartitionFile]:
    """The files in the manifest, after its counts proved that nothing is missing."""
    files, rows, reported = [], 0, 0
    for row in found.to_pylist():
        if row["label"] is None:
            rows, reported = rows + row["rows"], reported + row["bytes"]
            gatherer.add(Gathered.from_json(json.loads(row["indexed"])))
        else:
            files.append(manifest.file_of(row))
    if reported != bundles:
        raise RowsLost(f"{reported} of {bundles} tasks reported what they read; try again")
    require_all_rows(ingest, rows, files)
    return files
