"""Lookup in a column of Bloom filters: which of the files may hold a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import SkippingUnreadable
from kubothek.table.skipping.bloom import sketch
from kubothek.table.skipping.bloom.binary import (
    BLOCK_SHORT,
    HEAD,
    LONG_HEADER,
    SHORT_HEADER,
    offsets,
    payload_of,
    total_size,
    wrapped,
)
from kubothek.table.skipping.bloom.sketch import Pairs

Mask: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.NDArray[np.int64]

_HEADERS: Final = {1: 12, 2: 16}
"""Bytes of the payload before the words, by sketch version."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Filters with one version, number of hash functions and seed. ``rows``: their positions in the column."""

    rows: Numbers
    starts: Numbers
    words: Numbers
    version: int
    hashes: int
    seed: int


class Filters:
    """The Bloom filters of many files. Keep it with the metadata: its construction takes time linear in the files.

    It reads the stored bytes in place, whatever their number and size; a lookup reads at most ``k`` bytes a file.
    """

    def __init__(self, known: Mask, data: npt.NDArray[np.uint8], kinds: Sequence[_Kind]) -> None:
        self._known = known
        self._data = data
        self._kinds = kinds

    @classmethod
    def of(cls, column: pa.ChunkedArray[Any] | pa.Array[Any]) -> Self:
        """Return the filters of a binary column, an element a file. A null or unreadable filter matches any value."""
        large: Any = column.cast(pa.large_binary())
        array = _readable(large.combine_chunks() if isinstance(column, pa.ChunkedArray) else large)
        _, index, values = array.buffers()
        ends = np.frombuffer(index, np.int64)[array.offset : array.offset + len(array) + 1] if index else _NOTHING
        data = np.frombuffer(values, np.uint8) if values else _NO_BYTES
        rows = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
        kinds = _kinds(data, rows, ends[rows], ends[rows + 1]) if len(rows) else []
        known = np.zeros(len(array), np.bool_)
        for kind in kinds:
            known[kind.rows] = True
        return cls(known, data, kinds)

    def might_contain(self, values: Sequence[int | str], data_type: pa.DataType) -> Mask:
        """Return for each file whether it may hold one of the values, which are of this type."""
        array = pa.array(values, data_type)
        found = ~self._known
        for kind in self._kinds:
            hashed = sketch.pairs(array, kind.seed) if sketch.can_hash(data_type) else None
            if hashed is None:
                found[kind.rows] = True
                continue
            for n in range(len(array)):
                found[kind.rows[self._holding(kind, Pairs(hashed.first[n : n + 1], hashed.second[n : n + 1]))]] = True
        return found

    def _holding(self, kind: _Kind, value: Pairs) -> Numbers:
        """Return which filters of a kind have all bits of the value."""
        left = np.arange(len(kind.rows))
        header = _HEADERS[kind.version]
        for place in (sketch.bit_positions if kind.version == 1 else sketch.bit_positions_v2)(value, kind.hashes):
            words = kind.words[left]
            bit = place[0] % (64 * words)
            at = kind.starts[left] + offsets(header + (bit >> 6) * 8 + 7 - ((bit & 63) >> 3), header + 8 * words)
            left = left[(self._data[at] >> (bit & 7).astype(np.uint8)) & 1 == 1]
        return left


_NOTHING: Final[Numbers] = np.zeros(0, np.int64)
_NO_BYTES: Final = np.zeros(0, np.uint8)


def _readable(array: Any) -> Any:
    """Return the filters with the head that Kubothek writes, whichever program wrote them."""
    if pc.all(pc.starts_with(array, cast("str", HEAD)), min_count=0).as_py():
        return array
    kept = [None if data is None else _recoded(data) for data in array.to_pylist()]
    return pa.array(kept, pa.large_binary())


def _recoded(data: bytes) -> bytes | None:
    try:
        return wrapped(payload_of(data))
    except SkippingUnreadable:
        return None


def _kinds(data: npt.NDArray[np.uint8], rows: Numbers, starts: Numbers, ends: Numbers) -> list[_Kind]:
    """Group the filters that are evaluated alike, without damaged ones."""
    head = starts + len(HEAD)
    first = head + np.where(data[np.minimum(head, ends - 1)] == BLOCK_SHORT, SHORT_HEADER, LONG_HEADER)
    version, hashes, third, fourth = (_numbers(data, first + 4 * n, ends) for n in range(4))
    is_second = version == 2
    words = np.where(is_second, fourth, third)
    sizes = np.where(is_second, _HEADERS[2], _HEADERS[1]) + 8 * words
    is_valid = ((version == 1) | is_second) & (hashes > 0) & (words > 0) & (ends - starts == total_size(sizes))
    table = np.stack([version, hashes, np.where(is_second, third, 0)])
    found = []
    for one in np.unique(table[:, is_valid], axis=1).T:
        these = np.flatnonzero((table == one[:, None]).all(axis=0) & is_valid)
        found.append(_Kind(rows[these], starts[these], words[these], int(one[0]), int(one[1]), int(one[2])))
    return found


def _numbers(data: npt.NDArray[np.uint8], at: Numbers, ends: Numbers) -> Numbers:
    """Return four bytes at each position, as signed numbers."""
    found = np.zeros(len(at), np.int64)
    for n in range(4):
        found = (found << 8) | data[np.minimum(at + n, ends - 1)]
    return found - ((found >> 31) << 32)
