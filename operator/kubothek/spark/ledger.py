"""Ingestion into a ledger with Spark: slices are written in parallel, with consecutive offsets.

Python tasks run in stages, with blobs of rows between them that Spark does not decode (as in
:mod:`kubothek.spark.write`):

1. *Read* pieces of the source. With a Ledger strategy, rows are grouped by key, and only rows with new keys stay.
2. The blobs stay on the executors' disks. The driver gets the row count and the event times of each blob, and divides
   the order into ranges. If the blobs overlap in event time, an extra stage counts the rows of each range.
3. *Write slices*: a task gets all rows of a range and knows the offset of the first one.
4. *Write the table*: the same rows, rebalanced by partition, in the layout of the table.

The driver sees only summaries and manifests. The caller makes the one commit that adds the records.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

from kubothek.errors import InputError, RowsLost
from kubothek.odf.dataset.extension import Extension
from kubothek.odf.dataset.ingesting import Elsewhere, Ground, Ingest, Written
from kubothek.odf.dataset.slicing import Sliced
from kubothek.odf.distributed import Piece, Ranges, StoredFile, Summary, Work, plan_pieces, plan_ranges
from kubothek.odf.distributed.pieces import PIECE_BYTES, Part
from kubothek.odf.distributed.unseen import Unseen
from kubothek.odf.merge.ledger import keyed_by
from kubothek.odf.spec.sources import ReadStep, Transform
from kubothek.odf.view import seen_of
from kubothek.spark import fatrows
from kubothek.spark.collect import collect
from kubothek.spark.ledger_tasks import (
    BLOBS,
    COUNTED,
    DONE,
    RANGED,
    Counts,
    Divides,
    Files,
    Firsts,
    Reads,
    Slices,
    WritesFiles,
    WritesSlices,
)
from kubothek.spark.tasks import Failure, Joined
from kubothek.table.operations.written import Gathered
from kubothek.table.scratch import Scratch

_PAYLOAD_PER_FILE_BYTE: Final = 1.9
_SHUFFLE_BYTES: Final = 16 << 20
_SHUFFLE_PARTITIONS: Final = (32, 2000)
_KEYED_BYTES: Final = 32 << 20
"""Stored source bytes per task that looks up keys."""
_BLOBS_AT_ONCE: Final = 2

ReportProgress = Callable[[int, int, int], None]
"""Takes the numbers of tasks done, of all tasks, and of rows read so far."""


class _FailedError(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsWithSpark(Elsewhere):
    """Files in stores, for Append and Ledger strategies (:func:`~kubothek.odf.distributed.can_spread`).

    ``session``      opens a session, only if there is something to write
    ``piece_bytes``  approximate stored bytes that a task reads
    """

    session: Callable[[], AbstractContextManager[SparkSession]]
    files: Sequence[StoredFile]
    step: ReadStep
    preprocess: Transform | None
    report: ReportProgress
    piece_bytes: int = PIECE_BYTES

    def write(self, ground: Ground, what: Ingest, extension: Extension) -> Written:
        """See :class:`Elsewhere`. Raises SparkFailed, SparkUnavailable as well."""
        work = Work.of(ground, what, extension.system_time, self.files, self.step, self.preprocess)
        whole: frozenset[str] = frozenset()
        with self.session() as session:
            while True:
                pieces = self._pieces(work, whole)
                try:
                    return _Run(session, work, ground, pieces, self.report).written(extension)
                except _FailedError as failed:
                    error, number = failed.failure.error(), failed.failure.bundle
                    cut = number < len(pieces) and pieces[number].cut
                    if not cut or not isinstance(error, InputError) or error.transient:
                        raise error from None
                    # A part does not know the numbers of its rows, nor whether it was cut inside a quoted value.
                    whole |= pieces[number].files

    def _pieces(self, work: Work, whole: frozenset[str]) -> tuple[Piece, ...]:
        if work.row_wise:
            return plan_pieces(self.step, self.files, size=self.piece_bytes, whole=whole)
        return (Piece(tuple(Part(file=file, size=file.info.size) for file in self.files)),)


class _Run:
    """One attempt. Raises _FailedError for a failure that a task reports."""

    def __init__(
        self, session: SparkSession, work: Work, ground: Ground, pieces: Sequence[Piece], report: ReportProgress
    ) -> None:
        self._session = session
        self._work = work
        self._ground = ground
        self._pieces = pieces
        self._report = report
        self._failures: Accumulator[list[Failure]] = session.sparkContext.accumulator([], Joined())
        self._rows: Accumulator[int] = session.sparkContext.accumulator(0)
        self._size = sum(part.size for piece in pieces for part in piece.parts)

    def written(self, extension: Extension) -> Written:
        """Read, merge and write; set the schema of the extension if there are new records."""
        work = self._work
        # Blobs are some MiB each; this is how many of them Spark stores together.
        self._session.conf.set("spark.sql.inMemoryColumnarStorage.batchSize", str(_BLOBS_AT_ONCE))
        keyed = self._keyed_by()
        blobs = self._blobs().persist(StorageLevel.DISK_ONLY)
        try:
            summaries = self._summaries(blobs)
            if not summaries:
                return Written(keyed_by=keyed)
            ranges = plan_ranges(summaries, work.slice_bytes)
            if ranges.counts is None:
                ranges = self._counted(blobs, ranges)
            if sum(ranges.counts or ()) != sum(summary.rows for summary in summaries):
                raise RowsLost(f"rows of {work.uuid!r} are missing between reading and writing; try again")
            slices, files = self._written(blobs, ranges)
        finally:
            blobs.unpersist()
        extension.set_schema(work.slices)
        fields = {} if work.view is None else work.view.change(files.files, files.gathered).fields()
        return Written(fields, slices, keyed)

    def _keyed_by(self) -> tuple[str, ...] | None:
        if not self._work.key:
            return None
        ground = self._ground
        with Scratch() as scratch:
            seen = seen_of(
                ground.store,
                ground.snapshot,
                ground.history,
                scratch,
                table=ground.chain.table,
                keyed_by=ground.chain.keyed_by,
            )
            return keyed_by(self._work.key, seen)

    def _blobs(self) -> DataFrame:
        work, ground, count = self._work, self._ground, len(self._pieces)
        buckets = max(self._session.sparkContext.defaultParallelism, self._size // _KEYED_BYTES)
        buckets = min(buckets, _SHUFFLE_PARTITIONS[1])
        reads = Reads(work, self._pieces, buckets, self._failures, self._rows)
        frame = self._session.range(0, count, 1, count).mapInArrow(reads, BLOBS)
        if not work.key:
            return frame
        unseen = Unseen(work.uuid, ground.snapshot, ground.chain.state, ground.chain.table, work.key)
        together = frame.repartition(buckets, "bucket").sortWithinPartitions("piece", "number")
        return together.mapInArrow(Firsts(work, unseen, count, self._failures), BLOBS)

    def _summaries(self, blobs: DataFrame) -> list[Summary]:
        found = self._collect(blobs.select("piece", "rows", "summary"), "read")
        summaries: list[Summary] = []
        read: dict[int, int] = {}
        for piece, rows, summary in zip(*found.to_pydict().values(), strict=True):
            if summary is None:
                read[piece] = rows
            else:
                summaries.append(pickle.loads(summary))  # noqa: S301  # pickled by our own workers
        if len(read) != len(self._pieces):
            raise RowsLost(f"{len(read)} of {len(self._pieces)} pieces reported what was read of them; try again")
        if not self._work.key and sum(read.values()) != (there := sum(each.rows for each in summaries)):
            raise RowsLost(f"{sum(read.values())} rows were read, but {there} are there; try again")
        return summaries

    def _counted(self, blobs: DataFrame, ranges: Ranges) -> Ranges:
        task = Counts(self._work, ranges, len(self._pieces), self._failures)
        found = self._collect(blobs.mapInArrow(task, COUNTED), "count")
        counts = [0] * len(ranges)
        for part, rows in zip(*found.to_pydict().values(), strict=True):
            counts[part] += rows
        return ranges.counted(counts)

    def _written(self, blobs: DataFrame, ranges: Ranges) -> tuple[list[Sliced], Files]:
        work, order, failures = self._work, len(self._pieces), self._failures
        frame = (
            blobs.mapInArrow(Divides(work, ranges, order, failures), RANGED)
            .repartition(min(len(ranges), _SHUFFLE_PARTITIONS[1]), "part")
            .sortWithinPartitions("part", "piece", "number")
            .mapInArrow(WritesSlices(work, ranges, order, failures), fatrows.SPARK_SCHEMA)
        )
        if work.view is None:
            frame = frame.select("payload")
        else:
            least, most = _SHUFFLE_PARTITIONS
            parts = min(most, max(least, self._size // _SHUFFLE_BYTES))
            advisory = int(work.view.layout.target_file_bytes * _PAYLOAD_PER_FILE_BYTE)
            self._session.conf.set("spark.sql.adaptive.advisoryPartitionSizeInBytes", str(advisory))
            frame = frame.hint("rebalance", parts, *fatrows.GROUP).mapInArrow(WritesFiles(work, order, failures), DONE)
        found = self._collect(frame, "write")
        done = [pickle.loads(each.as_py()) for each in found.column("payload")]  # noqa: S301  # as above
        return self._whole(done, ranges)

    def _whole(self, done: Sequence[Slices | Files], ranges: Ranges) -> tuple[list[Sliced], Files]:
        """Join the results of all tasks. Raises RowsLost if records are missing or extra."""
        parts = [each for each in done if isinstance(each, Slices)]
        slices = sorted((s for each in parts for s in each.slices), key=lambda s: s.data.offset_interval.start)
        offset = self._work.first
        for each in slices:
            if each.data.offset_interval.start != offset:
                raise RowsLost(f"no slice has the records of {self._work.uuid!r} from offset {offset}; try again")
            offset = each.data.offset_interval.end + 1
        rows = ranges.starts[-1]
        some = [each for each in done if isinstance(each, Files)]
        files = tuple(file for each in some for file in each.files)
        there = sum(file.rows for file in files) if self._work.view is not None else rows
        if offset - self._work.first != rows or there != rows:
            raise RowsLost(
                f"{rows} records of {self._work.uuid!r} were to be written, but {offset - self._work.first} are in "
                f"slices, and {there} in files of the table; try again"
            )
        oldest = min(parts, key=lambda part: part.stored).slices[0]
        self._ground.note_written(self._ground.layout.data(oldest.data.physical_hash))
        return slices, Files(files, Gathered.joined(each.gathered for each in some))

    def _collect(self, frame: DataFrame, verb: str) -> pa.Table:
        report = partial(_report_tasks, self._report, self._rows)
        found = collect(self._session, frame, f"{verb} {self._work.uuid}", self._failures, report)
        if isinstance(found, Failure):
            raise _FailedError(found)
        return found


def _report_tasks(report: ReportProgress, rows: Accumulator[int], done: int, total: int) -> None:
    report(done, total, rows.value)
