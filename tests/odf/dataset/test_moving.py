"""``refs/head`` and the table where somebody else has touched them; the chain moved back, and made smaller."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pytest

from kubothek.errors import ChainCorrupt, Diverged, Drift, OwnedByAnother
from kubothek.odf import Block, Multihash, OwnerKey, Timestamp
from kubothek.odf.dataset import Root
from kubothek.odf.spec.events import AddData, MetadataBlock, Seed, SetInfo, SourceState
from kubothek.odf.spec.layout import head_bytes
from kubothek.storage import Store
from kubothek.table.log import DatasetLog, Operation
from kubothek.table.log.model import keys
from kubothek.table.log.ownership import Claim, take_claim
from tests.odf.dataset.planes import APPEND, LAYOUT, UUID, made, opened, planes, push, sound, source, table

pytestmark = pytest.mark.slow

REF = keys.chain_ref(UUID)


def named(store: Store) -> str:
    return store.get(REF).decode()


def appended(store: Store, *events: SetInfo | Seed, on: Multihash | None = None) -> Multihash:
    """What another ODF program does: blocks on top of the last one, then ``refs/head``, and no head of ours."""
    head = on or Multihash.parse(named(store))
    for event in events:
        last = Block.decode(store.get(LAYOUT.block(head))).content
        block = Block.encode(
            MetadataBlock(
                system_time=Timestamp(last.system_time.nanoseconds + 10**6),
                prev_block_hash=head,
                sequence_number=last.sequence_number + 1,
                event=event,
            )
        )
        store.put(LAYOUT.block(block.hash), block.data)
        head = block.hash
    store.put(REF, head_bytes(head))
    return head


# --- refs/head -------------------------------------------------------------------------------------------------------


def test_lagging_chain_reference_is_advanced_by_next_operation(store: Store) -> None:
    root = made(store)
    behind = store.get(REF)
    push(store, {1: "A"})
    push(store, {1: "B"})
    store.put(REF, behind)
    assert DatasetLog(store, UUID).inspect().problem is None
    DatasetLog(store, UUID).settle()
    assert named(store) == str(sound(store).head)
    store.put(REF, behind)
    push(store, {1: "C"})
    assert named(store) == str(sound(store).head)
    store.delete([REF])
    assert push(store, {1: "C"}).up_to_date
    assert named(store) == str(sound(store).head)
    root.refresh()
    assert str(root.state.head) == named(store)


def test_chain_reference_within_commit_counts_as_lagging(store: Store) -> None:
    root = made(store)
    root.append_events([SetInfo(description="one"), source(APPEND)])
    middle = next(iter(root.blocks())).content.prev_block_hash
    assert middle is not None
    store.put(REF, head_bytes(middle))
    push(store, {1: "A"})
    assert named(store) == str(sound(store).head)


@pytest.mark.requirement("MB-06")
def test_blocks_appended_by_other_program_are_adopted(store: Store) -> None:
    made(store)
    push(store, {1: "A"})
    theirs = appended(store, SetInfo(description="theirs"), SetInfo(description="theirs too"))
    assert "Diverged" in (DatasetLog(store, UUID).inspect().problem or "")
    push(store, {1: "B"})
    assert opened(store).info == SetInfo(description="theirs too")
    assert theirs in [block.hash for block in opened(store).blocks()]
    assert next(r for r in DatasetLog(store, UUID).history() if r.operation is Operation.EXTERNAL).ledger is not None
    assert table(store) == {1: "B"}
    assert named(store) == str(sound(store).head)


@pytest.mark.requirement("SH-03")
def test_chain_fork_is_reported_and_kept_until_user_decides(store: Store) -> None:
    root = made(store)
    fork = root.state.head
    push(store, {1: "A"})
    theirs = appended(store, SetInfo(description="theirs"), on=fork)
    for _ in range(2):
        with pytest.raises(Diverged, match="--keep-own"):
            push(store, {1: "B"})
        assert named(store) == str(theirs)
    assert table(store) == {1: "A"}
    opened(store).keep_own()
    push(store, {1: "B"})
    assert named(store) == str(sound(store).head)


@pytest.mark.parametrize("damage", ["fork", "no such block"])
def test_keep_own_and_restore_view_on_owned_dataset_succeed(store: Store, damage: str) -> None:
    root = made(store)
    fork = root.state.head
    push(store, {1: "A"})
    take_claim(store, UUID, Claim("cluster/ns/planes", "1"))
    by_user = Root(store, DatasetLog(store, UUID, unowned_only=True))
    if damage == "fork":
        appended(store, SetInfo(description="theirs"), on=fork)
    else:
        store.put(REF, str(Multihash.sha3(b"x")).encode())
    with pytest.raises(OwnedByAnother):
        by_user.append_events([SetInfo(description="not ours to write")])
    with pytest.raises(Diverged, match="kubothek heal planes --keep-own"):
        by_user.restore_view()
    assert str(by_user.keep_own()) == named(store) == str(root_head(store))
    push(store, {1: "B"})
    foreign(store)
    with pytest.raises(Drift, match="kubothek heal planes --restore-view"):
        push(store, {1: "C"})
    by_user.restore_view()
    assert table(store) == {1: "B"}
    assert str(by_user.state.head) == named(store)
    sound(store)


def root_head(store: Store) -> Multihash | None:
    return opened(store).state.head


@pytest.mark.parametrize("damage", ["no such block", "no hash", "seed again"])
def test_invalid_chain_reference_raises_diverged(store: Store, damage: str) -> None:
    made(store)
    push(store, {1: "A"})
    if damage == "seed again":
        appended(store, Seed(dataset_id=OwnerKey.new().dataset_id, dataset_kind=opened(store).state.seed.dataset_kind))  # type: ignore[union-attr]
    else:
        store.put(REF, str(Multihash.sha3(b"x")).encode() if damage == "no such block" else b"\xff\n")
    with pytest.raises(Diverged):
        push(store, {1: "B"})
    assert table(store) == {1: "A"}


# --- the table -------------------------------------------------------------------------------------------------------


def foreign(store: Store) -> None:
    """Another program takes a file out of the table by a blind PUT, as plateau would."""
    head = orjson.loads(store.get(keys.head(UUID)))
    head["partitions"].pop(next(iter(head["partitions"])))
    store.put(keys.head(UUID), orjson.dumps(head))


def test_foreign_table_change_is_drift_until_view_is_restored(store: Store) -> None:
    made(store)
    push(store, {1: "A", 2: "B"})
    foreign(store)
    assert "Drift" in (DatasetLog(store, UUID).settle().problem or "")
    for _ in range(2):
        with pytest.raises(Drift, match="--restore-view"):
            push(store, {3: "C"})
    assert "Drift" in (DatasetLog(store, UUID).inspect().problem or "")
    assert table(store) == {}, "what the other program did stays to be looked at"
    opened(store).restore_view()
    assert DatasetLog(store, UUID).inspect().problem is None
    assert table(store) == {1: "A", 2: "B"}
    assert push(store, {1: "A", 2: "B"}).up_to_date
    sound(store)


def test_foreign_head_metadata_is_not_drift(store: Store) -> None:
    made(store)
    push(store, {1: "A"})
    head = orjson.loads(store.get(keys.head(UUID)))
    head["metadata"] = {"owner": "somebody"}  # kartothek's index build forgets all of ours
    store.put(keys.head(UUID), orjson.dumps(head))
    push(store, {1: "B"})
    assert DatasetLog(store, UUID).snapshot().head.metadata["owner"] == "somebody"
    assert table(store) == {1: "B"}
    sound(store)


# --- back, and smaller -----------------------------------------------------------------------------------------------


def test_reset_rewinds_chain_and_table(store: Store) -> None:
    made(store)
    early = push(store, {1: "A"}).head
    push(store, {1: "B", 2: "C"})
    assert opened(store).reset(early).head == early
    assert table(store) == {1: "A"}
    assert named(store) == str(sound(store).head) == str(early)
    assert opened(store).reset(early).up_to_date
    push(store, {1: "D"})
    assert table(store) == {1: "D"}
    assert named(store) == str(sound(store).head)
    with pytest.raises(Diverged):
        opened(store).reset(Multihash.sha3(b"x"))


def test_reset_to_block_before_first_data_leaves_empty_table(store: Store) -> None:
    begun = made(store).state.head
    assert begun is not None
    push(store, {1: "A"})
    opened(store).reset(begun)
    assert not DatasetLog(store, UUID).snapshot().head.partitions
    assert push(store, {2: "B"}).records == 1
    assert table(store) == {2: "B"}
    assert sound(store).records == 1


def events(store: Store) -> Iterator[AddData]:
    for block in opened(store).blocks():
        if isinstance(event := block.content.event, AddData):
            yield event


@pytest.mark.requirement("A2.8")
def test_hard_compaction_keeps_every_record_and_resume_state(store: Store) -> None:
    made(store)
    for number in range(4):
        opened(store).push(
            planes({1: f"{number}"}), state=SourceState(source_name="default", kind="x", value=f"{number}")
        )
    opened(store).set_watermark(Timestamp.parse("2099-01-01T00:00:00Z"))
    before, state = list(opened(store).history.scan(["offset", "system_time", "model"])), opened(store).state
    done = opened(store).compact()
    after, found = list(opened(store).history.scan(["offset", "system_time", "model"])), opened(store).state
    rows = [[row for batch in batches for row in batch.to_pylist()] for batches in (before, after)]
    assert rows[0] == rows[1]
    assert (len(list(events(store))), done.slices) == (1, 0)
    assert found.length < state.length
    for name in ("last_offset", "watermark", "source_states", "push_sources", "schema", "seed"):
        assert getattr(found, name) == getattr(state, name), name
    assert table(store) == {1: "3"}
    assert named(store) == str(sound(store).head)
    assert opened(store).compact().up_to_date
    assert push(store, {1: "3"}).up_to_date
    push(store, {1: "4"})
    sound(store)


@pytest.mark.requirement("A2.8")
def test_hard_compaction_ends_slice_at_limit_and_at_other_event(store: Store) -> None:
    made(store, APPEND)
    for number in range(4):
        push(store, {number: "x"})
    opened(store).append_events([SetInfo(description="between")])
    for number in range(4, 6):
        push(store, {number: "x"})
    opened(store).compact(slice_records=3)
    intervals = [each.new_data.offset_interval for each in events(store) if each.new_data][::-1]
    assert [(each.start, each.end) for each in intervals] == [(0, 2), (3, 3), (4, 5)]
    assert sound(store).records == 6


@pytest.mark.requirement("A2.8")
def test_hard_compaction_of_corrupt_chain_is_refused(store: Store) -> None:
    made(store, APPEND)
    push(store, {1: "A"})
    push(store, {2: "B"})
    damaged = next(iter(store.list(f"{LAYOUT.root}data/"))).key
    store.put(damaged, store.get(damaged)[:-1] + b"x")
    head = named(store)
    with pytest.raises(ChainCorrupt):
        opened(store).compact()
    assert named(store) == head
