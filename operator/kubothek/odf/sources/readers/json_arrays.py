"""A JSON document with an array of objects, as lines with one object each (RD-03).

Commas between elements become line ends, line ends inside of elements become spaces, and bytes outside of the array are
dropped. All of it is vectorised over blocks, in bounded memory whatever the size of the array.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import orjson

from kubothek.errors import SchemaMismatch, SourceCorrupt

_TOKEN: Final = re.compile(rb'\s*+("(?:[^"\\]++|\\.)*+"|[{}\[\]:,]|[^\s{}\[\]:,"]++)', re.DOTALL)
_MARK: Final = b"\xef\xbb\xbf"
_NOTHING, _QUOTE, _OPENING, _CLOSING, _COMMA, _LINE_END = range(6)
_KINDS: Final[npt.NDArray[np.uint8]] = np.zeros(256, np.uint8)
for _signs, _kind in ((b'"', _QUOTE), (b"{[", _OPENING), (b"}]", _CLOSING), (b",", _COMMA), (b"\r\n", _LINE_END)):
    _KINDS[list(_signs)] = _kind
_SPACES: Final = b" \t\r\n"
_LONGEST: Final = 64 << 20
"""Largest size in bytes of one string or number before the array."""


def array_lines(name: str, path: str | None) -> Callable[[Iterator[bytes]], Iterator[bytes]]:
    """Return a transformation of the document's bytes. ``path`` as ``a.b.c``; None: the document is the array.

    It raises SchemaMismatch if there is no array at ``path``, SourceCorrupt if the array is truncated.
    """

    def transform(blocks: Iterator[bytes]) -> Iterator[bytes]:
        rest = _seek(name, tuple(path.split(".")) if path else (), blocks)
        elements = _Elements(name)
        yield elements.feed(rest)
        for block in blocks:
            if elements.ended:
                break
            yield elements.feed(block)
        yield elements.finish()
        if path is None:
            _require_end(name, elements.after, blocks)

    return transform


def _require_end(name: str, after: bytes, blocks: Iterator[bytes]) -> None:
    while True:
        if extra := after.strip(_SPACES):
            raise SourceCorrupt(f"{name!r} continues after its array: {extra[:40]!r}; for an object a line use NdJson")
        if (block := next(blocks, None)) is None:
            return
        after = block


def _seek(name: str, path: tuple[str, ...], blocks: Iterator[bytes]) -> bytes:
    """Consume up to the bracket that opens the array. Returns the bytes after it that were already read."""
    where = ".".join(path)
    matched, depth, level = 0, 0, 1 if path else 0
    wanted = not path  # whether the next value is that of a path element
    key: bytes | None = None
    first = True
    for token, rest in _tokens(name, blocks):
        if first and path and token != b"{":
            raise SchemaMismatch(f"{name!r} begins with {_shown(token)}, not with an object that has {where!r}")
        first = False
        if wanted:
            if matched == len(path):
                if token != b"[":
                    what = f"at {where!r} there is" if path else "it begins with"
                    raise SchemaMismatch(
                        f"{name!r} has no array to read: {what} {_shown(token)}; correct read.subPath, or use NdJson"
                    )
                return rest()
            if token != b"{":
                raise SchemaMismatch(f"{name!r}: {'.'.join(path[:matched])!r} is no object; correct read.subPath")
            wanted, level = False, depth + 1
        if token in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
            if depth < level:
                raise SchemaMismatch(f"{name!r} has no {where!r}; correct read.subPath")
        elif token == b":" and depth == level and key is not None and _text(key) == path[matched]:
            matched, wanted = matched + 1, True
        key = token if token.startswith(b'"') else None
    raise SourceCorrupt(f"{name!r} ends before its array {where!r} begins: it is cut off".replace(" ''", ""))


def _tokens(name: str, blocks: Iterator[bytes]) -> Iterator[tuple[bytes, Callable[[], bytes]]]:
    """Yield the tokens of a document, each with a function that returns the bytes after it that were already read."""
    data, at = b"", 0
    more, first = True, True
    while more:
        block = next(blocks, None)
        more = block is not None
        data, at = data[at:] + (block or b""), 0
        if first and (data not in (_MARK[:1], _MARK[:2]) or not more):
            data, first = data.removeprefix(_MARK), False
        elif first:
            continue
        if len(data) > _LONGEST + len(block or b""):
            raise SourceCorrupt(f"{name!r} has a text of more than {_LONGEST >> 20} MiB; is a quote never closed?")
        while match := _TOKEN.match(data, at):
            if match.end() == len(data) and more and match[1] not in (b"{", b"[", b"}", b"]", b":", b","):
                break  # the token may continue in the next block
            at = match.end()
            here, bound = data, at
            yield match[1], lambda here=here, bound=bound: here[bound:]  # type: ignore[misc]
    if data[at:].strip(_SPACES):
        raise SourceCorrupt(f"{name!r} is no JSON at {data[at : at + 40]!r}")


def _text(token: bytes) -> str:
    try:
        return str(orjson.loads(token))
    except orjson.JSONDecodeError:
        return ""


def _shown(token: bytes) -> str:
    return repr(token[:40].decode(errors="replace"))


class _Elements:
    """State inside the array: whether in a string, and the depth of nesting."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._inside = 0  # 1 inside a string
        self._escapes = 0  # number of backslashes at the end of the last block, modulo 2
        self._depth = 0
        self._elements = 0
        self._commas = 0
        self.ended = False
        self.after = b""

    def feed(self, block: bytes) -> bytes:
        """Return the lines of a block; bytes after the array go to ``after``."""
        if not block:
            return b""
        data = np.frombuffer(block, np.uint8)
        kinds = _KINDS[data]
        places = np.flatnonzero(kinds)
        kind = kinds[places]
        quotes = (kind == _QUOTE) & ~self._escaped(block, data, places)
        inside = (np.cumsum(quotes, dtype=np.int32) + self._inside) & 1
        kind = np.where(inside == 0, kind, _NOTHING)
        change = (kind == _OPENING).view(np.int8) - (kind == _CLOSING).view(np.int8)
        depth = np.cumsum(change, dtype=np.int32) + self._depth
        over = np.flatnonzero(depth < 0)
        if len(over):
            end = int(places[over[0]])
            self.ended, self.after = True, block[end + 1 :]
            data, places, kind, depth = data[:end], places[: over[0]], kind[: over[0]], depth[: over[0]]
            if block[end : end + 1] != b"]":
                raise SourceCorrupt(f"{self._name!r}: the array ends with {block[end : end + 1].decode()!r}")
        elif len(places):
            self._inside, self._depth = int(inside[-1]), int(depth[-1])
        lines = data.copy()
        commas = (kind == _COMMA) & (depth == 0)
        lines[places[kind == _LINE_END]] = 0x20
        lines[places[commas]] = 0x0A
        self._commas += int(np.count_nonzero(commas))
        self._elements += int(np.count_nonzero((kind == _OPENING) & (depth == 1)))
        return lines.tobytes()

    def finish(self) -> bytes:
        """Return the last line end. Raises SourceCorrupt for a truncated array, or elements that are not objects."""
        if not self.ended:
            raise SourceCorrupt(f"{self._name!r} ends inside of its array: it is cut off")
        if self._commas != max(0, self._elements - 1):
            raise SourceCorrupt(
                f"{self._name!r}: its array is not of objects with a comma between any two ({self._elements} of them, "
                f"{self._commas} commas)"
            )
        return b"\n"

    def _escaped(
        self, block: bytes, data: npt.NDArray[np.uint8], places: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.bool_]:
        """Return whether each place has an odd number of backslashes before it."""
        before = self._escapes
        slashes = len(block) - len(block.rstrip(b"\\"))
        self._escapes = (slashes + (before if slashes == len(block) else 0)) & 1
        found = np.zeros(len(places), np.bool_)
        if not before and b"\\" not in block:
            return found
        at, distance = np.arange(len(places)), 1
        while len(at):  # as many passes as the longest run of backslashes
            position = places[at] - distance
            slash = np.where(position >= 0, data[np.maximum(position, 0)] == 0x5C, (position == -1) & bool(before))
            at = at[slash]
            found[at] ^= True
            distance += 1
        return found
