"""The logical hash value by value, as the description of arrow-digest reads: slow, and apart from the fast one.

For columns without structs in which both a struct and what is in it have nulls.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from hashlib import sha3_256
from typing import Any

import pyarrow as pa


def slow_digest(table: pa.Table) -> bytes:
    top, columns = sha3_256(), []
    for field, column in zip(table.schema, table.columns, strict=True):
        for name, level in _names(field, 0):
            top.update(struct.pack("<Q", len(name.encode())) + name.encode() + struct.pack("<Q", level))
        for path, leaf in _leaves(field, ()):
            hasher = sha3_256(_type(leaf.type))
            for scalar in column:
                each: Any = scalar
                for name in path:
                    each = each[name] if each.is_valid else pa.scalar(None, leaf.type)
                hasher.update(_value(each))
            columns.append(hasher.digest())
    for digest in columns:
        top.update(digest)
    return top.digest()


def _names(field: Any, level: int) -> Iterator[tuple[str, int]]:
    yield field.name, level
    for child in field.type if pa.types.is_struct(field.type) else ():
        yield from _names(child, level + 1)


def _leaves(field: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not pa.types.is_struct(field.type):
        yield path, field
    else:
        for child in field.type:
            yield from _leaves(child, (*path, child.name))


def _type(kind: Any) -> bytes:
    units = {"s": 0, "ms": 1, "us": 2, "ns": 3}
    text = str(kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return b"\x0b\0" + _type(kind.value_type)
    if pa.types.is_integer(kind):
        return struct.pack("<HBQ", 1, not text.startswith("u"), kind.bit_width)
    if pa.types.is_floating(kind):
        return struct.pack("<HQ", 2, kind.bit_width)
    if pa.types.is_decimal(kind):
        return struct.pack("<HQQq", 6, kind.bit_width, kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        zone = struct.pack("<Q", len(kind.tz)) + kind.tz.encode() if kind.tz else b"\0"
        return struct.pack("<HH", 9, units[kind.unit]) + zone
    if pa.types.is_time(kind):
        return struct.pack("<HQH", 8, kind.bit_width, units[kind.unit])
    fixed = {
        "bool": b"\x05\0",
        "date32[day]": struct.pack("<HQH", 7, 32, 0),
        "date64[ms]": struct.pack("<HQH", 7, 64, 1),
    }
    return fixed.get(text, b"\x04\0" if "string" in text else b"\x03\0")


def _value(scalar: Any) -> bytes:
    kind: Any = scalar.type
    if not scalar.is_valid:
        return b"\0"
    if pa.types.is_boolean(kind):
        return b"\2" if scalar.as_py() else b"\1"
    if isinstance(scalar, (pa.ListScalar, pa.LargeListScalar, pa.FixedSizeListScalar)):
        items: list[Any] = list(scalar.values or ())
        return struct.pack("<Q", len(items)) + b"".join(map(_value, items))
    if "string" in str(kind) or "binary" in str(kind):
        data: bytes = scalar.as_buffer().to_pybytes()
        return struct.pack("<Q", len(data)) + data
    array = (
        pa.array([scalar.as_py()], kind) if not pa.types.is_timestamp(kind) else pa.array([scalar.value], pa.int64())
    )
    buffer = array.buffers()[1]
    assert buffer is not None
    return buffer.to_pybytes()[: kind.bit_width // 8]
