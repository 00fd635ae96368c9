"""The process of an operation dies at any call to the store; then it runs again.

In between, readers see all of it or nothing. Afterwards it has happened once, and what the dead attempt has left is
exactly what no version references: there the collector will find it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kubothek.storage import Store
from kubothek.table.indexes.native import read_manifest
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys
from tests.faultstore import WRITES, Crash, Fault, FaultStore
from tests.table.operations.deeds import BEFORE, DEEDS, copy, done, prepared, table_in
from tests.table.operations.table import rows

NAMES = sorted(DEEDS.keys() - {"append too", "append key", "replace 1 too", "replace 2"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "indices"), [*((name, ()) for name in NAMES), ("replace 1", ["carrier"]), ("delete rows", ["carrier"])]
)
def test_operation_that_crashes_is_applied_once_on_rerun(tmp_path: Path, name: str, indices: Sequence[str]) -> None:
    prepared(tmp_path / "lake", indices)
    expected = done(tmp_path / "lake", tmp_path / "expected", name)
    counting = FaultStore(copy(tmp_path / "lake", tmp_path / "counted"))
    DEEDS[name](table_in(counting), "Fail")
    writes = sum(call.name in WRITES for call in counting.calls)
    # Dead before a read is dead after the write before it, and that is dead before the next one.
    faults = [*(Fault(WRITES, nth) for nth in range(1, writes + 1)), Fault(WRITES, writes, after=True)]
    assert len(faults) > 3
    for number, fault in enumerate(faults):
        store = copy(tmp_path / "lake", tmp_path / str(number))
        before = set(keys_in(store))
        assert before == referenced(store)
        dying = FaultStore(store, fault)
        with pytest.raises(Crash):
            DEEDS[name](table_in(dying), "Fail")
        assert rows(table_in(store)) in (sorted(BEFORE, key=repr), expected), fault
        DEEDS[name](table_in(store), "Fail")
        assert rows(table_in(store)) == expected, fault
        log = DatasetLog(store, "flights")
        assert log.snapshot().version == 4, fault
        assert log.settle().problem is None
        leftovers = set(keys_in(store)) - referenced(store)
        assert leftovers <= written_by(dying), fault
        assert leftovers <= {key for key in keys_in(store) if key.startswith(COLLECTED)}, fault


COLLECTED = ("flights/table/month=", ".kubothek/flights/commits/", ".kubothek/flights/index/")


def keys_in(store: Store) -> list[str]:
    return [info.key for info in store.list("") if not info.key.startswith(".kubothek/probe")]


def written_by(store: FaultStore) -> set[str]:
    return {call.key for call in store.calls if call.name in WRITES}


def referenced(store: Store) -> set[str]:
    """All that the head, its history, and the protocol itself need."""
    log = DatasetLog(store, "flights")
    found = {keys.head("flights"), keys.common_metadata("flights", "table")}
    for record in log.history():
        head = log.snapshot(record.version).head
        found |= {record.key, keys.marker("flights", record.id), *head.files().values(), *head.indices.values()}
        found |= {keys.schema("flights", head.schema_hash)} if head.schema_hash else set()
        for manifest in head.index_state.native.values():
            found |= {manifest, *(file.key for file in read_manifest(store, manifest).files)}
    return found
