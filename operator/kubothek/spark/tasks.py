"""Tasks of Spark's Python workers: reads, writes, and reports of errors to the driver.

A task that finds bad input succeeds, and reports to the driver through an accumulator: Spark would retry an exception,
and end with a Java stack trace. A task raises only transient errors, so that Spark retries them.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark import TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam

from kubothek import errors
from kubothek.errors import LakeError
from kubothek.ingest import Ingest, SourceReader, Split
from kubothek.spark.fatrows import Packer, Unpacker, fat_rows
from kubothek.storage import open_store
from kubothek.table.bucketing import Bucketing
from kubothek.table.log import PartitionFile
from kubothek.table.operations.written import Gathered
from kubothek.table.partitioning import split as split_rows
from kubothek.table.schema import conform
from kubothek.tracing import Ended, Place, current, emit
from kubothek.tracing.spans import fresh

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
        yield batch_of([*map(written, files), counted])

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


# Manifest of the files that a task wrote, for the driver: one row per file, the same for all kinds of work.


SCHEMA: Final = "label string, key string, rows bigint, bytes bigint, sha3 string, indexed string"
"""``indexed``: the index files that the task stored, as JSON, in a line without label."""

_TYPES: Final[dict[str, pa.DataType]] = {
    "label": pa.string(),
    "key": pa.string(),
    "rows": pa.int64(),
    "bytes": pa.int64(),
    "sha3": pa.string(),
    "indexed": pa.string(),
}


def written(file: PartitionFile) -> dict[str, Any]:
    """Return the line of a file."""
    return {"label": file.label, "key": file.key, "rows": file.rows, "bytes": file.bytes, "sha3": file.sha3}


def file_of(line: Mapping[str, Any]) -> PartitionFile:
    """Return the file of a line."""
    return PartitionFile(line["label"], line["key"], line["rows"], line["bytes"], line["sha3"])


def batch_of(lines: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Return lines as a record batch for Spark; columns that a line does not name are NULL."""
    return pa.RecordBatch.from_pylist(list(lines), schema=pa.schema(_TYPES))


# Durations of tasks for a job's trace: tasks report to the driver, and only the driver sends to the collector.


Times: TypeAlias = "Accumulator[list[tuple[str, int, int, int, int, str]]]"
"""For each task that succeeded: name, begin and end in nanoseconds, number, attempt from 0, host."""


class Timed:
    """Timer of tasks; ``times`` is None without a trace."""

    def __init__(self, times: Times | None) -> None:
        self._times = times

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Measure the body of a task."""
        begin = time.time_ns()
        yield
        task = TaskContext.get()
        if self._times is not None and task is not None:
            end, host = time.time_ns(), socket.gethostname()
            self._times.add([(name, begin, end, task.partitionId(), task.attemptNumber(), host)])

    def emit_spans(self) -> None:
        """Send one span per task, below the current span; call this in the driver when the tasks are over."""
        above = current()
        if self._times is None or above is None:
            return
        for name, begin, end, number, attempt, host in self._times.value:
            about = {"spark.task": number, "spark.attempt": attempt + 1, "host.name": host}
            place = Place(above.trace, fresh())
            emit(Ended(name=name, place=place, parent=above.span, begin=begin, end=end, attributes=about))
