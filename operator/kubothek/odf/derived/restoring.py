"""Recomputation of lost data of a derivative dataset from its inputs: the same bytes under the same names (DAT-08).

Existing objects stay unchanged; each recomputation starts from the nearest existing checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from kubothek.errors import ChainCorrupt
from kubothek.odf.chain import Stored
from kubothek.odf.dataset.slicing import SliceWriter
from kubothek.odf.derived.inputs import Inputs
from kubothek.odf.derived.pulling import ONE_SLICE
from kubothek.odf.derived.recorded import Recorded
from kubothek.odf.derived.replay import Again, Lineage
from kubothek.odf.derived.running import store_checkpoint
from kubothek.odf.derived.verification import RunsOf
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Multihash
from kubothek.storage import Store


@dataclass(frozen=True, slots=True)
class Restored:
    """Numbers of restored objects, and of runs needed."""

    slices: int = 0
    checkpoints: int = 0
    runs: int = 0


def restore(store: Store, layout: Layout, blocks: Sequence[Stored], inputs: Inputs) -> Restored:
    """Recompute the objects of the chain's runs that are missing in the store, or have another size.

    Raises ChainCorrupt if the result differs, InputMissing, InputDiverged, what the engine raises, StoreError.
    """
    history = RunsOf.chain(store, blocks, inputs)
    there = {info.key: info.size for prefix in (layout.slices, layout.checkpoints) for info in store.list(prefix)}
    slices = checkpoints = runs = following = 0
    with ExitStack() as stack:
        lineage: Lineage | None = None
        for place, recorded in enumerate(history.runs):
            data, state = _lacks_data(layout, recorded, there), _lacks_state(layout, recorded, there)
            if not data and not state:
                continue
            start = _nearest(layout, history.runs, place, there)
            if lineage is None or start > following:
                lineage, following = stack.enter_context(Lineage(store, layout)), start
            while following <= place:
                again = lineage.run(history.runs[following])
                _require_same(history.runs[following], again)
                following, runs = following + 1, runs + 1
            if data:
                _store_slice(store, layout, recorded, again)
                slices += 1
            if state and recorded.checkpoint is not None and lineage.state is not None:
                store_checkpoint(store, layout, recorded.checkpoint, lineage.state)
                there[layout.checkpoint(recorded.checkpoint.physical_hash)] = recorded.checkpoint.size
                checkpoints += 1
    if history.broken is not None:
        raise history.broken.error
    return Restored(slices, checkpoints, runs)


def _lacks_data(layout: Layout, recorded: Recorded, there: Mapping[str, int]) -> bool:
    data = recorded.data
    return data is not None and there.get(layout.data(data.physical_hash)) != data.size


def _lacks_state(layout: Layout, recorded: Recorded, there: Mapping[str, int]) -> bool:
    state = recorded.checkpoint
    return state is not None and there.get(layout.checkpoint(state.physical_hash)) != state.size


def _nearest(layout: Layout, runs: Sequence[Recorded], place: int, there: Mapping[str, int]) -> int:
    """Return the last run up to this one that begins without a state, or with an existing one."""
    sizes = {run.left: run.checkpoint.size for run in runs[:place] if run.checkpoint is not None}

    def is_there(state: Multihash | None) -> bool:
        return state is None or there.get(layout.checkpoint(state)) == sizes.get(state)

    return next(number for number in range(place, -1, -1) if is_there(runs[number].before))


def _require_same(recorded: Recorded, again: Again) -> None:
    """Check that the run reproduced what the chain records. Raises ChainCorrupt."""
    logical = None if recorded.data is None else recorded.data.logical_hash
    if again.logical == logical and again.checkpoint == recorded.left:
        return
    what = "records" if again.logical != logical else "a state of the engine"
    raise ChainCorrupt(
        f"block {recorded.number} cannot be made again: its transformation gives other {what} than it says. Verify its "
        "inputs, or reset the dataset to rebuild all of it"
    )


def _store_slice(store: Store, layout: Layout, recorded: Recorded, again: Again) -> None:
    data, schema = recorded.data, recorded.schema
    assert data is not None, "it has a slice"
    assert schema is not None, "which has columns"
    with SliceWriter(
        store,
        layout,
        schema,
        recorded.task.vocabulary,
        first_offset=recorded.next_offset,
        system_time=recorded.task.system_time,
        slice_bytes=ONE_SLICE,
    ) as writer:
        for batch in again.batches:
            writer.take(batch)
        (made,) = writer.finish()
    if made.data != data:
        raise ChainCorrupt(
            f"block {recorded.number}: its records were made again, but their file has other bytes than the one that "
            "the chain names, as another version wrote it. Reset the dataset to rebuild all of it"
        )
