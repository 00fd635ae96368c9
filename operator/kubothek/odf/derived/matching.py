"""The effect of a run on the table: records to add, and records of the table to retract.

A retraction carries the retracted record but not its position. Of several equal records it retracts the last one not
yet retracted, as does a rebuild of the table from a chain (:mod:`kubothek.odf.view.state`). That record is in the same
run or in the table, of which only the files that can hold it are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import RecordMissing
from kubothek.odf.merge import RETRACTS
from kubothek.odf.validation.retractions import record_keys
from kubothek.odf.validation.row_checks import RETRACT
from kubothek.odf.validation.state import Vocabulary
from kubothek.odf.view.history import OFFSET_TYPE, OP_TYPE
from kubothek.odf.view.state import events_of, gone_among, is_back
from kubothek.odf.view.types import as_in_slices, common_to
from kubothek.storage import Store
from kubothek.table.expressions import Op, Predicate, Term
from kubothek.table.log import Snapshot
from kubothek.table.scan.keys import Stored
from kubothek.table.scan.plan import plan
from kubothek.table.scan.read import open_files, read_failure
from kubothek.table.scratch import Scratch

_MOST_VALUES: Final = 1000
"""Largest number of values of a column to look up one by one; beyond it, their range."""
_BATCHES_AHEAD: Final = 8
_FILES_AHEAD: Final = 4
_KEY: Final = "k"


def to_table(
    store: Store, snapshot: Snapshot, batches: Sequence[pa.RecordBatch], names: Vocabulary
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a run, given as in its slice, in the form for the writer of the table.

    Raises RecordMissing if a retracted record does not exist, MergeTooLarge, StoreError.
    """
    if not any(pc.any(is_back(batch.column(names.op))).as_py() for batch in batches):
        yield from batches
        return
    columns = _data(batches[0].schema, names)
    with Scratch() as scratch:
        events = pa.Table.from_batches([events_of(batch, columns, names) for batch in batches])
        table = scratch.register("events", events)
        gone = gone_among(scratch, table)
        missing = scratch.table(
            f"SELECT k, -min(b) AS n FROM (SELECT k, sum(s) OVER (PARTITION BY k ORDER BY o) AS b FROM {table}) "  # noqa: S608
            "GROUP BY k HAVING min(b) < 0"
        )
        for batch in batches:
            offsets: Any = batch.column(names.offset)
            stays = ~np.isin(offsets.to_numpy(), gone) & ~np.asarray(is_back(batch.column(names.op)))
            yield batch.filter(pa.array(stays))
        if missing.num_rows:
            wanted = missing.column("k").combine_chunks()
            asked = [batch.filter(pc.is_in(record_keys(batch, columns, names), value_set=wanted)) for batch in batches]
            found = _found(store, snapshot, pa.Table.from_batches(asked), missing, names, scratch)
            yield from _taken_back(found, names)


def _found(
    store: Store, snapshot: Snapshot, asked: pa.Table, missing: pa.Table, names: Vocabulary, scratch: Scratch
) -> pa.Table:
    """Return the rows of the table to retract, one for each retraction."""
    columns = _data(asked.schema, names)
    hits = [*_hits(store, snapshot, asked, missing.column(_KEY).combine_chunks(), names)]
    number = int(pc.sum(missing.column("n")).as_py())
    rows = pa.Table.from_batches(hits) if hits else None
    there = 0
    if rows is not None:
        keys = pa.chunked_array([record_keys(batch, columns, names) for batch in rows.to_batches()])
        places = pa.chunked_array([np.arange(rows.num_rows)])
        numbered = pa.Table.from_arrays([keys, rows.column(names.offset), places], names=[_KEY, "o", "i"])
        held, wanted = scratch.register("held", numbered), scratch.register("missing", missing)
        last = scratch.table(
            "SELECT i FROM (SELECT i, n, row_number() OVER (PARTITION BY k ORDER BY o DESC) AS r "  # noqa: S608
            f"FROM {held} JOIN {wanted} USING (k)) WHERE r <= n ORDER BY i"
        )
        rows = rows.take(last.column("i"))
        there = rows.num_rows
    if rows is None or there != number:
        raise RecordMissing(
            f"{number} records of {snapshot.head.uuid!r} are taken back, but {there} of them are in its table. An "
            "input takes back what it never had (kubothek verify), or another transformation than this one made them: "
            "reset the dataset to rebuild its data"
        )
    return rows


def _hits(
    store: Store, snapshot: Snapshot, asked: pa.Table, wanted: Any, names: Vocabulary
) -> Iterator[pa.RecordBatch]:
    """Yield all rows of the table that equal one of ``asked``, with their offsets."""
    schema = snapshot.schema
    if schema is None or not snapshot.head.partitions:
        return
    columns = _data(asked.schema, names)
    where = _where(snapshot, schema, asked.select([name for name in columns.names if name in schema.names]))
    files = [file.key for file in plan(store, snapshot, where).files]
    if not files:
        return
    inside = pa.schema([pa.field(names.offset, OFFSET_TYPE), *columns])
    dataset = open_files(store, files, schema)
    condition = None if where.conjunctions == ((),) else where.bind(schema).expression()
    try:
        scanner = dataset.scanner(
            columns=common_to(inside.names, schema),
            filter=condition,
            batch_readahead=_BATCHES_AHEAD,
            fragment_readahead=_FILES_AHEAD,
        )
        for batch in scanner.to_batches():
            rows = as_in_slices(batch, inside)
            if (hit := rows.filter(pc.is_in(record_keys(rows, columns, names), value_set=wanted))).num_rows:
                yield hit
    except (OSError, pa.ArrowException) as error:
        raise read_failure(store, dataset, error) from error


def _where(snapshot: Snapshot, schema: pa.Schema, asked: pa.Table) -> Predicate:
    """Return a filter that all of the records satisfy, for pruning by partitions, indexes and statistics."""
    listed = {*snapshot.head.partition_keys, *snapshot.head.index_state.kinds()}
    terms: list[Term] = []
    for name in asked.schema.names:
        if pa.types.is_nested(asked.schema.field(name).type):
            continue
        column = Stored.of(asked, name, schema)
        if name in listed and not column.strange and len(column.values) <= _MOST_VALUES:
            terms.append(Term(name, Op.IN, tuple(column.values.to_pylist())))
        else:
            terms += column.range()
    return Predicate((tuple(terms),))


def _taken_back(rows: pa.Table, names: Vocabulary) -> Iterator[pa.RecordBatch]:
    """Return retractions for the writer, with the offset of the retracted record."""
    told = rows.append_column(RETRACTS, rows.column(names.offset))
    told = told.append_column(names.op, pa.array(np.full(rows.num_rows, RETRACT), OP_TYPE))
    yield from told.to_batches()


def _data(schema: pa.Schema, names: Vocabulary) -> pa.Schema:
    """Return ``[event_time, data…]``."""
    ours = (names.offset, names.op, names.system_time)
    return pa.schema([field for field in schema if field.name not in ours])
