"""One record of a derivative dataset: the run that made it, and the input records that it derives from.

The chain holds the run and the part of each input that it consumed. Without a state, a transformation handles each
record alone, and the record derives from that part only. Otherwise it derives from the input records in effect after
the run; a retraction, from those in effect before. The queries are evaluated again over these records by operators that
track the origins of each row (:mod:`kubothek.odf.lineage.trace`). On request, the same is done for the records found,
up to the roots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kubothek.errors import InputError, InputMissing
from kubothek.odf.chain import read_chain
from kubothek.odf.derived.batching import InputBatch
from kubothek.odf.derived.inputs import Input, Inputs, located
from kubothek.odf.derived.recorded import Recorded
from kubothek.odf.derived.running import records_of
from kubothek.odf.derived.verification import RunsOf
from kubothek.odf.lineage.queries import Offsets, Told, rows_of, told_of
from kubothek.odf.spec.events import TransformInput
from kubothek.odf.spec.layout import Layout
from kubothek.storage import Store
from kubothek.table.log.model import keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Origins of a record in one input, and what the run consumed of it: the offsets ``first`` to ``last``, None if
    that was nothing, up to ``block``.

    ``uuid``     of the dataset, which queries call ``alias``
    ``members``  offsets of all its records that the record derives from; None: cannot be determined
    ``offset``, ``record``  of the only member, if there is exactly one
    ``sources``  origins of these members; None: the input is a root dataset, or they were not requested
    ``refused``  why these origins cannot be determined
    """

    id: str
    uuid: str
    alias: str
    block: str | None
    first: int | None
    last: int | None
    offset: int | None = None
    record: dict[str, Any] | None = None
    members: list[int] | None = None
    sources: tuple[Source, ...] | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLineage:
    """Lineage of the record at an offset.

    ``block``    that added it, and ``number``, its sequence number
    ``exact``    whether ``sources`` name the records that it derives from
    ``refused``  why they do not: the part of the queries, or the input; then any record up to ``last`` can be an origin
    """

    uuid: str
    offset: int
    record: dict[str, Any]
    block: str
    number: int
    exact: bool
    sources: tuple[Source, ...]
    refused: str | None = None


def of_record(store: Store, uuid: str, offset: int, inputs: Inputs, *, recursive: bool = False) -> RecordLineage:
    """Return the lineage of a record; evaluates the queries again, over the same input as its run.

    ``recursive``  also the lineage of the records found, up to those of roots

    Raises InputError if there is no such record, or for a root dataset; InputMissing, InputDiverged,
    ChainCorrupt, TransformTooLarge, StoreError.
    """
    found = inputs(uuid)
    if found is None:
        raise InputMissing(f"there is no ledger {uuid!r} in {store.url}")
    if found.chain.state.transform is None:
        raise InputError(f"{uuid!r} is a root dataset: its records come from outside, block by block")
    layout = Layout(keys.chain(uuid))
    runs = RunsOf.chain(store, read_chain(store, layout, found.head), inputs)
    recorded = next((each for each in runs.runs if _holds(each, offset)), None)
    if recorded is None:
        if runs.broken is not None:
            raise runs.broken.error
        raise InputError(f"dataset {uuid!r} has no record at offset {offset}: it has {found.chain.state.next_offset}")
    past = [each for each in runs.runs if each.number <= recorded.number]
    offsets = np.array([offset], np.int64)
    told = told_of(store, layout, past, offsets)
    return RecordLineage(
        uuid=uuid,
        offset=offset,
        record=rows_of(store, layout, recorded, offsets).rows.to_pylist()[0],
        block=str(recorded.block),
        number=recorded.number,
        exact=told.refused is None,
        sources=_sources(store, inputs, past, told, recursive=recursive, part=True),
        refused=told.refused,
    )


def _holds(recorded: Recorded, offset: int) -> bool:
    data = recorded.data
    return data is not None and data.offset_interval.start <= offset <= data.offset_interval.end


def _sources(
    store: Store, inputs: Inputs, runs: Sequence[Recorded], told: Told, *, recursive: bool, part: bool
) -> tuple[Source, ...]:
    """Return the origins in each input of the last of some runs; ``part``: with what that run consumed."""
    batches = runs[-1].task.batch.inputs
    return tuple(
        _source(store, inputs, runs, each, told.offsets.get(each.id), recursive=recursive, part=part)
        for each in batches
    )


def _source(
    store: Store,
    inputs: Inputs,
    runs: Sequence[Recorded],
    each: InputBatch,
    offsets: Offsets | None,
    *,
    recursive: bool,
    part: bool,
) -> Source:
    block = each.block or each.consumed.block
    one = None if offsets is None or len(offsets) != 1 else int(offsets[0])
    above, refused = None, None
    source = located(inputs, TransformInput(dataset_ref=str(each.id), alias=each.alias))
    followed = recursive and source.chain.state.transform is not None
    if followed and offsets is not None and len(offsets) and block is not None:
        above, refused = _above(store, inputs, source, Layout(keys.chain(source.uuid)), block, offsets)
    return Source(
        id=str(each.id),
        uuid=source.uuid,
        alias=each.alias,
        block=None if block is None else str(block),
        first=each.blocks[0][1] if part and each.blocks else None,
        last=each.blocks[-1][2] if part and each.blocks else None,
        offset=one,
        record=None if one is None else _record(store, runs, each, one),
        members=None if offsets is None else offsets.tolist(),
        sources=above,
        refused=refused,
    )


def _above(
    store: Store, inputs: Inputs, source: Input, layout: Layout, block: Any, offsets: Offsets
) -> tuple[tuple[Source, ...], str | None]:
    """Return the origins of records of a derivative input, as of one of its blocks."""
    runs = RunsOf.chain(store, read_chain(store, layout, block), inputs)
    if runs.broken is not None:
        return (), str(runs.broken.error)
    told = told_of(store, layout, runs.runs, offsets)
    return _sources(store, inputs, runs.runs, told, recursive=True, part=False), told.refused


def _record(store: Store, runs: Sequence[Recorded], wanted: InputBatch, offset: int) -> dict[str, Any]:
    taken = (each for run in runs for each in run.task.batch.inputs if each.id == wanted.id)
    holds = next(each for each in taken if any(first <= offset <= last for _, first, last in each.blocks))
    (record,) = records_of(store, holds, offset, offset).read_all().to_pylist()
    return dict(record)
