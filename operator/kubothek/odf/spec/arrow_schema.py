"""The bytes of ``SetDataSchema``: an Arrow schema as the root of a FlatBuffers buffer (SD-01, ODF 0.34.1, RFC-010).

Arrow's IPC has the same table inside of a Message. Both directions only move the root: the bytes of the table stay as
Arrow wrote them.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import pyarrow as pa

from kubothek.errors import FormatInvalid
from kubothek.odf.spec.decode import Decoder
from kubothek.odf.spec.digest_values import is_listed

_CONTINUATION: Final = b"\xff\xff\xff\xff"
_HEADER_SLOT: Final = 2


def encode_schema(schema: pa.Schema) -> bytes:
    """Return the schema as the event holds it, without metadata, which readers do not compare."""
    message = schema.remove_metadata().serialize().to_pybytes()[8:]  # without the continuation and the length
    decoder = Decoder(message)
    position = decoder.follow(0)
    vtable = position - decoder.scalar(("i", 4), position)
    header = decoder.slot(_HEADER_SLOT, position, vtable, decoder.scalar(("u", 2), vtable))
    assert header is not None
    return struct.pack("<II", decoder.follow(header) + 8, 0) + message  # 8 bytes keep the alignment


def decode_schema(data: bytes) -> pa.Schema:
    """Return the schema of an event. Raises FormatInvalid."""
    if (root := Decoder(data).follow(0)) > len(data):
        raise FormatInvalid("the schema of the event starts behind its end")
    # Message {version: V5, header_type: Schema, header}: vtable at 4, table at 16, its header offset at 24
    vtable = struct.pack("<HHHHHH", 10, 12, 4, 6, 8, 0)
    start = 32
    table = struct.pack("<iHBxI", 12, 4, 1, start + root - 24)
    message = struct.pack("<I", 16) + vtable + table + b"\0" * 4 + data
    message += b"\0" * (-len(message) % 8)
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(_CONTINUATION + struct.pack("<i", len(message)) + message))
        for field in schema:
            _read_texts(field)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FormatInvalid(f"Arrow cannot read the schema of the event: {error}") from None
    return schema


def _read_texts(field: Any) -> None:
    """Read all names of a field: names that are not UTF-8 raise UnicodeDecodeError only when they are read."""
    kind, _ = field.type, field.name
    if pa.types.is_timestamp(kind):
        _ = kind.tz
    elif pa.types.is_struct(kind):
        for child in kind:
            _read_texts(child)
    elif is_listed(kind):
        _read_texts(kind.value_field)
