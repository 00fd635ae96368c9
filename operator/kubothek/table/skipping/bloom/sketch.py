"""Bloom filters as Spark's sketches make them: the bits of a value, and how a filter is sized and filled.

Source: Spark's ``BloomFilterImpl`` and Murmur3_x86_32. Filters are written in the form that every Spark reads (V1), see
:mod:`kubothek.table.skipping.bloom.binary`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kubothek.table.murmur3 import Texts, Words, hash_longs, hash_text

Bits: TypeAlias = npt.NDArray[np.bool_]

_LN2: Final = math.log(2)
_MOST_HASHES: Final = 4
"""Limit for filters whose size Kubothek chooses: each hash function costs as much time as the first; bits cost less."""
_EXACT_HASHES: Final = 6
_EXACT: Final = 1e-3
"""The false-positive probability below which more hash functions are needed."""
_BLOCK: Final = 1 << 15
"""Number of values whose positions fit the processor's cache while their bits are set."""
_LONGEST: Final = 1 << 15
"""Maximum bytes of a hashed value: hashing a longer one takes as long as a file of other values."""


_MANY: Final = 1 << 18
_SAMPLED: Final = 16


class Sizing(NamedTuple):
    """The number of hash functions of a filter, and of its words of 64 bits."""

    hashes: int
    words: int


class Pairs(NamedTuple):
    """The two hashes of each value, from which all its bits derive."""

    first: Words
    second: Words

    def packed(self) -> npt.NDArray[np.uint64]:
        """Return both hashes of each value as one number."""
        return (self.first.astype(np.uint64) << np.uint64(32)) | self.second


def spark_sizing(values: int, fpp: float) -> Sizing:
    """Return Spark's size of a filter for this number of values and false-positive probability."""
    bits = int(-values * math.log(fpp) / (_LN2 * _LN2))
    return Sizing(max(1, math.floor(bits / values * _LN2 + 0.5)), -(-bits // 64))


def lean_sizing(values: int, fpp: float) -> Sizing:
    """Return a size as precise as Spark's, with few hash functions and some more bits."""
    hashes = max(1, min(_MOST_HASHES if fpp >= _EXACT else _EXACT_HASHES, round(-math.log2(fpp))))
    bits = -hashes * max(1, values) / math.log1p(-(fpp ** (1 / hashes)))
    return Sizing(hashes, math.ceil(bits / 64))


def can_hash(data_type: pa.DataType) -> bool:
    """Return whether Xskipper makes Bloom filters of this type: whole numbers of at most 64 bits, and text."""
    types = pa.types
    return types.is_string(data_type) or (types.is_integer(data_type) and not types.is_uint64(data_type))


def pairs(values: pa.Array[Any], seed: int = 0) -> Pairs | None:
    """Return the hashes of values without null; None if a value is too long."""
    start = np.full(len(values), seed & 0xFFFFFFFF, np.uint32)
    if pa.types.is_integer(values.type):
        longs = values.cast(pa.int64()).to_numpy().view(np.uint64)
        first = hash_longs(start, longs)
        return Pairs(first, hash_longs(first, longs))
    if len(values) == 1:
        return _pair(values[0].as_py().encode(), seed & 0xFFFFFFFF)
    texts = Texts(values)
    if len(values) and texts.sizes.max() > _LONGEST:
        return None
    first = texts.hashed(start)
    return Pairs(first, texts.hashed(first))


def _pair(text: bytes, seed: int) -> Pairs | None:
    if len(text) > _LONGEST:
        return None
    first = hash_text(seed, text)
    return Pairs(np.array([first], np.uint32), np.array([hash_text(first, text)], np.uint32))


def distinct(packed: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return each number once. Sorting in NumPy is several times faster than hashing in Arrow or NumPy."""
    found = np.sort(packed)
    return found[np.append(True, found[1:] != found[:-1])] if len(found) else found


def count_distinct(packed: npt.NDArray[np.uint64]) -> int:
    """Return the number of values: exact, or for many within about 1 %, from a sixteenth of the hashes."""
    if len(packed) < _MANY:
        return len(distinct(packed))
    return _SAMPLED * len(distinct(packed[packed & np.uint64(_SAMPLED - 1) == 0]))


def unpacked(found: npt.NDArray[np.uint64]) -> Pairs:
    """Return the inverse of :meth:`Pairs.packed`."""
    return Pairs((found >> np.uint64(32)).astype(np.uint32), found.astype(np.uint32))


def bit_positions(found: Pairs, hashes: int) -> Iterator[Words]:
    """Yield an array per hash function with a number for each value; modulo the filter's bits it is the bit (V1)."""
    combined = found.first.copy()
    for _ in range(hashes):
        combined += found.second
        signed = combined.view(np.int32)
        yield (signed ^ (signed >> 31)).view(np.uint32)


def bit_positions_v2(found: Pairs, hashes: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the same for filters of Spark 4.1 and later (V2)."""
    combined = found.first.view(np.int32).astype(np.int64) * 0x7FFFFFFF
    step = found.second.view(np.int32).astype(np.int64)
    for _ in range(hashes):
        combined = combined + step
        yield combined ^ (combined >> 63)


def fill(bits: Bits, found: Pairs, hashes: int) -> None:
    """Set the bits of these values."""
    size = np.uint32(len(bits))
    for start in range(0, len(found.first), _BLOCK):
        some = slice(start, start + _BLOCK)
        for place in bit_positions(Pairs(found.first[some], found.second[some]), hashes):
            # In NumPy, division by one number takes a tenth of the time of the remainder.
            bits[(place - place // size * size).astype(np.intp)] = True


def folded(bits: Bits, hashes: int, fpp: float) -> Bits:
    """Return the filter halved as often as its precision allows.

    A position modulo half the size is the position in the folded filter, so any even number of words can be halved.
    """
    most = fpp ** (1 / hashes)  # the maximum share of set bits
    while len(bits) % 128 == 0:
        half = bits[: len(bits) // 2] | bits[len(bits) // 2 :]
        if np.count_nonzero(half) > most * len(half):
            break
        bits = half
    return bits
