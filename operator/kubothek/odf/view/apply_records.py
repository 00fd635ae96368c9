"""Updates of the table with records from foreign blocks, which may retract other records.

A slice does not name the record that a retraction retracts, only its content (OP-02). Rows with this content are looked
up in the files that may hold them, by partitions and column ranges. Only files that hold such rows are rewritten.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.odf.merge import RETRACTS
from kubothek.odf.validation.retractions import record_keys
from kubothek.odf.validation.row_checks import APPEND, RETRACT
from kubothek.odf.view.change import ViewChange
from kubothek.odf.view.history import OP_TYPE, History
from kubothek.odf.view.state import events_of, gone_among, is_back
from kubothek.odf.view.types import as_in_slices, common_to
from kubothek.odf.view.writer import ViewWriter
from kubothek.storage import Store
from kubothek.table.expressions import Op, Predicate, Term
from kubothek.table.layout import Layout
from kubothek.table.log import Snapshot
from kubothek.table.scan.keys import Stored
from kubothek.table.scan.read import scan
from kubothek.table.scratch import Scratch

_MOST: Final = 1 << 20
"""The most retractions, which are all held in memory; beyond this number the table is rebuilt."""
_MOST_VALUES: Final = 1000
"""The most values of a partition column that are looked up one by one."""
_Numbers = npt.NDArray[np.int64]


def taking_in(store: Store, snapshot: Snapshot, history: History, scratch: Scratch) -> ViewChange | None:
    """Return the change that adds new records to the table; None if the table must be rebuilt.

    It must be if it lacks retracted records, or if these are too many. Raises what :class:`~.writer.ViewWriter` raises.

    ``history``  only the records that follow all those of the table
    """
    assert history.schema is not None, "a slice comes after a schema"
    back = _taken_back(history)
    if back is None or snapshot.schema is None:
        return None
    names, columns = history.vocabulary, history.columns
    known = pc.unique(pa.chunked_array([record_keys(each, columns, names) for each in back.to_batches()]))
    rows = [*_in_table(store, snapshot, history, back, known)]
    came = [events_of(batch, columns, names) for batch in history.scan([names.offset, names.op, *columns.names])]
    there = [events_of(batch, columns, names) for batch in rows]
    found = pa.Table.from_batches([*there, *came])
    events = scratch.register("events", found.filter(pc.is_in(found.column("k"), value_set=known)))
    gone = gone_among(scratch, events)
    if len(gone) != back.num_rows:
        return None
    with ViewWriter(store, snapshot, schema=history.as_read(history.schema.names), vocabulary=names) as view:
        for batch in rows:
            if (hits := batch.filter(_among(batch, names.offset, gone))).num_rows:
                view.write(_as_retraction(hits, names.op, names.offset))
        for batch in history.scan(history.schema.names):
            stays = pc.invert(pc.or_(is_back(batch.column(names.op)), _among(batch, names.offset, gone)))
            view.write(batch.filter(stays))
        return view.finish()


def _taken_back(history: History) -> pa.Table | None:
    """Return the content of the retractions; None if there are too many."""
    names = history.vocabulary
    wanted = [name for name in (history.schema or pa.schema([])).names if name != names.op]
    found: list[pa.RecordBatch] = []
    left = _MOST
    for batch in history.scan([*wanted, names.op], history.takes_back()):
        found.append(batch.select(wanted))
        left -= batch.num_rows
        if left < 0:
            return None
    return pa.Table.from_batches(found, history.as_read(wanted))


def _in_table(
    store: Store, snapshot: Snapshot, history: History, back: pa.Table, known: Any
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the table with the content of one of these, as slices have records that were added."""
    schema = back.schema
    where = _where(snapshot, history, back)
    for batch in scan(store, snapshot, common_to(schema.names, snapshot.schema), where):
        rows = as_in_slices(batch, schema)
        same = rows.filter(pc.is_in(record_keys(rows, history.columns, history.vocabulary), value_set=known))
        if same.num_rows:
            yield _with_op(same, history.vocabulary.op, APPEND)


def _where(snapshot: Snapshot, history: History, back: pa.Table) -> Predicate | None:
    """Return a filter that holds for all rows with the content of one of these."""
    assert snapshot.schema is not None, "there is a table"
    partition_on = Layout.of(snapshot.head).partition_on
    terms: list[Term] = []
    for field in history.columns:
        if field.name not in snapshot.schema.names or pa.types.is_nested(field.type):
            continue
        stored = Stored.of(back, field.name, snapshot.schema)
        if field.name in partition_on and not stored.strange and len(stored.values) <= _MOST_VALUES:
            terms.append(Term(field.name, Op.IN, tuple(stored.values.to_pylist())))
        else:
            terms += stored.range()
    return Predicate((tuple(terms),)) if terms else None


def _as_retraction(rows: pa.RecordBatch, op: str, offset: str) -> pa.RecordBatch:
    """Return rows of the table as retractions for a writer."""
    offsets: Any = rows.column(offset)
    return _with_op(rows.drop_columns([op]), op, RETRACT).append_column(RETRACTS, offsets.cast(pa.int64()))


def _with_op(rows: pa.RecordBatch, op: str, value: int) -> pa.RecordBatch:
    return rows.append_column(op, pa.array(np.full(rows.num_rows, value), OP_TYPE))


def _among(batch: pa.RecordBatch, offset: str, gone: _Numbers) -> Any:
    offsets: Any = batch.column(offset)
    return pc.is_in(offsets.cast(pa.int64()), value_set=pa.array(gone))
