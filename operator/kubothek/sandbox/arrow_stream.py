"""Rows as bytes of Arrow's stream format, piece by piece: what a worker process sends and its caller reads."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

_BUFFER = 1 << 20


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
