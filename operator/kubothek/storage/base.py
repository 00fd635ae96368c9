"""The interface of all object stores.

Keys are relative to the store's root, use ``/`` as separator and never start with one. An ETag is opaque, and two
different contents never share one. All methods are thread-safe and raise only subclasses of
:class:`kubothek.errors.StoreError`.
"""

from __future__ import annotations

import io
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from http import HTTPMethod
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from kubothek.errors import PreconditionFailed, StoreError

A = TypeVar("A")
B = TypeVar("B")


_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """The access to a store; plain data, sent to executors (pickle, JSON). It holds no secret.

    ``url``              ``s3://bucket[/prefix]`` or ``file:///absolute/path``
    ``endpoint``         S3 endpoint other than AWS, e.g. ``http://10.96.0.70:7070``; None = that of the environment
                         (``AWS_ENDPOINT_URL_S3``, ``AWS_ENDPOINT_URL``), else AWS
    ``keys_dir``         directory with the keys of encrypted metadata, a file each (a mounted Secret)
    ``credentials_dir``  directory with the files ``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY`` and optionally
                         ``AWS_SESSION_TOKEN`` (a mounted Secret); None = boto3's chain (environment, web identity …)
    """

    url: str
    endpoint: str | None = None
    region: str | None = None
    credentials_dir: str | None = None
    keys_dir: str | None = None


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """Metadata of one object; ``size`` in bytes, ``modified`` by the store's clock, aware UTC."""

    key: str
    size: int
    etag: str
    modified: datetime


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The result of the probe: whether concurrent writers are safe here, and the store's clock skew in seconds."""

    put_if_absent: bool
    put_if_match: bool
    clock_skew: float

    @property
    def conditional_writes(self) -> bool:
        """True if a compare-and-swap has exactly one winner, which the commit protocol needs."""
        return self.put_if_absent and self.put_if_match


@dataclass(frozen=True, slots=True)
class Presigned:
    """A request that the store accepts from any holder; ``headers`` are signed and must be sent along."""

    url: str
    headers: Mapping[str, str]


class Staged(Protocol):
    """An object in the store that is invisible until it enters. Raises StoreError."""

    @property
    def size(self) -> int:
        """Bytes that were written."""

    def write(self, data: bytes | memoryview, /) -> None:
        """Append bytes."""

    def memory(self, start: int, stop: int, /) -> Any:
        """Return written bytes as a buffer over the store's copy; ``start`` is a multiple of 64 KiB."""

    def begin_sync(self) -> None:
        """Start the write-out to disk without waiting for it."""

    def sync(self) -> None:
        """Wait until the written bytes are on disk; :meth:`enter` does so, too."""

    def enter(self) -> None:
        """Replace the object at the key atomically, and durably with the next :meth:`Store.flush`."""


