"""What a writer of many files holds of each group of rows: the rows in memory, and the file that they are added to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.table.partitioning import Group, copied
from kubothek.table.sorting import SortedRuns

_OPEN_FILE_BYTES: Final = 2 << 20
"""Memory of an open Parquet writer in addition to its data: the last column's dictionary encoder, measured."""
_COLUMN_BYTES: Final = 256
"""Approximate memory of a buffered piece of one column in addition to its data."""


class Part(Protocol):
    """The content of a file that is being encoded."""

    @property
    def size(self) -> int:
        """Encoded bytes so far."""

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Append the rows as one row group."""

    def finish(self) -> tuple[pa.Buffer, pq.FileMetaData]:
        """Return the whole file and its footer."""


@dataclass
class OpenFile:
    """A file that gets row groups, one call of an encoder after the other; ``part`` belongs to the encoder.

    ``is_pending``  whether a row group is being encoded
    ``encoded``     size of the file with the row groups before
    """

    label: str
    rows: int = 0
    is_pending: bool = False
    encoded: int = 0
    is_complete: bool = False
    part: Part | None = None


@dataclass(frozen=True, slots=True)
class Encoded:
    """The result of an encoder's call: the size of the file, and if it is complete, all of it, and its footer."""

    file: OpenFile
    size: int
    complete: tuple[pa.Buffer, pq.FileMetaData] | None


def encode(
    file: OpenFile,
    open_part: Callable[[str, Sequence[pa.RecordBatch]], Part],
    batches: Sequence[pa.RecordBatch],
    target_bytes: int,
    *,
    is_last: bool,
) -> Encoded:
    """Encode a row group, in any thread; complete the file if it has its target size, or gets no more."""
    if file.part is None:
        file.part = open_part(file.label, batches)
    if batches:
        file.part.write(batches)
    size = file.part.size
    return Encoded(file, size, file.part.finish() if is_last or size >= target_bytes else None)


@dataclass
class OpenGroup:
    """The rows of one group in memory. Without an order, the open file holds earlier rows than the buffer.

    Its size changes only with the rows of this group, not when an encoder is done: which rows share a file depends on
    it, and must not depend on time.

    ``size``       bytes of the buffered rows
    ``encoded``    bytes of the open file; of a row group that is being encoded, those of its rows
    ``completed``  number of rows of the last file that reached its target size
    """

    group: Group
    runs: SortedRuns | None
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    file: OpenFile | None = None
    encoded: int = 0
    completed: int = 0

    @property
    def buffered(self) -> int:
        """Bytes of the buffer in memory."""
        return self.size + _COLUMN_BYTES * sum(batch.num_columns for batch in self.batches)

    @property
    def held(self) -> int:
        """Bytes in memory."""
        runs = self.runs.size if self.runs else 0
        return self.buffered + runs + (self.encoded + _OPEN_FILE_BYTES if self.file else 0)

    def buffer(self, batch: pa.RecordBatch, size: int) -> None:
        """Buffer rows of this many bytes unchanged."""
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.size += size

    def unbuffer(self) -> list[pa.RecordBatch]:
        """Return all buffered rows and empty the buffer."""
        batches, self.batches, self.rows, self.size = self.batches, [], 0, 0
        return batches

    def copy(self) -> None:
        """Copy the buffered rows, so that they keep no other memory alive."""
        if self.batches:
            self.batches = [copied(self.batches)]
