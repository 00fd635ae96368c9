"""Murmur3 (x86, 32 bit) as Spark computes it, over whole Arrow arrays: of buckets and of Bloom filters.

Each function takes the hash so far of each row, which is its seed, and one more value a row; of a null, the result
means nothing. It differs from the standard in what it does with the last bytes of a text. Vectors: docs/layout.md,
Spark's ``BloomFilterImpl`` and Murmur3_x86_32.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes: TypeAlias = "pa.Array[Any]"
"""Of uint32."""
Words: TypeAlias = npt.NDArray[np.uint32]


def hash_int(hashes: Hashes, values: pa.Array[Any]) -> Hashes:
    """Of values of 32 bits, as uint32."""
    found = hashes.to_numpy().copy()
    _mix(found, values.fill_null(0).to_numpy())
    _finish(found, np.uint32(4))
    hashed: Hashes = pa.array(found)
    return hashed


def hash_long(hashes: Hashes, values: pa.Array[Any]) -> Hashes:
    """Of values of 64 bits, as uint64."""
    return pa.array(hash_longs(hashes.to_numpy(), values.fill_null(0).to_numpy()))


def hash_longs(hashes: Words, values: npt.NDArray[np.uint64]) -> Words:
    """Return the same of numpy's arrays."""
    found = hashes.copy()
    _mix(found, values.astype(np.uint32))
    _mix(found, (values >> np.uint64(32)).astype(np.uint32))
    _finish(found, np.uint32(8))
    return found


def hash_bytes(hashes: Hashes, values: pa.Array[Any]) -> Hashes:
    """Of binary values."""
    return pa.array(Texts(values).hashed(hashes.to_numpy()))


class Texts:
    """Binary values, prepared for being hashed once or more.

    Whole little-endian words, then each byte that is left as a signed word of its own. The longest values come first,
    so those that go on are always the first ones: the work is in proportion to the bytes, and Python's to the longest
    value.
    """

    def __init__(self, values: pa.Array[Any]) -> None:
        array: Any = values.cast(pa.large_binary())
        _, ends, data = array.buffers()
        offsets = (
            np.frombuffer(ends, np.int64)[array.offset :][: len(array) + 1] if len(array) else np.zeros(1, np.int64)
        )
        self.sizes = np.diff(offsets)
        """Bytes of each value."""
        is_small = not len(self.sizes) or self.sizes.max() < 1 << 15
        falling = np.negative(self.sizes.astype(np.int16 if is_small else np.int64))  # small ones are sorted faster
        self._order = np.argsort(falling, kind="stable")
        self._starts = offsets[:-1][self._order]
        self._lengths = self.sizes[self._order]
        self._falling = falling[self._order]
        self._bytes = np.frombuffer(data or b"", np.int8)
        # Words begin at any byte.
        self._words = np.ndarray((max(0, len(self._bytes) - 3),), "<u4", self._bytes, strides=(1,))

    def hashed(self, hashes: Words) -> Words:
        """Return the hash of each value, given the one so far."""
        found = hashes[self._order]
        at = 0
        while going := int(np.searchsorted(self._falling, -at - 4, side="right")):
            _mix(found[:going], self._words[self._starts[:going] + at])
            at += 4
        rest = self._lengths & 3
        tails = self._starts + self._lengths - rest
        for at in range(3):
            (going_on,) = np.nonzero(rest > at)
            some = found[going_on]
            _mix(some, self._bytes[tails[going_on] + at].astype(np.int32).view(np.uint32))
            found[going_on] = some
        _finish(found, self._lengths.astype(np.uint32))
        result = np.empty_like(found)
        result[self._order] = found
        return result


def _mix(hashes: Words, words: Words) -> None:
    """One round of Murmur3 with one word a row, in place."""
    words = words * np.uint32(0xCC9E2D51)
    words = ((words << np.uint32(15)) | (words >> np.uint32(17))) * np.uint32(0x1B873593)
    hashes ^= words
    hashes[:] = (hashes << np.uint32(13)) | (hashes >> np.uint32(19))
    hashes *= np.uint32(5)
    hashes += np.uint32(0xE6546B64)


def _finish(hashes: Words, lengths: Words | np.uint32) -> None:
    """The last rounds, in place."""
    hashes ^= lengths
    hashes ^= hashes >> np.uint32(16)
    hashes *= np.uint32(0x85EBCA6B)
    hashes ^= hashes >> np.uint32(13)
    hashes *= np.uint32(0xC2B2AE35)
    hashes ^= hashes >> np.uint32(16)
