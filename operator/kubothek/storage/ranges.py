"""A seekable file over range requests."""

from __future__ import annotations

import io
from collections.abc import Callable


class RangeReader(io.RawIOBase):
    """Reader of a remote object, piece by piece; wrap it in ``io.BufferedReader``, which reads whole buffers.

    ``fetch(start, stop)`` returns exactly the bytes of that half-open range. ``tail`` is the end of the object, fetched
    when it was opened: Parquet readers start there.
    """

    def __init__(self, size: int, tail: bytes, fetch: Callable[[int, int], bytes]) -> None:
        self._size = size
        self._tail = tail
        self._fetch = fetch
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"seek to {base + offset}, before the object's start")
        self._position = base + offset
        return self._position

    def readall(self) -> bytes:
        # The base class would fetch 8 KiB at a time.
        return self.read(max(0, self._size - self._position)) or b""

    # typeshed's Buffer protocol is wider than what io passes: always writable contiguous bytes.
    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        start = self._position
        stop = min(start + len(buffer), self._size)
        if start >= stop:
            return 0
        tail_start = self._size - len(self._tail)
        in_tail = start >= tail_start
        data = self._tail[start - tail_start : stop - tail_start] if in_tail else self._fetch(start, stop)
        buffer[: len(data)] = data
        self._position = start + len(data)
        return len(data)
