"""A store in memory, consistent as S3 is: fast enough to try thousands of interleavings."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from kubothek.errors import ObjectNotFound, PreconditionFailed
from kubothek.storage import Capabilities, ObjectInfo, Store, StoreConfig


class MemoryStore(Store):
    """Objects in a dictionary; an ETag is a number that never comes back."""

    def __init__(self) -> None:
        self.config = StoreConfig("file:///memory")
        self.objects: dict[str, tuple[bytes, ObjectInfo]] = {}
        self._writes = 0

    def get(self, key: str) -> bytes:
        return self.get_with_info(key)[0]

    def get_with_info(self, key: str) -> tuple[bytes, ObjectInfo]:
        if key not in self.objects:
            raise ObjectNotFound(key)
        return self.objects[key]

    def stat(self, key: str) -> ObjectInfo:
        return self.get_with_info(key)[1]

    def open(self, key: str) -> io.BufferedIOBase:
        return io.BytesIO(self.get(key))

    def put(self, key: str, data: bytes | memoryview) -> str:
        self._writes += 1
        info = ObjectInfo(key, len(data), str(self._writes), datetime.now(UTC))
        self.objects[key] = bytes(data), info
        return info.etag

    def put_if_absent(self, key: str, data: bytes | memoryview) -> str:
        if key in self.objects:
            raise PreconditionFailed(key)
        return self.put(key, data)

    def put_if_match(self, key: str, data: bytes | memoryview, etag: str) -> str:
        if key not in self.objects or self.objects[key][1].etag != etag:
            raise PreconditionFailed(key)
        return self.put(key, data)

    def upload(self, key: str, source: io.BufferedIOBase) -> str:
        return self.put(key, source.read())

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        keys = sorted(self.objects)
        for key in keys[bisect_right(keys, start_after) :]:
            if key.startswith(prefix):
                yield self.objects[key][1]

    def list_names(self, directory: str) -> Iterator[str]:
        below = (key.removeprefix(directory) for key in sorted(self.objects) if key.startswith(directory))
        yield from dict.fromkeys(name[: name.find("/") + 1] or name for name in below)

    def delete(self, keys: Iterable[str]) -> int:
        return sum(self.objects.pop(key, None) is not None or True for key in list(keys))

    def probe(self) -> Capabilities:
        return Capabilities(put_if_absent=True, put_if_match=True, clock_skew=0.0)

    def copy(self) -> MemoryStore:
        """The same objects, to go on from more than once."""
        twin = MemoryStore()
        twin.objects = dict(self.objects)
        twin._writes = self._writes
        return twin
