"""What a change depends on: which concurrent commits are in its way, and how a record keeps it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kubothek.errors import Conflict, VersionNotFound
from kubothek.table.expressions import parse
from kubothek.table.log import Change, DatasetLog, Everything, Matching, Operation, Transaction
from kubothek.table.log.model.record import Record
from kubothek.table.log.prepare import draft
from tests.table.log.memory import MemoryStore
from tests.table.log.plateaulike import ForeignWriter
from tests.table.log.table import CLAIM, SCHEMA, UUID, append, appending, present, started, write

TYPES: dict[str, pa.DataType] = {
    "p": pa.int64(),
    "d": pa.date32(),
    "s": pa.string(),
    "t": pa.timestamp("us"),
    "x": pa.int64(),
}
TABLE = pa.schema(TYPES)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def log(store: MemoryStore) -> DatasetLog:
    log = DatasetLog(store, UUID, claim=CLAIM)
    started(log, "first").commit(appending(write(store, "p=1/a", [1]), write(store, "p=2/b", [2])))
    return log


def matching(where: str, *keys: str) -> Matching:
    return Matching.of(parse(where).bind(TABLE), TABLE, keys or ("p",))


def deleting(where: str, *labels: str) -> Change:
    return Change(operation=Operation.DELETE, removed=labels, reads=matching(where))


@pytest.mark.parametrize(
    ("where", "keys", "path", "may_hold"),
    [
        ("p = 1", ["p"], "p=1", True),
        ("p = 1", ["p"], "p=2", False),
        ("p = 1 AND x = 5", ["p"], "p=1", True),
        ("p = 1 AND x = 5", ["p"], "p=2", False),
        ("p = 1 OR x = 5", ["p"], "p=2", True),
        ("x = 5", ["p"], "p=2", True),
        ("TRUE", ["p"], "p=2", True),
        ("FALSE", ["p"], "p=2", False),
        ("x = 5", [], "", True),
        ("d >= '2026-01-01' AND s = 'a/b'", ["d", "s"], "d=2026-02-01/s=a%2Fb", True),
        ("d >= '2026-01-01' AND s = 'a/b'", ["d", "s"], "d=2026-02-01/s=b", False),
        ("t < '2026-01-01 12:00:00'", ["t"], "t=2026-01-01%2011%3A59%3A59", True),
        ("t < '2026-01-01 12:00:00'", ["t"], "t=2026-01-01%2012%3A00%3A00", False),
        ("p = 1", ["p"], "p=one", True),
        ("p = 1", ["p"], "q=2", True),
        ("p = 1", ["p"], "", True),
        ("p != 1", ["p"], "p=1", False),
        ("p IS NULL", ["p"], "p=1", False),
    ],
)
def test_partition_path_decides_whether_filter_may_match_file(
    where: str, keys: list[str], path: str, may_hold: bool
) -> None:
    reads = Matching.of(parse(where).bind(TABLE), TABLE, keys)
    assert reads.may_hold(path) is may_hold


@pytest.mark.parametrize(
    "where",
    [
        "p = 1",
        "TRUE",
        "FALSE",
        "p IN (1, 2) AND x = 5 OR d < '2026-01-01'",
        "s = 'it''s' AND t = '2026-01-01 01:02:03'",
    ],
)
def test_commit_record_keeps_read_predicate(log: DatasetLog, store: MemoryStore, where: str) -> None:
    reads = matching(where, "p", "d", "s", "t")
    committed = started(log, "delete").commit(Change(operation=Operation.DELETE, reads=reads))
    assert Record.parse(committed.record_key, store.get(committed.record_key)).reads == reads


def test_commit_record_keeps_reads_of_any_partition_type(log: DatasetLog) -> None:
    """Also of a type that only a foreign writer partitions on, and that has no name in a manifest."""
    zoned = pa.schema([("z", pa.timestamp("us", "UTC")), ("p", pa.int64())])
    reads = Matching.of(parse("p = 1").bind(zoned), zoned, ["z", "p"])
    assert reads.partitions.names == ["p"]
    assert reads.may_hold("z=2020-01-01/p=2")
    started(log, "delete").commit(Change(operation=Operation.DELETE, reads=reads))
    assert next(log.history()).reads == reads


@pytest.mark.parametrize(("label", "conflicts"), [("p=1/c", True), ("p=3/c", False)])
def test_concurrent_append_conflicts_with_deletion_that_matches_path(
    log: DatasetLog, store: MemoryStore, label: str, conflicts: bool
) -> None:
    ours = started(log, "delete")
    started(log, "append").commit(appending(write(store, label, [3])))
    if conflicts:
        with pytest.raises(Conflict, match="partition p=1 changed"):
            ours.commit(deleting("p = 1", "p=1/a"))
        assert sorted(present(store)) == [1, 2, 3]
    else:
        assert ours.commit(deleting("p = 1", "p=1/a")).rebased == 1
        assert sorted(present(store)) == [2, 3]


def test_overwritten_deletion_is_recovered_only_without_new_matching_files(log: DatasetLog, store: MemoryStore) -> None:
    for label, left in (("p=3/theirs", [2, 3]), ("p=1/theirs", [1, 2, 3])):
        fork = store.copy()
        foreign = ForeignWriter(fork, label, [3])
        foreign.read()
        forked = DatasetLog(fork, UUID, claim=CLAIM)
        started(forked, "delete").commit(deleting("p = 1", "p=1/a"))
        foreign.write()
        problem = forked.settle().problem
        assert sorted(present(fork)) == left
        assert (problem or "").startswith("ForeignOverwrite") is (label == "p=1/theirs")


def test_rollback_restores_files_at_old_positions(log: DatasetLog, store: MemoryStore) -> None:
    before = log.snapshot().head.files()
    started(log, "delete").commit(deleting("p = 1", "p=1/a"))
    added = write(store, "p=1/a", [1])
    change = Change(operation=Operation.ROLLBACK, added=(added,), positions=(0,), reads=Everything(), restores=1)
    started(log, "back").commit(change)
    assert list(log.snapshot().head.files().items()) == list(before.items())
    assert present(store) == [1, 2]
    assert log.snapshot(3).head.files() == before


def test_rollback_to_concurrently_expired_version_is_refused(log: DatasetLog, store: MemoryStore) -> None:
    """The collector raises the horizon by a commit of its own, which touches no file."""
    append(log, store, "second", [5])
    ours = log.begin("back", "d")
    assert isinstance(ours, Transaction)
    raise_horizon(log, 2)
    with pytest.raises(VersionNotFound, match=r"version 1 .*expired.*2"):
        ours.commit(Change(operation=Operation.ROLLBACK, restores=1))
    assert started(log, "less far").commit(Change(operation=Operation.ROLLBACK, restores=2)).version == 4


def raise_horizon(log: DatasetLog, horizon: int) -> None:
    """What a collector will do: a commit that changes nothing else."""
    metadata: dict[str, Any] = {"kubothek_horizon": horizon}
    begun = started(log, "expire")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draft, "OWN_PREFIX", "nobody's")
        begun.commit(Change(operation=Operation.EXTERNAL, metadata=metadata))
    assert log.snapshot().head.horizon == horizon


def test_overwrite_replaces_schema_and_keeps_old_version_schema(log: DatasetLog, store: MemoryStore) -> None:
    other = pa.schema([("y", pa.string())])
    labels = tuple(log.snapshot().head.partitions)
    ours = started(log, "overwrite")
    ours.commit(Change(operation=Operation.OVERWRITE, removed=labels, schema=other, replaces_schema=True))
    assert log.snapshot().schema == other
    assert log.snapshot(1).schema == SCHEMA
