"""Bloom filters as Xskipper stores them: Java's serialisation of an object with one of Spark's sketches.

Source: Spark's ``BloomFilterImpl`` and Murmur3_x86_32. Kubothek writes version 1 of the sketch with the class ids of
Spark 4.0, byte for byte as Xskipper does there. It reads what any version of Xskipper and Spark has written.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kubothek.errors import SkippingUnreadable
from kubothek.table.skipping.bloom.sketch import Bits

BLOCK: Final = 1024
"""Size in bytes of the blocks in which Java writes the payload, each with a header."""
LONG_HEADER: Final = 5
SHORT_HEADER: Final = 2
_SHORT: Final = 255
"""Maximum bytes of a last block with the short header."""
BLOCK_SHORT: Final = 0x77
_BLOCK_LONG: Final = 0x7A
_END: Final = 0x78
_NULL: Final = 0x70
_REFERENCE: Final = 0x71
_OBJECT_FIELDS: Final = b"L["


def _utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


HEAD: Final = b"".join(
    (
        b"\xac\xed\x00\x05\x73\x72",
        _utf("io.xskipper.index.metadata.BloomFilterMetaData"),
        b"\x00\x00\x00\x00\x00\x00\x00\x01\x02\x00\x01L",
        _utf("bloomFilter"),
        b"\x74",
        _utf("Lorg/apache/spark/util/sketch/BloomFilter;"),
        b"\x78\x72",
        _utf("io.xskipper.index.metadata.MetadataType"),
        struct.pack(">q", 2730577011615227496),
        b"\x02\x00\x00\x78\x70\x73\x72",
        _utf("org.apache.spark.util.sketch.BloomFilterImpl"),
        struct.pack(">q", 4129084604229078036),
        b"\x03\x00\x02I",
        _utf("numHashFunctions"),
        b"L",
        _utf("bits"),
        b"\x74",
        _utf("Lorg/apache/spark/util/sketch/BitArray;"),
        b"\x78\x70",
    )
)
"""The bytes before the payload, the same in every filter that Kubothek writes."""
_SKETCH: Final = _utf("org.apache.spark.util.sketch.BloomFilterImpl")
_SKETCH_V2: Final = _utf("org.apache.spark.util.sketch.BloomFilterImplV2")


def render(bits: Bits, hashes: int) -> bytes:
    """Return the filter of these bits, a multiple of 64, with this many hash functions."""
    words = np.packbits(bits, bitorder="little").view("<u8").astype(">u8")
    return wrapped(struct.pack(">iii", 1, hashes, len(words)) + words.tobytes())


def wrapped(payload: bytes) -> bytes:
    """Return the object that holds this payload."""
    whole, rest = divmod(len(payload), BLOCK)
    blocks = np.empty((whole, LONG_HEADER + BLOCK), np.uint8)
    blocks[:, :LONG_HEADER] = np.frombuffer(struct.pack(">BI", _BLOCK_LONG, BLOCK), np.uint8)
    blocks[:, LONG_HEADER:] = np.frombuffer(payload, np.uint8, whole * BLOCK).reshape(whole, BLOCK)
    last = b""
    if rest:
        short = rest <= _SHORT
        header = struct.pack(">BB", BLOCK_SHORT, rest) if short else struct.pack(">BI", _BLOCK_LONG, rest)
        last = header + payload[whole * BLOCK :]
    return b"".join((HEAD, blocks.tobytes(), last, bytes([_END])))


def payload_of(data: bytes) -> bytes:
    """Return the payload of an object that any version has written. Raises SkippingUnreadable."""
    for name in (_SKETCH_V2, _SKETCH):
        if (start := data.find(name)) >= 0:
            try:
                return _blocks(data, _end_of_class(data, start + len(name)))
            except (IndexError, struct.error) as error:
                raise SkippingUnreadable(f"a Bloom filter ends too early: {error}") from error
    raise SkippingUnreadable("a Bloom filter that holds no sketch of Spark's")


def _end_of_class(data: bytes, at: int) -> int:
    """Return the end of a class descriptor whose name ends at ``at``: its id, flags, fields, and no superclass."""
    at += 9
    (count,) = struct.unpack_from(">H", data, at)
    at += 2
    for _ in range(count):
        is_object = data[at] in _OBJECT_FIELDS
        at += 1 + 2 + struct.unpack_from(">H", data, at + 1)[0]
        if is_object:
            at += 5 if data[at] == _REFERENCE else 3 + struct.unpack_from(">H", data, at + 1)[0]
    if data[at] != _END or data[at + 1] != _NULL:
        raise SkippingUnreadable("a Bloom filter of a class that is not Spark's")
    return at + 2


def _blocks(data: bytes, at: int) -> bytes:
    found = []
    while data[at] != _END:
        if data[at] == BLOCK_SHORT:
            size, start = data[at + 1], at + SHORT_HEADER
        elif data[at] == _BLOCK_LONG:
            size, start = struct.unpack_from(">I", data, at + 1)[0], at + LONG_HEADER
        else:
            raise SkippingUnreadable(f"a Bloom filter with a block of type {data[at]:#x}")
        found.append(data[start : start + size])
        at = start + size
    return b"".join(found)


def offsets(place: npt.NDArray[np.int64], sizes: Any) -> npt.NDArray[np.int64]:
    """Return the offsets of payload bytes in :func:`wrapped` objects, given the payload sizes."""
    block = place // BLOCK
    last = (block == sizes // BLOCK) & (sizes % BLOCK <= _SHORT)
    header = np.where(last, SHORT_HEADER, LONG_HEADER)
    found: npt.NDArray[np.int64] = len(HEAD) + block * LONG_HEADER + header + place
    return found


def total_size(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the sizes of :func:`wrapped` objects for these payload sizes."""
    rest = sizes % BLOCK
    last = np.where(rest == 0, 0, rest + np.where(rest <= _SHORT, SHORT_HEADER, LONG_HEADER))
    found: npt.NDArray[np.int64] = len(HEAD) + sizes // BLOCK * (BLOCK + LONG_HEADER) + last + 1
    return found