class Store(ABC):
    """A flat space of immutable objects, and a few that are replaced by compare-and-swap."""

    config: StoreConfig

    reads_at_once: int = 16
    """Reads of small objects that are faster in threads than one after the other."""

    @property
    def url(self) -> str:
        """The root, for messages."""
        return self.config.url

    def connect(self) -> None:  # noqa: B027 - most have nothing to do
        """Do the setup that the first request of a process would wait for; contacts nothing."""

    @abstractmethod
    def get(self, key: str) -> bytes:
        """Return the whole object. Raises ObjectNotFound."""

    @abstractmethod
    def get_with_info(self, key: str) -> tuple[bytes, ObjectInfo]:
        """Return the whole object with the ETag of exactly these bytes. Raises ObjectNotFound."""

    def get_if_changed(self, key: str, etag: str) -> tuple[bytes, ObjectInfo] | None:
        """Return what :meth:`get_with_info` does, or None if the object still has this ETag. Raises ObjectNotFound."""
        return None if self.stat(key).etag == etag else self.get_with_info(key)

    @abstractmethod
    def stat(self, key: str) -> ObjectInfo:
        """Return size, ETag and time without the bytes. Raises ObjectNotFound."""

    @abstractmethod
    def open(self, key: str) -> io.BufferedIOBase:
        """Return a seekable reader that fetches ranges as they are read. Raises ObjectNotFound."""

    @abstractmethod
    def put(self, key: str, data: bytes | memoryview) -> str:
        """Write the object, atomically and durably, replacing any; returns its ETag."""

    def put_many(self, objects: Sequence[tuple[str, bytes | memoryview]]) -> None:
        """Write small objects, each as :meth:`put` does, but durable only with the next :meth:`flush`.

        Keys must be new, or content-addressed: another writer of such a key writes the same bytes. They are never
        swapped. After an error, any of the objects may exist.
        """
        for key, data in objects:
            self.put(key, data)

    @abstractmethod
    def put_if_absent(self, key: str, data: bytes | memoryview) -> str:
        """Write the object if the key is free; returns its ETag. Raises PreconditionFailed.

        A retry after a lost response can fail because its own first attempt succeeded: the caller reads and compares.
        """

    @abstractmethod
    def put_if_match(self, key: str, data: bytes | memoryview, etag: str) -> str:
        """Replace the object if it still has this ETag; return the new one. Raises PreconditionFailed, also if gone."""

    @abstractmethod
    def upload(self, key: str, source: io.BufferedIOBase) -> str:
        """Write a large object from a seekable stream, in parts where the store needs it; returns its ETag."""

    def stage(self, key: str) -> AbstractContextManager[Staged] | None:
        """Stage an object that is read once more before it enters; one that does not is deleted after the context.

        Its key must be content-addressed, as in :meth:`put_many`. Returns None if the store cannot read invisible
        objects: then :meth:`upload` a source that ends with an error.
        """
        return None

    def flush(self, keys: Iterable[str]) -> None:  # noqa: B027 - most stores have nothing to do
        """Make these objects durable, whichever process entered them or wrote them with :meth:`put_many`."""

    @abstractmethod
    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """Return all objects whose key starts with ``prefix``, lazily, in key order (UTF-8), after ``start_after``."""

    @abstractmethod
    def list_names(self, directory: str) -> Iterator[str]:
        """Return the names directly below ``directory`` (``""`` or ending with ``/``), in key order.

        Directories end with ``/``. The cost grows with these names, not with the objects below them.
        """

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> int:
        """Delete the objects, in batches; absent ones are no error. Returns the number of requested keys."""

    def abort_uploads(self, prefix: str, before: datetime) -> int:
        """Abort multipart uploads below ``prefix`` that began before this time by the store's clock; return the number.

        A crash leaves such uploads behind. Returns 0 for a store without them. Raises AccessDenied if the permission is
        missing, and StoreError if the server does not support it.
        """
        return 0

    def together(self, first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
        """Return the results of two independent operations on this store.

        This method runs one after the other; a store with latency overlaps them. An exception is raised once both have
        ended: the first one's if both raise. The second operation must not call this method itself.
        """
        return first(), second()

    def open_file(self, key: str) -> io.BufferedReader | None:
        """Return the object as an open file, so that the kernel can send it; None if objects are not files.

        Raises ObjectNotFound.
        """
        return None

    def check_no_links(self, keys: Iterable[str]) -> None:  # noqa: B027 - most stores have none
        """Raise AccessDenied if one of these objects is, or lies below, a symbolic link; absent ones are accepted.

        For libraries that open files of a store themselves. A link created after this check is followed.
        """

    def presigned(
        self, method: HTTPMethod, key: str, seconds: int, headers: Mapping[str, str] = _NO_HEADERS
    ) -> Presigned | None:
        """Return a request to GET or HEAD this one object for so long, or to PUT it if there is none.

        ``headers``: more that are signed, such as ``x-amz-…``, which S3 accepts only signed. Returns None if the store
        has no such requests.
        """
        return None

    @abstractmethod
    def probe(self) -> Capabilities:
        """Test conditional writes on keys of its own under ``.kubothek/probe/``, and clean up.

        Raises the errors of any later call: BucketNotFound, InvalidCredentials, AccessDenied, StoreUnavailable.
        """


# The probe of a store: conditional writes and clock skew.


PROBE_PREFIX = ".kubothek/probe/"


def probe_store(store: Store) -> Capabilities:
    """Try both conditional writes, also the case that must fail: some servers accept the header and ignore it.

    Raises the errors of any call; only a refusal of the conditional request itself counts as a result.
    """
    key = f"{PROBE_PREFIX}{secrets.token_hex(8)}"
    new, swapped = f"{key}-new", f"{key}-swapped"
    before = time.time()
    first = store.put(swapped, b"1")
    after = time.time()
    try:
        skew = _skew(store.stat(swapped).modified, before, after)
        absent = _succeeds(lambda: store.put_if_absent(new, b"2")) and not _succeeds(
            lambda: store.put_if_absent(new, b"3")
        )
        match = _succeeds(lambda: store.put_if_match(swapped, b"4", first)) and not _succeeds(
            lambda: store.put_if_match(swapped, b"5", first)
        )
    finally:
        store.delete([new, swapped])
    return Capabilities(put_if_absent=absent, put_if_match=match, clock_skew=skew)


def _skew(modified: datetime, before: float, after: float) -> float:
    """Return the least possible skew in seconds, positive if the store is ahead; S3 rounds times down to seconds."""
    earliest = modified.timestamp()
    latest = earliest + (0 if modified.microsecond else 1)
    return max(earliest - after, 0.0) + min(latest - before, 0.0)


def _succeeds(write: Callable[[], str]) -> bool:
    """Return whether a conditional write succeeded; a store without them may refuse each."""
    try:
        write()
    except PreconditionFailed:
        return False
    except StoreError as error:
        if type(error) is StoreError:
            return False
        raise
    return True
