"""Streams of bytes that pass through a function, block by block."""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Iterator

from kubothek.errors import FormatInvalid, SourceCorrupt

BLOCK_BYTES = 1 << 20


class Filtered(io.RawIOBase):
    """The bytes that an iterator gives, as a file to read; closing it closes ``source``."""

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
        """Bytes that were read."""
        return self._done

    def close(self) -> None:
        if not self.closed:
            self._held = memoryview(b"")
            self._source.close()
        super().close()


Open = Callable[[], io.BufferedIOBase]


def filtered(open_source: Open, transform: Callable[[Iterator[bytes]], Iterator[bytes]]) -> Open:
    """Opens the source anew each time, through the transformation."""

    def opened() -> io.BufferedIOBase:
        source = open_source()
        return io.BufferedReader(Filtered(source, transform(blocks_of(source))), BLOCK_BYTES)

    return opened


def blocks_of(source: io.BufferedIOBase) -> Iterator[bytes]:
    """All bytes, some at a time."""
    while block := source.read(BLOCK_BYTES):
        yield block


def as_utf8(name: str, encoding: str | None, open_source: Open) -> Open:
    """The text in UTF-8. Raises FormatInvalid for an encoding that nobody knows; SourceCorrupt while reading."""
    try:
        found = codecs.lookup(encoding or "utf8")
        "".encode(found.name)
    except LookupError:
        raise FormatInvalid(
            f"{encoding!r} is no encoding of text; write utf8, latin1, windows-1252, utf-16 …"
        ) from None
    if found.name in ("utf-8", "ascii"):
        return open_source  # the parsers of UTF-8 say where it is wrong

    def transcoded(blocks: Iterator[bytes]) -> Iterator[bytes]:
        decoder = found.incrementaldecoder("strict")
        try:
            for block in blocks:
                yield decoder.decode(block).encode()
            yield decoder.decode(b"", True).encode()
        except UnicodeError as error:
            raise SourceCorrupt(f"{name!r} is not {encoding}: {error}; correct read.encoding") from None

    return filtered(open_source, transcoded)
