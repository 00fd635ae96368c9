"""One ingest: rows of a source become slices, events and a new table, all for one commit.

Nothing here is visible before the commit. After a conflict, all of it runs again on the new head: a merge depends on
all existing records (commit-protocol, "Ledgers").
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.odf.dataset.definition import Chain
from kubothek.odf.dataset.extension import Extension
from kubothek.odf.dataset.parts import ChainParts, moment
from kubothek.odf.dataset.rows import Rows
from kubothek.odf.dataset.slicing import SLICE_BYTES, Sliced, SliceWriter, cast_column, evolved, slice_schema
from kubothek.odf.merge import RETRACTS, Merged, merge, takes_operations
from kubothek.odf.sources.readers import normalise
from kubothek.odf.spec.events import Checkpoint, SourceState
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.sources import MergeStrategy
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.validation.state import ChainState, Vocabulary
from kubothek.odf.view import History, ViewWriter, seen_of, wanted_indices
from kubothek.storage import Store
from kubothek.table.log import Change, Operation, Snapshot
from kubothek.table.log.model import keys
from kubothek.table.scratch import MEMORY, Scratch

_PIECE: Final = 1 << 19
"""Rows that are written at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest:
    """The input of an ingest.

    ``rows``        columns as its read and preprocess steps return them, or what reads them; None: no data, which is
                    not the same as no rows
    ``merge``       how they are merged with the existing records
    ``source``      its name
    ``state``       the new state of the source, for the next time; None: it has none
    ``event_time``  of rows without one; None: the time of the commit
    """

    rows: Rows | Elsewhere | None
    merge: MergeStrategy
    source: str
    state: SourceState | None = None
    event_time: Timestamp | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """Stored slices, and the changes of the table, as fields of a change; ``keyed_by`` as in a chain."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    slices: Sequence[Sliced] = ()
    keyed_by: tuple[str, ...] | None = None


class Elsewhere(ABC):
    """Rows that other processes read, merge and write: see :mod:`kubothek.odf.distributed`."""

    @abstractmethod
    def write(self, ground: Ground, what: Ingest, extension: Extension) -> Written:
        """Read, merge and write the rows; the schema of slices, if there are any, is added to the extension.

        Raises what reading and merging raise. Nothing refers to objects that were stored before an error.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A change that is ready to be committed, and its blocks; all objects are stored."""

    change: Change
    extension: Extension
    records: int = 0
    slices: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a change is based on: a version, and its chain. ``note_written`` is called for each written object."""

    store: Store
    uuid: str
    snapshot: Snapshot
    chain: Chain
    now: Timestamp
    note_written: Callable[[str], None]
    by: str
    slice_bytes: int = SLICE_BYTES
    merge_memory: str = MEMORY

    @property
    def layout(self) -> Layout:
        """The layout of the chain in the store."""
        return Layout(keys.chain(self.uuid))

    @property
    def history(self) -> History:
        """The slices of the chain."""
        return history_of(self.store, self.layout, self.chain.state)

    def slice_writer(self, schema: pa.Schema, state: ChainState, system_time: Timestamp) -> SliceWriter:
        """Return a writer of slices that follow a state of the chain."""
        return SliceWriter(
            self.store,
            self.layout,
            schema,
            state.vocabulary,
            first_offset=state.next_offset,
            system_time=system_time,
            slice_bytes=self.slice_bytes,
            note_written=self.note_written,
        )

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint of the last data event, which the next one repeats (AD-05)."""
        if (physical := self.chain.state.checkpoint) is None:
            return None
        return Checkpoint(physical_hash=physical, size=self.store.stat(self.layout.checkpoint(physical)).size)


def history_of(store: Store, layout: Layout, state: ChainState) -> History:
    """Return the slices of a chain, which are read lazily."""
    return History(
        store, ChainParts(store, layout, state.head), state.vocabulary, state.schema, records=state.next_offset
    )


def ingest(ground: Ground, what: Ingest) -> Made | None:
    """Return the change that ingests these rows; None if there is nothing new in them (WR-05).

    Raises MergeInvalid, SchemaMismatch, DataTypeMismatch, UnsupportedVersion for a chain with an unknown column type or
    an event of a later version, and what the rows raise as they are read.
    """
    state = ground.chain.state
    state.require_known()
    state.readable_schema()
    extension = Extension(ground.chain, ground.now)
    written = Written()
    if isinstance(what.rows, Elsewhere):
        written = what.rows.write(ground, what, extension)
    elif what.rows is not None:
        with Scratch(ground.merge_memory) as scratch:
            written = _written(
                ground, what, _merged(ground, what, what.rows, extension.system_time, scratch), extension
            )
    slices = written.slices
    extension.add_slices(slices, what.source, what.state, ground.checkpoint)
    if slices or written.keyed_by:
        extension.chain = replace(extension.chain, keyed_by=written.keyed_by)
    if not slices:
        if what.state is None or state.source_states.get(what.source) == what.state:
            return None
        extension.add_data(None, None, what.state, ground.checkpoint)
    extension.write(ground.store, ground.uuid)
    operation = Operation.APPEND if slices else Operation.LEDGER
    change = Change(operation=operation, ledger=extension.change, by=ground.by, **written.fields)
    return Made(change=change, extension=extension, records=sum(map(_records, slices)), slices=len(slices))


def _records(slice_: Sliced) -> int:
    interval = slice_.data.offset_interval
    return interval.end - interval.start + 1


def events_made(ground: Ground, extension: Extension) -> Made:
    """Store blocks that bring no rows, and return their change."""
    extension.write(ground.store, ground.uuid)
    change = Change(operation=Operation.LEDGER, ledger=extension.change, by=ground.by)
    return Made(change=change, extension=extension)


def _merged(ground: Ground, what: Ingest, rows: Rows, now: Timestamp, scratch: Scratch) -> Merged:
    state = ground.chain.state

    def given() -> pa.RecordBatchReader:
        return prepared(
            rows(),
            state.vocabulary,
            state.schema,
            what.event_time or now,
            operations=takes_operations(what.merge),
        )

    return merge(
        what.merge,
        given,
        seen_of(
            ground.store,
            ground.snapshot,
            ground.history,
            scratch,
            table=ground.chain.table,
            keyed_by=ground.chain.keyed_by,
        ),
        vocabulary=state.vocabulary,
        source_event_time=moment(what.event_time or now),
        scratch=scratch,
    )


def next_schema(chain: Chain, rows: pa.Schema) -> pa.Schema:
    """Return the next schema of a chain's slices with such rows, which begin with operation and event time.

    Raises SchemaMismatch.
    """
    found = slice_schema(rows, chain.state.vocabulary, chain.types)
    return found if chain.state.schema is None else evolved(chain.state.schema, found)


def _written(ground: Ground, what: Ingest, merged: Merged, extension: Extension) -> Written:
    """Write slices and table from one pass over the merged rows."""
    if not merged.rows_in_all:
        return Written(keyed_by=merged.keyed_by)
    state = ground.chain.state
    schema = next_schema(ground.chain, without_retracts(merged.rows.schema))
    extension.set_schema(schema)
    with ExitStack() as stack:
        slices = stack.enter_context(ground.slice_writer(schema, state, extension.system_time))
        view = None
        if ground.chain.table:
            wanted = wanted_indices(what.merge, schema, ground.snapshot.head.partition_keys)
            view = stack.enter_context(
                ViewWriter(ground.store, ground.snapshot, schema=schema, vocabulary=state.vocabulary, wanted=wanted)
            )
        for batch in _pieces(merged.rows):
            numbered = slices.write(without_retracts(batch))
            if view is not None:
                view.write(numbered.append_column(RETRACTS, batch.column(RETRACTS)))
        slices.seal()
        fields = {} if view is None else view.finish().fields()
        return Written(fields, slices.finish(), merged.keyed_by)


def _pieces(rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches so small that slices and table are written concurrently."""
    for batch in rows:
        for start in range(0, batch.num_rows, _PIECE):
            yield batch.slice(start, _PIECE)


