"""Deleting a dataset, bringing it back, and starting anew on top."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kubothek.errors import DatasetDeleted, DatasetNotFound, RestoreExpired, VersionIncomplete, VersionNotFound
from kubothek.storage import ObjectInfo, Store
from kubothek.table.log import Change, Claim, DatasetLog, Operation, StoreSettings, write_settings
from tests.table.log.memory import MemoryStore
from tests.table.log.table import (
    CLAIM,
    SCHEMA,
    UUID,
    append,
    appending,
    keys_below,
    operations,
    present,
    started,
    write,
)

NEXT = Claim(CLAIM.owner, "incarnation-2")


def test_deleted_dataset_refuses_reads_and_writes_of_its_incarnation(log: DatasetLog, store: Store) -> None:
    append(log, store, "1")
    files = keys_below(store, f"{UUID}/")
    assert log.delete() == 2
    with pytest.raises(DatasetNotFound, match="was deleted at"):
        log.snapshot()
    with pytest.raises(DatasetNotFound):
        log.snapshot(1)
    with pytest.raises(DatasetDeleted):
        log.begin("2", "d")
    with pytest.raises(DatasetDeleted):
        DatasetLog(store, UUID).begin("2", "d")
    assert log.inspect().deleted
    assert keys_below(store, f"{UUID}/") == files


def test_second_deletion_changes_nothing(log: DatasetLog, store: Store) -> None:
    append(log, store, "1")
    assert log.delete() == log.delete() == 2


def test_missing_dataset_deletion_returns_none_and_restore_fails(log: DatasetLog) -> None:
    assert log.delete() is None
    with pytest.raises(DatasetNotFound):
        log.restore()


def test_commit_in_flight_during_deletion_is_fenced(log: DatasetLog, store: Store) -> None:
    append(log, store, "1")
    late = started(log, "late")
    log.delete()
    with pytest.raises(DatasetDeleted):
        late.commit(appending(write(store, "late")))
    assert log.inspect().deleted


def test_deletion_after_commit_lands_and_restore_keeps_rows(log: DatasetLog, store: Store) -> None:
    append(log, store, "1", [1])
    transaction = started(log, "2")
    transaction.commit(appending(write(store, "2", [2])))
    assert log.delete() == 3
    log.restore()
    assert present(store) == [1, 2]


def test_restored_dataset_equals_dataset_before_deletion(log: DatasetLog, store: Store) -> None:
    append(log, store, "1", [1])
    append(log, store, "2", [2])
    before = log.snapshot()
    log.delete()
    assert log.restore() == 4
    assert log.restore() == 4
    after = log.snapshot()
    assert (after.head.partitions, after.schema, after.totals) == (
        before.head.partitions,
        before.schema,
        before.totals,
    )
    assert operations(log) == ["Append", "Append", "Drop", "Restore"]
    assert append(log, store, "3", [3]).totals.rows == 3
    assert [len(log.snapshot(version).head.partitions) for version in (1, 2, 4, 5)] == [1, 2, 2, 3]
    assert log.begin("1", "d").version == 1  # type: ignore[union-attr]


def test_new_incarnation_starts_empty_with_next_version(log: DatasetLog, store: Store) -> None:
    append(log, store, "1", [1])
    log.delete()
    anew = DatasetLog(store, UUID, claim=NEXT)
    transaction = started(anew, "1")
    assert not transaction.snapshot.exists
    committed = transaction.commit(
        Change(
            operation=Operation.APPEND,
            added=(write(store, "p=1/new", [7]),),
            schema=SCHEMA,
            partition_keys=("p",),
        )
    )
    assert (committed.version, committed.totals.rows) == (3, 1)
    assert present(store) == [7]
    assert anew.snapshot().head.partition_keys == ("p",)
    with pytest.raises(VersionNotFound):
        anew.snapshot(1)
    assert anew.begin("1", "d").version == 3  # type: ignore[union-attr]


def test_old_incarnation_stays_fenced_after_new_one_starts(log: DatasetLog, store: Store) -> None:
    append(log, store, "1")
    late = started(log, "late")
    log.delete()
    append(DatasetLog(store, UUID, claim=NEXT), store, "new", [7])
    with pytest.raises(DatasetDeleted):
        log.begin("2", "d")
    assert log.delete() is None
    with pytest.raises(DatasetDeleted):
        late.commit(appending(write(store, "late")))
    assert present(store) == [7]


def test_dataset_can_be_deleted_and_recreated_repeatedly(log: DatasetLog, store: Store) -> None:
    for n in range(3):
        anew = DatasetLog(store, UUID, claim=Claim(CLAIM.owner, f"incarnation-{n}"))
        append(anew, store, "same id", [n])
        assert present(store) == [n]
        anew.delete()
    with pytest.raises(DatasetDeleted):
        DatasetLog(store, UUID, claim=Claim(CLAIM.owner, "incarnation-0")).begin("x", "d")


def test_concurrent_commits_of_new_incarnation_all_land(log: DatasetLog, store: Store) -> None:
    append(log, store, "1", [1])
    log.delete()
    anew = DatasetLog(store, UUID, claim=NEXT)
    one, other = started(anew, "one"), started(anew, "other")
    one.commit(appending(write(store, "a", [2])))
    other.commit(appending(write(store, "b", [3])))
    assert present(store) == [2, 3]


def test_commit_of_new_incarnation_on_restored_dataset_is_refused(log: DatasetLog, store: Store) -> None:
    append(log, store, "1", [1])
    log.delete()
    late = started(DatasetLog(store, UUID, claim=NEXT), "late")
    log.restore()
    with pytest.raises(DatasetDeleted, match="deleted or restored"):
        late.commit(appending(write(store, "late", [9])))
    assert present(store) == [1]


class LaterStore(MemoryStore):
    """Everything that is written after ``later`` is set is that much later by the store's clock."""

    later = timedelta(0)

    def put(self, key: str, data: bytes | memoryview) -> str:
        etag = super().put(key, data)
        content, info = self.objects[key]
        self.objects[key] = content, ObjectInfo(key, info.size, etag, info.modified + self.later)
        return etag


