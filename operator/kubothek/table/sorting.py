"""Sort more rows than fit in memory: sorted runs, compressed in memory or on disk, and their merge.

The order is Arrow's and Parquet's: ascending, text by its bytes, NaN after all numbers and nulls last.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc

_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="zstd")
_Key = tuple[tuple[int, Any], ...]


class SortedRuns:
    """Rows that come in any order and leave sorted, a block at a time.

    ``by``           columns to sort by, the first one first
    ``block_bytes``  bytes of each run that are uncompressed in memory during the merge
    ``disk``         an empty file for compressed blocks; None: they stay in memory
    """

    def __init__(self, by: Sequence[str], block_bytes: int, disk: BinaryIO | None = None) -> None:
        self.rows = 0
        self._by = tuple(by)
        self._block_bytes = block_bytes
        self._disk = disk
        self._runs: list[_Run] = []

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return sum(run.size for run in self._runs)

    def add(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Add rows as one more run: at least one row, and no more than can be sorted at once."""
        rows = self._sorted(pa.Table.from_batches(batches))
        block_rows = max(1, rows.num_rows * self._block_bytes // max(1, rows.nbytes))
        self._runs.append(_Run(rows, block_rows, self._disk))
        self.rows += rows.num_rows

    def pop(self) -> pa.Table:
        """Return the next rows, at least a block of some run; there must be rows left.

        These are all rows up to the smallest last row of the runs' blocks: compressed rows sort after it. Python code
        reads only a few rows of each block.
        """
        for run in self._runs:
            run.load()
        limit = min(self._key(run.head, run.head.num_rows - 1) for run in self._runs)
        parts = [run.take(self._up_to(limit, run.head)) for run in self._runs]
        self._runs = [run for run in self._runs if run.has_rows]
        popped = parts[0] if len(parts) == 1 else self._sorted(pa.concat_tables(parts))
        self.rows -= popped.num_rows
        return popped

    def _up_to(self, limit: _Key, rows: pa.Table) -> int:
        return bisect_right(range(rows.num_rows), limit, key=lambda row: self._key(rows, row))

    def _key(self, rows: pa.Table, row: int) -> _Key:
        return tuple(_comparable(rows.column(name)[row]) for name in self._by)

    def _sorted(self, rows: pa.Table) -> pa.Table:
        return rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in self._by]))


class _Run:
    """Sorted rows: the first ones as a table, the others in compressed blocks. A single block stays uncompressed."""

    def __init__(self, rows: pa.Table, block_rows: int, disk: BinaryIO | None) -> None:
        alone = rows.num_rows <= block_rows
        self.head = rows if alone else rows.schema.empty_table()
        starts = () if alone else range(0, rows.num_rows, block_rows)
        blocks = (_compressed(rows.slice(start, block_rows)) for start in starts)
        self._blocks = deque(block if disk is None else _OnDisk.write(disk, block) for block in blocks)

    @property
    def size(self) -> int:
        """Bytes in memory; 0 without rows."""
        held = sum(block.size for block in self._blocks if isinstance(block, pa.Buffer))
        return (self.head.nbytes or 1) * bool(self.head.num_rows) + held

    @property
    def has_rows(self) -> bool:
        """Whether there are any left."""
        return bool(self.head.num_rows or self._blocks)

    def load(self) -> None:
        """Load rows into ``head`` if there are any."""
        if not self.head.num_rows and self._blocks:
            block = self._blocks.popleft()
            self.head = pa.ipc.open_stream(block.read() if isinstance(block, _OnDisk) else block).read_all()

    def take(self, count: int) -> pa.Table:
        """Return the first rows of ``head`` and remove them from it."""
        chunk, self.head = self.head.slice(0, count), self.head.slice(count)
        return chunk


@dataclass(frozen=True, slots=True)
class _OnDisk:
    """A compressed block in an append-only file."""

    disk: BinaryIO
    start: int
    length: int

    @classmethod
    def write(cls, disk: BinaryIO, block: pa.Buffer) -> _OnDisk:
        start = disk.tell()
        disk.write(block)
        disk.flush()
        return cls(disk, start, block.size)

    def read(self) -> bytes:
        return os.pread(self.disk.fileno(), self.length, self.start)


def _compressed(rows: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as stream:
        stream.write_table(rows)
    return sink.getvalue()


def _comparable(value: pa.Scalar[Any]) -> tuple[int, Any]:
    """Return a key that Python orders as Arrow orders the value; times are numbers: Python's end with the year 9999."""
    if not value.is_valid:
        return 2, 0
    found = value.value if pa.types.is_temporal(value.type) else value.as_py()  # type: ignore[attr-defined]
    return (0, found) if found == found else (1, 0)
