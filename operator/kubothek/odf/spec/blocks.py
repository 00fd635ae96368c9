"""The block file: a MetadataBlock inside of a Manifest, hashed as a whole (HS-10, HS-11).

A block that was read is passed on as its bytes, never serialised again. The reference wrote ``Timestamp`` structs
without alignment up to manifest version 2, which is what Kubothek writes, and aligned since version 3; both are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Self

import flatbuffers

from kubothek.errors import FormatInvalid, InputError, UnsupportedVersion
from kubothek.odf.spec.decode import NEWER, REMEDY, Decoder
from kubothek.odf.spec.encode import Encoder
from kubothek.odf.spec.events import MetadataBlock
from kubothek.odf.spec.multihash import Codec, Multihash
from kubothek.odf.spec.timestamps import Timestamp

LARGEST: Final = 64 << 20
"""The size of the largest block that is read, in bytes; the specification has no limit, but memory does."""


class Dialect(IntEnum):
    """The version of the manifest, which decides how a ``Timestamp`` is aligned."""

    UNALIGNED = 2
    ALIGNED = 3


_ALIGNMENT: Final = {Dialect.UNALIGNED: 1, Dialect.ALIGNED: 4}


@dataclass(frozen=True, slots=True)
class Block:
    """A block as it is stored, and its content.

    ``unknown``  what its bytes have beyond the content, by path: parts of later versions of the specification
    """

    data: bytes
    hash: Multihash
    dialect: Dialect
    content: MetadataBlock
    unknown: tuple[str, ...] = ()

    @classmethod
    def encode(cls, content: MetadataBlock, dialect: Dialect = Dialect.UNALIGNED) -> Self:
        """Encode a new block in its canonical form. Raises InputError for what the format cannot hold."""
        data = _manifest(dialect, Encoder(_ALIGNMENT[dialect]).finish(content))
        return cls(data, Multihash.sha3(data), dialect, content)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode a stored block. Raises FormatInvalid, UnsupportedVersion."""
        version, inner = _content(data)
        decoder = Decoder(inner)
        content: MetadataBlock = decoder.root(MetadataBlock)
        return cls(data, Multihash.sha3(data), version, content, tuple(decoder.unknown))

    @property
    def canonical(self) -> bool:
        """Whether the bytes are as :meth:`encode` writes them: the reference serialises blocks again and compares."""
        try:
            return Block.encode(self.content, self.dialect).data == self.data
        except InputError:
            return False


def link_of(data: bytes) -> tuple[int, Multihash | None]:
    """Return a stored block's sequence number and the block before it, decoding nothing else. Raises FormatInvalid."""
    decoder = Decoder(_content(data)[1])
    link: Link = decoder.root(Link)
    return link.sequence_number, link.prev_block_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The first fields of a MetadataBlock."""

    system_time: Timestamp
    prev_block_hash: Multihash | None
    sequence_number: int


def _content(data: bytes) -> tuple[Dialect, bytes]:
    if len(data) > LARGEST:
        raise FormatInvalid(f"a block of {len(data)} bytes: at most {LARGEST} are read")
    kind, version, inner = _open(data)
    if kind != Codec.METADATA_BLOCK:
        raise FormatInvalid(f"manifest of kind {kind:#x}: a block has {Codec.METADATA_BLOCK:#x}")
    if version not in _ALIGNMENT:
        known = " and ".join(str(each.value) for each in Dialect)
        if version > max(Dialect):
            raise UnsupportedVersion(f"block: {NEWER} (manifest version {version}, {known} are read); {REMEDY}")
        raise FormatInvalid(f"manifest version {version} is obsolete: {known} are read")
    return Dialect(version), inner


# A Manifest has scalars of other widths than the tables of ``events``, and is the same in all dialects.


def _manifest(dialect: Dialect, content: bytes) -> bytes:
    builder: Any = flatbuffers.Builder()
    inner = builder.CreateByteVector(content)
    builder.StartObject(3)
    builder.PrependInt64Slot(0, Codec.METADATA_BLOCK, 0)
    builder.PrependInt32Slot(1, dialect, 0)
    builder.PrependUOffsetTRelativeSlot(2, inner, 0)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


def _open(data: bytes) -> tuple[int, int, bytes]:
    decoder = Decoder(data)
    position = decoder.follow(0)
    vtable = position - decoder.scalar(("i", 4), position)
    size = decoder.scalar(("u", 2), vtable)
    kind, version, content = (decoder.slot(number, position, vtable, size) for number in range(3))
    if content is None:
        raise FormatInvalid("a manifest without content")
    return (
        decoder.scalar(("u", 8), kind) if kind is not None else 0,
        decoder.scalar(("i", 4), version) if version is not None else 0,
        decoder.bytes_at(decoder.follow(content), "Manifest.content"),
    )
