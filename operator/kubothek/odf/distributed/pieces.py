"""The units of reading: whole files of a store, or parts of large files that can be cut.

Text is cut at line ends if the read step alone decides its columns, Parquet at its row groups. A CSV file may be cut
inside of a quoted value. This shows when the part is read: its quotes do not come in pairs.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import pyarrow as pa

from kubothek.errors import SourceCorrupt
from kubothek.ingest.model import Compression
from kubothek.ingest.readers.parquet_files import open_parquet, row_group_bytes
from kubothek.ingest.readers.streams import LineRange, TextStream
from kubothek.odf.sources.readers import Content, read
from kubothek.odf.sources.readers.content import DerivedContent, ObjectContent
from kubothek.odf.sources.readers.delimited import header_of
from kubothek.odf.spec.sources import ReadStep, ReadStepCsv, ReadStepNdJson, ReadStepParquet
from kubothek.storage import ObjectInfo, StoreConfig, open_store

PIECE_BYTES: Final = 64 << 20
"""Stored bytes of a piece, if files can be cut accordingly."""
_UNPACKED: Final = 64 << 30
"""The most bytes that a compressed file may unpack to."""
_MARK: Final = codecs.BOM_UTF8


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a store, as it was when it was chosen; plain data."""

    name: str
    store: StoreConfig
    info: ObjectInfo
    compression: Compression = Compression.NONE

    def content(self) -> Content:
        """Return the unpacked content."""
        return unpacked(ObjectContent(self.name, open_store(self.store), self.info), self.compression)


