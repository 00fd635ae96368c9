"""The bytes that arrow-digest hashes for the values of a column (odf-facts A2.4), by Arrow and numpy: no Python per
value.

A null is one byte 0. A value of fixed width is its bytes, a bool 1 or 2. Texts and lists are preceded by their length
(bytes, or items) in 64 bits, the items of lists are values in turn. The bytes of an array are made as a binary array
with one value a slot: lengths and what they count are two such arrays over memory that is there already, which Arrow
joins, and then puts a byte where there is a null.
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
_BINARY: Final = pa.large_binary()
_NOTHING: Final = pa.scalar(b"", _BINARY)
_NULL: Final = pa.scalar(b"\0", _BINARY)


class Encoded(NamedTuple):
    """Values as bytes, one after the other, and where each begins, and the last ends; an int if all take that much."""

    data: Bytes
    offsets: Sizes | int

    def binary(self, count: int, valid: Mask | None = None) -> Any:
        """The same as an array of so many binary values; what is not valid is null."""
        data: Any = np.ascontiguousarray(self.data)
        ends: Any = np.arange(count + 1) * self.offsets if isinstance(self.offsets, int) else self.offsets
        bits: Any = None if valid is None else np.packbits(valid, bitorder="little")
        mask = None if bits is None else pa.py_buffer(bits)
        return pa.LargeBinaryArray.from_buffers(_BINARY, count, [mask, pa.py_buffer(ends), pa.py_buffer(data)])


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
    encoded = Encoded(_rows(array, width, valid).reshape(-1), width)
    return encoded if valid is None else _encoded(encoded.binary(len(array), valid))


def _encoded(values: Any) -> Encoded:
    """Binary values as bytes, a null as one byte 0."""
    if not len(values):
        return Encoded(np.empty(0, np.uint8), np.zeros(1, np.int64))
    _, places, data = (pc.fill_null(values, _NULL) if values.null_count else values).buffers()
    offsets = np.frombuffer(places, np.int64, len(values) + 1)
    return Encoded(np.frombuffer(data, np.uint8)[: offsets[-1]], offsets)


def _rows(array: Any, width: int, valid: Mask | None) -> Bytes:
    """The bytes of values of fixed width, a row each; those of nulls that count are 0."""
    _, buffer = array.buffers()[:2]
    if buffer is None or not width:
        return np.zeros((len(array), width), np.uint8)
    rows = np.frombuffer(buffer, np.uint8, len(array) * width, array.offset * width).reshape(-1, width)
    own = validity(array)
    if own is None or (valid is not None and not (valid & ~own).any()):
        return rows
    return np.where(own[:, None], rows, np.uint8(0))


def _texts(array: Any, valid: Mask | None) -> Encoded:
    kind = array.type
    if pa.types.is_fixed_size_binary(kind):
        width = kind.byte_width
        lengths = np.full(len(array), width, np.int64)
        return _prefixed(lengths, Encoded(_rows(array, width, valid).reshape(-1), width), valid)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        array = array.cast(_BINARY)
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, places, buffer = array.buffers()
    word = np.int64 if wide else np.int32
    ends = np.frombuffer(places, word, len(array) + 1, array.offset * np.dtype(word).itemsize).astype(np.int64)
    lengths = np.diff(ends)
    shown = _shown(array, valid)
    if shown is not None and lengths[~shown].any():  # there may be text under a null
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
    """How many items each list has; 0 where it is null."""
    if pa.types.is_fixed_size_list(array.type):
        counts = np.full(len(array), array.type.list_size, np.int64)
        return counts if not array.null_count else counts * _mask(array.is_valid())
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)


def _prefixed(counts: Sizes, values: Encoded, valid: Mask | None) -> Encoded:
    """Each count in 64 bits before its value; a slot that is not valid has a single 0."""
    number = len(counts)
    if valid is None and (width := _width(values)) is not None:
        out = np.empty((number, _PREFIX + width), np.uint8)
        np.ndarray((number,), "<u8", out, strides=(_PREFIX + width,))[:] = counts
        out[:, _PREFIX:] = values.data.reshape(number, width)
        return Encoded(out.reshape(-1), _PREFIX + width)
    lengths = Encoded(counts.astype("<i8").view(np.uint8), _PREFIX).binary(number, valid)
    return _encoded(pc.binary_join_element_wise(lengths, values.binary(number), _NOTHING))


def _width(values: Encoded) -> int | None:
    """The bytes that each value takes, if all take that much, as codes and identifiers do: then they are a matrix."""
    if isinstance(values.offsets, int):
        return values.offsets or None
    lengths = np.diff(values.offsets)
    least = int(lengths[0]) if len(lengths) else 0
    return least if least and (lengths == least).all() else None
