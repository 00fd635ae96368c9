"""An inventory that is carried along says what one that is worked out from all records says."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from kubothek.catalog import Dataset, Lake
from kubothek.errors import LakeError
from kubothek.storage import Store
from kubothek.table.log import Change, DatasetLog, Operation
from kubothek.table.log.model import keys
from kubothek.table.maintenance import Health, health
from kubothek.table.maintenance.inventory import FILES, Inventory, keep, kept, take
from tests.faultstore import FaultStore
from tests.table.maintenance.table import filled
from tests.table.operations.table import flights, labels

UUID = "flights"


def carried(store: Store) -> Health:
    log = DatasetLog(store, UUID)
    return health(store, log, log.snapshot(), estimates=False, keeps=True)


def from_scratch(store: Store) -> Health:
    """Without an inventory; the one that is there stays."""
    data = store.get(keys.inventory(UUID))
    store.delete([keys.inventory(UUID)])
    log = DatasetLog(store, UUID)
    found = health(store, log, log.snapshot(), estimates=False)
    store.put(keys.inventory(UUID), data)
    return found


def test_inventory_update_after_commit_reads_only_new_record(table: Dataset, store: Store) -> None:
    carried(store)
    table.append(flights((7, "new", 1)))
    counting = FaultStore(store)
    log = DatasetLog(counting, UUID)
    snapshot = log.snapshot()
    counting.calls.clear()
    found = health(counting, log, snapshot, estimates=False, keeps=True)
    assert [(call.name, call.key) for call in counting.calls] == [
        ("get", keys.inventory(UUID)),
        ("get", snapshot.head.commit),
        ("put", keys.inventory(UUID)),
    ]
    assert found == from_scratch(store)


def test_inventory_survives_roundtrip(table: Dataset, store: Store) -> None:
    log = DatasetLog(store, UUID)
    table.compact()
    taken = take(store, log, log.snapshot())
    assert taken.news is None, "nothing was kept yet"
    keep(store, UUID, taken)
    assert kept(store, UUID) == replace(taken, news=0)
    empty = Inventory("commit", FILES.empty_table(), ())
    keep(store, UUID, replace(empty, news=None))
    assert kept(store, UUID) == empty


def test_large_inventory_is_not_written_at_every_commit(store: Store) -> None:
    ones = [1] * 3000
    files = pa.table({"key": [f"{n:05}" for n in range(3000)], **dict.fromkeys(FILES.names[1:], ones)}, FILES)
    for news, written in ((0, False), (3, False), (4, True), (None, True)):
        keep(store, UUID, Inventory("commit", files, (), news=news))
        assert (kept(store, UUID) is not None) is written, news
        store.delete([keys.inventory(UUID)])


@pytest.mark.parametrize("data", [b"", b"PAR1", b"{}"])
def test_unreadable_inventory_is_ignored_and_rewritten(data: bytes, table: Dataset, store: Store) -> None:
    expected = carried(store)
    store.put(keys.inventory(UUID), data)
    assert kept(store, UUID) is None
    assert carried(store) == expected
    assert kept(store, UUID) is not None


def test_inventory_of_another_history_is_recomputed(table: Dataset, store: Store) -> None:
    """As after somebody restored an older state of the bucket."""
    head = store.get(keys.head(UUID))
    table.append(flights((7, "new", 1)))
    table.delete("month = 7")
    assert carried(store).history.files == 1
    lost = [record for record in table.history() if record.version > 5]
    store.delete([*(record.key for record in lost), *(keys.marker(UUID, record.id) for record in lost)])
    store.put(keys.head(UUID), head)
    assert carried(store) == from_scratch(store)
    assert (carried(store).versions, carried(store).history.files) == (5, 0)


def test_inventory_counts_restored_file_again(table: Dataset, store: Store) -> None:
    expected = carried(store)
    key = next(iter(labels(table).values()))
    data = store.get(key)
    store.delete([key, keys.inventory(UUID), *(record.key for record in table.history())])
    table.append(flights((7, "new", 1)))
    assert carried(store).totals.bytes < expected.totals.bytes
    store.put(key, data)
    assert carried(store).totals.bytes > expected.totals.bytes


def test_inventory_excludes_expired_versions_and_their_files(table: Dataset, store: Store) -> None:
    table.compact()
    assert (carried(store).versions, carried(store).history.files) == (6, 8)
    expire(store, 6)
    found = carried(store)
    assert (found.versions, found.history.files) == (2, 0)


def test_inventory_holds_file_removed_for_second_time(table: Dataset, store: Store) -> None:
    table.compact()
    carried(store)
    table.rollback(5)
    table.compact()
    carried(store)
    expire(store, 7)
    assert carried(store).history.files == 8
    assert carried(store) == from_scratch(store)


def test_inventory_counts_files_of_tagged_version_as_history(table: Dataset, store: Store) -> None:
    carried(store)
    table.tag("before", 4)
    table.compact()
    table.overwrite(flights((1, "AA", 1)))
    expire(store, table.version)
    found = carried(store)
    tagged = table.snapshot("before").head.files().values()
    assert (found.history.files, found.history.bytes) == (6, sum(store.stat(key).size for key in tagged))


def expire(store: Store, version: int) -> None:
    log = DatasetLog(store, UUID)
    log.begin_new("expire").commit(Change(operation=Operation.EXPIRE, horizon=version, spares=_tagged(log)))


def _tagged(log: DatasetLog) -> frozenset[str]:
    return frozenset(tag.record for tag in log.snapshot().head.tags.values())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_incremental_inventory_equals_inventory_from_scratch(seed: int, store: Store) -> None:
    chance = random.Random(seed)
    table = filled(Lake(store))
    carried(store)
    deeds: list[Callable[[], object]] = [
        lambda: table.append(flights((chance.randrange(4), "AA", chance.randrange(9)))),
        lambda: table.replace(flights((2, "RR", 1)), where="month = 2"),
        lambda: table.delete(f"month = {chance.randrange(4)}"),
        lambda: table.compact(),
        lambda: table.rollback(chance.randrange(2, table.version)),
        lambda: table.overwrite(flights((3, "OO", 8))),
    ]
    for _ in range(14):
        for _ in range(chance.randrange(3)):
            try:
                chance.choice(deeds)()
            except LakeError:
                continue
        if chance.random() < 0.1:
            log = DatasetLog(store, UUID)
            log.delete()
            log.restore()
        found = carried(store)
        sizes = [store.stat(key).size for key in labels(table).values()]
        assert (found.totals.files, found.totals.bytes) == (len(sizes), sum(sizes))
        assert found == from_scratch(store)
