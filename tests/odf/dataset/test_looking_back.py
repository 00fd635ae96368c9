"""Looking at the newest of a long chain: what that asks of the store, and that nothing is left out."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from kubothek.cli.ledger.tail import last_records
from kubothek.errors import ChainCorrupt, EventInvalid
from kubothek.odf.chain import read_back, read_chain
from kubothek.odf.dataset import Root
from kubothek.odf.spec.events import SetInfo, SetVocab
from kubothek.storage import Store
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys
from tests.faultstore import FaultStore
from tests.odf.dataset.planes import APPEND, LAYOUT, UUID, made, opened, push

pytestmark = pytest.mark.slow

BLOCKS = "odf/blocks/"


@pytest.fixture
def long(store: Store) -> Root:
    """A chain of 84 blocks: creation, two slices, and between them 78 commits of other events."""
    root = made(store, APPEND)
    push(store, {1: "Airbus", 2: "Boeing"})
    root = opened(store)
    for number in range(78):
        root.append_events([SetInfo(description=f"The register, edition {number}")])
    push(store, {3: "Cessna"})
    return opened(store)


def asked(store: FaultStore) -> Counter[str]:
    """How often for what."""
    kinds = ("list" if call.name == "list" else "block" if BLOCKS in call.key else "else" for call in store.calls)
    return Counter(kinds)


def test_newest_blocks_are_read_without_reading_older_ones(store: Store, long: Root) -> None:
    whole = [block.hash for block in read_chain(store, LAYOUT, long.state.head)][::-1]
    assert len(whole) == 84
    counted = FaultStore(store)
    root = opened(counted)
    counted.calls.clear()
    assert [block.hash for block in islice(root.blocks(), 2)] == whole[:2]
    assert asked(counted) == {"block": 2}, "no record, no listing"
    counted.calls.clear()
    assert [block.hash for block in root.blocks()] == whole
    told = asked(counted)
    assert told["block"] == len(whole), "each once"
    assert told["list"] <= 6, "the names of commits, in windows, and no block's"


def test_blocks_without_commit_record_are_still_found(store: Store, long: Root) -> None:
    whole = [block.hash for block in read_chain(store, LAYOUT, long.state.head)][::-1]
    head = whole[0]
    for known in ((), whole[:40], whole[::2], [*whole[40:], *whole[:40]]):
        counted = FaultStore(store)
        assert [each.hash for each in read_back(counted, LAYOUT, head, known)] == whole
        assert len(counted.calls) <= 2 * len(whole)
    for info in [*store.list(keys.records(UUID))]:
        store.delete([info.key])
    assert [block.hash for block in long.blocks()] == whole, "the records of commits may be gone"
    store.delete([LAYOUT.block(whole[50])])
    with pytest.raises(ChainCorrupt, match="there is no"):
        [*opened(store).blocks()]


def test_last_records_are_read_from_last_slices_only(store: Store, long: Root) -> None:
    counted = FaultStore(store)
    root = opened(counted)
    counted.calls.clear()
    last = last_records(root, 1)
    assert last is not None
    assert last.read_all().to_pydict()["model"] == ["Cessna"]
    assert (asked(counted)["block"], asked(counted)["list"]) == (1, 0)
    for limit, models in ((2, ["Boeing", "Cessna"]), (3, ["Airbus", "Boeing", "Cessna"]), (99, None)):
        found = last_records(root, limit)
        assert found is not None
        assert found.read_all().to_pydict()["model"] == (models or ["Airbus", "Boeing", "Cessna"])


def test_last_records_have_current_column_names(store: Store) -> None:
    """Slices keep the names of their time, which are those of the change before them, or of the beginning."""
    root = made(store, APPEND)
    push(store, {1: "Airbus"})
    with pytest.raises(EventInvalid, match="no column"):
        root.append_events([SetVocab(event_time_column="model", operation_type_column="x")])
    opened(store).append_events([SetVocab(event_time_column="event_time")])
    push(store, {2: "Boeing"})
    found = last_records(opened(store), 5)
    assert found is not None
    rows = found.read_all().to_pydict()
    assert (rows["op"], rows["model"]) == (["+A", "+A"], ["Airbus", "Boeing"])
    assert [part.start for part in opened(store).latest(5).parts] == [0, 1]


def test_last_slice_is_tracked_across_later_commits_and_resets(store: Store, long: Root) -> None:
    def told() -> str | None:
        note = DatasetLog(store, UUID).snapshot().head.chain
        assert note is not None
        return note.last_slice

    newest = told()
    assert newest is not None
    assert store.stat(LAYOUT.root + f"data/{newest}").size
    for number in range(6):
        long.append_events([SetInfo(description=f"Later {number}")])
    assert told() == newest
    first = next(block for block in long.blocks() if block.content.sequence_number == 4)
    long.reset(first.hash)
    assert told() not in (None, newest), "that of then"
    long.reset(next(block for block in long.blocks() if block.content.sequence_number == 1).hash)
    assert told() is None
