r"""Conversion of escapes in quoted CSV values to doubled quotes, which Arrow reads (RD-01: ``escape``).

The specification's escape precedes quotes and itself, in quoted values only. Arrow's precedes any byte, also outside of
quotes: ``C:\temp`` would lose its backslash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kubothek.odf.sources.readers.filters import Open, blocks_of, filtered

_LINE_ENDS: Final = b"\r\n"


def without_escapes(open_source: Open, quote: bytes, escape: bytes, separator: bytes) -> Open:
    """Return the same CSV with two quotes for each escaped quote, and one escape for each escaped escape.

    Until the first escape, blocks pass through without a scan of their quotes.
    """

    def transform(blocks: Iterator[bytes]) -> Iterator[bytes]:
        scanner: _Scanner | None = None
        done, last = 0, b""
        for block in blocks:
            if scanner is None and _may_escape(last + block, quote, escape):
                scanner = _Scanner(quote, escape, separator)
                _catch_up(scanner, open_source, done - len(last))
                waiting = len(scanner.held)  # already emitted
                yield scanner.feed(last + block)[waiting:]
            elif scanner is None:
                # hold back a trailing escape until the byte after it is known
                whole = last + block
                last = whole[-1:] if whole.endswith(escape) else b""
                done += len(block)
                yield whole[: len(whole) - len(last)]
            else:
                yield scanner.feed(block)
        yield last if scanner is None else scanner.finish()

    return filtered(open_source, transform)


def _may_escape(data: bytes, quote: bytes, escape: bytes) -> bool:
    return escape + quote in data or escape * 2 in data


def _catch_up(scanner: _Scanner, open_source: Open, size: int) -> None:
    """Feed the scanner the first ``size`` bytes, which were already emitted unchanged."""
    with open_source() as source:
        for block in blocks_of(source):
            if size <= 0:
                return
            scanner.feed(block[:size])
            size -= len(block)


class _Scanner:
    """Scanner of quoted values: a quote opens a value only at the start of a field."""

    def __init__(self, quote: bytes, escape: bytes, separator: bytes) -> None:
        self._quote, self._escape = quote, escape
        self._starts = separator + _LINE_ENDS
        q, e = re.escape(quote), re.escape(escape)
        self._opening = re.compile(b"(?<=[" + re.escape(self._starts) + b"])" + q)
        self._body = re.compile(b"(?:[^" + q + e + b"]++|" + e + b".|" + q + q + b")*+", re.DOTALL)
        self._escaped = re.compile(e + b"([" + q + e + b"])", re.DOTALL)
        self._inside = False
        self.held = b""
        self._before = _LINE_ENDS[-1:]

    def feed(self, block: bytes) -> bytes:
        """Return the converted bytes; the last few are held back until the next block."""
        data, self.held = self.held + block, b""
        pieces: list[bytes] = []
        at = 0
        while at < len(data):
            at = self._value(data, at, pieces) if self._inside else self._between(data, at, pieces)
        if data and len(self.held) < len(data):
            self._before = data[len(data) - len(self.held) - 1 :][:1]
        return b"".join(pieces)

    def finish(self) -> bytes:
        """Return the bytes still held back."""
        return self.held

    def _between(self, data: bytes, at: int, pieces: list[bytes]) -> int:
        """Consume up to and including the quote that opens the next value."""
        begins = at == 0 and self._before in self._starts and data.startswith(self._quote)
        match = None if begins else self._opening.search(data, at)
        end = 1 if begins else match.end() if match else len(data)
        self._inside = begins or match is not None
        pieces.append(data[at:end])
        return end

    def _value(self, data: bytes, at: int, pieces: list[bytes]) -> int:
        """Consume up to and including the quote that closes this value."""
        body = self._body.match(data, at)
        end = body.end() if body else at
        pieces.append(self._escaped.sub(self._replaced, data[at:end]))
        if end >= len(data) - 1:  # the last byte may be half of two quotes, or an escape of what follows
            self.held = data[end:]
            return len(data)
        self._inside = False
        pieces.append(self._quote)
        return end + 1

    def _replaced(self, match: re.Match[bytes]) -> bytes:
        return self._quote * 2 if match[1] == self._quote else self._escape
