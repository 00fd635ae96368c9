"""The one small interface behind which every object store stands.

Keys are relative to the store's root, use ``/`` as separator and never start with one. An ETag is opaque, and
two different contents never share one. All methods are safe to call from several threads, and raise only
:class:`kubothek.errors.StoreError` subclasses.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from http import HTTPMethod
from typing import Any, Protocol, TypeVar

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """How to reach a store; plain data that travels to executors (pickle, JSON). It holds no secret.

    ``url``              ``s3://bucket[/prefix]`` or ``file:///absolute/path``
    ``endpoint``         S3 endpoint other than AWS, e.g. ``http://10.96.0.70:7070``; None = that of the environment
                         (``AWS_ENDPOINT_URL_S3``, ``AWS_ENDPOINT_URL``), else AWS
    ``keys_dir``         directory with the keys of encrypted metadata, a file each (a mounted Secret)
    ``credentials_dir``  directory with the files ``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY`` and optionally
                         ``AWS_SESSION_TOKEN`` (a mounted Secret); None = boto3's own chain (environment, web
                         identity …)
    """

    url: str
    endpoint: str | None = None
    region: str | None = None
    credentials_dir: str | None = None
    keys_dir: str | None = None


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a listing or a stat tells of one object; ``size`` in bytes, ``modified`` by the store's clock,
    aware UTC.
    """

    key: str
    size: int
    etag: str
    modified: datetime


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the probe found: whether concurrent writers are safe here, and the store's clock skew in seconds."""

    put_if_absent: bool
    put_if_match: bool
    clock_skew: float

    @property
    def conditional_writes(self) -> bool:
        """True when one compare-and-swap has exactly one winner, which the commit protocol needs."""
        return self.put_if_absent and self.put_if_match


@dataclass(frozen=True, slots=True)
class Presigned:
    """A request that the store takes from whoever has it; ``headers`` are signed, and have to be sent along."""

    url: str
    headers: Mapping[str, str]


class Staged(Protocol):
    """An object that a store has and nobody sees: until it enters. Raises StoreError."""

    @property
    def size(self) -> int:
        """Bytes that were written."""

    def write(self, data: bytes | memoryview, /) -> None:
        """The bytes that follow."""

    def memory(self, start: int, stop: int, /) -> Any:
        """Bytes that were written, as a buffer over what the store has of them; ``start`` is a multiple of 64 KiB."""

    def begin_sync(self) -> None:
        """Have the disk take what was written, without waiting for it."""

    def sync(self) -> None:
        """Have what was written on the disk; entering does so, too."""

    def enter(self) -> None:
        """Be the object, atomically, whatever was there, and durably with the next :meth:`Store.flush`."""


