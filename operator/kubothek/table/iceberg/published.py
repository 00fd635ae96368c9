"""The last export of a table: how the next one finds it, and takes its place.

With a version hint, ``version-hint.text`` names it. An export swaps the hint from the one that it continued from to its
own, so the version of the hint does not go back, and ``metadata-log`` lists what the hint named before: the collector
relies on both.

Without one, it is the table metadata of the latest version, but none above the head (a restored backup can have less).
An export creates the metadata of its version; if it exists, it swaps what it has read. Of two exports at a time, both
can continue from the same one, and the earlier version is then in no ``metadata-log``: the collector knows.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from pyiceberg.exceptions import ValidationError
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot

from kubothek.errors import InvalidKey, ObjectNotFound, TooSlow
from kubothek.storage.immutable_cache import Kept
from kubothek.table.iceberg.locations import Locations
from kubothek.table.iceberg.metadata import columns_of, record_of
from kubothek.table.iceberg.objects import Listed, StoreFiles
from kubothek.table.log.exports import exported_versions
from kubothek.table.log.journal import Journal
from kubothek.table.log.model import keys
from kubothek.table.log.settings import read_settings
from kubothek.words import duration

DAMAGED: Final = (ObjectNotFound, InvalidKey, ValidationError, ValueError, KeyError, TypeError, EOFError, IndexError)
"""What metadata that is missing, or not that of an export, raises when it is read."""
_KEPT_BYTES: Final = 64 << 20
_PARSED: Final = 8
"""Memory of parsed table metadata, as a multiple of its bytes."""
_MANIFEST_BYTES: Final = 2_000
_NEVER_TOO_SLOW: Final = timedelta(seconds=20)
"""Below half of the shortest grace period."""
_RECALLED: Final = 0.5
"""Share of the time limit after which the last export is read again: the rest is for the export that continues it."""


@dataclass(frozen=True, slots=True)
class Found:
    """What may name the last export, and when it was read, by the clock of the journal and the monotonic one.

    ``hint``      version and ETag of the hint, version 0 if it has none; None if there is no hint
    ``versions``  of all table metadata, without a hint
    """

    hint: tuple[int, str] | None
    versions: Collection[int]
    at: tuple[datetime, float]

    @property
    def newest(self) -> int:
        """The latest version that it can be; 0 if there is none."""
        return self.hint[0] if self.hint else max(self.versions, default=0)


@dataclass(frozen=True, slots=True)
class Published:
    """The last export, or none.

    ``hint``       the ETag of the hint; None if there is no hint
    ``table``      version and ETag of its object of table metadata; None if there is none
    ``metadata``   None if there is none, or a part of it that the next export needs is lost or damaged
    ``data``       the bytes of the metadata
    ``snapshots``  those of the metadata, by the key of their record
    ``manifests``  those of its current snapshot
    ``at``         when it was the last, by the clock of the journal and the monotonic one
    """

    hint: str | None
    table: tuple[int, str] | None
    metadata: TableMetadata | None
    data: bytes
    snapshots: Mapping[str, Snapshot]
    manifests: Sequence[Listed]
    at: tuple[datetime, float]

    @property
    def version(self) -> int:
        """The version of the dataset; 0 without metadata."""
        return (self.metadata and self.metadata.current_snapshot_id) or 0


class Publications:
    """Reads, remembers and replaces the last export of a dataset."""

    def __init__(self, journal: Journal, locations: Locations, files: StoreFiles) -> None:
        self._store = journal.store
        self._journal = journal
        self._locations = locations
        self._files = files

    def recall(self, version: int) -> Published | None:
        """Return the last export of this process, to continue it with a version.

        None if the collector may have deleted files of it since. Without a hint also if it is not of the version
        before: another process may then have exported that.
        """
        found = _LAST.recall((self._store.url, self._journal.uuid))
        if found is None or (found[0].hint is None and found[0].version + 1 != version):
            return None
        return found[0] if self._is_timely(found[0], share=_RECALLED) else None

    def find(self) -> Found:
        """Return what may name the last export: one request, and a listing without a hint."""
        at = self._now()
        try:
            data, info = self._store.get_with_info(keys.iceberg_hint(self._journal.uuid))
        except ObjectNotFound:
            return Found(None, exported_versions(self._store, self._journal.uuid), at)
        try:
            return Found((int(data), info.etag), (), at)
        except ValueError:
            return Found((0, info.etag), (), at)

    def read(self, found: Found, newest: int, *, verify: bool) -> Published:
        """Read the last export; ``verify`` also that all files exist which readers of its current version need.

        ``newest``  version of the dataset, read after ``found``
        """
        if found.hint is not None:
            version, hint = found.hint
        else:
            version, hint = max((each for each in found.versions if each <= newest), default=0), None
        none = Published(hint, None, None, b"", {}, (), found.at)
        if version == 0:
            return none
        try:
            data, info = self._store.get_with_info(keys.iceberg_table(self._journal.uuid, version))
            none = replace(none, table=(version, info.etag))
            metadata = TableMetadataUtil.parse_raw(data.decode())
            current = metadata.current_snapshot()
            if (
                current is None
                or current.snapshot_id != version
                or metadata.location != self._locations.table
                or metadata.name_mapping() is None
            ):
                return none
            snapshots = {}
            for each in metadata.snapshots:
                columns_of(each)
                snapshots[record_of(each)] = each
            manifests = self._files.manifests(current.manifest_list)
        except DAMAGED:
            return none
        last = replace(none, metadata=metadata, data=data, snapshots=snapshots, manifests=manifests)
        return last if not verify or self._is_complete(last) else none

    def replace(
        self,
        last: Published,
        metadata: TableMetadata,
        snapshots: Mapping[str, Snapshot],
        manifests: Sequence[Listed],
        *,
        version_hint: bool,
    ) -> None:
        """Write table metadata in place of the last export that it continues from.

        ``snapshots``     of the metadata, by the key of their record
        ``version_hint``  write the hint too; else remove it

        Raises PreconditionFailed if another export did so meanwhile; TooSlow.
        """
        version = metadata.current_snapshot_id or 0
        data = metadata.model_dump_json().encode()
        if data == last.data and version_hint == (last.hint is not None):
            return
        if not self._is_timely(last):
            raise TooSlow(
                f"Iceberg export of {self._journal.uuid!r}: it took longer than {duration(self._limit)}; garbage "
                "collection may delete its files. Give it more resources, or raise the store's grace period"
            )
        write = self._write_with_hint if version_hint else self._write_alone
        hint, etag, at = write(last, version, data)
        cost = _PARSED * len(data) + _MANIFEST_BYTES * len(manifests)
        published = Published(hint, (version, etag), metadata, data, snapshots, manifests, at)
        _LAST.keep((self._store.url, self._journal.uuid), published, cost)

    def _write_with_hint(self, last: Published, version: int, data: bytes) -> tuple[str, str, tuple[datetime, float]]:
        etag = self._store.put(keys.iceberg_table(self._journal.uuid, version), data)
        at, key = self._now(), keys.iceberg_hint(self._journal.uuid)
        if last.hint is None:
            return self._store.put_if_absent(key, str(version).encode()), etag, at
        return self._store.put_if_match(key, str(version).encode(), last.hint), etag, at

    def _write_alone(self, last: Published, version: int, data: bytes) -> tuple[None, str, tuple[datetime, float]]:
        if last.hint is not None:
            # Before the metadata: the next export would continue from what the hint names, and find the metadata of its
            # version in its way.
            self._store.delete([keys.iceberg_hint(self._journal.uuid)])
        at, key = self._now(), keys.iceberg_table(self._journal.uuid, version)
        if last.table is None or last.table[0] != version:
            return None, self._store.put_if_absent(key, data), at
        return None, self._store.put_if_match(key, data, last.table[1]), at

    def _is_complete(self, last: Published) -> bool:
        assert last.metadata is not None, "it was read"
        present = {info.key: info.size for info in self._store.list(keys.iceberg_metadata(self._journal.uuid))}
        lists = {self._locations.key(each.manifest_list) for each in last.metadata.snapshots}
        sizes = {self._locations.key(each.file.manifest_path): each.file.manifest_length for each in last.manifests}
        return lists <= present.keys() and all(present.get(key) == size for key, size in sizes.items())

    def _is_timely(self, last: Published, share: float = 1) -> bool:
        """Return whether it is younger than a share of the limit; costs a request if it is not recent."""
        now, ticks = self._now()
        elapsed = max(now - last.at[0], timedelta(seconds=ticks - last.at[1]))
        return elapsed < _NEVER_TOO_SLOW or elapsed < share * self._limit

    @cached_property
    def _limit(self) -> timedelta:
        """Half the grace period: see :mod:`kubothek.gc.iceberg`, which deletes files of former exports."""
        return read_settings(self._store).grace / 2

    def _now(self) -> tuple[datetime, float]:
        return self._journal.clock(), time.monotonic()


_LAST: Final[Kept[tuple[str, str], Published]] = Kept(_KEPT_BYTES)
"""By store URL and uuid."""
