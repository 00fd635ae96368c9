"""The process of a compaction dies at any call to the store; then it runs again.

In between and afterwards the rows are the same; what the dead attempt has left, no version references.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kubothek.catalog import Lake
from kubothek.errors import StoreUnavailable
from kubothek.storage import StoreConfig, open_store
from kubothek.table.log import DatasetLog
from tests.faultstore import WRITES, Crash, Fault, FaultStore
from tests.table.maintenance.table import ROWS, filled
from tests.table.operations.deeds import copy, table_in
from tests.table.operations.table import rows
from tests.table.operations.test_crash import keys_in, referenced, written_by


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Native", "Kartothek"])
def test_compaction_that_crashes_is_atomic_and_completes_on_rerun(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "lake"
    root.mkdir()
    filled(Lake(open_store(StoreConfig(root.as_uri()))), indices={"carrier": kind})
    counting = FaultStore(copy(root, tmp_path / "counted"))
    table_in(counting).compact(id="mine")
    writes = sum(call.name in WRITES for call in counting.calls)
    assert writes > 5
    faults = [*(Fault(WRITES, nth) for nth in range(1, writes + 1)), Fault(WRITES, writes, after=True)]
    for number, fault in enumerate(faults):
        store = copy(root, tmp_path / str(number))
        dying = FaultStore(store, fault)
        with pytest.raises(Crash):
            table_in(dying).compact(id="mine")
        table = table_in(store)
        assert rows(table) == ROWS, fault
        assert len(table.snapshot().head.partitions) in (3, 9), fault
        done = table.compact(id="mine")
        assert (rows(table), done.version, table.version) == (ROWS, 6, 6), fault
        assert len(table.snapshot().head.partitions) == 3
        assert DatasetLog(store, "flights").settle().problem is None
        leftovers = set(keys_in(store)) - referenced(store)
        # Whoever gathers entries for an index of Kartothek's stores them as for a native one, and leaves them there.
        assert {key for key in leftovers if "/index/" not in key} <= written_by(dying), fault


@pytest.mark.slow
def test_compaction_with_store_failure_at_any_call_keeps_rows(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    root.mkdir()
    filled(Lake(open_store(StoreConfig(root.as_uri()))))
    every = ("get", "get_with_info", "stat", "open", "list", *WRITES)
    counting = FaultStore(copy(root, tmp_path / "counted"))
    table_in(counting).compact(id="mine")
    calls = sum(call.name in every for call in counting.calls)
    for nth in range(1, calls + 1):
        store = copy(root, tmp_path / str(nth))
        fault = Fault(every, nth, error=StoreUnavailable("gone for a moment"))
        try:
            table_in(FaultStore(store, fault)).compact(id="mine")
        except StoreUnavailable:
            assert rows(table_in(store)) == ROWS, nth
        table = table_in(store)
        table.compact(id="mine")
        assert (rows(table), len(table.snapshot().head.partitions)) == (ROWS, 3), nth
