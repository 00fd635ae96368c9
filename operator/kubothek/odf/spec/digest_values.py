"""The bytes that arrow-digest hashes for the values of a column (ODF 0.34.1, RFC-002), with no Python per value.

A null is one byte 0. A value of fixed width is its bytes, a bool 1 or 2. Texts and lists are preceded by their length
(bytes, or items) in 64 bits; the items of lists are values in turn. Lengths and contents are two binary arrays over
existing memory, from which Arrow takes in turns. If values of fixed width have nulls, the bytes that count are filtered
out of the memory.
"""

from __future__ import annotations

from functools import cache
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
_BINARY: Final = pa.large_binary()
_LISTS: Final = {kind.id for kind in (pa.list_(pa.int8()), pa.large_list(pa.int8()), pa.list_(pa.int8(), 1))}
_LARGE: Final = (pa.large_string(), pa.large_binary())
_VIEWS: Final = (pa.string_view(), pa.binary_view())
_TEXTS: Final = {kind.id for kind in (pa.string(), pa.binary(), pa.binary(1), *_LARGE, *_VIEWS)}
_NULL: Final = pa.array([b"\0", b""], _BINARY)
"""A null, and the empty bytes after it in place of a value."""


class Encoded(NamedTuple):
    """Consecutive values as bytes, with the begin of each and the end of the last; an int if all have that width."""

    data: Bytes
    offsets: Sizes | int

    def binary(self, count: int, valid: Mask | None = None) -> Any:
        """Return the same as an array of so many binary values; a value that is not valid is null."""
        data: Any = np.ascontiguousarray(self.data)
        places = np.arange(count + 1) * self.offsets if isinstance(self.offsets, int) else self.offsets
        ends: Any = np.ascontiguousarray(places)
        bits: Any = None if valid is None else np.packbits(valid, bitorder="little")
        mask = None if bits is None else pa.py_buffer(bits)
        return pa.LargeBinaryArray.from_buffers(_BINARY, count, [mask, pa.py_buffer(ends), pa.py_buffer(data)])


