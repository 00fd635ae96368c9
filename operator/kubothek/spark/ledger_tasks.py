"""Tasks of Spark's Python workers for a ledger's ingestion. Spark moves blobs and never decodes them."""

from __future__ import annotations

import pickle
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.accumulators import Accumulator

from kubothek.errors import LakeError
from kubothek.odf.dataset.slicing import Sliced
from kubothek.odf.distributed.blobs import BLOB_BYTES, Blob, Summary, blobs_of, pack, unpack
from kubothek.odf.distributed.pieces import Piece
from kubothek.odf.distributed.ranges import Ranges
from kubothek.odf.distributed.unseen import Unseen
from kubothek.odf.distributed.work import Work
from kubothek.spark.fatrows import Packer, Unpacker, fat_rows
from kubothek.spark.tasks import Failure, report
from kubothek.storage import open_store
from kubothek.table.bucketing import Bucketing
from kubothek.table.key_buckets import KeyBuckets
from kubothek.table.log import PartitionFile
from kubothek.table.operations.written import Gathered
from kubothek.table.partitioning import split
from kubothek.table.schema import conform

BLOBS: Final = "bucket int, piece bigint, number bigint, rows bigint, summary binary, payload binary"
"""A row without payload counts the rows of a piece."""
RANGED: Final = "part int, piece bigint, number bigint, payload binary"
"""A blob whose rows are all in one range, ``part``; piece and number keep the order of the original blobs."""
COUNTED: Final = "part int, rows bigint"
DONE: Final = "payload binary"
"""A pickled :class:`Slices` or :class:`Files`, from our own workers."""

_NO_BUCKET: Final = -1
_BLOB_TYPES: Final = (pa.int32(), pa.int64(), pa.int64(), pa.int64(), pa.binary(), pa.binary())
_BLOB_NAMES: Final = ("bucket", "piece", "number", "rows", "summary", "payload")

Batches: TypeAlias = Iterable[pa.RecordBatch]
Failures: TypeAlias = "Accumulator[list[Failure]]"


@dataclass(frozen=True, slots=True)
class Slices:
    """The slices of one range; ``stored`` is the Unix time in seconds before the first one was stored."""

    part: int
    slices: tuple[Sliced, ...]
    stored: float


@dataclass(frozen=True, slots=True)
class Files:
    """The files of the table that one task wrote."""

    files: tuple[PartitionFile, ...]
    gathered: Gathered


