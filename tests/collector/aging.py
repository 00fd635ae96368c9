"""A store whose clock a test sets, and a table in it that has a history."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from kubothek.lake.collector import references
from kubothek.lake.commits import DatasetLog, Record, Snapshot
from kubothek.lake.commits.rebuild import rebuild
from kubothek.lake.store import ObjectInfo, Store
from tests.commits.memory import MemoryStore
from tests.commits.table import CLAIM, UUID, values_of
from tests.faultstore import FaultStore

GRACE = timedelta(days=1)
START = datetime(2026, 1, 1, tzinfo=UTC)


class AgingStore(MemoryStore):
    """Its clock stands still until it is moved; writers' clocks go with it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START

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

    def listed(self, prefix: str = "") -> list[ObjectInfo]:
        return list(self.list(prefix))


def log_of(store: Store) -> DatasetLog:
    """Writers' clocks are the store's."""
    aging = store.inner if isinstance(store, FaultStore) else store
    assert isinstance(aging, AgingStore)
    return DatasetLog(store, UUID, claim=CLAIM, clock=lambda: aging.now)


def contents(store: Store) -> dict[int, list[int]]:
    """What each version holds that can be asked for; reads every file of every one."""
    log = log_of(store)
    return {record.version: values_of(store, log.snapshot(record.version)) for record in log.history()}


def named_by(store: Store, log: DatasetLog) -> Iterator[tuple[str, str]]:
    """Each object that names others, with each key that it names: records and checkpoints, committed or not."""
    for info in store.list(f".kubothek/{UUID}/commits/"):
        record = Record.parse(info.key, store.get(info.key))
        for key in references.of_record(record):
            yield info.key, key


def whole(snapshot: Snapshot, store: Store) -> bool:
    """Whether all that a version names is there."""
    keys = {info.key for info in store.list("")}
    return set(references.of_head(snapshot.head)) <= keys


__all__ = ["GRACE", "START", "AgingStore", "contents", "log_of", "named_by", "rebuild", "whole"]
