"""Byte streams of text files: decompression, byte ranges cut at line ends, and facts collected during the read."""

from __future__ import annotations

import io
import zipfile
from contextlib import AbstractContextManager, nullcontext
from typing import IO, Any, Final, Protocol, cast

import pyarrow as pa

from kubothek.errors import SourceCorrupt, SourceRefused
from kubothek.ingest.model import UNPACKING, Compression, Unpacking
from kubothek.ingest.readers.decoding import decoding

_PIECE: Final = 1 << 20
_GZIP_MAGIC: Final = b"\x1f\x8b"
_ZIP_MAGIC: Final = b"PK\x03\x04"
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_UTF8_MARK: Final = b"\xef\xbb\xbf"

Bytes = io.RawIOBase | io.BufferedIOBase
"""A file whose reads return the requested number of bytes, except at its end."""


class _Readable(Protocol):
    def read(self, size: int = ..., /) -> bytes | None: ...


class TextStream(io.RawIOBase):
    """A text file's bytes, decompressed and without byte order mark, for pyarrow to read.

    Damage raises SourceCorrupt, naming the file; exceeding ``unpacking`` raises SourceRefused. ``quotes`` and
    ``last_byte`` describe the data read so far.
    """

    def __init__(
        self,
        name: str,
        raw: Bytes,
        compression: Compression,
        quote: bytes = b"",
        unpacking: Unpacking = UNPACKING,
    ) -> None:
        self._name = name
        self._compression = compression
        self._quote = quote
        self._unpacking = unpacking
        self._unpacked = 0
        self._raw = raw
        with self._damage():
            self._source = _decompress(name, raw, compression)
            self._head = self._source.read(len(_UTF8_MARK)) or b""
        self._check_head()
        self._head = self._head.removeprefix(_UTF8_MARK)
        self.quotes = 0
        self.last_byte = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        with self._damage():
            data = self._head + (self._source.read(size - len(self._head) if size >= 0 else -1) or b"")
        self._head = b""
        if self._compression is not Compression.NONE:
            self._unpacked += len(data)
            self._unpacking.check(self._name, self._unpacked, self._raw.tell())
        if self._quote:
            self.quotes += data.count(self._quote)
        self.last_byte = data[-1:] or self.last_byte
        return data

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()

    def _check_head(self) -> None:
        if self._compression is Compression.NONE:
            for magic, name in ((_GZIP_MAGIC, "Gzip"), (_ZIP_MAGIC[:3], "Zip")):
                if self._head.startswith(magic):
                    raise SourceCorrupt(f"{self._name!r} is compressed: set compression to {name}")
        if self._head.startswith(_UTF16):
            raise SourceCorrupt(f"{self._name!r} is UTF-16: save it as UTF-8")

    def _damage(self) -> AbstractContextManager[None]:
        """Return the error translation; an uncompressed file has no damaged bytes, only errors of its store."""
        if self._compression is Compression.NONE:
            return nullcontext()
        return decoding(self._name, f"{self._compression} file", "upload it again or correct compression")


def _decompress(name: str, raw: Bytes, compression: Compression) -> _Readable:
    if compression is Compression.GZIP:
        return pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "gzip")
    if compression is Compression.ZIP:
        return _only_member(name, raw)
    return raw


def _only_member(name: str, raw: Bytes) -> _Readable:
    archive, members = open_zip(name, raw)
    if len(members) != 1:
        found = ", ".join(repr(info.filename) for info in members[:5]) or "nothing"
        raise SourceCorrupt(
            f"{name!r} must hold exactly one file, it has {len(members)} ({found}); pack one file per archive"
        )
    return archive.open(members[0])


class LineRange(io.RawIOBase):
    """The lines of an uncompressed file that begin in the bytes ``[start, stop)``.

    The ranges of a file, concatenated, are the file: each line belongs to the range of its first byte.
    """

    def __init__(self, raw: io.BufferedIOBase, start: int, stop: int) -> None:
        self._raw = raw
        self._position = _line_start(raw, start)
        self._stop = max(self._position, _line_start(raw, stop))
        raw.seek(self._position)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        left = self._stop - self._position
        data = self._raw.read(left if size < 0 else min(size, left))
        self._position += len(data)
        return data

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _line_start(raw: io.BufferedIOBase, position: int) -> int:
    """Return the first byte at or after ``position`` that begins a line, or else the size of the file."""
    if position == 0:
        return 0
    raw.seek(position - 1)
    at = position - 1
    while piece := raw.read(min(_PIECE, 1 << 16)):
        if (found := piece.find(b"\n")) >= 0:
            return at + found + 1
        at += len(piece)
    return at


# Zip archives from untrusted sources.


DIRECTORY_BYTES: Final = 8 << 20
"""Maximum bytes of an archive's directory of names and positions; in memory it takes some twenty times as much."""
_DIRECTORY_SIZE: Final = 5


def open_zip(name: str, file: io.RawIOBase | io.BufferedIOBase) -> tuple[zipfile.ZipFile, list[zipfile.ZipInfo]]:
    """Return the archive and its files, without desktop metadata. Raises SourceRefused, and zipfile's errors."""
    end: Any = zipfile._EndRecData(file)  # type: ignore[attr-defined]  # as zipfile itself does
    if end and end[_DIRECTORY_SIZE] > DIRECTORY_BYTES:
        raise SourceRefused(
            f"{name!r}: the directory of the Zip file has {end[_DIRECTORY_SIZE]} bytes, the limit is "
            f"{DIRECTORY_BYTES}; pack fewer files"
        )
    archive = zipfile.ZipFile(cast("IO[bytes]", file))
    return archive, [info for info in archive.infolist() if _is_file(info)]


def _is_file(info: zipfile.ZipInfo) -> bool:
    name = info.filename
    return not (info.is_dir() or name.startswith("__MACOSX/") or name.rpartition("/")[2].startswith("."))
