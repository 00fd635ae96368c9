"""Sources of checkpoints: a local file, or an object of a store, of which parts are fetched."""

from __future__ import annotations

import io
import mmap
from pathlib import Path
from typing import Protocol

from kubothek.errors import FormatInvalid


class Bytes(Protocol):
    """Bytes with random access; ``size`` is their number."""

    size: int

    def read(self, at: int, length: int) -> memoryview:
        """Read some of them. Raises the errors of the source."""


class Mapped:
    """A local file, mapped into memory. Raises FormatInvalid for an empty one."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            try:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError as error:
                raise FormatInvalid(f"the checkpoint is empty: {error}") from None
        self._view = memoryview(self._map)
        self.size = len(self._view)

    def read(self, at: int, length: int) -> memoryview:
        """Read bytes without a copy."""
        return self._view[at : at + length]


class Opened:
    """A seekable stream, such as an object of a store; only the bytes that are read are fetched."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self._stream = stream
        self.size = stream.seek(0, io.SEEK_END)

    def read(self, at: int, length: int) -> memoryview:
        """Read bytes from the stream."""
        self._stream.seek(at)
        return memoryview(self._stream.read(length))
