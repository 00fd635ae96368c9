"""A writer whose store fails deletes the data files that it wrote, and counts what it could not delete."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

from kubothek.catalog import Lake
from kubothek.errors import Conflict, StoreUnavailable
from kubothek.gc import Retention, collect
from kubothek.storage import Store
from kubothek.table.log import DatasetLog
from tests.faultstore import Crash, Fault, FaultStore
from tests.table.log.memory import MemoryStore

pytestmark = pytest.mark.slow

ROWS = pa.table({"p": list(range(10)), "x": list(range(10))})
FULL = StoreUnavailable("No space left on device")


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    Lake(made).create_dataset("d", ["p"], {"p": "int64", "x": "int64"}).append(ROWS)
    return made


def data(store: Store) -> list[str]:
    return [info.key for info in store.list("d/table/") if info.key.endswith(".parquet")]


@pytest.mark.parametrize("nth", [1, 5, 10])
def test_append_that_fails_at_data_file_leaves_no_data_file(store: MemoryStore, nth: int) -> None:
    before = data(store)
    with pytest.raises(StoreUnavailable):
        Lake(FaultStore(store, Fault(("put",), nth, "d/table/", error=FULL))).dataset("d").append(ROWS)
    assert data(store) == before


def test_append_that_fails_at_record_leaves_no_data_file(store: MemoryStore) -> None:
    before = data(store)
    faulty = FaultStore(store, Fault(("put_if_absent",), 1, "commits/", error=FULL))
    with pytest.raises(StoreUnavailable):
        Lake(faulty).dataset("d").append(ROWS)
    assert data(store) == before


def test_files_of_conflict_after_swap_are_counted_within_grace_period(store: MemoryStore) -> None:
    before = data(store)
    faulty = FaultStore(store)
    dataset = Lake(faulty).dataset("d")
    done: list[object] = []

    def meanwhile(call: str, key: str) -> None:
        if call == "put" and key.startswith("d/table/p=9/") and not done:
            done.append(Lake(store).dataset("d").delete("p = 9"))

    faulty.before_call = meanwhile
    with pytest.raises(Conflict):
        dataset.replace(ROWS)
    counted = collect(store, DatasetLog(store, "d"), [Retention()]).young.objects
    assert counted == len(data(store)) - len(before) + 1, "and its record"


def test_append_with_lost_swap_response_keeps_files(store: MemoryStore) -> None:
    faulty = FaultStore(store, Fault(("put_if_match",), 1, "d.by-dataset", after=True, error=FULL))
    assert Lake(faulty).dataset("d").append(ROWS).version == 3
    assert Lake(store).dataset("d").rows == 20


def test_files_of_dead_writer_are_counted_within_grace_period(store: MemoryStore) -> None:
    with pytest.raises(Crash):
        Lake(FaultStore(store, Fault(("put",), 6, "d/table/"))).dataset("d").append(ROWS)
    left = len(data(store)) - 10
    done = collect(store, DatasetLog(store, "d"), [Retention()])
    assert left > 0
    assert (done.young.objects, done.found) == (left, {})
    with pytest.raises(Crash):
        Lake(FaultStore(store, Fault(("put_if_match",), 1, "d.by-dataset"))).dataset("d").append(ROWS)
    with_record = collect(store, DatasetLog(store, "d"), [Retention()], grace=timedelta(days=2))
    assert with_record.young.objects == left + 11
