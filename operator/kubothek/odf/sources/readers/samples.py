"""The beginning of a text file, and the types inferred from it (RD-09)."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from kubothek.ingest.readers.streams import TextStream

SAMPLE_BYTES: Final = 16 << 20
"""Bytes that inference reads, or 1000 rows if those are more: for most files, all of it."""
_ROWS: Final = 1000
_MOST_BYTES: Final = 256 << 20


def first_lines(stream: TextStream) -> bytes:
    """Return the sample, up to the end of a line."""
    pieces: list[bytes] = []
    size = lines = 0
    while (size < SAMPLE_BYTES or lines < _ROWS) and size < _MOST_BYTES:
        if not (piece := stream.read(SAMPLE_BYTES)):
            return b"".join(pieces)
        pieces.append(piece)
        size += len(piece)
        lines += piece.count(b"\n")
    data = b"".join(pieces)
    return data[: data.rfind(b"\n") + 1] or data


def inferred(schema: pa.Schema) -> pa.Schema:
    """Return inferred types as types of a ledger: timestamps in UTC, and text for columns without values."""
    return pa.schema([pa.field(field.name, _kind(field.type)) for field in schema])


def _kind(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    return pa.string() if pa.types.is_null(kind) else kind


def without_times(kind: Any) -> pa.DataType:
    """Return text in place of inferred timestamps: JSON has no type for them."""
    if pa.types.is_timestamp(kind) or pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(without_times(field.type)) for field in kind])
    return pa.list_(without_times(kind.value_type)) if pa.types.is_list(kind) else kind
