"""The estimate of garbage: what records name and no kept version needs."""

from __future__ import annotations

import sys

import pytest

from kubothek.catalog import Dataset
from kubothek.storage import Store
from kubothek.table.log import DatasetLog, Totals
from kubothek.table.maintenance import health
from tests.faultstore import Crash, Fault, FaultStore
from tests.table.log.table import write
from tests.table.maintenance.test_inventory import UUID, expire
from tests.table.operations.deeds import table_in
from tests.table.operations.table import flights, labels


def found(store: Store, *, keeps: bool = False, estimates: bool = True) -> Totals:
    log = DatasetLog(store, UUID)
    return health(store, log, log.snapshot(), estimates=estimates, keeps=keeps).garbage


def dies(store: Store, months: int) -> None:
    """An append to so many partitions that has written its files and its record, but not the head."""
    with pytest.raises(Crash):
        table_in(FaultStore(store, Fault(("put_if_match",)))).append(flights(*((n, "AA", n) for n in range(months))))


def test_garbage_estimate_excludes_files_needed_by_history(table: Dataset, store: Store) -> None:
    table.compact()
    table.rollback(4)
    assert found(store).files == 0


def test_garbage_estimate_counts_files_of_crashed_attempts(table: Dataset, store: Store) -> None:
    dies(store, 2)
    assert found(store).files == 2
    dies(store, 3)
    assert found(store).files == 5, "two attempts at one version"
    table.append(flights((1, "AA", 1)))
    assert found(store).files == 5
    assert found(store).bytes == sum(store.stat(key).size for key in _unlisted(table, store))


def test_garbage_estimate_counts_expired_files_until_collected(table: Dataset, store: Store) -> None:
    table.compact()
    expired = [record.key for record in table.history() if record.version < 6]
    expire(store, 6)
    assert found(store).files == 8
    store.delete(expired)
    assert found(store).files == 0


def test_garbage_estimate_after_commit_repeats_last_inspection(table: Dataset, store: Store) -> None:
    assert found(store, keeps=True).files == 0
    dies(store, 2)
    assert found(store, estimates=False).files == 0
    assert found(store, keeps=True).files == 2
    assert found(store, estimates=False).files == 2
    table.append(flights((1, "AA", 1)))
    assert found(store, estimates=False, keeps=True).files == 2


def test_garbage_estimate_of_many_records_reads_sample(
    table: Dataset, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The package has a function with the name of the module.
    monkeypatch.setattr(sys.modules["kubothek.table.maintenance.health"], "_READ", 5)
    for _ in range(20):
        dies(store, 3)
    counting = FaultStore(store)
    log = DatasetLog(counting, UUID)
    assert health(counting, log, log.snapshot(), keeps=True).garbage.files == 60
    counting.calls.clear()
    health(counting, log, log.snapshot())
    assert sum("/commits/" in call.key and call.name == "get" for call in counting.calls) == 5


def test_garbage_estimate_omits_file_without_record(table: Dataset, store: Store) -> None:
    write(store, "stray")
    assert found(store).files == 0


def _unlisted(table: Dataset, store: Store) -> set[str]:
    there = {info.key for info in store.list(f"{UUID}/table/") if info.key.endswith(".parquet")}
    return there - set(labels(table).values())
