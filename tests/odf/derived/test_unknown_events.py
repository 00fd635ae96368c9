"""Events of a later version in a ledger: nothing is added to it or derived from it, and no replay accuses it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kubothek.errors import ChainCorrupt, UnsupportedVersion
from kubothek.odf.dataset import Root, Table
from kubothek.odf.derived import inputs_of
from kubothek.odf.derived.verification import verify_runs
from kubothek.odf.problems import Severity
from kubothek.odf.spec.blocks import Dialect
from kubothek.odf.spec.events import AddData, SetInfo
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.sync import StoreRepository
from kubothek.odf.sync import pull as pull_chain
from kubothek.odf.sync.pull import Pulled
from kubothek.storage import Store
from kubothek.storage.parallel import spread_here
from kubothek.table.log import DatasetLog
from kubothek.verify import verify_dataset
from tests.odf.derived.world import derived, layout, opened, pull, push, root, table
from tests.odf.later import add_unknown
from tests.odf.making import Maker
from tests.two_stores import other

__all__ = ["other"]

pytestmark = [pytest.mark.slow, pytest.mark.requirement("EV-03")]

FAR = Timestamp(4 * 10**18)


def makers(store: Store, name: str = "flights") -> Maker:
    """Writes more blocks of a chain."""
    blocks = [*Root(store, DatasetLog(store, name)).blocks()]
    return Maker(store, layout(name), Dialect.ALIGNED, blocks[::-1])


def come(store: Store, other: Store, name: str = "flights") -> Pulled:
    return pull_chain(store, DatasetLog(store, name), StoreRepository(other, layout(name)), table=Table())


def notes(store: Store, name: str) -> list[tuple[str, int | None]]:
    """What keeps the chain from being verified wholly; it is sound."""
    verdict = verify_dataset(store, DatasetLog(store, name))
    assert verdict.sound, verdict.findings
    assert verdict.chain is not None
    return [(each.code, each.number) for each in verdict.chain.problems if each.severity is Severity.NOTE]


def keys_of(store: Store) -> set[str]:
    return {info.key for info in store.list("")}


@pytest.mark.parametrize("first", [True, False], ids=["nothing consumed", "more"])
def test_nothing_is_ingested_into_or_derived_from_unknown_state(store: Store, other: Store, first: bool) -> None:
    root(other)
    push(other, {1: ("AA", 20)})
    come(store, other)
    derived(store)
    if not first:
        assert pull(store).done.records == 1
    number = add_unknown(makers(other)).content.sequence_number
    assert come(store, other).blocks == 1
    there, says = keys_of(store), rf"block {number} of the chain has an event written by a newer version"

    flights = Root(store, DatasetLog(store, "flights"))
    assert flights.state.unknown == number, "from the head alone"
    for act in (
        lambda: flights.push(lambda: pytest.fail("the rows are read")),
        lambda: flights.set_watermark(FAR),
        lambda: pull(store),
    ):
        with pytest.raises(UnsupportedVersion, match=says):
            act()
    (trouble,) = opened(store).pending(inputs_of(store)).troubles
    assert trouble.code == "UnsupportedVersion"
    assert keys_of(store) == there
    assert notes(store, "flights")[-1] == ("UnknownEvent", number)
    assert notes(store, "late") == [], "the run consumed what came before the event"

    flights.append_events([SetInfo(description="All flights")])
    assert flights.state.length == number + 2
    assert flights.info is not None
    assert table(store, "flights", ("id",)) == {(1,): 1}


def test_runs_that_consumed_unknown_events_are_not_replayed(store: Store, other: Store) -> None:
    root(other)
    push(other, {1: ("AA", 20)})
    come(store, other)
    derived(store)
    assert pull(store).done.records == 1
    maker = makers(other)
    number = add_unknown(maker).content.sequence_number
    come(store, other)

    late = makers(store, "late")
    run: Any = late.blocks[-1].content.event
    (link,) = run.query_inputs
    link = replace(link, prev_block_hash=link.new_block_hash, prev_offset=link.new_offset, new_offset=None)
    usual = {"prev_offset": 0, "prev_checkpoint": run.new_checkpoint and run.new_checkpoint.physical_hash}
    inputs = (replace(link, new_block_hash=maker.blocks[-1].hash),)
    late.add(replace(run, query_inputs=inputs, new_data=None, **usual), 10**7)
    head = late.blocks[-1].hash
    (note,) = verify_runs(store, layout("late"), head, inputs_of(store), spread_here(store, 1))
    assert (note.code, note.number, note.severity) == ("NotReplayed", len(late.blocks) - 1, Severity.NOTE)
    assert f"input 'flights': block {number} of the chain has an event written by a newer version" in str(note)


def test_own_unknown_event_ends_replay(store: Store) -> None:
    root(store)
    push(store, {1: ("AA", 20)})
    derived(store)
    assert pull(store).done.records == 1
    late = makers(store, "late")
    run: Any = late.blocks[-1].content.event
    number = add_unknown(late).content.sequence_number
    (link,) = run.query_inputs
    link = replace(link, prev_block_hash=link.new_block_hash, prev_offset=link.new_offset)
    late.add(replace(run, query_inputs=(replace(link, new_block_hash=None, new_offset=None),), new_data=None), 10**7)
    head = late.blocks[-1].hash
    (note,) = verify_runs(store, layout("late"), head, inputs_of(store), spread_here(store, 1))
    assert (note.code, note.number, note.severity) == ("NotReplayed", number + 1, Severity.NOTE)


def test_blocks_after_unknown_event_are_pulled_and_judged(store: Store, other: Store) -> None:
    root(other)
    push(other, {1: ("AA", 20)})
    push(other, {2: ("BB", 30)})
    maker = makers(other)
    add_unknown(maker)
    state = Root(other, DatasetLog(other, "flights")).state
    assert state.last_offset is not None
    maker.add(AddData(prev_offset=state.last_offset + 5, new_watermark=FAR), 10**7)
    come(store, other)
    assert [code for code, _ in notes(store, "flights")] == ["UnknownEvent", "UnknownState"]
    assert Root(store, DatasetLog(store, "flights")).state.last_offset == state.last_offset + 5

    maker.add(AddData(prev_offset=state.last_offset, new_watermark=FAR), 10**7 + 1)
    with pytest.raises(ChainCorrupt, match=r"prevOffset is .* \[PrevOffset, AD-02\]"):
        come(store, other)