def test_restore_after_grace_period_is_refused() -> None:
    store = LaterStore()
    log = DatasetLog(store, UUID, claim=CLAIM)
    append(log, store, "1")
    log.delete()
    store.later = timedelta(hours=25)
    with pytest.raises(RestoreExpired, match="grace period is 24h"):
        log.restore()
    assert log.inspect().deleted
    write_settings(store, StoreSettings(grace=timedelta(hours=26)))
    log.restore()
    assert present(store) == [1]


@pytest.mark.parametrize("days", [-400, 400])
def test_grace_period_is_measured_by_clock_of_store(days: int) -> None:
    store = LaterStore()
    log = DatasetLog(store, UUID, claim=CLAIM, clock=lambda: datetime.now(UTC) + timedelta(days=days))
    append(log, store, "1")
    log.delete()
    log.restore()
    assert present(store) == [1]
    log.delete()
    store.later = timedelta(hours=25)
    with pytest.raises(RestoreExpired):
        log.restore()


def test_restore_with_swept_files_is_refused(log: DatasetLog, store: Store) -> None:
    append(log, store, "1")
    key = next(iter(log.snapshot().head.files().values()))
    log.delete()
    store.delete([key])
    with pytest.raises(VersionIncomplete, match="cannot be restored"):
        log.restore()
    assert log.inspect().deleted


def test_tombstone_time_is_clock_of_writer(store: Store) -> None:
    now = datetime.fromisoformat("2026-05-01T12:00:00+02:00")
    log = DatasetLog(store, UUID, claim=CLAIM, clock=lambda: now)
    append(log, store, "1")
    log.delete()
    with pytest.raises(DatasetNotFound, match=r"2026-05-01T10:00:00\+00:00"):
        log.snapshot()
