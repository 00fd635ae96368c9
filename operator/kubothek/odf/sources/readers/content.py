"""Bytes that can be read more than once: fetched or pushed files, and the output of prepare steps.

A reader may need the beginning again (to infer a schema, to name a wrong cell) or the end first (Parquet, archives).
Nothing is kept in memory, and files have no names to clean up.
"""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final, Self

from kubothek.errors import ObjectNotFound, SourceChanged, SourceNotFound, SourceRefused
from kubothek.storage import ObjectInfo, Store
from kubothek.storage.ranges import RangeReader

_PIECE: Final = 1 << 20


class Content(ABC):
    """The bytes of one file. ``name`` is for messages."""

    name: str

    @abstractmethod
    def open(self) -> io.BufferedIOBase:
        """Open a stream at the start, with its own position."""

    def file(self) -> io.BufferedIOBase:
        """Open a seekable stream."""
        return self.open()

    def is_empty(self) -> bool:
        """Return whether it has no bytes."""
        with self.open() as stream:
            return not stream.read(1)


@dataclass(frozen=True, slots=True)
class FileContent(Content):
    """An open file, which may have no name."""

    name: str
    handle: IO[bytes]

    @classmethod
    def of_path(cls, path: Path, name: str | None = None) -> Self:
        """Open a file of this machine. Raises SourceNotFound."""
        shown = str(path) if name is None else name
        try:
            if not path.is_file():
                raise SourceNotFound(f"{shown!r}: there is no such file; correct the path")
            return cls(shown, path.open("rb"))
        except OSError as error:
            raise SourceNotFound(
                f"{shown!r} cannot be read: {error.strerror}; correct the path or its permissions"
            ) from None

    @classmethod
    def of_bytes(cls, data: bytes, name: str) -> Self:
        """Copy bytes in memory to disk."""
        return cls.filled(name, io.BytesIO(data), len(data))

    @classmethod
    def filled(cls, name: str, source: io.RawIOBase | io.BufferedIOBase | IO[bytes], limit: int) -> Self:
        """Copy a stream to disk. Raises SourceRefused beyond ``limit`` bytes."""
        copy = TemporaryFile()  # noqa: SIM115 - the content owns it
        size = 0
        while piece := source.read(_PIECE):
            size += len(piece)
            if size > limit:
                copy.close()
                raise too_large(name, limit)
            copy.write(piece)
        copy.flush()
        return cls(name, copy)

    def open(self) -> io.BufferedIOBase:
        descriptor = self.handle.fileno()
        size = os.fstat(descriptor).st_size
        return io.BufferedReader(
            RangeReader(size, b"", lambda start, stop: os.pread(descriptor, stop - start, start)), _PIECE
        )


@dataclass(frozen=True, slots=True)
class ObjectContent(Content):
    """An object of a store, read by ranges; ``info`` is its state when it was selected."""

    name: str
    store: Store
    info: ObjectInfo

    @classmethod
    def of(cls, name: str, store: Store, key: str) -> Self:
        """Return the current object. Raises SourceNotFound, StoreError."""
        try:
            return cls(name, store, store.stat(key))
        except ObjectNotFound:
            raise SourceNotFound(f"there is no {name!r}; correct the URL") from None

    def open(self) -> io.BufferedIOBase:
        """Open the object. Raises SourceChanged if it was replaced since it was selected."""
        try:
            if self.store.stat(self.info.key).etag == self.info.etag:
                return self.store.open(self.info.key)
        except ObjectNotFound:
            pass
        raise SourceChanged(f"{self.name!r} was replaced while it was being read; let its writer finish and try again")


class DerivedContent(Content):
    """Output of a function over other content, computed at each open; copied to disk at the first :meth:`file`."""

    def __init__(self, name: str, make: Callable[[], io.RawIOBase | io.BufferedIOBase], limit: int) -> None:
        self.name = name
        self._make = make
        self._limit = limit
        self._copy: FileContent | None = None

    def open(self) -> io.BufferedIOBase:
        if self._copy is not None:
            return self._copy.open()
        return io.BufferedReader(_Limited(self.name, self._make(), self._limit), _PIECE)

    def file(self) -> io.BufferedIOBase:
        if self._copy is None:
            with self._make() as stream:
                self._copy = FileContent.filled(self.name, stream, self._limit)
        return self._copy.open()


class _Limited(io.RawIOBase):
    """A stream with a size limit: a small archive can unpack to a large file."""

    def __init__(self, name: str, source: io.RawIOBase | io.BufferedIOBase, limit: int) -> None:
        self._name = name
        self._source = source
        self._limit = limit
        self._done = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._source.read(len(buffer)) or b""
        self._done += len(data)
        if self._done > self._limit:
            raise too_large(self._name, self._limit)
        buffer[: len(data)] = data
        return len(data)

    def tell(self) -> int:
        """Return the number of bytes read."""
        return self._done

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()


def too_large(name: str, limit: int) -> SourceRefused:
    """Return the error for a file beyond the limit."""
    return SourceRefused(f"{name!r} is larger than {limit} bytes, the limit of a source's file")
