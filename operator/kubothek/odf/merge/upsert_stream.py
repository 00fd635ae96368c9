"""UpsertStream: events that insert, update or delete a key become appends, corrections and retractions (MS-08).

Each event is compared with the record that its key has at that point: in the ledger, or by an earlier event of the
batch. The reference drops all events of a key but the last one of the batch, so its ledger depends on how the source
was cut into batches. This one does not.
"""

from __future__ import annotations

from kubothek.odf.merge.batch import New
from kubothek.odf.merge.events import Events
from kubothek.odf.merge.output import Merged, Output
from kubothek.odf.merge.seen import Seen
from kubothek.odf.merge.state import EVENT_TIME
from kubothek.odf.spec.sources import MergeStrategyUpsertStream
from kubothek.odf.validation.row_checks import APPEND, CORRECT_FROM, CORRECT_TO, RETRACT


def upsert_stream(strategy: MergeStrategyUpsertStream, new: New, seen: Seen, output: Output) -> Merged:
    """Return the records that the events make, ordered by key and, for each key, by arrival."""
    events = Events.of(strategy.primary_key, new(), seen, output, strategy.kind, (APPEND, RETRACT))
    effective = _effective(events)
    changes = output.scratch.new_name("changes")
    later = "after IS NOT NULL"
    output.scratch.run(
        f"CREATE TABLE {changes} AS "  # noqa: S608  # names of our own
        f"SELECT before AS n, CASE WHEN op = {RETRACT} THEN {RETRACT} ELSE {CORRECT_FROM} END AS op, "
        f"FALSE AS passing, place FROM {effective} WHERE n >= 0 AND old_op = {APPEND} UNION ALL "
        f"SELECT n, CASE WHEN old_op = {APPEND} THEN {CORRECT_TO} ELSE {APPEND} END, {later}, place "
        f"FROM {effective} WHERE n >= 0 AND op = {APPEND}"
    )
    return events.result(changes, "place")


def _effective(events: Events) -> str:
    """Return a table of the events that change the record of their key, and of the records of the ledger.

    As ``turns``, but ``before`` and ``after`` are events of this table, and ``old_op`` is the operation of the former.
    """
    scratch = events.output.scratch
    runs, effective = scratch.new_name("runs"), scratch.new_name("effective")
    # A run: a deletion and those right after it, or upserts of one key with the same columns but for the event time.
    scratch.run(
        f"CREATE TABLE {runs} AS SELECT *, count(*) FILTER (before IS NULL OR begins) OVER (ORDER BY place) AS run "  # noqa: S608
        f"FROM (SELECT t.*, r.{EVENT_TIME} AS time, "
        f"CASE WHEN t.before IS NULL THEN t.op = {APPEND} WHEN t.op <> b.op THEN TRUE "
        f"ELSE t.op = {APPEND} AND {events.differs('r', 'o')} END AS begins "
        f"FROM {events.turns} t JOIN {events.records} r ON r.n = t.n "
        f"LEFT JOIN {events.turns} b ON b.n = t.before LEFT JOIN {events.records} o ON o.n = t.before)"
    )
    # An event without an event time does not change that of the record (MS-05).
    scratch.run(
        f"CREATE TABLE {effective} AS SELECT n, op, place, lag(n) OVER w AS before, lag(op) OVER w AS old_op, "  # noqa: S608
        f"lead(n) OVER w AS after FROM (SELECT *, last_value(CASE WHEN begins THEN coalesce(time, {events.moment}) "
        "ELSE time END IGNORE NULLS) OVER (PARTITION BY run ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND "
        f"1 PRECEDING) AS old_time FROM {runs}) "
        f"WHERE begins OR (op = {APPEND} AND time IS NOT NULL AND time IS DISTINCT FROM old_time) "
        "WINDOW w AS (PARTITION BY first ORDER BY place)"
    )
    return effective
