"""Objects of a store as files of pyiceberg, and the names of those that an export writes."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Final, cast

from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.manifest import ManifestFile, read_manifest_list

from kubothek.storage import Store
from kubothek.storage.immutable_cache import Kept
from kubothek.table.iceberg.locations import Locations

_KEPT_BYTES: Final = 32 << 20
_SYNC_BYTES: Final = 16
"""An Avro file ends with its sync marker, which is also between its blocks (Avro specification, "Object Container
Files").
"""


@dataclass(frozen=True, slots=True)
class Listed:
    """A manifest in a manifest list.

    ``block``  its Avro block there, the same in each list; empty before it is in one
    ``live``   number of its files that the version has
    """

    file: ManifestFile
    block: bytes
    live: int

    @classmethod
    def of(cls, file: ManifestFile, block: bytes = b"") -> Listed:
        """Return it with the number of its live files."""
        return cls(file, block, (file.added_files_count or 0) + (file.existing_files_count or 0))


class StoreFiles:
    """Files of exports in a store.

    ``trusts``  do not read from the store what this process wrote
    """

    def __init__(self, store: Store, locations: Locations, *, trusts: bool = False) -> None:
        self._store = store
        self._locations = locations
        self._trusts = trusts

    def read(self, location: str) -> bytes:
        """Return the bytes of a file. Raises ObjectNotFound; ValueError for damaged ones."""
        key = self._locations.key(location)
        written = _WRITTEN.recall((self._store.url, key)) if self._trusts else None
        return written[0] if written else checked(key, self._store.get(key))

    def manifests(self, manifest_list: str) -> list[Listed]:
        """Return what a manifest list of an export lists."""
        data = self.read(manifest_list)
        files = _manifests(_Stored(manifest_list, data))
        return [Listed.of(file, block) for file, block in zip(files, AvroBuffer.of(data).blocks, strict=True)]

    def write(self, files: Sequence[AvroBuffer]) -> None:
        """Write files that are named by their content."""
        objects = [(self._locations.key(file.location), file.data) for file in files]
        self._store.put_many(objects)
        self._store.flush([key for key, _ in objects])
        for key, data in objects:
            _WRITTEN.keep((self._store.url, key), data, len(data))


def checked(key: str, data: bytes) -> bytes:
    """Return the bytes of a file if their hash is in its name. Raises ValueError."""
    if _digest(data) not in key:
        raise ValueError(f"{key}: the content does not have the hash in the name")
    return data


def manifests_in(key: str, manifest_list: bytes) -> list[ManifestFile]:
    """Return what a manifest list lists, given its key and its bytes. Raises ValueError for damaged ones."""
    return _manifests(_Stored(key, checked(key, manifest_list)))


def _manifests(manifest_list: InputFile) -> list[ManifestFile]:
    return list(read_manifest_list(manifest_list))


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:32]


class _Stored(InputFile):
    def __init__(self, location: str, data: bytes) -> None:
        super().__init__(location)
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:
        return cast("InputStream", io.BytesIO(self._data))


class AvroBuffer(OutputFile):
    """An Avro file in memory. :attr:`data` is a function of its content: writers choose the sync marker at random."""

    def __init__(self) -> None:
        super().__init__("")
        self._stream = _Kept()

    @classmethod
    def of(cls, data: bytes, blocks: Sequence[bytes] | None = None) -> AvroBuffer:
        """Return a file with the header of another one, given its bytes, and with its blocks or others."""
        buffer = cls()
        buffer._stream.kept = data
        if blocks is not None:
            buffer.blocks = blocks
        return buffer

    def __len__(self) -> int:
        return len(self._stream.kept)

    def exists(self) -> bool:
        return False

    def to_input_file(self) -> InputFile:
        return _Stored(self.location, self.data)

    def create(self, overwrite: bool = False) -> OutputStream:
        return cast("OutputStream", self._stream)

    def name(self, location: Callable[[str], str]) -> None:
        """Set the location, given the hash of the content in hex."""
        self._location = location(_digest(self.data))

    @property
    def blocks(self) -> list[bytes]:
        """The blocks of the closed file, without sync markers: one for each call of its writer."""
        return self._stream.kept.split(self._marker)[1:-1]

    @blocks.setter
    def blocks(self, blocks: Sequence[bytes]) -> None:
        header = self._stream.kept.partition(self._marker)[0]
        self._stream.kept = self._marker.join([header, *blocks, b""])

    @property
    def _marker(self) -> bytes:
        return self._stream.kept[-_SYNC_BYTES:]

    @cached_property
    def data(self) -> bytes:
        """The bytes of the closed file."""
        written = self._stream.kept
        return written.replace(self._marker, sha256(written.replace(self._marker, b"")).digest()[:_SYNC_BYTES])


_WRITTEN: Final[Kept[tuple[str, str], bytes]] = Kept(_KEPT_BYTES)
"""Files by store URL and key: a writer that commits again and again merges the small manifests that it wrote."""


class _Kept(io.BytesIO):
    """Keeps its bytes after it is closed."""

    kept = b""

    def close(self) -> None:
        if not self.closed:
            self.kept = self.getvalue()
        super().close()
