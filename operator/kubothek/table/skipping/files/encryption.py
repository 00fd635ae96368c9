"""Master keys of encrypted metadata, and Parquet's access to them.

See Xskipper's Metadatastore Spec, "Version 1", PME support. Parquet encrypts each column with a key of its own, and
that key with a *master key*, which Parquet never sees. A key management service wraps and unwraps for it, behind
pyarrow's ``KmsClient``. The client here reads a directory, such as a mounted Secret. It wraps as Parquet's own local
wrapping does (AES-GCM with the key's label as additional data), so Xskipper with such a client reads the same files.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, Final, Self

import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kubothek.errors import SkippingUnreadable
from kubothek.storage import Store
from kubothek.table.skipping.model import Encryption

_SIZES: Final = (16, 24, 32)
_LIFETIME: Final = timedelta(minutes=10)
_NONCE: Final = 12

Clients = Callable[[pe.KmsConnectionConfig], pe.KmsClient]


@dataclass(frozen=True, slots=True)
class MasterKeys:
    """The master keys of one store. ``directory``: has a file for each key, named as its label."""

    directory: Path | None
    plugged: ClassVar[Clients | None] = None
    """Set it to use another key management service, which raises SkippingUnreadable for a key that it lacks."""

    @classmethod
    def of(cls, store: Store) -> Self:
        """Return the keys that the store's configuration names."""
        place = store.config.keys_dir
        return cls(None if place is None else Path(place))

    def sealing(self, encryption: Encryption, columns: Mapping[str, list[str]]) -> pq.FileEncryptionProperties:
        """Return the properties to write a file; ``columns``: leaves by key label. Raises SkippingUnreadable."""
        self.require((encryption.footer_key, *columns))
        config = pe.EncryptionConfiguration(
            footer_key=encryption.footer_key,
            column_keys=dict(columns),
            encryption_algorithm="AES_GCM_V1",
            plaintext_footer=encryption.plaintext_footer,
            double_wrapping=True,
            cache_lifetime=_LIFETIME,
            data_key_length_bits=128,
        )
        found: pq.FileEncryptionProperties = self._factory().file_encryption_properties(
            pe.KmsConnectionConfig(), config
        )
        return found

    def opening(self) -> pq.FileDecryptionProperties:
        """Return the properties to read any file whose keys are available; without keys it opens no encrypted file."""
        found: pq.FileDecryptionProperties = self._factory().file_decryption_properties(
            pe.KmsConnectionConfig(), pe.DecryptionConfiguration(cache_lifetime=_LIFETIME)
        )
        return found

    def require(self, labels: Iterable[str]) -> None:
        """Raise SkippingUnreadable if a key is missing; keys of another service are checked only on use."""
        for label in labels:
            self._check(label)

    def key(self, label: str) -> bytes:
        """Return the master key of this label. Raises SkippingUnreadable."""
        if self.directory is None:
            raise SkippingUnreadable(
                f"no master key {label!r}: name the Secret that has it in keysSecretRef of the ObjectStore"
            )
        if not label or "/" in label or label in (".", ".."):
            raise SkippingUnreadable(f"{label!r} cannot be the label of a key: it is a file name")
        try:
            data = (self.directory / label).read_bytes()
        except OSError as error:
            raise SkippingUnreadable(f"no master key {label!r} in {self.directory}: {error.strerror}") from error
        if len(data) in _SIZES:
            return data
        try:
            data = base64.b64decode(data.strip(), validate=True)
        except binascii.Error:
            data = b""
        if len(data) not in _SIZES:
            raise SkippingUnreadable(f"master key {label!r} in {self.directory}: 16, 24 or 32 bytes, raw or in base64")
        return data

    def _check(self, label: str) -> None:
        if MasterKeys.plugged is None:
            self.key(label)

    def _factory(self) -> pe.CryptoFactory:
        return pe.CryptoFactory(MasterKeys.plugged or (lambda _config: _FileKeys(self)))


class _FileKeys(pe.KmsClient):
    """Wrapping of keys with master keys from files."""

    def __init__(self, keys: MasterKeys) -> None:
        pe.KmsClient.__init__(self)
        self._keys = keys

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        nonce = secrets.token_bytes(_NONCE)
        sealed = self._cipher(master_key_identifier).encrypt(nonce, key_bytes, master_key_identifier.encode())
        return base64.b64encode(nonce + sealed).decode()

    def unwrap_key(self, wrapped_key: str | bytes, master_key_identifier: str) -> bytes:  # type: ignore[override]
        sealed = base64.b64decode(wrapped_key)
        cipher = self._cipher(master_key_identifier)
        try:
            return cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], master_key_identifier.encode())
        except InvalidTag as error:
            raise SkippingUnreadable(
                f"master key {master_key_identifier!r} is not the one it was written with"
            ) from error

    def _cipher(self, label: str) -> AESGCM:
        return AESGCM(self._keys.key(label))
