"""A commit that took so long that a collector may own its files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import orjson
import pytest

from kubothek.errors import InputError, TooSlow
from kubothek.storage import Store
from kubothek.table.log import DatasetLog, StoreSettings, read_settings, write_settings
from tests.faultstore import FaultStore
from tests.table.log.memory import MemoryStore
from tests.table.log.table import UUID, append, appending, ids, started, write
from tests.table.log.test_tombstone import LaterStore


class Stepping:
    """A clock that only moves when told to."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def begun(store: Store, clock: Stepping) -> DatasetLog:
    log = DatasetLog(store, UUID, clock=clock)
    append(log, store, "1")
    return log


def test_commit_of_files_older_than_half_grace_period_is_refused() -> None:
    store, clock = LaterStore(), Stepping()
    log = begun(store, clock)
    transaction = started(log, "slow")
    file = write(store, "slow")
    transaction.note_written(file.key)
    clock.now += timedelta(hours=13)
    store.later = timedelta(hours=13)
    with pytest.raises(TooSlow, match="slow") as failed:
        transaction.commit(appending(file))
    assert failed.value.transient, "what made it slow may be over: an executor that was lost, a machine that slept"
    assert ids(log) == ["1"]


def test_commit_of_files_written_late_in_long_job_succeeds() -> None:
    store, clock = LaterStore(), Stepping()
    log = begun(store, clock)
    transaction = started(log, "late")
    clock.now += timedelta(hours=13)
    store.later = timedelta(hours=13)
    file = write(store, "late")
    transaction.note_written(file.key)
    assert transaction.commit(appending(file)).version == 2


def test_commit_of_swept_file_raises_too_slow() -> None:
    store, clock = MemoryStore(), Stepping()
    log = begun(store, clock)
    transaction = started(log, "slow")
    file = write(store, "slow")
    transaction.note_written(file.key)
    store.delete([file.key])
    clock.now += timedelta(hours=2)
    with pytest.raises(TooSlow, match="gone"):
        transaction.commit(appending(file))


def test_commit_age_without_written_files_counts_from_transaction_start() -> None:
    store, clock = MemoryStore(), Stepping()
    log = begun(store, clock)
    transaction = started(log, "slow")
    clock.now += timedelta(hours=13)
    with pytest.raises(TooSlow):
        transaction.commit(appending(write(store, "slow")))


def test_commit_age_limit_follows_grace_period_of_store() -> None:
    store, clock = MemoryStore(), Stepping()
    log = begun(store, clock)
    write_settings(store, StoreSettings(grace=timedelta(hours=30)))
    transaction = started(log, "slow")
    clock.now += timedelta(hours=13)
    assert transaction.commit(appending(write(store, "slow"))).version == 2


def test_quick_commit_does_not_read_store_clock() -> None:
    store = FaultStore(MemoryStore())
    append(DatasetLog(store, UUID), store, "1")
    assert ".kubothek/store.json" not in [call.key for call in store.calls]


def test_store_settings_have_defaults_and_bounds() -> None:
    store = MemoryStore()
    assert read_settings(store).grace == timedelta(days=1)
    with pytest.raises(InputError, match="less than 1m"):
        StoreSettings(grace=timedelta(seconds=59))


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", orjson.dumps({"grace_seconds": "long"})])
def test_unreadable_store_settings_are_refused(content: bytes) -> None:
    store = MemoryStore()
    store.put(".kubothek/store.json", content)
    with pytest.raises(InputError, match=r"store\.json"):
        read_settings(store)
