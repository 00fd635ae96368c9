"""Byte streams transformed block by block."""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Iterator

from kubothek.errors import FormatInvalid, SourceCorrupt

BLOCK_BYTES = 1 << 20


class Filtered(io.RawIOBase):
    """The bytes of an iterator as a readable file; closing it closes ``source``."""

    def __init__(self, source: io.IOBase, blocks: Iterator[bytes]) -> None:
        self._source = source
        self._blocks = blocks
        self._held = memoryview(b"")
        self._done = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._held:
            if (block := next(self._blocks, None)) is None:
                return 0
            self._held = memoryview(block)
        size = min(len(buffer), len(self._held))
        buffer[:size] = self._held[:size]
        self._held = self._held[size:]
        self._done += size
        return size

    def tell(self) -> int:
        """Return the number of bytes read."""
        return self._done

    def close(self) -> None:
        if not self.closed:
            self._held = memoryview(b"")
            self._source.close()
        super().close()


Open = Callable[[], io.BufferedIOBase]


def filtered(open_source: Open, transform: Callable[[Iterator[bytes]], Iterator[bytes]]) -> Open:
    """Return a function that opens the source through the transformation, from the start each time."""

    def opened() -> io.BufferedIOBase:
        source = open_source()
        return io.BufferedReader(Filtered(source, transform(blocks_of(source))), BLOCK_BYTES)

    return opened


def blocks_of(source: io.BufferedIOBase) -> Iterator[bytes]:
    """Return all bytes in blocks."""
    while block := source.read(BLOCK_BYTES):
        yield block


def as_utf8(name: str, encoding: str | None, open_source: Open) -> Open:
    """Return the text in UTF-8. Raises FormatInvalid for an unknown encoding; the stream raises SourceCorrupt."""
    try:
        found = codecs.lookup(encoding or "utf8")
        "".encode(found.name)
    except LookupError:
        raise FormatInvalid(
            f"{encoding!r} is no encoding of text; write utf8, latin1, windows-1252, utf-16 …"
        ) from None
    if found.name in ("utf-8", "ascii"):
        return open_source  # the parsers report where UTF-8 is invalid

    def transcoded(blocks: Iterator[bytes]) -> Iterator[bytes]:
        decoder = found.incrementaldecoder("strict")
        try:
            for block in blocks:
                yield decoder.decode(block).encode()
            yield decoder.decode(b"", True).encode()
        except UnicodeError as error:
            raise SourceCorrupt(f"{name!r} is not {encoding}: {error}; correct read.encoding") from None

    return filtered(open_source, transcoded)
