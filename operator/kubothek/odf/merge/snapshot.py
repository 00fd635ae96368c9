"""Snapshot: each batch is the whole state; its difference to the last state gives the records (MS-04 … MS-07).

Whether a record is missing on one side is decided by its number, not by a key or a column that may be NULL. Columns are
compared as IS DISTINCT FROM does: NULL is NULL, NaN is NaN, 0.0 is -0.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from kubothek.errors import MergeInvalid
from kubothek.odf.merge.batch import New, Rows, check_column, check_key, filled
from kubothek.odf.merge.output import OFFSETS, OPS, Merged, Output
from kubothek.odf.merge.scratch import ROW, Scratch
from kubothek.odf.merge.seen import Seen
from kubothek.odf.spec.sources import MergeStrategySnapshot
from kubothek.odf.validation.row_checks import APPEND, CORRECT_FROM, CORRECT_TO, RETRACT

_EVENT_TIME: Final = "c0"
_OFFSET: Final = "o"
_OP: Final = "p"
_OFFSET_FIELD: Final[Any] = pa.field(_OFFSET, pa.int64())
_OP_FIELD: Final[Any] = pa.field(_OP, pa.int32())


def snapshot(strategy: MergeStrategySnapshot, new: New, seen: Seen, output: Output) -> Merged:
    """Return the records that turn the state into the new records, ordered by key, a -C right before its +C."""
    key, compared, scratch = strategy.primary_key, strategy.compare_columns, output.scratch
    given = new()
    check_key(given.schema, key, strategy.kind)
    for column in compared or ():
        check_column(given.schema, column, f"merge strategy {strategy.kind}: compareColumns")
    if given.schema.names[0] in key:
        given = filled(given, given.schema.names[0], output.moment)
    rows = Rows.of(given, scratch)
    _require_distinct(rows, key, scratch)
    inside = rows.each_inside(key)
    changed = rows.each_inside([c for c in (compared or given.schema.names) if c not in key])
    old, keyed = _state(rows, key, seen, scratch)
    diff = scratch.new_name("diff")
    # The order is fixed here, once for both halves of a correction: their keys are equal, but may be 0.0 and -0.0.
    order = ", ".join(f"coalesce(n.{c}, o.{c})" for c in inside)
    scratch.run(
        f"CREATE TABLE {diff} AS SELECT o.{ROW} AS o, n.{ROW} AS n, row_number() OVER (ORDER BY {order}) AS place "  # noqa: S608
        f"FROM {old} o FULL OUTER JOIN {rows.table} n ON {_all(f'o.{c} IS NOT DISTINCT FROM n.{c}' for c in inside)} "
        f"WHERE o.{ROW} IS NULL OR n.{ROW} IS NULL OR {_any(map(_differs, changed))}"
    )
    made = output.mixed(rows, _events(rows, old, diff), _counts(diff, scratch))
    return replace(made, keyed_by=tuple(sorted(key)) if keyed else None)


def _differs(column: str) -> str:
    """Return SQL that tests whether a column changed; an event time only where the input has one (MS-05)."""
    differs = f"o.{column} IS DISTINCT FROM n.{column}"
    return f"(n.{column} IS NOT NULL AND {differs})" if column == _EVENT_TIME else differs


def _events(rows: Rows, old: str, diff: str) -> str:
    """Return a query for the records that result from the differences."""
    after = ", ".join(f"x.{column}" for column in rows.carrier.inside.names)
    return (
        f"SELECT {rows.columns}, {OPS}, {OFFSETS} FROM ("  # noqa: S608
        f"SELECT {after}, CASE WHEN d.n IS NULL THEN {RETRACT} ELSE {CORRECT_FROM} END AS {OPS}, "
        f"x.{_OFFSET} AS {OFFSETS}, d.place FROM {diff} d JOIN {old} x ON x.{ROW} = d.o "
        "UNION ALL "
        f"SELECT {after}, CASE WHEN d.o IS NULL THEN {APPEND} ELSE {CORRECT_TO} END, "
        f"NULL, d.place FROM {diff} d JOIN {rows.table} x ON x.{ROW} = d.n"
        f") ORDER BY place, {OPS}"
    )


def _counts(diff: str, scratch: Scratch) -> dict[int, int]:
    found = scratch.first(
        "SELECT count(*) FILTER (o IS NULL), count(*) FILTER (n IS NULL), "  # noqa: S608
        f"count(*) FILTER (o IS NOT NULL AND n IS NOT NULL) FROM {diff}"
    )
    added, gone, changed = found or (0, 0, 0)
    return {APPEND: added, RETRACT: gone, CORRECT_FROM: changed, CORRECT_TO: changed}


def _state(rows: Rows, key: Sequence[str], seen: Seen, scratch: Scratch) -> tuple[str, bool]:
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
        f"SEMI JOIN (SELECT max({_OFFSET}) AS {_OFFSET} FROM {records} GROUP BY {columns}) USING ({_OFFSET}) "
        f"WHERE {_OP} IN ({APPEND}, {CORRECT_TO})"
    )
    found = scratch.first(f"SELECT count(*) FROM {name}")  # noqa: S608
    return name, found is not None and found[0] == seen.standing


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


def _require_distinct(rows: Rows, key: Sequence[str], scratch: Scratch) -> None:
    """Raise MergeInvalid if two records of the batch have one key."""
    columns = ", ".join(rows.each_inside(key))
    found = scratch.table(
        f"SELECT {columns}, min({ROW}) AS {ROW}, count(*) AS times FROM {rows.table} "  # noqa: S608
        f"GROUP BY {columns} HAVING count(*) > 1 ORDER BY {ROW} LIMIT 1"
    )
    if found.num_rows:
        example = rows.carrier.restored(key, found).to_pylist()[0]
        times, first = found.column("times")[0].as_py(), found.column(ROW)[0].as_py() + 1
        shown = ", ".join(f"{column} = {value!r}" for column, value in example.items())
        raise MergeInvalid(
            f"merge strategy Snapshot: the key {shown} occurs {times} times in one snapshot, first in row {first}; a "
            "snapshot has each key once: remove the duplicates in preprocess, or choose another primary key"
        )


def _all(conditions: Any) -> str:
    return " AND ".join(conditions)


def _any(conditions: Any) -> str:
    return "(" + " OR ".join([*conditions, "FALSE"]) + ")"
