"""A dataset of another party, as the simple transfer protocol shows it (RFC-007): four kinds of objects, read only."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from kubothek.ingest.fetch.policy import UrlPolicy
from kubothek.odf.named import Named
from kubothek.odf.spec.multihash import Multihash

PIECE: Final = 1 << 20
"""Bytes that are worth a read: each costs two turns of Python's lock, which many threads want."""


class Stream(Protocol):
    """Bytes that come one after the other."""

    def read(self, size: int, /) -> bytes | memoryview:
        """At most so many bytes, which are good until the next are read; none at the end.

        Raises StoreUnavailable if they stop coming.
        """


class Repository(Protocol):
    """Where a dataset is read from. What comes is not checked here: whoever asks knows the hash.

    All methods may be called from several threads, and raise only StoreError subclasses: ObjectNotFound,
    InvalidCredentials, AccessDenied, StoreUnavailable.
    """

    @property
    def url(self) -> str:
        """For messages."""

    def head(self) -> Multihash:
        """The last block. Raises DatasetNotFound, ChainCorrupt for a reference that is none."""

    def block(self, block: Multihash) -> bytes:
        """What is said to be this block; not more than a block may have."""

    def stream(self, named: Named, start: int) -> AbstractContextManager[Stream]:
        """The bytes of an object from a position on."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What it takes to reach a repository besides its URL.

    ``token``            a bearer token, for http and https
    ``ca_file``          certificates of authorities to trust, for https, in place of the machine's
    ``policy``           which hosts and addresses may be asked over http and https; None: any
    ``endpoint``, ``region``, ``credentials_dir``   of S3, as a StoreConfig has them
    ``objects_at_once``  how many are fetched or sent beside each other
    """

    token: str | None = None
    ca_file: str | None = None
    policy: UrlPolicy | None = None
    endpoint: str | None = None
    region: str | None = None
    credentials_dir: str | None = None
    objects_at_once: int = 8
