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
        f"FALSE AS passing, n AS cause FROM {effective} WHERE n >= 0 AND old_op = {APPEND} UNION ALL "
        f"SELECT n, CASE WHEN old_op = {APPEND} THEN {CORRECT_TO} ELSE {APPEND} END, {later}, n "
        f"FROM {effective} WHERE n >= 0 AND op = {APPEND}"
    )
    return events.result(changes, by_key=True)


def _effective(events: Events) -> str:
    """Return a table of the events that change the record of their key, and of the records of the ledger.

    As ``turns``, but ``before`` and ``after`` are events of this table, and ``old_op`` is the operation of the former.
    """
    scratch = events.output.scratch
    runs, effective = scratch.new_name("runs"), scratch.new_name("effective")
    # A run: a deletion and those right after it, or upserts of one key with the same columns but for the event time.
    differing = events.differing(f"t.op = {APPEND} AND t.before_op = {APPEND}")
    alone = "before IS NULL AND after IS NULL"
    scratch.run(
        f"CREATE TABLE {runs} AS SELECT *, sum(CASE WHEN before IS NULL OR begins THEN 1 ELSE 0 END) "  # noqa: S608
        "OVER (PARTITION BY first ORDER BY n ROWS UNBOUNDED PRECEDING) AS run "  # count(*) FILTER takes quadratic time
        f"FROM (SELECT t.*, d.n IS NOT NULL OR t.op <> coalesce(t.before_op, {RETRACT}) AS begins "
        f"FROM {events.turns} t LEFT JOIN ({differing}) d ON d.n = t.n WHERE NOT ({alone}))"
    )
    # An event without an event time does not change that of the record (MS-05).
    scratch.run(
        f"CREATE TABLE {effective} AS SELECT n, op, lag(n) OVER w AS before, lag(op) OVER w AS old_op, "  # noqa: S608
        f"lead(n) OVER w AS after FROM (SELECT *, last_value(CASE WHEN begins THEN coalesce(time, {events.moment}) "
        "ELSE time END IGNORE NULLS) OVER (PARTITION BY first, run ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND "
        f"1 PRECEDING) AS old_time FROM {runs}) "
        f"WHERE begins OR (op = {APPEND} AND time IS NOT NULL AND time IS DISTINCT FROM old_time) "
        "WINDOW w AS (PARTITION BY first ORDER BY n) "
        f"UNION ALL SELECT n, op, NULL, NULL, NULL FROM {events.turns} WHERE {alone}"
    )
    return effective
