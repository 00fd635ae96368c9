"""ChangelogStream: the events are the records, in the order in which they come, once they are checked (MS-09).

The reference sorts them by key and operation, which separates the halves of a key's second correction in a batch.
"""

from __future__ import annotations

from kubothek.errors import MergeInvalid, SchemaMismatch
from kubothek.odf.merge.batch import New
from kubothek.odf.merge.events import Events, sign
from kubothek.odf.merge.output import Merged, Output
from kubothek.odf.merge.seen import Seen
from kubothek.odf.spec.sources import MergeStrategyChangelogStream
from kubothek.odf.validation.row_checks import APPEND, CORRECT_FROM, CORRECT_TO, RETRACT

_ADDS = f"({APPEND}, {CORRECT_TO})"
_RETRACTS = f"({RETRACT}, {CORRECT_FROM})"
_PROBLEMS = (
    "a +C follows the -C of the same key",
    "a -C comes right before the +C of the same key",
    "a record with this key exists already",
    "no record with this key exists",
    "the record with this key has other values than the one that it retracts",
)


def changelog_stream(strategy: MergeStrategyChangelogStream, new: New, seen: Seen, output: Output) -> Merged:
    """Return the events in their order. A retraction has the values of its record, also of an event time not given."""
    given, operations = new(), (APPEND, RETRACT, CORRECT_FROM, CORRECT_TO)
    if output.op not in given.schema.names:
        raise SchemaMismatch(
            f"merge strategy {strategy.kind}: the new records have no column {output.op!r} for their operations; they "
            f"have {', '.join(map(repr, given.schema.names))}"
        )
    events = Events.of(strategy.primary_key, given, seen, output, strategy.kind, operations)
    _check(events)
    changes = output.scratch.new_name("changes")
    output.scratch.run(
        f"CREATE TABLE {changes} AS SELECT CASE WHEN op IN {_RETRACTS} THEN before ELSE n END AS n, op, "  # noqa: S608
        f"after IS NOT NULL AS passing, n AS cause FROM {events.turns} WHERE n >= 0"
    )
    return events.result(changes, by_key=False)


def _check(events: Events) -> None:
    """Raise MergeInvalid for the first event that cannot follow those before it."""
    retracts = f"t.op IN {_RETRACTS}"
    differing = events.differing(retracts)
    found = events.output.scratch.first(
        "SELECT n, op, problem FROM (SELECT t.n, t.op, CASE "  # noqa: S608  # names of our own
        f"WHEN t.op = {CORRECT_TO} AND (t.before_op IS DISTINCT FROM {CORRECT_FROM} OR t.before <> t.n - 1) THEN 0 "
        f"WHEN t.op = {CORRECT_FROM} AND (t.after_op IS DISTINCT FROM {CORRECT_TO} OR t.after <> t.n + 1) THEN 1 "
        f"WHEN t.op = {APPEND} AND t.before_op IN {_ADDS} THEN 2 "
        f"WHEN {retracts} AND (t.before_op IS NULL OR t.before_op IN {_RETRACTS}) THEN 3 "
        f"WHEN {retracts} AND (d.n IS NOT NULL "
        f"OR (t.time IS NOT NULL AND t.time IS DISTINCT FROM coalesce(t.before_time, {events.moment}))) THEN 4 "
        f"END AS problem FROM (SELECT t.*, lag(time) OVER (PARTITION BY first ORDER BY n) AS before_time "
        f"FROM {events.turns} t) t LEFT JOIN ({differing}) d ON d.n = t.n WHERE t.n >= 0) "
        "WHERE problem IS NOT NULL ORDER BY n LIMIT 1"
    )
    if found is not None:
        number, op, problem = found
        raise MergeInvalid(
            f"merge strategy {events.kind}: row {number + 1} with the key {events.shown_key(number)} has the operation "
            f"{sign(op)}, but {_PROBLEMS[problem]}; correct the source, or use UpsertStream"
        )
