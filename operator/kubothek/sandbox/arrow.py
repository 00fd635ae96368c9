"""Arrow in a worker process: its threads, and rows as bytes of its stream format, which the caller reads.

Arrow starts a thread with the first task for it. If the worker's memory is used up then, no thread can be started: the
task stays in the queue, and the reader waits for it until the worker's deadline. So a waiting worker starts all threads
before it has a limit.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import suppress
from threading import Barrier, BrokenBarrierError
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset

from kubothek.sandbox import limited

_BUFFER: Final = 1 << 20
_PATIENCE: Final = 10.0
"""Seconds until a thread goes on without the others."""


def start_threads() -> None:
    """Start the threads of Arrow's two pools: one for reads of files, one for computation."""
    data = io.BytesIO()
    with pa.ipc.new_file(data, _SCHEMA) as writer:
        writer.write_table(_SCHEMA.empty_table())
    count = pa.io_thread_count()
    barrier = Barrier(count)
    # Each read waits until all threads read. The decoding of all files begins at once, on the other pool.
    files: list[Any] = [pa.PythonFile(_Waiting(data.getvalue(), barrier), "r") for _ in range(count)]
    fragments = [_FORMAT.make_fragment(each) for each in files]
    pa.dataset.FileSystemDataset(fragments, _SCHEMA, _FORMAT).to_table(fragment_readahead=count)


class _Waiting(io.BytesIO):
    """A file whose first read waits at a barrier."""

    def __init__(self, data: bytes, barrier: Barrier) -> None:
        super().__init__(data)
        self._barrier: Barrier | None = barrier

    def read(self, size: int | None = -1, /) -> bytes:
        barrier, self._barrier = self._barrier, None
        if barrier is not None:
            with suppress(BrokenBarrierError):
                barrier.wait(_PATIENCE)
        return super().read(size)


_SCHEMA: Final = pa.schema({"number": pa.int64()})
_FORMAT: Final = pa.dataset.IpcFileFormat()
limited.preload(__name__, warm=start_threads.__name__)


def as_arrow(rows: pa.RecordBatchReader) -> Iterator[bytes]:
    """Yield the stream format of Arrow, batch by batch."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        yield _emptied(sink)
        for batch in rows:
            writer.write_batch(batch)
            yield _emptied(sink)
    yield _emptied(sink)


def from_arrow(pieces: Iterator[bytes]) -> pa.RecordBatchReader:
    """Return the rows of :func:`as_arrow`, however its bytes are cut. Raises the errors of ``pieces``, also later."""
    return pa.ipc.open_stream(io.BufferedReader(_Stream(pieces), _BUFFER))


def _emptied(sink: io.BytesIO) -> bytes:
    data = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return data


class _Stream(io.RawIOBase):
    """Pieces as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            self._left = memoryview(next(self._pieces, b""))
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count
