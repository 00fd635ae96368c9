"""The current records of a chain: added, and not retracted since. The content of the table, from the slices alone.

A retraction, and the first half of a correction, carries the content of its record (OP-02). Of several equal records,
it retracts the last current one. A merge by the table knows the exact record, with the same result: it retracts the
last of its key. Only offsets are in memory; everything else can go to disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.odf.validation.retractions import record_keys
from kubothek.odf.validation.row_checks import CORRECT_FROM, RETRACT
from kubothek.odf.validation.state import Vocabulary
from kubothek.odf.view.history import OFFSET_TYPE, OP_TYPE, History
from kubothek.table.scratch import Scratch, gathered

_Numbers = npt.NDArray[np.int64]
_RECORD: Final = "k"
_EVENTS: Final = pa.schema([(_RECORD, pa.large_binary()), ("o", OFFSET_TYPE), ("s", OP_TYPE)])


def standing(
    history: History, columns: Sequence[str], scratch: Scratch, where: pc.Expression | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield columns of the current records, in the order of their offsets.

    ``where``  a condition on the content of records, which has to hold
    """
    names = history.vocabulary
    gone = taken_back(history, scratch, where) if history.retracting() else np.zeros(0, np.int64)
    read = list(dict.fromkeys([*columns, names.offset, names.op]))
    for batch in history.scan(read, where):
        comes = pc.invert(is_back(batch.column(batch.schema.get_field_index(names.op))))
        keep = np.asarray(comes.to_numpy(zero_copy_only=False))
        if len(gone):
            offsets = batch.column(batch.schema.get_field_index(names.offset)).to_numpy()
            keep &= gone[np.minimum(np.searchsorted(gone, offsets), len(gone) - 1)] != offsets
        chosen = batch.select(list(columns))
        yield chosen if keep.all() else chosen.filter(pa.array(keep))


def taken_back(history: History, scratch: Scratch, where: pc.Expression | None = None) -> _Numbers:
    """Return the offsets of the retracted additions for which ``where`` holds, ascending."""
    taken = scratch.new_name("taken")
    scratch.run(f"CREATE TABLE {taken} ({_RECORD} BLOB)")
    back = history.takes_back()
    for events in _events(history, back if where is None else back & where):
        given = scratch.register("given", pa.Table.from_batches([events]))
        scratch.run(f"INSERT INTO {taken} SELECT DISTINCT {_RECORD} FROM {given}")  # noqa: S608  # names of our own
        scratch.forget(given)
    all_of_them = scratch.new_name("events")
    scratch.run(f"CREATE TABLE {all_of_them} ({_RECORD} BLOB, o BIGINT, s INTEGER)")
    for events in _events(history, where):
        given = scratch.register("given", pa.Table.from_batches([events]))
        scratch.run(f"INSERT INTO {all_of_them} SELECT * FROM {given} SEMI JOIN {taken} USING ({_RECORD})")  # noqa: S608
        scratch.forget(given)
    return gone_among(scratch, all_of_them)


def gone_among(scratch: Scratch, events: str) -> _Numbers:
    """Return the offsets of the additions that later events retract, ascending.

    ``events``  the name of a table with rows of :func:`events_of`
    """
    # An addition is retracted once there are fewer equal records than when it was added.
    found = scratch.table(
        "SELECT o FROM (SELECT o, s, b, min(b) OVER (PARTITION BY k ORDER BY o "  # noqa: S608
        "ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS later "
        f"FROM (SELECT k, o, s, sum(s) OVER (PARTITION BY k ORDER BY o) AS b FROM {events})) "
        "WHERE s > 0 AND later < b ORDER BY o"
    )
    return np.asarray(found.column("o").to_numpy()).astype(np.int64)


def _events(history: History, where: pc.Expression | None) -> Iterator[pa.RecordBatch]:
    names, columns = history.vocabulary, history.columns
    read = [names.offset, names.op, *columns.names]
    for batch in gathered(history.scan(read, where), history.as_read(read)):  # a slice may have few records
        yield events_of(batch, columns, names)


def events_of(batch: pa.RecordBatch, columns: pa.Schema, names: Vocabulary) -> pa.RecordBatch:
    """Return for each record bytes that equal ones share, its offset, and 1 for an addition, -1 for a retraction."""
    signs = pc.if_else(is_back(batch.column(names.op)), pa.scalar(-1, OP_TYPE), pa.scalar(1, OP_TYPE))
    offsets: Any = batch.column(names.offset)
    keys = record_keys(batch, columns, names)
    return pa.RecordBatch.from_arrays([keys, offsets.cast(OFFSET_TYPE), signs], schema=_EVENTS)


def is_back(op: Any) -> Any:
    """Return which operations are a retraction, or the first half of a correction."""
    return pc.is_in(op.cast(OP_TYPE), value_set=pa.array([RETRACT, CORRECT_FROM], OP_TYPE))
