"""Stores without conditional writes: the same protocol for one writer at a time.

No request there both compares and writes, so each conditional write becomes a read and a plain write. That is correct
while no other program writes in between: one owner, one commit at a time. Only the operator can ensure that
(commit-protocol, "What a store must offer").
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TypeVar

from kubothek.errors import ObjectNotFound, PreconditionFailed
from kubothek.storage import Capabilities, ObjectInfo, Staged, Store

A = TypeVar("A")
B = TypeVar("B")


class OneWriterStore(Store):
    """A store that imitates conditional writes on one that has none."""

    def __init__(self, inner: Store) -> None:
        self.config = inner.config
        self._inner = inner

    def get(self, key: str) -> bytes:
        return self._inner.get(key)

    def get_with_info(self, key: str) -> tuple[bytes, ObjectInfo]:
        return self._inner.get_with_info(key)

    def get_if_changed(self, key: str, etag: str) -> tuple[bytes, ObjectInfo] | None:
        return self._inner.get_if_changed(key, etag)

    def stat(self, key: str) -> ObjectInfo:
        return self._inner.stat(key)

    def open(self, key: str) -> io.BufferedIOBase:
        return self._inner.open(key)

    def put(self, key: str, data: bytes | memoryview) -> str:
        return self._inner.put(key, data)

    def put_if_absent(self, key: str, data: bytes | memoryview) -> str:
        if self._etag(key) is not None:
            raise PreconditionFailed(f"{key!r} in {self.url} exists already")
        return self._inner.put(key, data)

    def put_if_match(self, key: str, data: bytes | memoryview, etag: str) -> str:
        if self._etag(key) != etag:
            raise PreconditionFailed(f"{key!r} in {self.url} has changed")
        return self._inner.put(key, data)

    def upload(self, key: str, source: io.BufferedIOBase) -> str:
        return self._inner.upload(key, source)

    def stage(self, key: str) -> AbstractContextManager[Staged] | None:
        return self._inner.stage(key)

    def put_many(self, objects: Sequence[tuple[str, bytes | memoryview]]) -> None:
        self._inner.put_many(objects)

    def flush(self, keys: Iterable[str]) -> None:
        self._inner.flush(keys)

    def abort_uploads(self, prefix: str, before: datetime) -> int:
        return self._inner.abort_uploads(prefix, before)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        return self._inner.list(prefix, start_after)

    def list_names(self, directory: str) -> Iterator[str]:
        return self._inner.list_names(directory)

    def together(self, first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
        return self._inner.together(first, second)

    def delete(self, keys: Iterable[str]) -> int:
        return self._inner.delete(keys)

    def probe(self) -> Capabilities:
        return self._inner.probe()

    def _etag(self, key: str) -> str | None:
        try:
            return self._inner.stat(key).etag
        except ObjectNotFound:
            return None
