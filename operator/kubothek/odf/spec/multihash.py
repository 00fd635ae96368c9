"""Hashes that name their function: https://github.com/multiformats/multihash (HS-04 … HS-07)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha3_256
from typing import Final, Self

from kubothek.errors import FormatInvalid
from kubothek.odf.spec import multibase

_VARINT_BYTES: Final = 9
_DIGEST: Final = 32


class Codec(IntEnum):
    """The multicodecs of the specification; the last two are registered by it in the range for private use."""

    SHA2_256 = 0x12
    SHA3_256 = 0x16
    ED25519_PUB = 0xED
    ARROW0_SHA3_256 = 0x300016
    METADATA_BLOCK = 0x400000
    DATASET_SNAPSHOT = 0x400001


_HASHES: Final = frozenset({Codec.SHA2_256, Codec.SHA3_256, Codec.ARROW0_SHA3_256})


def varint(number: int) -> bytes:
    """Encode a number below 2**63 as an unsigned varint: seven bits a byte, the lowest first."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def split_varint(data: bytes) -> tuple[int, bytes]:
    """Return the number that the bytes start with, and the rest. Raises FormatInvalid, also if it is not minimal."""
    number = 0
    for place, byte in enumerate(data[:_VARINT_BYTES]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            if byte == 0 and place:
                break
            return number, data[place + 1 :]
    raise FormatInvalid(f"bytes {data[:_VARINT_BYTES].hex()}… do not start with a varint")


@dataclass(frozen=True, slots=True)
class Multihash:
    """A hash of 32 bytes and its function; ``str()`` is its text in base16."""

    codec: Codec
    digest: bytes

    def __post_init__(self) -> None:
        if self.codec not in _HASHES or len(self.digest) != _DIGEST:
            raise FormatInvalid(f"{len(self.digest)} bytes of {self.codec!r} are no hash that ODF uses")

    @classmethod
    def sha3(cls, data: bytes | memoryview) -> Self:
        """Return the physical hash of an object's bytes (HS-01)."""
        return cls(Codec.SHA3_256, sha3_256(data).digest())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Parse the binary form: codec, length, digest. Raises FormatInvalid."""
        code, rest = split_varint(data)
        length, digest = split_varint(rest)
        if code not in _HASHES:
            raise FormatInvalid(f"hash {data.hex()[:20]}… is of the function {code:#x}, which ODF does not use")
        if length != _DIGEST or len(digest) != _DIGEST:
            raise FormatInvalid(f"hash {data.hex()[:20]}… has {len(digest)} bytes of digest, not {_DIGEST}")
        return cls(Codec(code), digest)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse text in any final base. Raises FormatInvalid."""
        return cls.from_bytes(multibase.decode(text))

    def __bytes__(self) -> bytes:
        return varint(self.codec) + bytes([_DIGEST]) + self.digest

    def __str__(self) -> str:
        return multibase.encode(bytes(self))

    @property
    def short(self) -> str:
        """The last eight characters of the text: its start is the same for all (HS-07)."""
        return str(self)[-8:]
