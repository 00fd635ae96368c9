"""Tasks of Spark's Python workers: reads, writes, and reports of errors to the driver.

A task that finds bad input succeeds, and reports to the driver through an accumulator: Spark would retry an exception,
and end with a Java stack trace. A task raises only transient errors, so that Spark retries them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam

from kubothek import errors
from kubothek.errors import LakeError
from kubothek.ingest import Ingest, SourceReader, Split
from kubothek.spark import manifest
from kubothek.spark.fatrows import Packer, Unpacker, fat_rows
from kubothek.spark.timed import Timed
from kubothek.storage import open_store
from kubothek.table.bucketing import Bucketing
from kubothek.table.log import PartitionFile
from kubothek.table.operations.written import Gathered
from kubothek.table.partitioning import split as split_rows
from kubothek.table.schema import conform

RETRIES: Final = 2
"""How often Spark retries a task after a transient error before the error is reported."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of a task, in the form that is sent to the driver. ``bundle`` sorts failures in source order."""

    bundle: int
    kind: str
    message: str
    split: Split | None = None

    def error(self) -> LakeError:
        """Return the error as it was raised."""
        kind = getattr(errors, self.kind, LakeError)
        error: LakeError = kind.__new__(kind, self.message)
        return error


class Joined(AccumulatorParam):
    """Accumulator that joins the lists of all tasks."""

    def zero(self, value: list[Any]) -> list[Any]:
        return []

    def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:  # noqa: N802 - Spark's
        return [*value1, *value2]


def report(error: LakeError, failures: Accumulator[list[Failure]], bundle: int, split: Split | None) -> None:
    """Report the error to the driver, or raise it again if Spark should retry the task."""
    task = TaskContext.get()
    if error.transient and task is not None and task.attemptNumber() < RETRIES:
        raise error
    failures.add([Failure(bundle, type(error).__name__, str(error), split)])


class Reads:
    """Numbers of bundles in, fat rows out; after each bundle a fat row without path that counts its rows."""

    def __init__(
        self,
        ingest: Ingest,
        bundles: Sequence[tuple[Split, ...]],
        failures: Accumulator[list[Failure]],
        rows_read: Accumulator[int],
        timed: Timed,
    ) -> None:
        self._ingest = ingest
        self._bundles = bundles
        self._failures = failures
        self._rows_read = rows_read
        self._timed = timed

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with self._timed("read"), SourceReader(self._ingest.source) as reader:
            for batch in batches:
                for number in batch.column(0):
                    yield from self._bundle(reader, number.as_py())

    def _bundle(self, reader: SourceReader, number: int) -> Iterator[pa.RecordBatch]:
        packer = Packer()
        layout = self._ingest.layout
        bucketing = Bucketing.of(layout, self._ingest.stored)
        rows = 0
        split = None
        try:
            for split in self._bundles[number]:
                for batch in self._ingest.read(reader, split):
                    table = conform(pa.Table.from_batches([batch]), self._ingest.stored)
                    for part in table.to_batches():
                        for group, piece in split_rows(part, layout.partition_on, bucketing):
                            yield from packer.add(group, piece)
                    rows += batch.num_rows
        except LakeError as error:
            report(error, self._failures, number, split)
            return
        yield from packer.finish()
        self._rows_read.add(rows)
        yield fat_rows([(None, rows, None)])


class Writes:
    """Fat rows in, a manifest out: one row per file, and one row without label with the counts of what was read."""

    def __init__(self, ingest: Ingest, failures: Accumulator[list[Failure]], timed: Timed) -> None:
        self._ingest = ingest
        self._failures = failures
        self._timed = timed

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            with self._timed("write"):
                files, gathered, rows, bundles = self._write(batches)
        except LakeError as error:
            report(error, self._failures, len(self._ingest.plan.splits), None)
            return
        counted = {"rows": rows, "bytes": bundles, "indexed": json.dumps(gathered.to_json())}
        yield manifest.batch_of([*map(manifest.written, files), counted])

    def _write(self, batches: Iterable[pa.RecordBatch]) -> tuple[list[PartitionFile], Gathered, int, int]:
        """Return the files, their index entries, and the numbers of rows and bundles that the readers counted."""
        ingest = self._ingest
        unpacker = Unpacker(pa.schema([f for f in ingest.stored if f.name not in ingest.layout.partition_on]))
        read = bundles = 0
        store = open_store(ingest.store)
        gatherer = ingest.gatherer(store)
        with ingest.writer(store, gatherer) as writer:
            for batch in batches:
                for group, rows, content in unpacker.unpack(batch):
                    if group is None or content is None:
                        read, bundles = read + rows, bundles + 1
                    else:
                        writer.write_group(group, content)
            return writer.finish(), gatherer.finish(), read, bundles
