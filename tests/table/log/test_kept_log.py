"""A log that is kept for many calls: it remembers the head, and is never wrong about it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kubothek.errors import DatasetNotFound, HeadMissing
from kubothek.storage import Store
from kubothek.table.log import DatasetLog, Operation
from kubothek.table.log.model import keys
from kubothek.table.log.model.paths import count, recount
from tests.faultstore import FaultStore
from tests.table.log.plateaulike import ForeignWriter
from tests.table.log.table import UUID, append, appending, present, started, values_of, write

HEAD = keys.head(UUID)


def test_log_with_unchanged_head_reads_head_only_once(store: Store) -> None:
    watched = FaultStore(store)
    log = DatasetLog(watched, UUID)
    append(log, watched, "1")
    watched.calls.clear()
    append(log, watched, "2")
    log.snapshot()
    assert [call.name for call in watched.calls if call.key == HEAD] == ["stat", "put_if_match", "stat", "stat"]
    assert values_of(store, log.snapshot()) == [1, 1]


def test_commit_without_repeatable_id_skips_marker_check_and_lands(store: Store) -> None:
    watched = FaultStore(store)
    log = DatasetLog(watched, UUID)
    append(log, watched, "1", [1])
    watched.calls.clear()
    one, other = log.begin_new("batch"), log.begin_new("batch")
    one.commit(appending(write(store, "one", [2])))
    assert [call.name for call in watched.calls if "/applied/" in call.key] == ["put_if_absent"]
    assert other.commit(appending(write(store, "other", [3]))).rebased == 1
    assert values_of(store, log.snapshot()) == [1, 2, 3]
    assert [record.id.partition(":")[0] for record in log.history()] == ["batch", "batch", "1"]


@pytest.mark.parametrize("look", [lambda log: log.snapshot().version, lambda log: log.inspect().version])
def test_cached_log_sees_commits_of_other_logs(store: Store, look: Callable[[DatasetLog], int]) -> None:
    kept, other = DatasetLog(store, UUID), DatasetLog(store, UUID)
    append(kept, store, "1")
    append(other, store, "2")
    assert look(kept) == 2
    append(kept, store, "3")
    assert look(other) == 3


def test_cached_log_sees_and_adopts_foreign_heads(store: Store) -> None:
    log = DatasetLog(store, UUID)
    append(log, store, "1", [1])
    foreign = ForeignWriter(store, "theirs", [2])
    foreign.read()
    foreign.write()
    assert values_of(store, log.snapshot()) == [1, 2]
    append(log, store, "2", [3])
    assert values_of(store, log.snapshot()) == [1, 2, 3]
    assert [record.operation for record in log.history()][1] is Operation.EXTERNAL


def test_cached_log_detects_deleted_or_missing_head(store: Store) -> None:
    log = DatasetLog(store, UUID)
    append(log, store, "1")
    append(log, store, "2")
    DatasetLog(store, UUID).delete()
    with pytest.raises(DatasetNotFound, match="was deleted"):
        log.snapshot()
    store.delete([HEAD])
    with pytest.raises(HeadMissing):
        log.snapshot()


def test_partition_count_over_many_commits_stays_exact(store: Store) -> None:
    log = DatasetLog(store, UUID)
    chance = random.Random(7)
    for number in range(25):
        transaction = started(log, str(number))
        labels = list(transaction.snapshot.head.partitions)
        file = write(store, f"p={chance.randrange(4)}/{number}")
        removed = chance.sample(labels, min(len(labels), chance.randrange(3)))
        change = appending(file)
        transaction.commit(
            type(change)(operation=Operation.REPLACE, added=(file,), removed=tuple(removed), schema=change.schema)
        )
        snapshot = DatasetLog(store, UUID).snapshot()
        assert snapshot.totals is not None
        assert snapshot.totals.partitions == len({label.split("/")[0] for label in snapshot.head.partitions})
        assert snapshot.totals.files == len(present(store))


def test_incremental_recount_equals_full_count() -> None:
    chance = random.Random(3)
    files: list[str] = []
    counted = dict(count(files))
    for number in range(200):
        added = [f"t/table/p={chance.randrange(9)}/{number}-{n}" for n in range(chance.randrange(4))]
        removed = chance.sample(files, chance.randrange(min(4, len(files) + 1)))
        files = [key for key in files if key not in removed] + added
        counted = recount(counted, removed=removed, added=added)
        assert counted == count(files)
