"""The engine contract on the wire: gRPC methods, and the one message that they all have (EN-03, EN-19).

Every request and every answer is ``message { bytes flatbuffer = 1; }`` of Protocol Buffers, which is a tag, a length,
and the bytes: gRPC gets these as they are, and no code is generated. The definition for other implementations is
spark-images/engine/engine.proto.
"""

from __future__ import annotations

from typing import Final

from kubothek.errors import FormatInvalid

PORT: Final = 5544
"""The port of an engine; engines of kamu listen on 2884."""
SERVICE: Final = "engine.Engine"
EXECUTE_RAW_QUERY: Final = "ExecuteRawQuery"
EXECUTE_TRANSFORM: Final = "ExecuteTransform"
VOLUME: Final = "/opt/engine"
"""The directory in which coordinator and engine exchange files (EN-20)."""

MOST_REQUEST_BYTES: Final = 64 << 20
"""A request names each slice of its inputs: this is room for half a million."""
MOST_ANSWER_BYTES: Final = 4 << 20

_FIELD: Final = 1
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_TAG: Final = bytes([_FIELD << 3 | _BYTES])
_MOST_VARINT: Final = 10


def enveloped(flatbuffer: bytes) -> bytes:
    """Wrap a FlatBuffers message for the protocol."""
    length, size = bytearray(), len(flatbuffer)
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return b"".join((_TAG, length, flatbuffer))


def unwrapped(message: bytes) -> bytes:
    """Unwrap a FlatBuffers message; fields of later versions are skipped. Raises FormatInvalid for other bytes."""
    found, at = b"", 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            _, at = _varint(message, at)
            continue
        if kind == _BYTES:
            length, at = _varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise FormatInvalid(f"the message is no Protocol Buffer: it has a field of kind {kind}")
        if length > len(message) - at:
            raise FormatInvalid(f"the message is cut off: a field of {length} bytes, and {len(message) - at} are left")
        if key == _TAG[0]:
            found = message[at : at + length]
        at += length
    return found


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for number, byte in enumerate(message[at : at + _MOST_VARINT]):
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            return value, at + number + 1
    raise FormatInvalid("the message is no Protocol Buffer: a number in it has no end")
