"""A dataset of another party by the simple transfer protocol (RFC-007): four kinds of objects, read only."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from kubothek.ingest.fetch.policy import UrlPolicy
from kubothek.odf.named import Named
from kubothek.odf.spec.multihash import Multihash

PIECE: Final = 1 << 20
"""Bytes per read: each read takes Python's lock twice, and many threads compete for it."""


class Stream(Protocol):
    """Bytes read in order."""

    def read(self, size: int, /) -> bytes | memoryview:
        """Return at most ``size`` bytes, valid until the next read; none at the end.

        Raises StoreUnavailable if the connection breaks.
        """


class Repository(Protocol):
    """Source of a dataset. It verifies nothing: the caller knows the hash.

    All methods may be called from several threads, and raise only StoreError subclasses: ObjectNotFound,
    InvalidCredentials, AccessDenied, StoreUnavailable.
    """

    @property
    def url(self) -> str:
        """Return the URL for messages."""

    def head(self) -> Multihash:
        """Return the last block. Raises DatasetNotFound, ChainCorrupt for an invalid reference."""

    def block(self, block: Multihash) -> bytes:
        """Return the unverified bytes of this block, at most the largest size of a block."""

    def size(self, link: Multihash) -> int:
        """Return the size of the data object of this hash, which no block says of a linked one (RFC-017)."""

    def stream(self, named: Named, start: int) -> AbstractContextManager[Stream]:
        """Stream the bytes of an object from a position on."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Access to a repository, besides its URL.

    ``token``            a bearer token, for http and https
    ``ca_file``          certificates of trusted authorities, for https, in place of the machine's
    ``policy``           allowed hosts and addresses over http and https; None: any
    ``endpoint``, ``region``, ``credentials_dir``   of S3, as in a StoreConfig
    ``objects_at_once``  number of concurrent transfers
    """

    token: str | None = None
    ca_file: str | None = None
    policy: UrlPolicy | None = None
    endpoint: str | None = None
    region: str | None = None
    credentials_dir: str | None = None
    objects_at_once: int = 8
