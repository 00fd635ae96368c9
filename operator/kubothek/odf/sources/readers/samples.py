"""The beginning of a text file, and what types it lets expect (RD-09)."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from kubothek.ingest.readers.streams import TextStream

SAMPLE_BYTES: Final = 16 << 20
"""What inference looks at, or 1000 rows if those are more: so all of most files."""
_ROWS: Final = 1000
_MOST_BYTES: Final = 256 << 20


def first_lines(stream: TextStream) -> bytes:
    """The sample, up to a line's end."""
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
    """Types as they were inferred, in those that a ledger has: times in UTC, and text for what had no values."""
    return pa.schema([pa.field(field.name, _kind(field.type)) for field in schema])


def _kind(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    return pa.string() if pa.types.is_null(kind) else kind


def without_times(kind: Any) -> pa.DataType:
    """JSON has no times: what only looks like one is the text that it is."""
    if pa.types.is_timestamp(kind) or pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(without_times(field.type)) for field in kind])
    return pa.list_(without_times(kind.value_type)) if pa.types.is_list(kind) else kind