def unpacked(content: Content, compression: Compression) -> Content:
    """Return the unpacked content of a compressed file."""
    if compression is Compression.NONE:
        return content
    return DerivedContent(content.name, lambda: TextStream(content.name, content.file(), compression), _UNPACKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A file, or a part of it.

    ``lines``       those that begin in this half-open range of bytes; None: all
    ``header``      the bytes that precede the lines when a part of a CSV file is read
    ``row_groups``  of a Parquet file; None: all
    """

    file: StoredFile
    size: int
    lines: tuple[int, int] | None = None
    header: bytes = b""
    row_groups: tuple[int, ...] | None = None

    def rows(self, step: ReadStep) -> pa.RecordBatchReader | None:
        """Return the rows as the read step gives them; None if there are none at all.

        Raises what reading a file raises, and so does the stream. In a part, row numbers are not those of the file, and
        SourceCorrupt also means that it was cut inside of a value.
        """
        if self.lines is None:
            return read(step, self.file.content(), row_groups=self.row_groups)
        lines = _Lines(self.file, self.header, self.lines, _signs(step))
        rows = read(step, lines)
        return rows and pa.RecordBatchReader.from_batches(rows.schema, lines.checked(rows))


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive parts."""

    parts: tuple[Part, ...]

    @property
    def cut(self) -> bool:
        """Whether a part may have been cut inside of a value, or does not know the numbers of its rows in the file."""
        return any(part.lines is not None for part in self.parts)

    @property
    def files(self) -> frozenset[str]:
        """The names of the files."""
        return frozenset(part.file.name for part in self.parts)


def plan_pieces(
    step: ReadStep, files: Sequence[StoredFile], *, size: int = PIECE_BYTES, whole: frozenset[str] = frozenset()
) -> tuple[Piece, ...]:
    """Divide the files, in their order, into pieces of about ``size`` stored bytes.

    ``whole``  names of files that must not be cut. Raises SourceCorrupt, SourceChanged.
    """
    pieces: list[list[Part]] = []
    held = 0
    for file in files:
        for part in [Part(file=file, size=file.info.size)] if file.name in whole else _parts(step, file, size):
            if not pieces or held + part.size > size:
                pieces.append([])
                held = 0
            pieces[-1].append(part)
            held += part.size
    return tuple(Piece(tuple(parts)) for parts in pieces)


def _parts(step: ReadStep, file: StoredFile, size: int) -> list[Part]:
    all_of_it = Part(file=file, size=file.info.size)
    if file.info.size <= size or file.compression is not Compression.NONE:
        return [all_of_it]
    if isinstance(step, ReadStepParquet):
        with open_parquet(file.name, file.content().file()) as parquet:
            sizes = row_group_bytes(parquet)
        total = max(1, sum(sizes))
        return [
            replace(all_of_it, size=file.info.size * each // total, row_groups=(group,))
            for group, each in enumerate(sizes)
        ]
    if not _is_lines(step) or _starts(file) == _MARK:
        return [all_of_it]
    count = -(-file.info.size // size)
    cuts = [file.info.size * number // count for number in range(count + 1)]
    header = header_of(step, file.content()) if isinstance(step, ReadStepCsv) and step.header else b""
    return [
        replace(all_of_it, size=stop - start, lines=(start, stop), header=header if start else b"")
        for start, stop in pairwise(cuts)
    ]


def _is_lines(step: ReadStep) -> bool:
    """Return whether lines of a file are read in the same way in any part of it."""
    if not isinstance(step, ReadStepCsv | ReadStepNdJson):
        return False
    try:
        as_it_is = codecs.lookup(step.encoding or "utf8").name in ("utf-8", "ascii")
    except LookupError:
        return False  # reading reports the unknown encoding
    declared = step.schema is not None or step.ddl_schema is not None
    return as_it_is and (declared or (isinstance(step, ReadStepCsv) and not step.infer_schema))


def _starts(file: StoredFile) -> bytes:
    with file.content().open() as stream:
        return stream.read(len(_MARK))


def _signs(step: ReadStep) -> tuple[bytes, bytes]:
    """Return the quote and the escape of a CSV file; empty for other formats."""
    if not isinstance(step, ReadStepCsv):
        return b"", b""
    quote = '"' if step.quote is None else step.quote
    escape = "\\" if step.escape is None else step.escape
    return quote.encode(), b"" if escape == quote else escape.encode()


class _Lines(Content):
    """Some lines of a file, after its header.

    It checks that quotes come in pairs and that none is escaped: whether such a quote counts depends on its position.
    """

    def __init__(self, file: StoredFile, header: bytes, lines: tuple[int, int], signs: tuple[bytes, bytes]) -> None:
        self.name = file.name
        self._content = file.content()
        self._header = header
        self._lines = lines
        self._signs = signs
        self._watched: _Watched | None = None

    def open(self) -> io.BufferedIOBase:
        self._watched = _Watched(self._header, LineRange(self._content.open(), *self._lines), self._signs)
        return io.BufferedReader(self._watched, 1 << 20)

    def is_empty(self) -> bool:
        """Return whether there are no lines."""
        with LineRange(self._content.open(), *self._lines) as lines:
            return not lines.read(1)

    def checked(self, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """Yield the same rows. Raises SourceCorrupt after the last if this part may have been cut inside of a value."""
        yield from rows
        if self._watched is not None and self._watched.doubtful:
            raise SourceCorrupt(f"{self.name!r} was cut inside of a quoted value, or a quote is never closed")


class _Watched(io.RawIOBase):
    def __init__(self, header: bytes, lines: LineRange, signs: tuple[bytes, bytes]) -> None:
        self._header = io.BytesIO(header)
        self._lines = lines
        self._quote, escape = signs
        self._escaped = escape + self._quote if escape and self._quote else b""
        self._quotes = 0
        self._last = b""
        self._doubtful = False

    @property
    def doubtful(self) -> bool:
        """Whether what was read so far may have been cut inside of a value."""
        return self._doubtful or self._quotes % 2 == 1

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._header.read(len(buffer)) or self._lines.read(len(buffer))
        if self._quote:
            self._quotes += data.count(self._quote)
            self._doubtful |= bool(self._escaped) and self._escaped in self._last + data
            self._last = data[-1:]
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._lines.close()
        super().close()
