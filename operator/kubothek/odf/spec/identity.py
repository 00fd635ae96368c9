"""The identity of a dataset: ``did:odf``, the public half of an ed25519 key pair (ID-01 to ID-06).

The holder of the private key can prove that a dataset is theirs, with no authority in between. So Kubothek keeps the
key, unlike the reference, which throws it away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from kubothek.errors import FormatInvalid
from kubothek.odf.spec import multibase
from kubothek.odf.spec.multihash import Codec, split_varint, varint

_ODF: Final = "did:odf:"
_KEY: Final = 32


@dataclass(frozen=True, slots=True)
class DatasetId:
    """The identity of a dataset: 32 bytes of an ed25519 public key; ``str()`` is ``did:odf:fed01…``."""

    key: bytes

    def __post_init__(self) -> None:
        if len(self.key) != _KEY:
            raise FormatInvalid(f"a dataset id holds an ed25519 key of {_KEY} bytes, not of {len(self.key)}")

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Parse the binary form: codec, key. Raises FormatInvalid."""
        codec, key = split_varint(data)
        if codec != Codec.ED25519_PUB:
            raise FormatInvalid(
                f"a dataset id with a key of type {codec:#x}: ed25519 ({Codec.ED25519_PUB:#x}) is known"
            )
        return cls(key)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``did:odf:…``, in any final base. Raises FormatInvalid."""
        if not text.startswith(_ODF):
            raise FormatInvalid(f"{text[:100]!r} is no dataset id: one starts with {_ODF!r}")
        return cls.from_bytes(multibase.decode(text.removeprefix(_ODF)))

    def __bytes__(self) -> bytes:
        return varint(Codec.ED25519_PUB) + self.key

    def __str__(self) -> str:
        return _ODF + multibase.encode(bytes(self))

    @property
    def did_key(self) -> str:
        """The same identity under the method ``did:key`` (ID-05)."""
        return "did:key:" + multibase.encode_base58(bytes(self))

    def signed(self, message: bytes, signature: bytes) -> bool:
        """Return whether the holder of the private key signed this message."""
        try:
            Ed25519PublicKey.from_public_bytes(self.key).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True, slots=True, repr=False)
class OwnerKey:
    """The private half; ``seed`` (32 bytes, RFC 8032) must be kept, and kept secret."""

    seed: bytes

    @classmethod
    def new(cls) -> Self:
        """Generate a new pair."""
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    @property
    def dataset_id(self) -> DatasetId:
        """The identity that the key proves."""
        return DatasetId(self._key().public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """Return the signature, 64 bytes, which :meth:`DatasetId.signed` checks."""
        return self._key().sign(message)

    def _key(self) -> Ed25519PrivateKey:
        try:
            return Ed25519PrivateKey.from_private_bytes(self.seed)
        except ValueError:
            raise FormatInvalid(f"an ed25519 private key has {_KEY} bytes, not {len(self.seed)}") from None

    def __repr__(self) -> str:
        return f"OwnerKey of {self.dataset_id}"
