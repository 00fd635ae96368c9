"""Bounds of values, shortened, in the type that entries store."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

LONGEST: Final = 256
"""Maximum characters or bytes of a bound: the rest of a long value excludes little, and is in no index."""
_LAST: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)
_TICKS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def not_above(value: pa.Scalar[Any], data_type: Any) -> Any:
    """Return the greatest bound of this type that is not above the value: a scalar or a Python value; None is NULL."""
    if not value.is_valid:
        return None
    if pa.types.is_timestamp(data_type):
        return _moment(value, data_type, up=False)
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        return value.as_py()[:LONGEST]
    return value.cast(data_type)


def not_below(value: pa.Scalar[Any], data_type: Any) -> Any:
    """Return the least bound of this type that is not below the value. Text is ordered by its UTF-8 bytes."""
    if not value.is_valid:
        return None
    if pa.types.is_timestamp(data_type):
        return _moment(value, data_type, up=True)
    if pa.types.is_string(data_type):
        return _text_above(value.as_py())
    if pa.types.is_binary(data_type):
        return _bytes_above(value.as_py())
    return value.cast(data_type)


def _text_above(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    for at in range(LONGEST - 1, -1, -1):
        code = ord(text[at]) + 1
        if code <= _LAST:
            return text[:at] + chr(_SURROGATES.stop if code in _SURROGATES else code)
    return text


def _bytes_above(data: bytes) -> bytes:
    if len(data) <= LONGEST:
        return data
    kept = data[:LONGEST].rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else data


def _moment(value: pa.Scalar[Any], data_type: Any, *, up: bool) -> Any:
    """Return the time in the unit of the type: nanoseconds are rounded, times outside its range are clamped."""
    ticks, unit = value.cast(pa.int64()).as_py(), _TICKS[value.type.unit]
    wanted = _TICKS[data_type.unit]
    found = (
        ticks * (wanted // unit)
        if wanted >= unit
        else (-(-ticks // (unit // wanted)) if up else ticks // (unit // wanted))
    )
    ends = -(1 << 63), (1 << 63) - 1
    return pa.scalar(min(max(found, ends[0]), ends[1]), pa.int64()).cast(data_type)
