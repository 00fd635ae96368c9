"""One record of a derivative dataset: the run that made it, and the records of the inputs that it was made of.

The run is in the chain, with the part of each input that it took. Where a transformation looks at each record on its
own, which shows in that it has no state, the records are found by halves: it is run again on one half of them, then on
the half that gives the record, and so on. A group of one input is made of the records with its keys, which are read
where statistics of slices do not leave them out. Where there is another state, a record can come of anything before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.lake.commits import keys
from kubothek.lake.errors import ChainCorrupt, InputError, InputMissing
from kubothek.lake.ledger.chain import read_chain
from kubothek.lake.ledger.derivative.batching import InputBatch
from kubothek.lake.ledger.derivative.inputs import Inputs
from kubothek.lake.ledger.derivative.recorded import Recorded
from kubothek.lake.ledger.derivative.running import given, records_of, running
from kubothek.lake.ledger.derivative.verification import RunsOf
from kubothek.lake.ledger.layout import Layout
from kubothek.lake.ledger.retractions import record_keys
from kubothek.lake.ledger.root.slicing import numbered
from kubothek.lake.ledger.slices import Expected, read_batches
from kubothek.lake.ledger.transform.tracing import Members, members
from kubothek.lake.ledger.view.state import is_back
from kubothek.lake.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a run took of an input: the offsets ``first`` to ``last``, None if that was nothing, up to ``block``.

    ``offset``, ``record``  the first record of it that gives the one that was asked about, if that can be told
    ``members``             of a group: the offsets of all its records up to this run, of a correction that of its first
                            half; None: it is no group, or of several inputs
    """

    id: str
    alias: str
    block: str | None
    first: int | None
    last: int | None
    offset: int | None = None
    record: dict[str, Any] | None = None
    members: list[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLineage:
    """Where the record at an offset comes from.

    ``block``   that brought it, and ``number``, its sequence number
    ``exact``   whether the transformation looks at each record on its own, so that ``sources`` name those that count;
                else anything up to their last offsets may
    """

    uuid: str
    offset: int
    record: dict[str, Any]
    block: str
    number: int
    exact: bool
    sources: tuple[Source, ...]


def of_record(store: Store, uuid: str, offset: int, inputs: Inputs) -> RecordLineage:
    """Where a record comes from; runs its transformation again a few times on parts of what it took.

    Raises InputError if there is no such record, or the dataset is no derivative one; InputMissing, InputDiverged,
    ChainCorrupt, StoreError.
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
    row = _row(store, layout, recorded, offset)
    exact, exact_group = recorded.before is None and recorded.checkpoint is None, False
    sources = [_source(each) for each in recorded.task.batch.inputs]
    if not exact and len(sources) == 1:
        found_members = _members(store, runs.runs, recorded, row)
        if found_members is not None:
            sources = [replace(sources[0], members=found_members.offsets)]
            exact_group = found_members.exact
    if exact:
        sources = [replace(one, **_found(store, recorded, number, row)) for number, one in enumerate(sources)]
    return RecordLineage(
        uuid=uuid,
        offset=offset,
        record=row.to_pylist()[0],
        block=str(recorded.block),
        number=recorded.number,
        exact=exact_group or (exact and any(one.offset is not None for one in sources)),
        sources=tuple(sources),
    )


def _members(store: Store, runs: Sequence[Recorded], recorded: Recorded, row: pa.RecordBatch) -> Members | None:
    """The records of the group that the row is of, in all that was taken of the input up to this run."""
    (last,) = recorded.task.batch.inputs
    taken = [
        each
        for run in runs
        if run.number <= recorded.number
        for each in run.task.batch.inputs
        if each.id == last.id and run.task.transform == recorded.task.transform
    ]
    shape = next((each.shape for each in reversed(taken) if each.parts), last.shape)
    parts = tuple(part for each in taken for part in each.parts)
    blocks = tuple(block for each in taken for block in each.blocks)
    whole = replace(last, shape=shape, parts=parts, blocks=blocks)

    def read(where: pc.Expression | None) -> pa.RecordBatchReader:
        return records_of(store, whole, where=where)

    with TemporaryDirectory(prefix="kubothek-lineage-") as scratch:
        named = replace(given(store, whole), rows=None)
        return members(recorded.task.transform, named, row, read, Path(scratch))


def _holds(recorded: Recorded, offset: int) -> bool:
    data = recorded.data
    return data is not None and data.offset_interval.start <= offset <= data.offset_interval.end


def _row(store: Store, layout: Layout, recorded: Recorded, offset: int) -> pa.RecordBatch:
    assert recorded.data is not None, "it holds the offset"
    expected = Expected(
        data=recorded.data,
        vocabulary=recorded.task.vocabulary,
        schema=recorded.schema,
        block=recorded.block,
        number=recorded.number,
    )
    first = recorded.data.offset_interval.start
    for batch in read_batches(store, layout, expected):
        if offset < first + batch.num_rows:
            return batch.slice(offset - first, 1)
        first += batch.num_rows
    raise ChainCorrupt(f"block {recorded.number}: its slice has no record at offset {offset}")


def _source(each: InputBatch) -> Source:
    first = each.blocks[0][1] if each.blocks else None
    last = each.blocks[-1][2] if each.blocks else None
    block = each.block or each.consumed.block
    return Source(
        id=str(each.id), alias=each.alias, block=None if block is None else str(block), first=first, last=last
    )


def _found(store: Store, recorded: Recorded, number: int, row: pa.RecordBatch) -> dict[str, Any]:
    """The first record of an input that alone gives the row, in the fields of its source; none if none does."""
    each = recorded.task.batch.inputs[number]
    if not each.blocks:
        return {}
    first, last = each.blocks[0][1], each.blocks[-1][2]
    if not _gives(store, recorded, number, row, first, last):
        return {}
    while first < last:
        middle = (first + last) // 2
        if _gives(store, recorded, number, row, first, middle):
            last = middle
        else:
            first = middle + 1
    if not _gives(store, recorded, number, row, first, first):
        return {}
    (record,) = records_of(store, each, first, first).read_all().to_pylist()
    return {"offset": first, "record": record}


def _gives(store: Store, recorded: Recorded, number: int, row: pa.RecordBatch, first: int, last: int) -> bool:
    """Whether these records of one input, alone, give the row, or one that differs in whether it is half of a pair."""
    inputs = [replace(given(store, each), rows=None) for each in recorded.task.batch.inputs]
    inputs[number] = replace(
        inputs[number], rows=partial(records_of, store, recorded.task.batch.inputs[number], first, last)
    )
    names, schema = recorded.task.vocabulary, row.schema
    (wanted,) = record_keys(row, schema, names)
    back = is_back(row.column(names.op))[0]
    with running(store, recorded.task, None, inputs) as run:
        found = False
        for batch in run.result.rows:  # to the end, as engines ask for
            if batch.num_rows and not found:
                made = numbered(batch, schema, names, 0, recorded.task.system_time)
                same = pc.equal(record_keys(made, schema, names), wanted)
                sign = pc.equal(is_back(made.column(names.op)), back)
                found = bool(pc.any(pc.and_(same, sign)).as_py())
    return found
