"""Snapshot: each batch is the whole state; its difference to the last state gives the records (MS-04 … MS-07).

Whether a record is missing on one side is decided by its number, not by a key or a column that may be NULL. Columns are
compared as IS DISTINCT FROM does: NULL is NULL, NaN is NaN, 0.0 is -0.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kubothek.errors import MergeInvalid
from kubothek.odf.merge.batch import New, Rows, check_column, check_key, filled
from kubothek.odf.merge.output import OFFSETS, OPS, Merged, Output
from kubothek.odf.merge.seen import Seen
from kubothek.odf.merge.state import EVENT_TIME, OFFSET, whole_state
from kubothek.odf.spec.sources import MergeStrategySnapshot
from kubothek.odf.validation.row_checks import APPEND, CORRECT_FROM, CORRECT_TO, RETRACT
from kubothek.table.scratch import ROW, Scratch


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
    old, keyed = whole_state(rows, key, seen, scratch)
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
    return f"(n.{column} IS NOT NULL AND {differs})" if column == EVENT_TIME else differs


def _events(rows: Rows, old: str, diff: str) -> str:
    """Return a query for the records that result from the differences."""
    after = ", ".join(f"x.{column}" for column in rows.carrier.inside.names)
    return (
        f"SELECT {rows.columns}, {OPS}, {OFFSETS} FROM ("  # noqa: S608
        f"SELECT {after}, CASE WHEN d.n IS NULL THEN {RETRACT} ELSE {CORRECT_FROM} END AS {OPS}, "
        f"x.{OFFSET} AS {OFFSETS}, d.place FROM {diff} d JOIN {old} x ON x.{ROW} = d.o "
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
