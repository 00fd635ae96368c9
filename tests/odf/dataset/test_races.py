"""Writers beside each other: the merge of the slower one runs again on what the faster one left."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import orjson
import pytest

from kubothek.catalog import Lake
from kubothek.errors import Conflict, Drift, IdReused
from kubothek.odf.dataset import Root
from kubothek.odf.spec.events import AddData, SetInfo
from kubothek.odf.spec.sources import MergeStrategyUpsertStream
from kubothek.storage import Store
from kubothek.table.log import Change, DatasetLog, Operation
from kubothek.table.log.model import keys
from kubothek.table.log.model.ledgers import ChainMove, LedgerChange
from tests.faultstore import FaultStore
from tests.odf.dataset.planes import APPEND, LEDGER, UUID, made, opened, planes, push, sound, table

pytestmark = pytest.mark.slow


def interrupted(store: Store, other: Callable[[], object], nth: int = 1) -> Root:
    """A root whose ``nth`` swap of the head comes right after another writer's."""
    faulty, swaps = FaultStore(store), iter(range(1, 100))

    def before_call(name: str, key: str) -> None:
        if name == "put_if_match" and key == keys.head(UUID) and next(swaps) == nth:
            other()

    faulty.before_call = before_call
    return Root(faulty, DatasetLog(faulty, UUID))


@pytest.mark.requirement("MS-02")
def test_ledger_key_pushed_by_concurrent_writer_is_added_once(store: Store) -> None:
    made(store, LEDGER)
    push(store, {1: "A"})
    done = interrupted(store, lambda: push(store, {2: "theirs"})).push(planes({2: "ours", 3: "ours"}))
    assert done.records == 1
    assert table(store) == {1: "A", 2: "theirs", 3: "ours"}
    assert sound(store).records == 3


@pytest.mark.requirement("MS-04")
def test_snapshot_push_conflict_is_merged_with_newest_state(store: Store) -> None:
    made(store)
    push(store, {1: "A"})
    interrupted(store, lambda: push(store, {1: "A", 2: "B"})).push(planes({1: "A", 3: "C"}))
    assert table(store) == {1: "A", 3: "C"}
    assert sound(store).records == 4


@pytest.mark.requirement("MS-08")
def test_upserts_after_conflict_are_compared_with_new_state(store: Store) -> None:
    made(store, MergeStrategyUpsertStream(primary_key=("id",)))
    push(store, {1: "A"})
    interrupted(store, lambda: push(store, {1: "A", 2: "B"})).push(planes({1: "C", 2: "B"}))
    assert table(store) == {1: "C", 2: "B"}
    assert sound(store).records == 4


@pytest.mark.requirement("WR-05")
def test_push_made_redundant_by_concurrent_writer_commits_nothing(store: Store) -> None:
    made(store)
    done = interrupted(store, lambda: push(store, {1: "A"})).push(planes({1: "A"}))
    assert done.up_to_date
    assert sound(store).records == 1


def test_concurrent_tag_does_not_conflict_with_push(store: Store) -> None:
    made(store, APPEND)
    push(store, {1: "A"})
    root = interrupted(store, lambda: DatasetLog(store, UUID).tag("audit"))
    assert root.push(planes({2: "B"})).records == 1
    sound(store)


def test_concurrent_pushes_with_same_commit_id_commit_once(store: Store) -> None:
    made(store, APPEND)
    done = interrupted(store, lambda: push(store, {1: "A"}, "load")).push(planes({1: "A"}), commit_id="load")
    assert done.version == 2
    assert opened(store).push(planes({1: "A"}), commit_id="load").repeated
    with pytest.raises(IdReused):
        opened(store).push(planes({1: "A"}), commit_id="load", digest="another")
    assert sound(store).records == 1


@pytest.mark.requirement("CH-01")
def test_concurrent_writers_produce_one_chain_without_offset_gaps(store: Store) -> None:
    made(store, LEDGER)

    def write(writer: int) -> None:
        for number in range(3):
            push(store, {10 * writer + number: "own", 1000 + number: "shared"}, f"{writer}-{number}")

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, range(3)))
    verdict = sound(store)
    assert verdict.records == 9 + 3
    assert len(table(store)) == 12
    ends = [b.content.event.new_data for b in opened(store).blocks() if isinstance(b.content.event, AddData)][::-1]
    intervals = [each.offset_interval for each in ends if each]
    assert intervals[0].start == 0
    assert all(a.end + 1 == b.start for a, b in pairwise(intervals))
    assert store.get(keys.chain_ref(UUID)).decode() == str(verdict.head)


@pytest.mark.requirement("MB-06")
def test_chain_reference_after_slow_writer_moves_forward_only(store: Store) -> None:
    """A writer that is slow after its swap does not take ``refs/head`` back."""
    made(store, APPEND)
    faulty, once = FaultStore(store), iter([True])

    def before_call(name: str, key: str) -> None:
        if name == "put_if_match" and key == keys.chain_ref(UUID) and next(once, False):
            push(store, {2: "faster"})

    faulty.before_call = before_call
    Root(faulty, DatasetLog(faulty, UUID)).push(planes({1: "slow"}))
    assert store.get(keys.chain_ref(UUID)).decode() == str(sound(store).head)
    assert sound(store).records == 2


def test_chain_change_on_outdated_head_raises_conflict(store: Store) -> None:
    """Without a way to make it anew it is a conflict."""
    root = made(store)
    log = DatasetLog(store, UUID)
    started = log.begin_new("test")
    root.append_events([SetInfo(description="faster")])
    note = started.snapshot.head.chain
    assert note is not None
    move = ChainMove(base=note.head, head=note.head)
    with pytest.raises(Conflict, match="its chain has got blocks"):
        started.commit(Change(operation=Operation.LEDGER, ledger=LedgerChange(move, note)))


def test_retraction_after_concurrent_compaction_hits_new_files(store: Store) -> None:
    made(store)
    push(store, {1: "A", 2: "B"})
    push(store, {1: "A", 2: "B", 3: "C"})
    done = interrupted(store, lambda: Lake(store).dataset(UUID).compact()).push(planes({1: "A2", 3: "C"}))
    assert done.records == 3
    assert Operation.COMPACT in [record.operation for record in DatasetLog(store, UUID).history()]
    assert table(store) == {1: "A2", 3: "C"}
    assert sound(store).slices == 3


def test_push_overwritten_by_other_program_is_merged_again_as_drift(store: Store) -> None:
    made(store, APPEND)
    push(store, {1: "A"})
    before = orjson.loads(store.get(keys.head(UUID)))
    push(store, {2: "B"})
    before["partitions"].clear()
    store.put(keys.head(UUID), orjson.dumps(before))  # read before the push, put after it
    with pytest.raises(Drift):
        push(store, {3: "C"})
    operations = [record.operation for record in DatasetLog(store, UUID).history()]
    assert operations[:2] == [Operation.RECOVERED, Operation.EXTERNAL]
    assert sound(store).records == 2
    opened(store).restore_view()
    push(store, {3: "C"})
    assert table(store) == {1: "A", 2: "B", 3: "C"}
    assert store.get(keys.chain_ref(UUID)).decode() == str(sound(store).head)
