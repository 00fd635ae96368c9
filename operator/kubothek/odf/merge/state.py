"""The records of the ledger with which a merge compares its batch, as tables of the database.

Such a table has the columns of the batch, and ``o`` for the offset; each key has at most one record in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from kubothek.odf.merge.batch import Rows
from kubothek.odf.merge.keys import first_rows, keys_of
from kubothek.odf.merge.seen import Seen
from kubothek.odf.validation.row_checks import APPEND, CORRECT_TO
from kubothek.table.scratch import Scratch

EVENT_TIME: Final = "c0"
OFFSET: Final = "o"
"""Names of columns: the event time, and the offset of a record of the ledger."""
_OP: Final = "p"
_OFFSET_FIELD: Final[Any] = pa.field(OFFSET, pa.int64())
_OP_FIELD: Final[Any] = pa.field(_OP, pa.int32())


def whole_state(rows: Rows, key: Sequence[str], seen: Seen, scratch: Scratch) -> tuple[str, bool]:
    """Return the state as a table, and whether it has all records that are not retracted.

    The table has the columns of the batch, ``o`` for the offset, and ``n``: a record for each key. This is the last
    record of the key, unless that one is a retraction (MS-04). If other strategies have left several records of one
    key, all records must be read.
    """
    schema = rows.carrier.inside.append(_OFFSET_FIELD)
    if seen.keyed_by(key):
        state = () if seen.empty else _as_batch(seen.state(), rows, schema)
        return scratch.register("state", scratch.hold(state, schema)), True
    schema = schema.append(_OP_FIELD)
    records = scratch.register("records", scratch.hold(_as_batch(seen.records(), rows, schema), schema))
    name, columns = scratch.new_name("last"), ", ".join(rows.each_inside(key))
    # Not by QUALIFY row_number(): it turns -0.0 into 0.0, and a retraction has to carry the same record.
    scratch.run(
        f"CREATE TABLE {name} AS SELECT * FROM {records} "  # noqa: S608  # names of our own
        f"SEMI JOIN (SELECT max({OFFSET}) AS {OFFSET} FROM {records} GROUP BY {columns}) USING ({OFFSET}) "
        f"WHERE {_OP} IN ({APPEND}, {CORRECT_TO})"
    )
    found = scratch.first(f"SELECT count(*) FROM {name}")  # noqa: S608
    return name, found is not None and found[0] == seen.standing


def state_of_keys(rows: Rows, key: tuple[str, ...], seen: Seen, scratch: Scratch) -> tuple[str, bool]:
    """Return the part of :func:`whole_state` that has keys of the batch, and whether the ledger has each key once.

    The cost is proportional to the keys, not to the ledger, if it is known to have each key once.
    """
    if not seen.keyed_by(key):
        whole, keyed = whole_state(rows, key, seen, scratch)
        name = scratch.new_name("state")
        same = " AND ".join(f"w.{c} IS NOT DISTINCT FROM r.{c}" for c in rows.each_inside(key))
        scratch.run(f"CREATE TABLE {name} AS SELECT w.* FROM {whole} w SEMI JOIN {rows.table} r ON {same}")  # noqa: S608
        return name, keyed
    schema = rows.carrier.inside.append(_OFFSET_FIELD)
    return scratch.register("state", scratch.hold(_found(rows, key, seen, schema, scratch), schema)), True


def _found(
    rows: Rows, key: tuple[str, ...], seen: Seen, schema: pa.Schema, scratch: Scratch
) -> Iterator[pa.RecordBatch]:
    if not seen.empty:
        firsts, count = first_rows(rows, key, scratch, in_order=True)
        for keys, _ in keys_of(rows, key, firsts, count, scratch):
            yield from _as_batch(seen.state_of(keys), rows, schema)


def _as_batch(found: pa.RecordBatchReader, rows: Rows, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield records ``[offset, op?, event_time, data…]`` as columns of the batch, then their offset, and operation.

    Columns that only the batch has are NULL.
    """
    wanted = rows.carrier.schema
    for batch in found:
        columns = [
            batch.column(batch.schema.get_field_index(field.name))
            if field.name in batch.schema.names
            else pa.nulls(batch.num_rows, field.type)
            for field in wanted
        ]
        inside = rows.carrier.carry(pa.RecordBatch.from_arrays(columns, schema=wanted))
        own = [batch.column(number) for number in range(len(schema) - len(wanted))]
        yield pa.RecordBatch.from_arrays([*inside.columns, *own], schema=schema)
