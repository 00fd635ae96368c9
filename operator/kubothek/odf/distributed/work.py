"""The work of an ingest in many processes, and the parts of it that one process does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import pyarrow as pa

from kubothek.errors import InputError, SchemaMismatch
from kubothek.odf.dataset.ingesting import Ground, Ingest, next_schema, prepared
from kubothek.odf.dataset.parts import moment
from kubothek.odf.dataset.slicing import SliceWriter
from kubothek.odf.distributed.blobs import AT, is_ordered, order_of, places_of, with_places
from kubothek.odf.distributed.pieces import Part, Piece, StoredFile
from kubothek.odf.merge import shaped
from kubothek.odf.merge.batch import check_key, fill, filled
from kubothek.odf.sources.readers import preprocess
from kubothek.odf.sources.readers.preprocess import LIMITS, is_row_wise
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.sources import MergeStrategy, MergeStrategyAppend, MergeStrategyLedger, ReadStep, Transform
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.validation.row_checks import APPEND
from kubothek.odf.validation.state import Vocabulary
from kubothek.odf.view import ViewPlan, wanted_indices
from kubothek.sql import Limits
from kubothek.storage import Store, StoreConfig
from kubothek.table.carried import Carrier
from kubothek.table.log.model import keys

_OP: Final[pa.DataType] = pa.int32()
_ADDED: Final[Any] = pa.scalar(APPEND, pa.int32())
_PIECE: Final = 1 << 19
"""Rows that are written at a time."""


def can_spread(merge: MergeStrategy) -> bool:
    """Return whether records of this strategy can be merged independently of each other.

    Others cannot: they are compared with the state, in one process.
    """
    return isinstance(merge, MergeStrategyAppend | MergeStrategyLedger)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One ingest; plain data, which is sent to the processes that do parts of it.

    ``named``       the first file that has rows; all have its columns, ``read``
    ``before``      the schema of slices so far, if there are any
    ``event_time``  of rows without one
    ``rows``        the columns of rows in transit: their position, the event time, and what the source gives
    ``slices``      those of slices
    ``first``       the offset of the first record
    ``key``         of a Ledger strategy; empty: all rows are new
    ``row_wise``    whether the result is independent of how files are cut
    ``view``        the table, if there is one
    """

    store: StoreConfig
    uuid: str
    step: ReadStep
    preprocess: Transform | None
    limits: Limits
    named: str
    read: pa.Schema
    vocabulary: Vocabulary
    before: pa.Schema | None
    event_time: Timestamp
    system_time: Timestamp
    rows: pa.Schema
    slices: pa.Schema
    first: int
    slice_bytes: int
    key: tuple[str, ...]
    row_wise: bool
    view: ViewPlan | None

    @classmethod
    def of(
        cls,
        ground: Ground,
        what: Ingest,
        system_time: Timestamp,
        files: Sequence[StoredFile],
        step: ReadStep,
        transform: Transform | None,
        limits: Limits = LIMITS,
    ) -> Self:
        """Prepare an ingest, as far as one file decides it.

        Raises InputError if no file has rows or columns, SchemaMismatch, MergeInvalid, QueryInvalid, DataTypeMismatch.
        """
        opened = ((file.name, Part(file=file, size=0).rows(step)) for file in files)
        named, read = next(((name, rows.schema) for name, rows in opened if rows is not None), ("", None))
        if read is None:
            raise InputError("there is not one row to push: all files are empty")
        state, event_time = ground.chain.state, what.event_time or system_time
        key = what.merge.primary_key if isinstance(what.merge, MergeStrategyLedger) else ()
        none = preprocess(transform, pa.RecordBatchReader.from_batches(read, ()), limits)
        new = _shaped(none, state.vocabulary, state.schema, event_time)
        list(new)
        if key:
            check_key(new.schema, key, what.merge.kind)
        Carrier(new.schema)  # refuses types that a merge in one process refuses as well
        slices = next_schema(ground.chain, pa.schema([pa.field(state.vocabulary.op, _OP, nullable=False), *new.schema]))
        view = None
        if ground.chain.table:
            wanted = wanted_indices(what.merge, slices, ground.snapshot.head.partition_keys)
            view = ViewPlan.of(ground.snapshot, schema=slices, vocabulary=state.vocabulary, wanted=wanted)
        return cls(
            store=ground.store.config,
            uuid=ground.uuid,
            step=step,
            preprocess=transform,
            limits=limits,
            named=named,
            read=read,
            vocabulary=state.vocabulary,
            before=state.schema,
            event_time=event_time,
            system_time=system_time,
            rows=pa.schema([pa.field(AT, pa.int64()), *new.schema]),
            slices=slices,
            first=state.next_offset,
            slice_bytes=ground.slice_bytes,
            key=key,
            row_wise=is_row_wise(transform, read),
            view=view,
        )

    # --- reading ---

    def rows_of(self, piece: Piece, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the piece with this number, as the ledger has them, with their positions.

        Raises what reading and preprocessing raise; SchemaMismatch for a file of other columns.
        """
        parts = ((part.file.name, rows) for part in piece.parts if (rows := part.rows(self.step)) is not None)
        if (first := next(parts, None)) is None:
            return
        given = pa.RecordBatchReader.from_batches(self.read, self._alike([first], parts))
        new = _shaped(preprocess(self.preprocess, given, self.limits), self.vocabulary, self.before, self.event_time)
        if self.vocabulary.event_time in self.key:
            new = filled(new, self.vocabulary.event_time, moment(self.event_time))
        yield from with_places(new, self.rows, number)

    def _alike(self, *some: Iterable[tuple[str, pa.RecordBatchReader]]) -> Iterator[pa.RecordBatch]:
        for files in some:
            for name, rows in files:
                if not rows.schema.equals(self.read):
                    raise SchemaMismatch(
                        f"{name!r} has other columns than {self.named!r}: push them apart, or give the push source a "
                        "read.schema"
                    )
                yield from rows

    # --- writing ---

    def in_order(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield all rows by event time, those without one first, then by position; in batches to be written."""
        table = pa.Table.from_batches(batches, self.rows).combine_chunks()
        if not is_ordered(*places_of(table)):
            table = table.take(order_of(*places_of(table)))
        yield from table.to_batches(max_chunksize=_PIECE)

    def record(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return operation, event time and data of rows in transit: all are additions."""
        _, times, *others = rows.columns
        op: Any = pa.repeat(_ADDED, rows.num_rows)
        names = [self.vocabulary.op, *self.rows.names[1:]]
        return pa.RecordBatch.from_arrays([op, fill(times, moment(self.event_time)), *others], names=names)

    def slice_writer(self, store: Store, row: int) -> SliceWriter:
        """Return a writer of the slices that begin with the row of this number."""
        return SliceWriter(
            store,
            Layout(keys.chain(self.uuid)),
            self.slices,
            self.vocabulary,
            first_offset=self.first + row,
            system_time=self.system_time,
            slice_bytes=self.slice_bytes,
        )


def _shaped(
    rows: pa.RecordBatchReader, vocabulary: Vocabulary, before: pa.Schema | None, event_time: Timestamp
) -> pa.RecordBatchReader:
    new = prepared(rows, vocabulary, before, event_time)
    known = None if before is None else pa.schema([f for f in before if f.name not in vocabulary.names[:3]])
    return shaped(new, vocabulary, known)
