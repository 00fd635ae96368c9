"""Bloom filters as Spark's sketches make them: which bits a value has, and how a filter is sized and filled.

Source: Spark's ``BloomFilterImpl`` and Murmur3_x86_32. Filters are written in the form that every Spark reads (V1);
:mod:`.bloom_binary` has it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kubothek.table.murmur3 import Texts, Words, hash_longs

Bits: TypeAlias = npt.NDArray[np.bool_]

_LN2: Final = math.log(2)
_MOST_HASHES: Final = 4
"""Of filters whose size is ours to choose: each costs as much time again as the first, and a few bits come cheaper."""
_EXACT_HASHES: Final = 6
_EXACT: Final = 1e-3
"""A share of errors below which more hash functions are needed."""
_BLOCK: Final = 1 << 15
"""Values whose numbers the processor keeps at hand while their bits are set."""
_LONGEST: Final = 1 << 15
"""Bytes of a value that is hashed: of longer ones one takes as long as a file of others."""


_MANY: Final = 1 << 18
_SAMPLED: Final = 16


class Sizing(NamedTuple):
    """A filter of this many hash functions and words of 64 bits."""

    hashes: int
    words: int


class Pairs(NamedTuple):
    """The two hashes of each value, of which all its bits are made."""

    first: Words
    second: Words

    def packed(self) -> npt.NDArray[np.uint64]:
        """Both as one number a value."""
        return (self.first.astype(np.uint64) << np.uint64(32)) | self.second


def spark_sizing(values: int, fpp: float) -> Sizing:
    """Return how Spark sizes a filter for so many values, of which so large a share of others may be taken for one."""
    bits = int(-values * math.log(fpp) / (_LN2 * _LN2))
    return Sizing(max(1, math.floor(bits / values * _LN2 + 0.5)), -(-bits // 64))


def lean_sizing(values: int, fpp: float) -> Sizing:
    """As exact as Spark's, with few hash functions and some more bits."""
    hashes = max(1, min(_MOST_HASHES if fpp >= _EXACT else _EXACT_HASHES, round(-math.log2(fpp))))
    bits = -hashes * max(1, values) / math.log1p(-(fpp ** (1 / hashes)))
    return Sizing(hashes, math.ceil(bits / 64))


def can_hash(data_type: pa.DataType) -> bool:
    """Whether Xskipper makes Bloom filters of values of this type: whole numbers of at most 64 bits, and text."""
    types = pa.types
    return types.is_string(data_type) or (types.is_integer(data_type) and not types.is_uint64(data_type))


def pairs(values: pa.Array[Any], seed: int = 0) -> Pairs | None:
    """Return the hashes of values without null; None if one of them is too long."""
    start = np.full(len(values), seed & 0xFFFFFFFF, np.uint32)
    if pa.types.is_integer(values.type):
        longs = values.cast(pa.int64()).to_numpy().view(np.uint64)
        first = hash_longs(start, longs)
        return Pairs(first, hash_longs(first, longs))
    texts = Texts(values)
    if len(values) and texts.sizes.max() > _LONGEST:
        return None
    first = texts.hashed(start)
    return Pairs(first, texts.hashed(first))


def distinct(packed: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return each of them once. NumPy sorts numbers several times faster than Arrow or NumPy find them by hashing."""
    found = np.sort(packed)
    return found[np.append(True, found[1:] != found[:-1])] if len(found) else found


def count_distinct(packed: npt.NDArray[np.uint64]) -> int:
    """How many values there are: exact, or, of many, within about a hundredth, from a sixteenth of the hashes."""
    if len(packed) < _MANY:
        return len(distinct(packed))
    return _SAMPLED * len(distinct(packed[packed & np.uint64(_SAMPLED - 1) == 0]))


def unpacked(found: npt.NDArray[np.uint64]) -> Pairs:
    """Return the inverse of :meth:`Pairs.packed`."""
    return Pairs((found >> np.uint64(32)).astype(np.uint32), found.astype(np.uint32))


def places(found: Pairs, hashes: int) -> Iterator[Words]:
    """A number for each value, one hash function after the other: modulo a filter's bits it is the bit to set (V1)."""
    combined = found.first.copy()
    for _ in range(hashes):
        combined += found.second
        signed = combined.view(np.int32)
        yield (signed ^ (signed >> 31)).view(np.uint32)


def places_v2(found: Pairs, hashes: int) -> Iterator[npt.NDArray[np.int64]]:
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
        for place in places(Pairs(found.first[some], found.second[some]), hashes):
            # NumPy divides by one number in a tenth of the time that it takes for the remainder.
            bits[(place - place // size * size).astype(np.intp)] = True


def folded(bits: Bits, hashes: int, fpp: float) -> Bits:
    """Return the filter halved as long as it is as exact as wanted: as small as its values allow.

    A place modulo half the size is the place in the folded filter, so any even number of words can be halved.
    """
    most = fpp ** (1 / hashes)  # the share of bits that may be set
    while len(bits) % 128 == 0:
        half = bits[: len(bits) // 2] | bits[len(bits) // 2 :]
        if np.count_nonzero(half) > most * len(half):
            break
        bits = half
    return bits
