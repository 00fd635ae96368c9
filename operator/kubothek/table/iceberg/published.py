"""The last export of a table: how the next one finds it, and takes its place.

``version-hint.text`` names it. An export swaps the hint from the one that it continued from to its own, so the version
of the hint does not go back, and ``metadata-log`` lists what the hint named before: the collector relies on both.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from pyiceberg.exceptions import ValidationError
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from kubothek.errors import InvalidKey, ObjectNotFound, TooSlow
from kubothek.storage.immutable_cache import Kept
from kubothek.table.iceberg.locations import Locations
from kubothek.table.iceberg.metadata import columns_of
from kubothek.table.iceberg.objects import StoreFiles
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
class Published:
    """An export that the hint names, or none.

    ``hint``       the ETag of the hint; None if there is no hint
    ``metadata``   None if there is none, or a part of it that the next export needs is lost or damaged
    ``data``       the bytes of the metadata
    ``manifests``  those of its current snapshot
    ``at``         when the hint named it, by the clock of the journal and the monotonic one
    """

    hint: str | None
    metadata: TableMetadata | None
    data: bytes
    manifests: Sequence[ManifestFile]
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

    def recall(self) -> Published | None:
        """Return the last export of this process; None if the collector may have deleted files of it since."""
        found = _LAST.recall((self._store.url, self._journal.uuid))
        return found[0] if found and self._is_timely(found[0], share=_RECALLED) else None

    def read(self, *, verify: bool) -> Published:
        """Read the last export; ``verify`` also that all files exist which readers of its current version need."""
        at = self._now()
        try:
            hint, info = self._store.get_with_info(keys.iceberg_hint(self._journal.uuid))
        except ObjectNotFound:
            return Published(None, None, b"", (), at)
        none = Published(info.etag, None, b"", (), at)
        try:
            data = self._store.get(self.key(f"v{int(hint)}.metadata.json"))
            metadata = TableMetadataUtil.parse_raw(data.decode())
            current = metadata.current_snapshot()
            if current is None or metadata.location != self._locations.table or metadata.name_mapping() is None:
                return none
            for each in metadata.snapshots:
                columns_of(each)
            found = Published(info.etag, metadata, data, self._files.manifests(current.manifest_list), at)
        except DAMAGED:
            return none
        return found if not verify or self._is_complete(found) else none

    def replace(self, last: Published, metadata: TableMetadata, manifests: Sequence[ManifestFile]) -> str:
        """Write table metadata in place of the last export that it continues from; return its name.

        Raises PreconditionFailed if another export did so meanwhile; TooSlow.
        """
        name = f"v{metadata.current_snapshot_id}.metadata.json"
        data = metadata.model_dump_json().encode()
        if data == last.data:
            return name
        if not self._is_timely(last):
            raise TooSlow(
                f"Iceberg export of {self._journal.uuid!r}: it took longer than {duration(self._limit)}; garbage "
                "collection may delete its files. Give it more resources, or raise the store's grace period"
            )
        self._store.put(self.key(name), data)
        at, hint = self._now(), str(metadata.current_snapshot_id).encode()
        if last.hint is None:
            etag = self._store.put_if_absent(keys.iceberg_hint(self._journal.uuid), hint)
        else:
            etag = self._store.put_if_match(keys.iceberg_hint(self._journal.uuid), hint, last.hint)
        cost = _PARSED * len(data) + _MANIFEST_BYTES * len(manifests)
        published = Published(etag, metadata, data, manifests, at)
        _LAST.keep((self._store.url, self._journal.uuid), published, cost)
        return name

    def key(self, name: str) -> str:
        """Return the key of a file of metadata."""
        return f"{keys.iceberg_metadata(self._journal.uuid)}{name}"

    def _is_complete(self, last: Published) -> bool:
        assert last.metadata is not None, "it was read"
        present = {info.key: info.size for info in self._store.list(self.key(""))}
        lists = {self._locations.key(each.manifest_list) for each in last.metadata.snapshots}
        sizes = {self._locations.key(each.manifest_path): each.manifest_length for each in last.manifests}
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
