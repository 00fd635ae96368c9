"""Index entries that threads store while more rows are observed: same files, errors of the store, no thread left."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from kubothek.errors import StoreUnavailable
from kubothek.table import ordered_calls
from kubothek.table.indexes import Collected, IndexCollector
from kubothek.table.indexes.native import read_pieces
from tests.table.log.memory import MemoryStore

UUID = "ds"
TYPES: dict[str, pa.DataType] = {"n": pa.int64(), "t": pa.string()}


def observed(store: MemoryStore) -> Collected:
    """Two columns of 200 files, stored in many rounds."""
    collector = IndexCollector(store, UUID, TYPES, memory_budget=20_000)
    for number in range(200):
        numbers = [n * 7919 % 1009 for n in range(number, number + 50)]
        columns: dict[str, list[Any]] = {"n": numbers, "t": [f"t{n % 100}" for n in numbers]}
        collector.observe(f"{number:03}", [pa.record_batch(columns)])
    return collector.finish()


def entries(store: MemoryStore, collected: Collected) -> dict[str, list[list[pa.Table]]]:
    return {
        column: [[*read_pieces(store, file, TYPES[column])] for file in files]
        for column, files in collected.files.items()
    }


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("index")}


@pytest.fixture(autouse=True)
def _no_thread_left() -> Iterator[None]:
    before = threads()
    yield
    assert threads() <= before


def test_entries_stored_by_threads_are_those_stored_by_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, beside = MemoryStore(), MemoryStore()
    expected = observed(alone)
    monkeypatch.setattr(ordered_calls, "_SMALL", 0)
    found = observed(beside)
    assert len(found.files["n"]) > 5
    assert found.labels == expected.labels
    assert entries(beside, found) == entries(alone, expected)


@pytest.mark.parametrize("failing", [1, 4])
def test_failed_store_of_entries_fails_collection(monkeypatch: pytest.MonkeyPatch, failing: int) -> None:
    monkeypatch.setattr(ordered_calls, "_SMALL", 0)
    store, puts = MemoryStore(), iter(range(1, 1000))
    put = store.put

    def faulty(key: str, data: bytes | memoryview) -> str:
        if next(puts) >= failing:
            raise StoreUnavailable("the store is away")
        return put(key, data)

    monkeypatch.setattr(store, "put", faulty)
    with pytest.raises(StoreUnavailable, match="away"):
        observed(store)
