"""The limit on the nesting of JSON, checked before a parser gets the bytes.

JSON parsers recurse: at some ten thousand levels Arrow's overflows the stack, and the process dies.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt

from kubothek.errors import SourceCorrupt

DEEPEST: Final = 64
"""Maximum levels of objects and arrays in a JSON value; the object of a row is the first."""
_PIECE: Final = 4 << 20
_OTHERS: Final = bytes(each for each in range(256) if each not in b'"[]{}')
_SPACE: Final = 0x20
_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C
_BACKSLASHES: Final = re.compile(rb"\\*+")
_STEPS: Final[npt.NDArray[np.int8]] = np.zeros(256, np.int8)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1


def require_shallow(name: str, data: bytes, first_row: int = 1) -> None:
    """Raise SourceCorrupt, naming the row from ``first_row`` on, if JSON lines are nested deeper than ``DEEPEST``."""
    if _depth(data) <= DEEPEST:
        return
    lines = (line for line in data.split(b"\n") if line.strip())
    row = next((number for number, line in enumerate(lines, first_row) if _depth(line) > DEEPEST), first_row)
    raise SourceCorrupt(
        f"{name!r}, row {row}: JSON is nested deeper than {DEEPEST} levels; flatten the value, or write it as text"
    )


def _depth(data: bytes) -> int:
    """Return the deepest nesting; for text that is not JSON, at least that of the prefix that a parser accepts."""
    deepest = depth = quotes = start = 0
    while start < len(data):
        stop = start + _PIECE
        if stop < len(data) and data[stop - 1] == _BACKSLASH:  # keep an escape in one piece
            stop = _BACKSLASHES.match(data, stop).end() + 1  # type: ignore[union-attr]
        piece = data if start == 0 and stop >= len(data) else data[start:stop]
        marks = np.frombuffer(_without_escapes(piece).translate(None, _OTHERS), np.uint8)
        brackets = np.flatnonzero(marks != _QUOTE)
        before = brackets - np.arange(len(brackets)) + quotes  # the number of quotes before each bracket
        depths = np.cumsum(_STEPS[marks[brackets[before & 1 == 0]]], dtype=np.int64) + depth
        if len(depths):
            deepest, depth = max(deepest, int(depths.max())), int(depths[-1])
        quotes += len(marks) - len(brackets)
        start = stop
    return deepest


def _without_escapes(piece: bytes) -> bytes | bytearray:
    """Return the piece with a space for each character after an odd number of backslashes."""
    slashes = np.flatnonzero(np.frombuffer(piece, np.uint8) == _BACKSLASH)
    if not len(slashes):
        return piece
    gaps = np.diff(slashes) > 1
    first, last = slashes[np.append(True, gaps)], slashes[np.append(gaps, True)]
    escaped = last[(last - first) % 2 == 0] + 1
    blanked = bytearray(piece)
    np.frombuffer(blanked, np.uint8)[escaped[escaped < len(piece)]] = _SPACE
    return blanked
