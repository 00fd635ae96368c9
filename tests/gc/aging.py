"""A store whose clock a test sets, and a table in it that has a history."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import zstandard

from kubothek.errors import StoreError
from kubothek.gc import references
from kubothek.storage import Store
from kubothek.table.indexes.native import read_manifest
from kubothek.table.log import DatasetLog, Head, Record
from kubothek.table.log.model import keys
from tests.faultstore import FaultStore
from tests.table.log.memory import MemoryStore
from tests.table.log.table import CLAIM, UUID, values_of

GRACE = timedelta(days=1)
START = datetime(2026, 1, 1, tzinfo=UTC)


class AgingStore(MemoryStore):
    """Its clock stands still until it is moved; writers' clocks go with it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.uploads: dict[str, datetime] = {}
        """Unfinished ones: when each began."""
        self.forbids: StoreError | None = None
        """What it says to who wants to abort uploads."""

    def abort_uploads(self, prefix: str, before: datetime) -> int:
        if self.forbids is not None:
            raise self.forbids
        due = [key for key, began in self.uploads.items() if key.startswith(prefix) and began < before]
        for key in due:
            del self.uploads[key]
        return len(due)

    def put(self, key: str, data: bytes | memoryview) -> str:
        etag = super().put(key, data)
        found, info = self.objects[key]
        self.objects[key] = found, replace(info, modified=self.now)
        return etag

    def pass_by(self, time: timedelta) -> None:
        """Let this much time pass."""
        self.now += time

    def copy(self) -> AgingStore:
        twin = AgingStore()
        twin.objects, twin._writes, twin.now = dict(self.objects), self._writes, self.now
        return twin


def log_of(store: Store) -> DatasetLog:
    """Writers' clocks are the store's."""
    aging = store.inner if isinstance(store, FaultStore) else store
    assert isinstance(aging, AgingStore)
    return DatasetLog(store, UUID, claim=CLAIM, clock=lambda: aging.now)


def contents(store: Store) -> dict[int, list[int]]:
    """What each version holds that can be asked for; reads every file of every one."""
    log = log_of(store)
    return {record.version: values_of(store, log.snapshot(record.version)) for record in log.history()}


def dangling(store: Store) -> list[tuple[str, str]]:
    """Each object that names one which is not there: head, records, checkpoints and index manifests.

    Records that never were committed count as long as nobody has just written them, and perhaps given up.
    """
    there = {info.key: info.modified for info in store.list("")}
    committed = {record.key for record in log_of(store).history()}
    now = max(there.values())
    lost = {key for key, written in there.items() if keys.parse_record(UUID, key) and written == now} - committed
    return [(key, name) for key in there.keys() - lost for name in named_by(store, key) if name not in there]


def named_by(store: Store, key: str) -> Iterator[str]:
    """What an object names."""
    if keys.parse_record(UUID, key) is not None:
        record = Record.parse(key, store.get(key))
        yield from references.of_record(record)
    elif keys.checkpoint_version(key) is not None:
        yield from references.of_head(Head.parse(UUID, zstandard.decompress(store.get(key))))
    elif key.startswith(keys.native_indices(UUID)) and key.endswith(".json"):
        yield from references.of_manifest(read_manifest(store, key))
    elif key == keys.head(UUID):
        yield from references.of_head(Head.parse(UUID, store.get(key)))
