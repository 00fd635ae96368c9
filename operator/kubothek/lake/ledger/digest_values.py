"""The bytes that arrow-digest hashes for the values of a column (odf-facts A2.4), by numpy: no Python per value.

A null is one byte 0. A value of fixed width is its bytes, a bool 1 or 2. Texts and lists are preceded by their length
(bytes, or items) in 64 bits, the items of lists are values in turn. Lengths are put before what
they count by one unaligned 64-bit store each, at places that a running sum gives, and one masked store of all the rest.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bytes: TypeAlias = npt.NDArray[np.uint8]
Mask: TypeAlias = npt.NDArray[np.bool_]
Sizes: TypeAlias = npt.NDArray[np.int64]

_PREFIX: Final = 8
"""Bytes of a length."""


class Encoded(NamedTuple):
    """Values as bytes, one after the other, and how many of them each takes; an int if all take the same."""

    data: Bytes
    sizes: Sizes | int


def encode(array: Any, valid: Mask | None) -> Encoded:
    """The bytes of an array; ``valid`` says which of its slots count as values, None: all.

    A slot that counts although the array has null there is one of zeros, or empty.
    """
    kind = array.type
    if pa.types.is_boolean(kind):
        return Encoded(_booleans(array, valid), 1)
    if is_listed(kind):
        return _lists(array, valid)
    if is_text(kind):
        return _texts(array, valid)
    return _fixed(array, valid)


def is_text(kind: pa.DataType) -> bool:
    """Whether values are bytes, preceded by how many."""
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_binary)
    more = (pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    return any(check(kind) for check in (*checks, *more))


def is_listed(kind: pa.DataType) -> bool:
    """Whether values are items, preceded by how many."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def validity(array: Any) -> Mask | None:
    """Which slots are not null; None: all."""
    return None if array.null_count == 0 else _mask(array.is_valid())


def _shown(array: Any, valid: Mask | None) -> Mask | None:
    """Which slots have a value that counts; None: all."""
    own = validity(array)
    return own if valid is None else valid if own is None else own & valid


def _mask(array: Any) -> Mask:
    return np.asarray(array.to_numpy(zero_copy_only=False), np.bool_)


def _booleans(array: Any, valid: Mask | None) -> Bytes:
    data = np.asarray(pc.fill_null(array, False).cast(pa.uint8()).to_numpy(zero_copy_only=False)) + np.uint8(1)
    if valid is not None:
        data *= valid
    return data


def _fixed(array: Any, valid: Mask | None) -> Encoded:
    width = array.type.byte_width
    rows = _rows(array, width, valid)
    if valid is None:
        return Encoded(rows.reshape(-1), width)
    kept = np.repeat(valid, width).reshape(-1, width)
    kept[:, 0] = True
    return Encoded(rows[kept], np.where(valid, width, 1))


def _rows(array: Any, width: int, valid: Mask | None) -> Bytes:
    """The bytes of values of fixed width, a row each; those of nulls, and of what does not count, are 0."""
    _, buffer = array.buffers()[:2]
    if buffer is None or not width:
        return np.zeros((len(array), width), np.uint8)
    flat = np.frombuffer(buffer, np.uint8, len(array) * width, array.offset * width)
    shown = _shown(array, valid)
    if shown is None:
        return flat.reshape(-1, width)
    word = np.dtype(f"u{min(width & -width, 8)}")
    words = flat.view(word).reshape(len(array), -1)
    return np.where(shown[:, None], words, word.type(0)).view(np.uint8).reshape(-1, width)


def _texts(array: Any, valid: Mask | None) -> Encoded:
    kind = array.type
    if pa.types.is_fixed_size_binary(kind):
        rows = _rows(array, kind.byte_width, valid)
        lengths = np.full(len(array), kind.byte_width, np.int64)
        return _prefixed(lengths, lengths, (rows if valid is None else rows[valid]).reshape(-1), valid)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        array = array.cast(pa.large_binary())
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, places, buffer = array.buffers()
    word = np.int64 if wide else np.int32
    ends = np.frombuffer(places, word, len(array) + 1, array.offset * np.dtype(word).itemsize).astype(np.int64)
    lengths = np.diff(ends)
    shown = _shown(array, valid)
    if shown is not None and lengths[~shown].any():  # there may be text under a null
        return _texts(pc.if_else(pa.array(shown), array, pa.scalar(b"").cast(array.type)), valid)
    data = np.frombuffer(buffer, np.uint8) if buffer is not None else np.empty(0, np.uint8)
    return _prefixed(lengths, lengths, data[ends[0] : ends[-1]], valid)


def _lists(array: Any, valid: Mask | None) -> Encoded:
    shown = _shown(array, valid)
    if shown is not None:
        array = pc.if_else(pa.array(shown), array, pa.scalar(None, array.type))
    counts = _counts(array)
    items = array.flatten()
    data, sizes = encode(items, validity(items))
    if isinstance(sizes, int):
        return _prefixed(counts, counts * sizes, data, valid)
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    ends = np.cumsum(counts)
    return _prefixed(counts, sums[ends] - sums[ends - counts], data, valid)


def _counts(array: Any) -> Sizes:
    """How many items each list has; 0 where it is null."""
    if pa.types.is_fixed_size_list(array.type):
        counts = np.full(len(array), array.type.list_size, np.int64)
        return counts if not array.null_count else counts * _mask(array.is_valid())
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)


def _prefixed(counts: Sizes, lengths: Sizes, data: Bytes, valid: Mask | None) -> Encoded:
    """Each count in 64 bits before ``lengths`` bytes of the data; a slot that is not valid has a 0 and none of them."""
    if not len(counts):
        return Encoded(data, np.zeros(0, np.int64))
    sizes = lengths + _PREFIX
    if valid is not None:
        sizes = np.where(valid, sizes, 1)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    total = int(ends[-1])
    out = np.zeros(total + _PREFIX, np.uint8)  # the last slot may be a null, and shorter than a word
    is_data = np.ones(total + _PREFIX, np.bool_)
    is_data[total:] = False
    if valid is not None:
        is_data[starts[~valid]] = False
        starts, counts = starts[valid], counts[valid]
    np.ndarray((total + 1,), np.uint64, is_data, strides=(1,))[starts] = 0
    np.ndarray((total + 1,), "<u8", out, strides=(1,))[starts] = counts
    out[is_data] = data
    return Encoded(out[:total], sizes)