class _Task(ABC):
    """A task that reports errors to the driver; ``order`` sorts an error that has no piece."""

    def __init__(self, work: Work, order: int, failures: Failures) -> None:
        self.work = work
        self.order = order
        self.failures = failures

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        try:
            yield from self.run(batches)
        except LakeError as error:
            report(error, self.failures, self.order, None)

    @abstractmethod
    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield the output of the task. Raises LakeError."""


class Reads(_Task):
    """Numbers of pieces in, blobs of their rows out; with a key, separate blobs per bucket."""

    def __init__(
        self, work: Work, pieces: Sequence[Piece], buckets: int, failures: Failures, rows_read: Accumulator[int]
    ) -> None:
        super().__init__(work, len(pieces), failures)
        self.pieces = pieces
        self.buckets = buckets
        self.rows_read = rows_read

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for number in (value.as_py() for batch in batches for value in batch.column(0)):
            self.order = number
            yield from self._piece(number)

    def _piece(self, number: int) -> Iterator[pa.RecordBatch]:
        count = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal count
            for batch in self.work.rows_of(self.pieces[number], number):
                count += batch.num_rows
                yield batch

        if self.work.key:
            yield from self._keyed(counted(), number)
        else:
            yield from _sent(blobs_of(counted(), self.work.rows), number)
        self.rows_read.add(count)
        yield _row(_NO_BUCKET, number, 0, count, None, None)

    def _keyed(self, batches: Iterator[pa.RecordBatch], piece: int) -> Iterator[pa.RecordBatch]:
        buckets = KeyBuckets(self.work.rows, self.work.key, self.buckets)
        held: dict[int, list[pa.RecordBatch]] = {}
        number = size = 0
        for batch in batches:
            for bucket, rows in buckets.split(batch):
                held.setdefault(bucket, []).append(rows)
                size += rows.nbytes
            if size >= _HELD_BYTES:
                yield from self._packed(held, piece, number)
                number, size = number + 1, 0
        yield from self._packed(held, piece, number)

    def _packed(self, held: dict[int, list[pa.RecordBatch]], piece: int, number: int) -> Iterator[pa.RecordBatch]:
        for bucket, batches in held.items():
            together = pa.Table.from_batches(batches, self.work.rows).combine_chunks().to_batches()[0]
            yield _row(bucket, piece, number, together.num_rows, None, pack(together))
        held.clear()


_HELD_BYTES: Final = 8 * BLOB_BYTES


class Firsts(_Task):
    """All rows of some keys in, in the order of the input; rows with new keys out."""

    def __init__(self, work: Work, unseen: Unseen, order: int, failures: Failures) -> None:
        super().__init__(work, order, failures)
        self.unseen = unseen

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        counts: list[tuple[int, int]] = []

        def rows() -> Iterator[pa.RecordBatch]:
            for _, piece, _, count, _, payload in _lines(batches):
                if payload is None:
                    counts.append((piece, count))
                else:
                    yield unpack(payload, self.work.rows)

        given = pa.RecordBatchReader.from_batches(self.work.rows, rows())
        new = self.unseen.of(open_store(self.work.store), given)
        task = TaskContext.get()
        assert task is not None, "this is one"
        yield from _sent(blobs_of(new, self.work.rows), task.partitionId())
        for piece, count in counts:
            yield _row(_NO_BUCKET, piece, 0, count, None, None)


class Counts(_Task):
    """Blobs in, numbers of their rows per range out."""

    def __init__(self, work: Work, ranges: Ranges, order: int, failures: Failures) -> None:
        super().__init__(work, order, failures)
        self.ranges = ranges

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        counts = np.zeros(len(self.ranges), np.int64)
        for *_, payload in _lines(batches):
            if payload is not None:
                counts += self.ranges.counts_of(unpack(payload, self.work.rows))
        some = np.flatnonzero(counts)
        yield pa.RecordBatch.from_arrays(
            [pa.array(some.astype(np.int32)), pa.array(counts[some])], names=["part", "rows"]
        )


class Divides(_Task):
    """Blobs in, blobs that are each within one range out."""

    def __init__(self, work: Work, ranges: Ranges, order: int, failures: Failures) -> None:
        super().__init__(work, order, failures)
        self.ranges = ranges

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for _, piece, number, _, summary, payload in _lines(batches):
            if payload is None:
                continue
            known: Summary = pickle.loads(summary)  # noqa: S301  # pickled by our own workers
            ends = np.array([known.first, known.last], np.int64)
            first, last = self.ranges.numbers(ends[:, 0], ends[:, 1]).tolist()
            if first == last:
                yield _ranged(first, piece, number, payload)
                continue
            for part, rows in self.ranges.divided(unpack(payload, self.work.rows)):
                yield _ranged(part, piece, number, pack(rows))


class WritesSlices(_Task):
    """Blobs in, sorted by range; manifests of each range's slices out, and the same rows as fat rows for the table."""

    def __init__(self, work: Work, ranges: Ranges, order: int, failures: Failures) -> None:
        super().__init__(work, order, failures)
        self.starts = ranges.starts

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        lines = (line for batch in batches for line in zip(*batch.columns, strict=True))
        packer = Packer()
        for part, some in groupby(((line[0].as_py(), line[3].as_py()) for line in lines), key=itemgetter(0)):
            blobs = (unpack(payload, self.work.rows) for _, payload in some)
            yield from self._range(part, blobs, packer)
        yield from packer.finish()

    def _range(self, part: int, blobs: Iterator[pa.RecordBatch], packer: Packer) -> Iterator[pa.RecordBatch]:
        view, store = self.work.view, open_store(self.work.store)
        bucketing = Bucketing.of(view.layout, view.schema) if view else None
        begun = time.time()
        with self.work.slice_writer(store, self.starts[part]) as writer:
            for batch in self.work.in_order(blobs):
                numbered = writer.write(self.work.record(batch))
                if view is None:
                    continue
                shown = conform(pa.Table.from_batches([view.shown(numbered)]), view.schema)
                for rows in shown.to_batches():
                    for group, piece in split(rows, view.layout.partition_on, bucketing):
                        yield from packer.add(group, piece)
            done = Slices(part, tuple(writer.finish()), begun)
        yield fat_rows([(None, 0, pickle.dumps(done))])


class WritesFiles(_Task):
    """Fat rows in, manifests of the written files out; manifests of slices pass unchanged."""

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        view, store = self.work.view, open_store(self.work.store)
        assert view is not None, "there is a table to write"
        on = view.layout.partition_on
        unpacker = Unpacker(pa.schema([field for field in view.schema if field.name not in on]))
        gatherer = view.gatherer(store)
        with view.writer(store, gatherer) as writer:
            for batch in batches:
                payloads = batch.filter(batch.column("path").is_null())
                if payloads.num_rows:
                    yield payloads.select(["payload"])
                for group, _, rows in unpacker.unpack(batch.filter(batch.column("path").is_valid())):
                    assert group is not None, "these have one"
                    assert rows is not None, "and rows"
                    writer.write_group(group, rows)
            done = Files(tuple(writer.finish()), gatherer.finish())
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(done)], pa.binary())], names=["payload"])


def _sent(blobs: Iterable[Blob], piece: int) -> Iterator[pa.RecordBatch]:
    for number, blob in enumerate(blobs):
        yield _row(_NO_BUCKET, piece, number, blob.summary.rows, pickle.dumps(blob.summary), blob.payload)


def _row(
    bucket: int, piece: int, number: int, rows: int, summary: bytes | None, payload: bytes | None
) -> pa.RecordBatch:
    values = (bucket, piece, number, rows, summary, payload)
    arrays: list[Any] = [pa.array([value], kind) for value, kind in zip(values, _BLOB_TYPES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(_BLOB_NAMES))


def _lines(batches: Batches) -> Iterator[tuple[int, int, int, int, Any, Any]]:
    for batch in batches:
        for bucket, piece, number, rows, summary, payload in zip(*batch.columns, strict=True):
            yield (bucket.as_py(), piece.as_py(), number.as_py(), rows.as_py(), summary.as_py(), payload.as_py())


def _ranged(part: int, piece: int, number: int, payload: Any) -> pa.RecordBatch:
    arrays: list[Any] = [
        pa.array([part], pa.int32()),
        pa.array([piece], pa.int64()),
        pa.array([number], pa.int64()),
        pa.array([payload], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=["part", "piece", "number", "payload"])
