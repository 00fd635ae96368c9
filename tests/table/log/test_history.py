"""Versions: rebuilding, asking by number and by time, what is gone."""

from __future__ import annotations

import random
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from tempfile import mkdtemp

import orjson
import pytest
import zstandard

from kubothek.errors import DatasetNotFound, HeadUnreadable, VersionIncomplete, VersionNotFound
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import Change, DatasetLog, Delta, Everything, Operation, PartitionFile
from kubothek.table.log.journal import CHECKPOINT_COMMITS, Draft, Journal, system_clock
from tests.faultstore import FaultStore
from tests.table.log.table import SCHEMA, UUID, append, appending, keys_below, present, started, values_of, write

pytestmark = pytest.mark.slow

START = datetime(2026, 1, 1, tzinfo=UTC)
HEAD = f"{UUID}.by-dataset-metadata.json"


class Clock:
    """Ten minutes pass from one look to the next; can be put back."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        self.now += timedelta(minutes=10)
        return self.now


def test_every_old_version_can_be_read(log: DatasetLog, store: Store) -> None:
    for n in range(1, 6):
        append(log, store, str(n), [n])
    assert [values_of(store, log.snapshot(version)) for version in range(1, 6)] == [
        list(range(1, version + 1)) for version in range(1, 6)
    ]


def test_rebuilt_version_keeps_partition_order(log: DatasetLog, store: Store) -> None:
    for label, value in (("z", 1), ("a", 2), ("m", 3)):
        started(log, label).commit(appending(write(store, label, [value])))
    started(log, "replace").commit(
        Change(operation=Operation.REPLACE, removed=("a",), added=(write(store, "b", [4]),), schema=SCHEMA)
    )
    started(log, "more").commit(Change(operation=Operation.APPEND, metadata={"a": 1}))
    assert list(log.snapshot(3).head.partitions) == ["z", "a", "m"]
    assert list(log.snapshot(4).head.partitions) == ["z", "m", "b"]


def test_history_is_newest_first_with_author_and_operation(log: DatasetLog, store: Store) -> None:
    started(log, "1").commit(appending(write(store, "a"), by="commit/load"))
    started(log, "2").commit(Change(operation=Operation.OVERWRITE, removed=("a",), reads=Everything()))
    newest, oldest = log.history()
    assert (newest.operation, newest.delta.removed, newest.reads) == (
        Operation.OVERWRITE,
        (("a", f"{UUID}/table/a.parquet"),),
        Everything(),
    )
    assert (oldest.by, oldest.added.rows, oldest.parent) == ("commit/load", 1, None)
    assert newest.parent == oldest.key


def test_snapshot_at_time_returns_version_current_at_that_time(store: Store) -> None:
    clock = Clock()
    log = DatasetLog(store, UUID, clock=clock)
    times = []
    for n in range(1, 8):
        append(log, store, str(n), [n])
        times.append(log.snapshot().time)
    for version, at in enumerate(times, 1):
        assert at is not None
        assert log.snapshot(at).version == version
        assert log.snapshot(at + timedelta(seconds=1)).version == version
        assert log.snapshot(at.replace(tzinfo=None)).version == version
    with pytest.raises(VersionNotFound):
        log.snapshot(START)


def test_commit_time_with_slow_clock_never_decreases(store: Store) -> None:
    clock = Clock()
    append(DatasetLog(store, UUID, clock=clock), store, "1")
    slow = DatasetLog(store, UUID, clock=lambda: START - timedelta(days=1))
    append(slow, store, "2")
    newest, oldest = slow.history()
    assert newest.time == oldest.time


def test_attempts_that_lost_swap_are_not_versions(store: Store) -> None:
    """Several attempts at one version number lie beside each other; only one is a version."""
    clock = Clock()
    log = DatasetLog(store, UUID, clock=clock)
    append(log, store, "1", [1])
    late = [started(log, f"late-{n}") for n in range(3)]
    append(log, store, "2", [2])
    for n, transaction in enumerate(late):
        transaction.commit(appending(write(store, f"late-{n}", [10 + n])))
    assert len(keys_below(store, f".kubothek/{UUID}/commits/")) > 5
    assert [values_of(store, log.snapshot(version)) for version in (2, 3, 4)] == [
        [1, 2],
        [1, 2, 10],
        [1, 2, 10, 11],
    ]
    for record in log.history():
        assert log.snapshot(record.time).version == record.version


@pytest.mark.parametrize("version", [0, -1, 4])
def test_snapshot_of_nonexistent_version_raises_version_not_found(log: DatasetLog, store: Store, version: int) -> None:
    for n in range(1, 4):
        append(log, store, str(n))
    with pytest.raises(VersionNotFound, match=f"no version {version}; its versions are from 1 to 3"):
        log.snapshot(version)


def test_snapshot_below_horizon_raises_version_not_found(log: DatasetLog, store: Store) -> None:
    for n in range(1, 4):
        append(log, store, str(n))
    raise_horizon(store, 2)
    assert log.snapshot(2).version == 2
    assert [record.version for record in log.history()][-1] == 2
    with pytest.raises(VersionNotFound, match="expired"):
        log.snapshot(1)


def test_snapshot_of_version_with_missing_file_raises_version_incomplete(log: DatasetLog, store: Store) -> None:
    append(log, store, "1", [1])
    label, key = next(iter(log.snapshot().head.files().items()))
    started(log, "2").commit(Change(operation=Operation.DELETE, removed=(label,)))
    assert values_of(store, log.snapshot(1)) == [1]
    store.delete([key])
    with pytest.raises(VersionIncomplete, match=label):
        log.snapshot(1)


def test_snapshot_with_missing_commit_record_raises_version_incomplete(log: DatasetLog, store: Store) -> None:
    for n in range(1, 5):
        append(log, store, str(n))
    keys = keys_below(store, f".kubothek/{UUID}/commits/")
    store.delete([keys[1]])
    with pytest.raises(VersionIncomplete, match="record no longer exists"):
        log.snapshot(3)
    assert len(present(store)) == 4


def test_altered_commit_record_raises_version_incomplete(log: DatasetLog, store: Store) -> None:
    for n in range(1, 4):
        append(log, store, str(n))
    key = keys_below(store, f".kubothek/{UUID}/commits/")[0]
    record = orjson.loads(store.get(key))
    record["added"][0][1] = f"{UUID}/table/another.parquet"
    store.put(key, orjson.dumps(record))
    with pytest.raises(VersionIncomplete, match="do not add up"):
        log.snapshot(2)


def test_commit_record_of_newer_format_is_refused(log: DatasetLog, store: Store) -> None:
    append(log, store, "1")
    store.delete(keys_below(store, f".kubothek/{UUID}/applied/"))
    (key,) = keys_below(store, f".kubothek/{UUID}/commits/")
    store.put(key, orjson.dumps({**orjson.loads(store.get(key)), "format": 2}))
    with pytest.raises(VersionIncomplete, match="newer Kubothek"):
        DatasetLog(store, UUID).begin("2", "d")


# --- checkpoints ---


def fake(n: int, count: int = 1) -> tuple[PartitionFile, ...]:
    return tuple(PartitionFile(f"p={n}/{i}", f"{UUID}/table/p={n}/{i}.parquet", rows=1, bytes=10) for i in range(count))


def test_checkpoint_every_hundred_versions_bounds_reads_of_rebuild(store: Store) -> None:
    log = DatasetLog(store, UUID)
    for n in range(1, 2 * CHECKPOINT_COMMITS + 6):
        started(log, str(n)).commit(appending(*fake(n)))
    assert [key[-13:-9] for key in keys_below(store, f".kubothek/{UUID}/checkpoints/")] == ["0100", "0200"]
    counting = FaultStore(store)
    reader = DatasetLog(counting, UUID)
    reader.snapshot(203)
    assert len([call for call in counting.calls if "/commits/" in call.key]) < 30
    assert len(reader.snapshot(150).head.partitions) == 150
    assert len(list(reader.history())) == 205


def test_checkpoint_is_written_when_deltas_outgrow_head(store: Store) -> None:
    log = DatasetLog(store, UUID)
    for n in range(1, 5):
        removed = tuple(log.snapshot().head.partitions) if n > 1 else ()
        started(log, str(n)).commit(
            Change(
                operation=Operation.OVERWRITE,
                added=fake(n, 300),
                removed=removed,
                reads=Everything(),
                schema=SCHEMA,
            )
        )
    assert [key[-10:-9] for key in keys_below(store, f".kubothek/{UUID}/checkpoints/")] == ["3"]


def test_checkpoint_of_another_attempt_is_ignored(log: DatasetLog, store: Store) -> None:
    for n in range(1, CHECKPOINT_COMMITS + 3):
        started(log, str(n)).commit(appending(*fake(n)))
    (key,) = keys_below(store, f".kubothek/{UUID}/checkpoints/")
    store.put(key, zstandard.compress(store.get(HEAD)))
    assert len(log.snapshot(CHECKPOINT_COMMITS + 1).head.partitions) == CHECKPOINT_COMMITS + 1


def _cost_of_commit(directory: Path, count: int) -> float:
    """Commit and read so many partitions; return the CPU time in seconds."""
    log = DatasetLog(open_store(StoreConfig(Path(mkdtemp(dir=directory)).as_uri())), UUID)
    files = tuple(PartitionFile(f"d={n}/f", f"{UUID}/table/d={n}/f.parquet", 1, 1) for n in range(count))
    began = time.process_time()
    committed = started(log, "bulk").commit(appending(*files))
    assert committed.totals.partitions == count
    started(log, "more").commit(appending(*fake(1)))
    assert len(log.snapshot(1).head.partitions) == count
    return time.process_time() - began


@pytest.mark.slow
def test_commit_of_ten_times_the_partitions_costs_ten_times_the_work(tmp_path: Path) -> None:
    # In a process of its own: garbage collection of what other tests left, and threads that they left running, must
    # not count.
    with ProcessPoolExecutor(1, get_context("spawn")) as process:

        def work(count: int) -> float:
            return process.submit(_cost_of_commit, tmp_path, count).result()

        work(100)
        # On a busy machine the caches are those of others at times: what grows faster does so every time.
        assert any(work(100_000) < 30 * work(10_000) for _ in range(3))


# --- heads that are not as they should be ---


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"dataset_metadata_version": 3}', "dataset_metadata_version"),
        (b'{"dataset_metadata_version": 4, "dataset_uuid": "x"}', "dataset_uuid"),
        (b'{"dataset_metadata_version": 4, "dataset_uuid": "flights", "partitions": []}', "partitions"),
        (b'{"dataset_metadata_version": 4, "dataset_uuid": "flights", "partition_keys": "p"}', "partition_keys"),
        (
            b'{"dataset_metadata_version": 4, "dataset_uuid": "flights", "partitions": {"a": {"files": {}}}}',
            "'a' names no file",
        ),
        (
            b'{"dataset_metadata_version": 4, "dataset_uuid": "flights", '
            b'"partitions": {"a": {"files": {"table": "flights/table/a.csv"}}}}',
            "not a .parquet file",
        ),
    ],
)
def test_unreadable_head_is_reported_and_left_unchanged(log: DatasetLog, store: Store, head: bytes, says: str) -> None:
    append(log, store, "1")
    store.put(HEAD, head)
    before = keys_below(store)
    with pytest.raises(HeadUnreadable, match=says):
        log.begin("2", "d")
    assert (log.inspect().problem or "").startswith("HeadUnreadable")
    assert (store.get(HEAD), keys_below(store)) == (head, before)


def test_half_written_head_is_read_again(log: DatasetLog, store: Store) -> None:
    append(log, store, "1", [1])
    whole = store.get(HEAD)
    store.put(HEAD, whole[:20])
    half = FaultStore(store)
    reads = []

    def finish_writing(name: str, key: str) -> None:
        reads.append(key)
        if len(reads) == 3:
            store.put(HEAD, whole)

    half.before_call = finish_writing
    assert values_of(store, DatasetLog(half, UUID).snapshot()) == [1]
    assert reads[:3] == [HEAD] * 3


def test_restored_old_head_is_settled_without_loss(log: DatasetLog, store: Store) -> None:
    append(log, store, "1", [1])
    old = store.get(HEAD)
    append(log, store, "2", [2])
    append(log, store, "3", [3])
    store.put(HEAD, old)
    assert present(store) == [1]
    assert log.settle().problem is None
    assert present(store) == [1, 2, 3]


def test_damaged_common_metadata_is_repaired_by_settle(log: DatasetLog, store: Store) -> None:
    append(log, store, "1", [1])
    key = f"{UUID}/table/_common_metadata"
    good = store.get(key)
    store.put(key, b"damaged")
    log.settle()
    assert store.get(key) == good


def test_missing_dataset_has_no_snapshot_and_no_history(log: DatasetLog) -> None:
    with pytest.raises(DatasetNotFound):
        log.snapshot()
    with pytest.raises(DatasetNotFound):
        log.history()
    assert log.inspect().version is None
    assert log.settle().version is None


def raise_horizon(store: Store, version: int) -> None:
    """As expiry will: a commit that raises the horizon."""
    journal = Journal(store, UUID, clock=system_clock, rng=random.Random(1))
    seen = journal.observe()
    assert seen is not None
    assert seen.totals is not None
    draft = Draft(
        id="expire",
        digest="",
        operation=Operation.DELETE,
        by="",
        base=seen.head,
        delta=Delta(metadata={"kubothek_horizon": version}),
        totals=seen.totals,
    )
    assert journal.publish(draft, seen)