def without_retracts(rows: Any) -> Any:
    """Return rows, or their schema, without the column that only the view needs."""
    if isinstance(rows, pa.Schema):
        return pa.schema([field for field in rows if field.name != RETRACTS])
    return rows.drop_columns([RETRACTS])


def prepared(
    rows: pa.RecordBatchReader,
    vocabulary: Vocabulary,
    schema: pa.Schema | None,
    event_time: Timestamp,
    *,
    operations: bool = False,
) -> pa.RecordBatchReader:
    """Return ``[event_time, data…]`` in the types of slices, of rows as a source's preprocess step returns them.

    ``schema``      of slices so far, if there are any
    ``event_time``  of the source; rows without an event time stay without one
    ``operations``  whether the rows may have a column of operations, which stays as it is

    Raises SchemaMismatch, DataTypeMismatch, and so does the stream.
    """
    new = _normalised(rows, vocabulary, event_time, operations=operations)
    return new if schema is None else _fitting(new, schema, without=vocabulary.names[:3])


def _normalised(
    rows: pa.RecordBatchReader, vocabulary: Vocabulary, event_time: Timestamp, *, operations: bool
) -> pa.RecordBatchReader:
    """Return the rows as every ledger has them, but without an event time where the source has none.

    A merge compares what the source has, and fills the rest itself afterwards (MS-05): otherwise each snapshot would
    correct every row without a time.
    """
    missing: deque[pa.Array[Any]] = deque()

    def told() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            there = vocabulary.event_time in batch.schema.names
            column = batch.column(vocabulary.event_time) if there else pa.nulls(batch.num_rows)
            missing.append(pc.is_null(column))
            yield batch

    given = pa.RecordBatchReader.from_batches(rows.schema, told())
    filled = normalise(given, vocabulary=vocabulary, event_time=event_time, operations=operations).rows
    first = filled.schema.field(0)

    def emptied() -> Iterator[pa.RecordBatch]:
        for batch in filled:
            times = pc.if_else(missing.popleft(), pa.scalar(None, first.type), batch.column(0))
            yield batch.set_column(0, first, times)

    return pa.RecordBatchReader.from_batches(filled.schema, emptied())


def _fitting(rows: pa.RecordBatchReader, schema: pa.Schema, without: tuple[str, ...]) -> pa.RecordBatchReader:
    """Return the rows with the types of existing columns of slices; other columns stay as they are.

    Raises SchemaMismatch for a column that is missing or of another kind, DataTypeMismatch for a value that does not
    fit.
    """
    known = pa.schema([field for field in schema if field.name not in without])
    wanted = evolved(known, rows.schema)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            columns = [cast_column(batch.column(field.name), field) for field in wanted]
            yield pa.RecordBatch.from_arrays(columns, schema=wanted)

    return pa.RecordBatchReader.from_batches(wanted, batches())
