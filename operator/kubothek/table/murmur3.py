"""Murmur3 (x86, 32 bit) as Spark computes it, over whole Arrow arrays, for buckets and Bloom filters.

Each function takes each row's hash so far, which serves as the seed, and one more value a row; for a null, the result
is undefined. The hash differs from the standard in the last bytes of a text. Test vectors: docs/layout.md, Spark's
``BloomFilterImpl`` and Murmur3_x86_32.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes: TypeAlias = "pa.Array[Any]"
"""An array of uint32."""
Words: TypeAlias = npt.NDArray[np.uint32]
_ALL: Final = 0xFFFFFFFF


def hash_int(hashes: Hashes, values: pa.Array[Any]) -> Hashes:
    """Return the hashes with one more value of 32 bits each, as uint32."""
    found = hashes.to_numpy().copy()
    _mix(found, values.fill_null(0).to_numpy())
    _finish(found, np.uint32(4))
    hashed: Hashes = pa.array(found)
    return hashed


def hash_long(hashes: Hashes, values: pa.Array[Any]) -> Hashes:
    """Return the hashes with one more value of 64 bits each, as uint64."""
    return pa.array(hash_longs(hashes.to_numpy(), values.fill_null(0).to_numpy()))


def hash_longs(hashes: Words, values: npt.NDArray[np.uint64]) -> Words:
    """Do the same as :func:`hash_long` for numpy's arrays."""
    found = hashes.copy()
    _mix(found, values.astype(np.uint32))
    _mix(found, (values >> np.uint64(32)).astype(np.uint32))
    _finish(found, np.uint32(8))
    return found


def hash_bytes(hashes: Hashes, values: pa.Array[Any]) -> Hashes:
    """Return the hashes with one more binary value each."""
    return pa.array(Texts(values).hashed(hashes.to_numpy()))


class Texts:
    """Binary values, prepared for one or more hashings.

    A value is hashed as whole little-endian words, then each remaining byte as a signed word of its own. The longest
    values come first, so the unfinished ones are always a prefix. The work grows with the number of bytes, Python's
    share with the longest value.
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
        """Return the hash of each value, given its hash so far."""
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


def hash_text(seed: int, text: bytes) -> int:
    """Return the hash of one binary value, given its hash so far; arrays of one element take twenty times as long."""
    whole = len(text) & ~3
    words = (int.from_bytes(text[at : at + 4], "little") for at in range(0, whole, 4))
    tail = (byte - 256 if byte > 127 else byte for byte in text[whole:])
    found = seed
    for word in chain(words, tail):
        mixed = word * 0xCC9E2D51 & _ALL
        mixed = (mixed << 15 | mixed >> 17) * 0x1B873593 & _ALL
        found ^= mixed
        found = (found << 13 | found >> 19) & _ALL
        found = found * 5 + 0xE6546B64 & _ALL
    found ^= len(text)
    found = (found ^ found >> 16) * 0x85EBCA6B & _ALL
    found = (found ^ found >> 13) * 0xC2B2AE35 & _ALL
    return found ^ found >> 16


def _mix(hashes: Words, words: Words) -> None:
    """Apply one round of Murmur3 with one word a row, in place."""
    words = words * np.uint32(0xCC9E2D51)
    words = ((words << np.uint32(15)) | (words >> np.uint32(17))) * np.uint32(0x1B873593)
    hashes ^= words
    hashes[:] = (hashes << np.uint32(13)) | (hashes >> np.uint32(19))
    hashes *= np.uint32(5)
    hashes += np.uint32(0xE6546B64)


def _finish(hashes: Words, lengths: Words | np.uint32) -> None:
    """Apply the final rounds, in place."""
    hashes ^= lengths
    hashes ^= hashes >> np.uint32(16)
    hashes *= np.uint32(0x85EBCA6B)
    hashes ^= hashes >> np.uint32(13)
    hashes *= np.uint32(0xC2B2AE35)
    hashes ^= hashes >> np.uint32(16)
