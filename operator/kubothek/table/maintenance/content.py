"""Content hash of rows, independent of their order: a rewrite proves with it that it lost nothing.

docs/maintenance.md specifies the hash and has test vectors. A row is hashed to 64 bits, column by column. The hashes of
all rows are added modulo 2**128, so rows may move between files, but none may change, vanish or appear twice. It
detects faults, not forgery. No Python code runs per row: numpy does the arithmetic, which wraps around.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Words: TypeAlias = npt.NDArray[np.uint64]
_Offsets: TypeAlias = npt.NDArray[np.int64]

_FACTOR: Final = 0xD6E8FEB86659FD93
_INVERSE: Final = pow(_FACTOR, -1, 1 << 64)
_LENGTH: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_NULL: Final = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS: Final = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
    (np.uint64(31), np.uint64(1)),
)
_BLOCK: Final = 1 << 16
"""Bytes of text, or elements of lists, that are multiplied at a time: memory does not grow with values."""
_ROWS: Final = 1 << 14
"""Rows that are hashed at a time: they fit the processor's caches."""


@dataclass(frozen=True, slots=True)
class Content:
    """The number of some rows, and the sum of their hashes modulo 2**128."""

    rows: int = 0
    total: int = 0

    @classmethod
    def of(cls, batches: Iterable[pa.RecordBatch]) -> Self:
        """Return the content of these batches, which have the same schema. Raises TypeError for an unknown type."""
        rows = total = 0
        for batch in batches:
            for start in range(0, batch.num_rows, _ROWS):
                hashes = row_hashes(batch.slice(start, _ROWS))
                rows += len(hashes)
                low, high = hashes & np.uint64(0xFFFFFFFF), hashes >> np.uint64(32)
                total += int(low.sum()) + (int(high.sum()) << 32)
        return cls(rows, total % (1 << 128))

    def __add__(self, other: Content) -> Content:
        return Content(self.rows + other.rows, (self.total + other.total) % (1 << 128))


def row_hashes(batch: pa.RecordBatch) -> Words:
    """Return the hash of each row."""
    return _chained([_values(column) for column in batch.columns], batch.num_rows)


def _chained(values: list[Words], count: int) -> Words:
    hashes = np.zeros(count, np.uint64)
    spare = np.empty(count, np.uint64)
    for each in values:
        np.multiply(hashes, np.uint64(_FACTOR), out=hashes)
        np.add(hashes, each, out=hashes)
        _mix(hashes, spare)
    return hashes


def _mix(words: Words, spare: Words) -> None:
    """Apply the finaliser of SplitMix64 in place: new memory each time would cost more than the arithmetic."""
    for shift, factor in _ROUNDS:
        np.right_shift(words, shift, out=spare)
        np.bitwise_xor(words, spare, out=words)
        np.multiply(words, factor, out=words)


def _values(column: pa.Array[Any]) -> Words:
    """Return the hash of each value of a column, or of each element of its lists."""
    if column.null_count == len(column):
        return np.full(len(column), _NULL)
    hashes = _present(column)
    if not column.null_count:
        return hashes
    return np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, hashes)


def _present(column: Any) -> Words:
    types, data_type = pa.types, column.type
    if types.is_boolean(data_type):
        numbers: Words = column.cast(pa.uint8()).fill_null(0).to_numpy().astype(np.uint64)
        return numbers
    if types.is_struct(data_type):
        return _chained([_values(column.field(n)) for n in range(data_type.num_fields)], len(column))
    if types.is_list(data_type) or types.is_large_list(data_type):
        offsets = column.offsets.to_numpy().astype(np.int64)
        first, last = int(offsets[0]), int(offsets[-1])
        return _sequences(_values(column.values.slice(first, last - first)), offsets - first)
    _, *buffers = column.buffers()
    if types.is_string(data_type) or types.is_binary(data_type):
        return _texts(column, buffers, np.int32)
    if types.is_large_string(data_type) or types.is_large_binary(data_type):
        return _texts(column, buffers, np.int64)
    return _fixed(column, buffers[0])


def _texts(column: Any, buffers: list[pa.Buffer | None], width: type[np.int32] | type[np.int64]) -> Words:
    offsets_buffer, data = buffers
    assert offsets_buffer is not None, "there are values"
    offsets = np.frombuffer(memoryview(offsets_buffer), width)[column.offset : column.offset + len(column) + 1].astype(
        np.int64
    )
    first, last = int(offsets[0]), int(offsets[-1])
    octets = np.frombuffer(b"" if data is None else memoryview(data), np.uint8)[first:last]
    return _sequences(octets, offsets - first)


def _fixed(column: Any, data: pa.Buffer) -> Words:
    """Return values of one width: their bits as a number, chained over several 64-bit words if they do not fit one."""
    try:
        size = column.type.bit_width // 8
        words, rest = divmod(size, 8)
    except (AttributeError, ValueError) as error:
        raise TypeError(f"no content hash for {column.type}") from error
    start = column.offset * size
    octets = np.frombuffer(memoryview(data), np.uint8)[start : start + len(column) * size].reshape(len(column), size)
    padded = octets if not rest else np.pad(octets, ((0, 0), (0, 8 - rest)))
    numbers = np.ascontiguousarray(padded).view("<u8").astype(np.uint64, copy=False)
    if words + bool(rest) == 1:
        return numbers[:, 0]
    return _chained(list(numbers.T), len(column))


def _sequences(words: npt.NDArray[np.unsignedinteger[Any]], offsets: _Offsets) -> Words:
    """Return the hash of each run of words, from one offset to the next.

    It is a polynomial in a constant. The hashes of all runs are differences of one running sum over all words.
    """
    hashes = np.diff(_running_sums(words, offsets))
    positions = offsets[:-1]
    if len(words) > _BLOCK:
        blocks, positions = np.divmod(positions, _BLOCK)
        hashes *= _power(_INVERSE, _BLOCK, int(blocks.max(initial=0)))[blocks]
    hashes *= _powers(_INVERSE)[positions]
    lengths = np.diff(offsets).astype(np.uint64)
    lengths += np.uint64(1)
    lengths *= _LENGTH
    hashes += lengths
    return hashes


def _running_sums(words: npt.NDArray[np.unsignedinteger[Any]], offsets: _Offsets) -> Words:
    """Return at each offset the sum of all words before it, each times the constant to the power of its position."""
    sums = np.zeros(len(offsets), np.uint64)
    before, shift = np.uint64(0), 1
    for start in range(0, len(words), _BLOCK):
        block = words[start : start + _BLOCK].astype(np.uint64)
        np.multiply(block, _powers(_FACTOR)[: len(block)], out=block)
        if start:
            np.multiply(block, np.uint64(shift), out=block)
        np.cumsum(block, out=block)
        if start:
            np.add(block, before, out=block)
        first, last = np.searchsorted(offsets, (start, start + len(block)), "right")
        sums[first:last] = block[offsets[first:last] - (start + 1)]
        before, shift = block[-1], shift * pow(_FACTOR, _BLOCK, 1 << 64) % (1 << 64)
    return sums


@cache
def _powers(base: int) -> Words:
    """Return ``base`` to the powers from 0 to the length of a block."""
    return _power(base, 1, _BLOCK)


def _power(base: int, step: int, most: int) -> Words:
    """Return ``base ** (step * n)`` for ``n`` from 0 to ``most``."""
    factors = np.full(most + 1, pow(base, step, 1 << 64), np.uint64)
    factors[0] = 1
    return np.cumprod(factors)
