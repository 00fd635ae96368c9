"""Where checkpoints are read: a file of this machine, or an object of a store, of which parts are fetched."""

from __future__ import annotations

import io
import mmap
from pathlib import Path
from typing import Protocol

from kubothek.errors import FormatInvalid


class Bytes(Protocol):
    """What is read here and there: ``size`` bytes."""

    size: int

    def read(self, at: int, length: int) -> memoryview:
        """Some of them. Raises what the place raises where they are."""


class Mapped:
    """A file of this machine. Raises FormatInvalid for an empty one."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            try:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError as error:
                raise FormatInvalid(f"the checkpoint is empty: {error}") from None
        self._view = memoryview(self._map)
        self.size = len(self._view)

    def read(self, at: int, length: int) -> memoryview:
        """Without a copy."""
        return self._view[at : at + length]


class Opened:
    """A seekable stream, as of an object of a store, of which no more is fetched than is read."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self._stream = stream
        self.size = stream.seek(0, io.SEEK_END)

    def read(self, at: int, length: int) -> memoryview:
        """As the stream has them."""
        self._stream.seek(at)
        return memoryview(self._stream.read(length))