def encode(array: Any, valid: Mask | None) -> Encoded:
    """Return the bytes of an array; ``valid`` says which of its slots count as values, None: all.

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


def encoded_bytes(array: Any, valid: Mask | None) -> Bytes:
    """Return the bytes alone, which costs less."""
    kind = array.type
    if valid is None or pa.types.is_boolean(kind) or is_listed(kind) or is_text(kind):
        return encode(array, valid).data
    return _fixed_bytes(array, valid)


def as_in_memory(array: Any) -> pa.Buffer | None:
    """Return the bytes of an array of which all slots count, if they are in memory just as they are hashed."""
    kind = array.type
    if array.null_count or pa.types.is_boolean(kind) or is_listed(kind) or is_text(kind):
        return None
    width, memory = kind.byte_width, array.buffers()[1]
    return None if memory is None else memory.slice(array.offset * width, len(array) * width)


def is_text(kind: pa.DataType) -> bool:
    """Return whether values are bytes, preceded by their number."""
    return kind.id in _TEXTS


def is_listed(kind: pa.DataType) -> bool:
    """Return whether values are items, preceded by their number."""
    return kind.id in _LISTS


def validity(array: Any) -> Mask | None:
    """Return which slots are not null; None: all."""
    if array.null_count == 0:
        return None
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    count = array.offset + len(array)
    return np.unpackbits(bits, count=count, bitorder="little")[array.offset :].view(np.bool_)


def _shown(array: Any, valid: Mask | None) -> Mask | None:
    """Return which slots have a value that counts; None: all."""
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
    if valid is None:
        return Encoded(_rows(array, width, None).reshape(-1), width)
    ends = np.zeros(len(array) + 1, np.int64)
    np.cumsum(np.where(valid, width, 1), out=ends[1:])
    return Encoded(_fixed_bytes(array, valid), ends)


def _fixed_bytes(array: Any, valid: Mask) -> Bytes:
    """Return all bytes of values that count, and the first one of the others, which is 0."""
    width = array.type.byte_width
    rows = _rows(array, width, valid)
    absent = np.flatnonzero(~valid)
    if rows[absent, 0].any():  # a null can have any bytes
        rows = rows.copy()
        rows[absent, 0] = 0
    bits = _kept(width).take(np.packbits(valid, bitorder="little"))
    size = len(array) * width
    kept: Any = pa.Array.from_buffers(pa.bool_(), size, [None, pa.py_buffer(bits)], null_count=0)
    memory: Any = rows
    data: Any = pa.Array.from_buffers(pa.uint8(), size, [None, pa.py_buffer(memory)], null_count=0)
    return np.asarray(pc.filter(data, kept).to_numpy(), np.uint8)


@cache
def _kept(width: int) -> Any:
    """Return which bytes are hashed: for each byte of validity (eight slots) a bit for each of their bytes."""
    valid = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(np.bool_)
    bits = np.repeat(valid[:, :, None], width, axis=2)
    bits[:, :, 0] = True
    return np.packbits(bits.reshape(256, -1), axis=1, bitorder="little").reshape(-1).view(f"V{width}")


def _rows(array: Any, width: int, valid: Mask | None) -> Bytes:
    """Return the bytes of values of fixed width, a row each; those of nulls that count are 0."""
    _, buffer = array.buffers()[:2]
    if buffer is None or not width:
        return np.zeros((len(array), width), np.uint8)
    rows = np.frombuffer(buffer, np.uint8, len(array) * width, array.offset * width).reshape(-1, width)
    if not array.null_count or (valid is not None and np.count_nonzero(valid) <= len(array) - array.null_count):
        return rows  # one of the two masks includes the other; with so few valid slots, none of these is null
    return np.where(validity(array)[:, None], rows, np.uint8(0))  # type: ignore[index]


def _texts(array: Any, valid: Mask | None) -> Encoded:
    kind = array.type
    if pa.types.is_fixed_size_binary(kind):
        width = kind.byte_width
        lengths = np.full(len(array), width, np.int64)
        return _prefixed(lengths, Encoded(_rows(array, width, valid).reshape(-1), width), valid)
    if kind in _VIEWS:
        array = array.cast(_BINARY)
    wide = array.type in _LARGE
    _, places, buffer = array.buffers()
    word = np.int64 if wide else np.int32
    ends = np.frombuffer(places, word, len(array) + 1, array.offset * np.dtype(word).itemsize).astype(np.int64)
    lengths = np.diff(ends)
    shown = _shown(array, valid)
    if shown is not None and lengths[~shown].any():  # a null can have text
        return _texts(pc.if_else(pa.array(shown), array, pa.scalar(b"").cast(array.type)), valid)
    data = np.frombuffer(buffer, np.uint8) if buffer is not None else np.empty(0, np.uint8)
    return _prefixed(lengths, Encoded(data[ends[0] : ends[-1]], ends - ends[0]), valid)


def _lists(array: Any, valid: Mask | None) -> Encoded:
    shown = _shown(array, valid)
    if shown is not None:
        array = pc.if_else(pa.array(shown), array, pa.scalar(None, array.type))
    counts = _counts(array)
    items = array.flatten()
    data, offsets = encode(items, validity(items))
    places = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    ends = places * offsets if isinstance(offsets, int) else offsets[places]
    return _prefixed(counts, Encoded(data, ends), valid)


def _counts(array: Any) -> Sizes:
    """Return the number of items of each list; 0 where it is null."""
    if pa.types.is_fixed_size_list(array.type):
        counts = np.full(len(array), array.type.list_size, np.int64)
        return counts if not array.null_count else counts * _mask(array.is_valid())
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)


def _prefixed(counts: Sizes, values: Encoded, valid: Mask | None) -> Encoded:
    """Return each count in 64 bits before its value; a slot that is not valid has a single 0."""
    number = len(counts)
    if valid is None and (width := _width(values)) is not None:
        out = np.empty((number, _PREFIX + width), np.uint8)
        np.ndarray((number,), "<u8", out, strides=(_PREFIX + width,))[:] = counts
        out[:, _PREFIX:] = values.data.reshape(number, width)
        return Encoded(out.reshape(-1), _PREFIX + width)
    lengths = Encoded(counts.astype("<i8").view(np.uint8), _PREFIX).binary(number)
    pool = pa.concat_arrays([lengths, values.binary(number), _NULL])
    turns = np.empty((number, 2), np.int64)
    turns[:, 0] = np.arange(number)
    turns[:, 1] = np.arange(number, 2 * number)
    if valid is not None:
        turns[~valid] = (2 * number, 2 * number + 1)
    order: Any = pa.array(turns.reshape(-1))
    data, places = joined(pc.take(pool, order, boundscheck=False))
    return Encoded(data, places[::2])


def joined(values: Any) -> tuple[Bytes, Sizes]:
    """Return the bytes of binary values without nulls, and the begin of each and the end of the last."""
    _, places, data = values.buffers()
    if not len(values) or data is None:
        return np.empty(0, np.uint8), np.zeros(len(values) + 1, np.int64)
    offsets = np.frombuffer(places, np.int64, len(values) + 1)
    return np.frombuffer(data, np.uint8)[: offsets[-1]], offsets


def _width(values: Encoded) -> int | None:
    """Return the width of all values, if it is the same, as for codes and identifiers: then they are a matrix."""
    if isinstance(values.offsets, int):
        return values.offsets or None
    lengths = np.diff(values.offsets)
    least = int(lengths[0]) if len(lengths) else 0
    return least if least and (lengths == least).all() else None
