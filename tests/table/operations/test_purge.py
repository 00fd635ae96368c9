"""A purge: rows are deleted, and no version is left by which they could be read."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kubothek.catalog import Dataset, Lake
from kubothek.errors import Conflict, FilterInvalid, IdReused, VersionNotFound, VersionTagged
from kubothek.storage import Store
from kubothek.table.expressions import parse
from kubothek.table.log import AlreadyApplied, DatasetLog
from kubothek.table.log.model import keys
from kubothek.table.log.transaction import Transaction
from kubothek.table.operations import delete
from tests.faultstore import Crash, FaultStore, every_crash
from tests.table.operations.deeds import copy
from tests.table.operations.table import SCHEMA, everything, flights, rows

ALICE = "carrier = 'alice'"


GRACE = timedelta(days=1)


@pytest.fixture
def store(store: Store, tmp_path: Path) -> Store:
    """Versions 2 to 4 of three months; ``alice`` is in months 1 and 2, in month 3 only in version 3. All are old."""
    table = Lake(store).create_dataset("flights", ["month"], SCHEMA)
    table.append(flights((1, "alice", 1), (1, "bob", 2), (2, "alice", 3)))
    table.append(flights((3, "alice", 4)))
    table.replace(flights((3, "bob", 5)))
    let_pass(tmp_path, 3 * GRACE)
    return store


def let_pass(root: Path, age: timedelta) -> None:
    """Make all objects so much older."""
    for file in root.rglob("*"):
        if file.is_file():
            os.utime(file, (time.time(), file.stat().st_mtime - age.total_seconds()))


def table_in(store: Store) -> Dataset:
    return Lake(store).dataset("flights")


def purge(store: Store, commit_id: str | None = None) -> Any:
    return table_in(store).delete(ALICE, row_level=True, purge=True, id=commit_id)


def readable(store: Store) -> dict[int, list[Any]]:
    """The rows of every version that can be asked for."""
    found = {}
    for version in range(1, DatasetLog(store, "flights").snapshot().version + 1):
        with suppress(VersionNotFound):
            found[version] = rows(table_in(store), version)
    return found


def carriers_in_files(store: Store) -> set[str]:
    """Whatever stands in any data file of the table, referenced or not."""
    return {carrier for key in _files(store) for carrier in _carriers(store, key)}


def _files(store: Store) -> Iterator[str]:
    return (info.key for info in store.list("flights/table/") if info.key.endswith(".parquet"))


def _carriers(store: Store, key: str) -> list[str]:
    table = pq.read_table(BytesIO(store.get(key)), columns=["carrier"])
    return [str(value) for value in table["carrier"].to_pylist()]


BOBS = [(1, "bob", 2), (3, "bob", 5)]


def test_purge_leaves_only_new_version_readable(store: Store) -> None:
    done = purge(store)
    assert readable(store) == {done.version: BOBS}
    with pytest.raises(VersionNotFound, match="version 4 of 'flights' has expired"):
        table_in(store).scan(as_of=4)
    with pytest.raises(VersionNotFound, match="has expired"):
        table_in(store).rollback(4)
    assert [str(record.operation) for record in table_in(store).history()] == ["Delete"]


def test_collection_after_purge_and_grace_period_deletes_purged_rows(store: Store, tmp_path: Path) -> None:
    """Whatever policies keep: there is no such version any more."""
    purge(store)
    let_pass(tmp_path, GRACE)
    table_in(store).collect(enforce=True)
    assert "alice" in carriers_in_files(store)  # readers may still be at work
    let_pass(tmp_path, GRACE)
    table_in(store).collect(enforce=True)
    assert carriers_in_files(store) == {"bob"}
    assert rows(table_in(store)) == BOBS


def test_purge_removes_rows_deleted_earlier(store: Store) -> None:
    table_in(store).delete(ALICE, row_level=True)
    done = purge(store)
    assert (done.totals.rows, done.added.rows) == (2, 0)
    assert readable(store) == {done.version: BOBS}


def test_delete_without_purge_keeps_old_versions(store: Store) -> None:
    table_in(store).delete(ALICE, row_level=True)
    assert set(readable(store)) == {1, 2, 3, 4, 5}


def test_versions_after_purge_form_normal_history(store: Store) -> None:
    purge(store)
    table_in(store).append(flights((4, "carol", 6)))
    assert readable(store) == {5: BOBS, 6: [*BOBS, (4, "carol", 6)]}
    table_in(store).rollback(5)
    assert rows(table_in(store)) == BOBS


# --- tags -----------------------------------------------------------------------------------------------------------


def test_purge_of_tagged_dataset_is_refused_with_tag_names(store: Store) -> None:
    table_in(store).tag("audit", 2)
    table_in(store).tag("start", 1)
    before = everything(store)
    with pytest.raises(VersionTagged, match=r"'audit' \(version 2\), 'start' \(version 1\)"):
        purge(store)
    assert everything(store) == before
    table_in(store).untag("audit")
    with pytest.raises(VersionTagged, match=r"tags: 'start' \(version 1\)\."):
        purge(store)
    table_in(store).untag("start")
    done = purge(store)
    assert readable(store) == {done.version: BOBS}


@pytest.mark.slow
def test_concurrent_tag_and_purge_exclude_each_other(store: Store, tmp_path: Path) -> None:
    """Whichever is second sees the first: the tag is refused, or the purge."""
    ends = set()
    for nth in range(1, 200):
        raced = copy(tmp_path / "lake", tmp_path / str(nth))
        faulty = FaultStore(raced)
        refused: list[str] = []
        rang: list[int] = []

        def ring(*_: str, raced: Store = raced, rang: list[int] = rang, nth: int = nth, no: Any = refused) -> None:
            rang.append(1)
            if len(rang) == nth:
                try:
                    table_in(raced).tag("audit", 2)
                except VersionNotFound:
                    no.append("tag")

        faulty.before_call = ring
        try:
            purge(faulty)
        except VersionTagged:
            refused.append("purge")
        if len(rang) < nth:
            break
        assert len(refused) == 1
        ends.add(refused[0])
        held = readable(raced)
        assert ((1, "alice", 1) in held.get(2, [])) == (refused == ["purge"])
        assert ("audit" in table_in(raced).tags()) == (refused == ["purge"])
    assert ends == {"tag", "purge"}


# --- once, and beside others ----------------------------------------------------------------------------------------


def test_purge_with_same_id_is_applied_once(store: Store) -> None:
    first = purge(store, "erase-alice")
    table_in(store).append(flights((1, "alice", 9)))
    table_in(store).tag("later")
    again = purge(store, "erase-alice")
    assert isinstance(again, AlreadyApplied)
    assert again.version == first.version
    assert set(readable(store)) == {5, 6, 7}
    with pytest.raises(IdReused):
        table_in(store).delete(ALICE, row_level=True, id="erase-alice")


@pytest.mark.slow
def test_purge_that_crashes_is_atomic_and_completes_on_rerun(store: Store, tmp_path: Path) -> None:
    """Deletion and expiry are one commit: there is no moment between them."""
    counting = FaultStore(copy(tmp_path / "lake", tmp_path / "counted"))
    purge(counting, "erase")
    for number, fault in enumerate(every_crash(counting.calls)):
        crashed = copy(tmp_path / "lake", tmp_path / str(number))
        with pytest.raises(Crash):
            purge(FaultStore(crashed, fault), "erase")
        assert readable(crashed).keys() in ({1, 2, 3, 4}, {5}), fault
        purge(crashed, "erase")
        assert readable(crashed) == {5: BOBS}, fault


def test_append_during_purge_is_expired_and_keeps_rows_in_table(store: Store) -> None:
    started = DatasetLog(store, "flights").begin_new("purge")
    change = delete(store, started.snapshot, parse("month = 2"), purge=True)
    table_in(store).append(flights((4, "carol", 6)))
    done = started.commit(change)
    assert done.rebased == 1
    assert done.version == 6
    assert readable(store) == {6: [(1, "alice", 1), (1, "bob", 2), (3, "bob", 5), (4, "carol", 6)]}


def test_change_of_same_rows_during_purge_is_conflict_without_expiry(store: Store) -> None:
    started = DatasetLog(store, "flights").begin_new("purge")
    assert isinstance(started, Transaction)
    change = delete(store, started.snapshot, parse("month = 2"), purge=True)
    table_in(store).append(flights((2, "dave", 6)))
    with pytest.raises(Conflict):
        started.commit(change)
    assert set(readable(store)) == {1, 2, 3, 4, 5}


def test_purge_with_invalid_filter_changes_nothing(store: Store) -> None:
    before = everything(store)
    with pytest.raises(FilterInvalid):
        table_in(store).delete("nobody = 1", purge=True)
    assert everything(store) == before


def test_purge_overwritten_by_foreign_writer_is_recovered(store: Store, tmp_path: Path) -> None:
    """Its head has the rows again, until the purge is merged again; that version expires with the others."""
    document = json.loads(store.get(keys.head("flights")))
    done = purge(store)
    document["metadata"]["theirs"] = 1
    store.put(keys.head("flights"), json.dumps(document).encode())
    DatasetLog(store, "flights").settle()
    found = readable(store)
    assert found == {done.version + 2: BOBS}
    let_pass(tmp_path, 3 * GRACE)
    table_in(store).collect(enforce=True)
    assert carriers_in_files(store) == {"bob"}
