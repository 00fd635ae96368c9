"""Skipping metadata travels with commits: whoever commits, every file has its entry, at every version."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest

from kubothek.catalog import Dataset, Lake
from kubothek.errors import SkippingInvalid
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import DatasetLog, Operation, Transaction
from kubothek.table.log.update_skipping import reskip, undescribed
from kubothek.table.maintenance.heal import ailments
from kubothek.table.operations import append, write_rows
from kubothek.table.skipping.model import IndexDefinition, SkippingState
from kubothek.table.skipping.names import definitions_tag_of, location
from tests.faultstore import WRITES, Crash, Fault, FaultStore

INDICES = (
    IndexDefinition("MinMax", ("n",)),
    IndexDefinition("ValueList", ("word",)),
    IndexDefinition("BloomFilter", ("word",)),
)
_FIELDS: list[pa.Field[Any]] = [pa.field("n", pa.int64()), pa.field("word", pa.null())]
UNTYPED = pa.schema(_FIELDS)
OTHER = (IndexDefinition("MinMax", ("word",)),)


@pytest.fixture
def store() -> Iterator[Store]:
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield open_store(StoreConfig(Path(directory).as_uri()))


def rows(*numbers: int, part: int = 0) -> pa.Table:
    return pa.table({"part": [part] * len(numbers), "n": list(numbers), "word": [f"w{n}" for n in numbers]})


def filled(store: Store, skipping: tuple[IndexDefinition, ...] = INDICES) -> Dataset:
    """Four files with two rows each."""
    table = Lake(store).create_dataset("t", partition_on=["part"], skipping=skipping)
    for first in range(0, 8, 2):
        table.append(rows(first, first + 1, part=first % 4))
    return table


def opened(table: Dataset, where: str, as_of: int | None = None) -> tuple[int, list[int]]:
    """How many files skipping metadata leaves, and the numbers of the rows that match."""
    left = dict(table.plan(where, as_of).steps)["skipping metadata"]
    found = table.scan(["n"], where, as_of).read_all()["n"].to_pylist()
    return left, sorted(number for number in found if number is not None)


def keys_of(table: Dataset) -> set[str]:
    return {key for part in table.snapshot().head.skipping.parts for key in part.keys}


def whole(store: Store, table: Dataset) -> bool:
    return undescribed(store, table.snapshot()) == 0


CHANGES: dict[str, Callable[[Dataset], object]] = {
    "append": lambda table: table.append(rows(100, 101)),
    "replace": lambda table: table.replace(rows(100, 3, part=2)),
    "overwrite": lambda table: table.overwrite(rows(100, 3)),
    "delete rows": lambda table: table.delete("n = 2", row_level=True),
    "delete files": lambda table: table.delete("part = 2"),
    "update": lambda table: table.update({"n": 100}, where="n = 2", row_level=True),
    "compact": lambda table: table.compact(),
    "compact in order": lambda table: table.compact(sort_by=["n"]),
    "rollback": lambda table: table.rollback(3),
}


@pytest.mark.parametrize("change", CHANGES)
def test_commit_of_each_operation_keeps_skipping_entries(store: Store, change: str) -> None:
    table = filled(store)
    before = {number: opened(table, f"word = 'w{number}'") for number in (1, 3, 100)}
    CHANGES[change](table)
    assert whole(store, table)
    words = table.scan(["word"]).read_all()["word"].to_pylist()
    for number in (*range(8), 100):
        assert opened(table, f"word = 'w{number}'")[0] == words.count(f"w{number}")
    assert {number: opened(table, f"word = 'w{number}'", as_of=5) for number in before} == before


def test_skipping_part_count_stays_low_over_many_commits(store: Store) -> None:
    table = filled(store)
    for number in range(8, 60):
        table.append(rows(number))
    assert len(table.snapshot().head.skipping.parts) <= 12
    assert opened(table, "n IN (3, 57)") == (2, [3, 57])
    assert opened(table, "word LIKE '%7'") == (6, [7, 17, 27, 37, 47, 57])
    table.compact()
    assert len(table.snapshot().head.skipping.parts) <= 4
    assert opened(table, "n = 57") == (1, [57])
    table.delete("part = 0")
    table.heal()
    assert sum(part.rows for part in table.snapshot().head.skipping.parts) <= 4


def test_rebase_keeps_skipping_entries_of_all_commits(store: Store) -> None:
    table = filled(store)
    log = DatasetLog(store, "t")
    started = log.begin("late", "")
    assert isinstance(started, Transaction)
    written = write_rows(store, started.snapshot, rows(50), table=started.snapshot.schema)
    table.append(rows(60))
    started.commit(append(written))
    assert whole(store, table)
    assert [opened(table, f"n = {number}") for number in (50, 60)] == [(1, [50]), (1, [60])]


def test_commit_started_before_skipping_change_gets_entries_by_heal(store: Store) -> None:
    """Its entries have other columns, which real Xskipper would take for files without values."""
    table = filled(store)
    started = DatasetLog(store, "t").begin("late", "")
    assert isinstance(started, Transaction)
    written = write_rows(store, started.snapshot, rows(50), table=started.snapshot.schema)
    assert table.set_skipping(OTHER).described == 4
    started.commit(append(written))
    assert (table.skipping, undescribed(store, table.snapshot())) == (OTHER, 1)
    assert opened(table, "word = 'w3'") == (2, [3])
    assert ailments(store, DatasetLog(store, "t"), table.snapshot()) == ("the skipping metadata of 1 file",)
    assert table.heal().repaired == ("the skipping metadata of 1 file",)
    assert opened(table, "word = 'w50'") == (1, [50])
    assert len({definitions_tag_of(key) for key in keys_of(table)}) == 1
    assert {info.key for info in store.list(location("t")) if definitions_tag_of(info.key)} == keys_of(table)


def test_foreign_file_is_opened_until_heal_adds_skipping_entry(store: Store) -> None:
    table = filled(store)
    twin = Lake(store).create_dataset("twin", partition_on=["part"])
    twin.append(rows(3))
    ((label, key),) = twin.snapshot().head.files().items()
    foreign = key.replace("twin/", "t/")
    store.put(foreign, store.get(key))
    head = store.get("t.by-dataset-metadata.json").decode()
    added = f'"partitions":{{"{label}":{{"files":{{"table":"{foreign}"}}}},'
    store.put("t.by-dataset-metadata.json", head.replace('"partitions":{', added, 1).encode())
    assert opened(table, "n = 3") == (2, [3, 3])
    table.append(rows(70))
    assert [record.operation for record in list(table.history())[:2]] == [Operation.APPEND, Operation.EXTERNAL]
    assert opened(table, "n = 3") == (2, [3, 3])
    assert opened(table, "n = 70") == (2, [70])
    assert table.heal().repaired == ("the skipping metadata of 1 file",)
    assert opened(table, "n = 70") == (1, [70])


def test_missing_or_damaged_skipping_metadata_keeps_rows_and_is_healed(store: Store) -> None:
    table = filled(store)
    first, *_ = keys_of(table)
    for harm in (lambda: store.put(first, b"no Parquet"), lambda: store.delete([first])):
        harm()
        table = Lake(open_store(store.config)).dataset("t")
        assert opened(table, "n = 3")[1] == [3]
        table.append(rows(80))
        assert set(opened(table, "n = 80")[1]) == {80}
    table = Lake(open_store(store.config)).dataset("t")
    assert not whole(store, table)
    assert any("skipping metadata" in each for each in table.heal().repaired)
    assert opened(table, "n = 3") == (1, [3])


def test_skipping_definitions_are_validated_stored_and_dropped(store: Store) -> None:
    with pytest.raises(SkippingInvalid, match="partition column"):
        Lake(store).create_dataset("u", ["part"], rows(1).schema, skipping=[IndexDefinition("MinMax", ("part",))])
    table = filled(store, ())
    with pytest.raises(SkippingInvalid, match="'nope'"):
        table.set_skipping([IndexDefinition("MinMax", ("nope",))])
    before = table.version
    done = table.set_skipping(INDICES)
    assert (done.version, done.described, done.missing) == (before + 1, 4, 0)
    assert table.set_skipping(INDICES).version is None
    assert opened(table, "n = 3") == (1, [3])
    assert table.set_skipping(INDICES, rebuild=True).described == 4
    assert table.set_skipping(()).version == before + 3
    assert (table.skipping, keys_of(table)) == ((), set())
    assert opened(table, "n = 3") == (4, [3])
    assert not [info for info in store.list(location("t")) if definitions_tag_of(info.key)]


def test_untyped_column_gets_skipping_entries_once_typed(store: Store) -> None:
    table = Lake(store).create_dataset("t", schema=UNTYPED, skipping=INDICES)
    table.append(pa.table({"n": [1], "word": pa.nulls(1)}))
    assert opened(table, "n = 1") == (1, [1])
    table.append(pa.table({"n": [2], "word": ["w2"]}))
    table.append(pa.table({"n": [3], "word": ["w3"]}))
    assert opened(table, "n = 2") == (1, [2])
    assert opened(table, "word = 'w3'")[1] == [3]
    table.heal()
    assert opened(table, "word = 'w3'") == (1, [3])


def test_commit_with_skipping_that_crashes_is_atomic(store: Store) -> None:
    """With the merge of parts in it; the change is then made again."""
    table = filled(store)
    for number in (20, 21, 22):
        table.append(rows(number))
    aside = [info.key for info in store.list("")]
    content = {key: store.get(key) for key in aside}

    def change(target: Store) -> None:
        Lake(target).dataset("t").append(rows(100), id="again")

    counting = FaultStore(store)
    change(counting)
    calls = sum(call.name in WRITES for call in counting.calls)
    assert sum(call.name == "put" and "/skipping/" in call.key for call in counting.calls) == 2
    for nth in range(1, calls + 1):
        for after in (False, True):
            store.delete([info.key for info in store.list("")])
            for key, data in content.items():
                store.put(key, data)
            with pytest.raises(Crash):
                change(FaultStore(store, Fault(nth=nth, after=after)))
            change(store)
            table = Lake(store).dataset("t")
            assert opened(table, "n = 100") == (1, [100])
            assert whole(store, table)


def test_skipping_change_that_crashes_completes_on_rerun(store: Store) -> None:
    filled(store)
    log = DatasetLog(store, "t")
    counting = FaultStore(store)
    reskip(counting, DatasetLog(counting, "t"), SkippingState(OTHER))
    calls = sum(call.name in WRITES for call in counting.calls)
    for nth in range(1, calls + 1):
        reskip(store, log, SkippingState(INDICES))
        failing = FaultStore(store, Fault(nth=nth))
        with suppress(Crash):  # it may need fewer calls than the first time
            reskip(failing, DatasetLog(failing, "t"), SkippingState(OTHER))
        reskip(store, log, SkippingState(OTHER))
        table = Lake(store).dataset("t")
        assert opened(table, "word = 'w3'") == (1, [3])
        assert whole(store, table)


def test_collection_deletes_skipping_parts_unnamed_by_any_version(store: Store) -> None:
    table = filled(store)
    for number in range(10, 20):
        table.append(rows(number))
    foreign = f"{location('t')}part-00000-real-xskipper.snappy.parquet"
    store.put(foreign, b"x")
    table.compact()
    named = keys_of(table)

    def swept(keep_versions: int | None = None) -> set[str]:
        """What a collection takes, after everything has lain there for days."""
        before = {info.key for info in store.list(".kubothek/t/skipping/")}
        root = Path(store.url.removeprefix("file://"))
        for path in root.rglob("*"):
            os.utime(path, (time.time() - 9 * 86400,) * 2)
        for _ in range(2):
            Lake(open_store(store.config)).dataset("t").collect(enforce=True, keep_versions=keep_versions)
        return before - {info.key for info in store.list(".kubothek/t/skipping/")}

    assert not swept() & named
    assert swept(keep_versions=1)
    assert {info.key for info in store.list(".kubothek/t/skipping/")} == {foreign, *named}
    assert opened(table, "n = 15")[1] == [15]
