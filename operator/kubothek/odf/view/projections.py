"""The states of a ledger along its two axes of time (PJ-01).

``as_of``  what was known then: after a block, at a system time, in a version of the table. The glossary of Open Data
           Fabric calls this AS AT; here AS OF names versions, as everywhere in SQL.
``as_at``  what had happened by then, by event time, with all known corrections: in the glossary, AS OF. Both together:
           what was known then to have happened by then.

If the table of that version is still retained, it is read; otherwise, all slices up to the block are.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import NotALedger
from kubothek.odf.view.history import History
from kubothek.odf.view.state import standing
from kubothek.odf.view.types import as_in_slices, common_to
from kubothek.table.expressions import Op, Predicate, Term
from kubothek.table.log import Snapshot
from kubothek.table.scan.read import scan
from kubothek.table.scratch import Scratch


def as_of(history: History, scratch: Scratch, *, table: Snapshot | None = None) -> pa.RecordBatchReader:
    """Return ``[offset, system_time, event_time, data…]`` of the records that are current at the end of this history.

    ``history``  cut at a block or a system time, see :meth:`History.until_block` and :meth:`History.until_time`
    ``table``    the version of the table that the commit of its last block made; None = it is not retained
    ``scratch``  must stay open while rows are read

    Raises NotALedger before the first slice's schema.
    """
    return _projected(history, scratch, table, None)


def as_at(
    history: History, moment: datetime | date, scratch: Scratch, *, table: Snapshot | None = None
) -> pa.RecordBatchReader:
    """Return those records of :func:`as_of` whose event time is not after ``moment`` (naive = UTC).

    Retracted records are left out. A corrected record is included by its corrected event time.
    """
    return _projected(history, scratch, table, moment)


def _projected(
    history: History, scratch: Scratch, table: Snapshot | None, moment: datetime | date | None
) -> pa.RecordBatchReader:
    if history.schema is None:
        raise NotALedger("the chain has no schema yet, so it has no table")
    schema = history.as_read([name for name in history.schema.names if name != history.vocabulary.op])
    batches = (
        _from_slices(history, schema, scratch, moment)
        if table is None or table.schema is None
        else _from_table(history, schema, table, moment)
    )
    return pa.RecordBatchReader.from_batches(schema, batches)


def _from_table(
    history: History, schema: pa.Schema, table: Snapshot, moment: datetime | date | None
) -> Iterator[pa.RecordBatch]:
    name = history.vocabulary.event_time
    where = None if moment is None else Predicate(((Term(name, Op.LE, _bound(moment, schema.field(name).type)),),))
    for batch in scan(history.store, table, common_to(schema.names, table.schema), where):
        yield as_in_slices(batch, schema)


def _from_slices(
    history: History, schema: pa.Schema, scratch: Scratch, moment: datetime | date | None
) -> Iterator[pa.RecordBatch]:
    column = history.vocabulary.event_time
    for batch in standing(history, schema.names, scratch):
        if moment is None:
            yield batch
            continue
        times: Any = batch.column(batch.schema.get_field_index(column))
        bound = _bound(moment, times.type)
        zoned = bound.replace(tzinfo=UTC) if isinstance(bound, datetime) else bound
        yield batch.filter(pc.less_equal(times, pa.scalar(zoned, times.type)))


def _bound(moment: datetime | date, kind: pa.DataType) -> datetime | date:
    """Return the last value of the column that is not after the moment, as the table has it: without a zone."""
    at = moment if isinstance(moment, datetime) else datetime(moment.year, moment.month, moment.day)
    at = at.astimezone(UTC).replace(tzinfo=None) if at.tzinfo else at
    return at.date() if pa.types.is_date(kind) else at.replace(microsecond=at.microsecond // 1000 * 1000)