class Store(ABC):
    """A flat space of immutable objects and a few that are swapped conditionally."""

    config: StoreConfig

    @property
    def url(self) -> str:
        """The root, for messages."""
        return self.config.url

    def connect(self) -> None:  # noqa: B027 - most have nothing to do
        """Do now what the first request of a process would wait for; contacts nothing."""

    @abstractmethod
    def get(self, key: str) -> bytes:
        """Return the whole object. Raises ObjectNotFound."""

    @abstractmethod
    def get_with_info(self, key: str) -> tuple[bytes, ObjectInfo]:
        """Return the whole object with the ETag of exactly these bytes. Raises ObjectNotFound."""

    def get_if_changed(self, key: str, etag: str) -> tuple[bytes, ObjectInfo] | None:
        """As :meth:`get_with_info`, or None if the object still has this ETag. Raises ObjectNotFound."""
        return None if self.stat(key).etag == etag else self.get_with_info(key)

    @abstractmethod
    def stat(self, key: str) -> ObjectInfo:
        """Size, ETag and time without the bytes. Raises ObjectNotFound."""

    @abstractmethod
    def open(self, key: str) -> io.BufferedIOBase:
        """Return a seekable reader that fetches ranges as they are read. Raises ObjectNotFound."""

    @abstractmethod
    def put(self, key: str, data: bytes | memoryview) -> str:
        """Write the object, atomically and durably, whatever was there; returns its ETag."""

    def put_many(self, objects: Sequence[tuple[str, bytes]]) -> None:
        """Write small objects, each as :meth:`put` does, but durable only with the next :meth:`flush`.

        They have to be named by their content: who writes such a key elsewhere writes the same, and nobody swaps it.
        After an error, any of them may be there.
        """
        for key, data in objects:
            self.put(key, data)

    @abstractmethod
    def put_if_absent(self, key: str, data: bytes | memoryview) -> str:
        """Write the object if the key is free; returns its ETag. Raises PreconditionFailed.

        A retry after a lost response can lose against its own first try: the caller reads and compares.
        """

    @abstractmethod
    def put_if_match(self, key: str, data: bytes | memoryview, etag: str) -> str:
        """Replace the object if it still has this ETag; returns the new one. Raises PreconditionFailed (also
        if gone).
        """

    @abstractmethod
    def upload(self, key: str, source: io.BufferedIOBase) -> str:
        """Write a large object from a seekable stream, in parts where the store wants it; returns its ETag."""

    def stage(self, key: str) -> AbstractContextManager[Staged] | None:
        """For an object that is read once more before it enters; of one that does not, nothing stays after the context.

        It has to be named by its content, as those of :meth:`put_many`. None where a store reads nothing that it does
        not show: there, :meth:`upload` a source that ends with an error.
        """
        return None

    def flush(self, keys: Iterable[str]) -> None:  # noqa: B027 - most stores have nothing to do
        """Make durable these objects, which entered or were put with many, whoever did that."""

    @abstractmethod
    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """Return all objects whose key starts with ``prefix``, in key order (UTF-8 bytes), after ``start_after``;
        lazily.
        """

    @abstractmethod
    def list_names(self, directory: str) -> Iterator[str]:
        """Return the names of what is directly below ``directory`` (``""`` or ending with ``/``), in key order.

        Directories end with ``/``. The cost is that of these names, not of the objects below them.
        """

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> int:
        """Delete the objects, in batches; absent ones are no error. Returns how many keys were asked for."""

    def abort_uploads(self, prefix: str, before: datetime) -> int:
        """Abort the uploads in parts below ``prefix`` that began before this time by the store's clock, as a crash
        leaves them behind; returns how many they were. None where an unfinished upload leaves nothing.

        Raises AccessDenied where the right to do so is missing, and StoreError where the server knows no such thing.
        """
        return 0

    def together(self, first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
        """Return the results of two pieces of work on this store that need not wait for each other.

        Here one comes after the other; a store whose answers take their time overlaps them. What either raises is
        raised once both have ended: the first one's if both raise. The second must not ask for such a thing itself.
        """
        return first(), second()

    def open_file(self, key: str) -> io.BufferedReader | None:
        """The object as an open file, for a caller that has the kernel send it; None where objects are not files.

        Raises ObjectNotFound.
        """
        return None

    def check_no_links(self, keys: Iterable[str]) -> None:  # noqa: B027 - most stores have none
        """Raise AccessDenied if one of these objects is, or lies below, a symbolic link; absent ones are fine.

        For libraries that open the files of a store themselves. A link that is made after this check is followed.
        """

    def presigned(self, method: HTTPMethod, key: str, seconds: int) -> Presigned | None:
        """A request by which anybody can GET this one object for so long, or PUT it if there is none; None where the
        store has no such thing.
        """
        return None

    @abstractmethod
    def probe(self) -> Capabilities:
        """Try the conditional writes for real, on keys of its own under ``.kubothek/probe/``, and clean up.

        Raises what any later call would: BucketNotFound, InvalidCredentials, AccessDenied, StoreUnavailable.
        """
