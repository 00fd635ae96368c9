"""Batches of events, each with an operation: the events of each key in their order, after its record in the ledger.

An event is known by its number: ``n`` of its row in the batch, or ``-1 - offset`` of a record of the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import pyarrow as pa

from kubothek.errors import MergeInvalid, SchemaMismatch
from kubothek.odf.merge.batch import PASSING, Rows, check_key, fill, filled, without
from kubothek.odf.merge.output import OFFSETS, OPS, Merged, Output
from kubothek.odf.merge.seen import Seen
from kubothek.odf.merge.state import EVENT_TIME, OFFSET, state_of_keys
from kubothek.odf.validation.row_checks import APPEND, CORRECT_FROM, CORRECT_TO, RETRACT
from kubothek.table.carried import Carrier
from kubothek.table.scratch import ROW, Scratch

_SIGNS: Final = {APPEND: "+A", RETRACT: "-R", CORRECT_FROM: "-C", CORRECT_TO: "+C"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """The events of a batch, and the records of the ledger that have their keys.

    ``rows``      the batch
    ``key``       the primary key
    ``records``   a table of both: the columns of the batch, and ``n``, the number
    ``turns``     a table with a row for each: ``n``; its operation ``op``; the event ``time``; ``first``, the number of
                  the first event of its key; ``before``, ``before_op``, ``after`` and ``after_op``, those right before
                  and after it
    ``keyed_by``  see :class:`Merged`
    """

    rows: Rows
    key: tuple[str, ...]
    records: str
    turns: str
    keyed_by: tuple[str, ...] | None
    kind: str
    output: Output

    @classmethod
    def of(
        cls,
        key: tuple[str, ...],
        given: pa.RecordBatchReader,
        seen: Seen,
        output: Output,
        kind: str,
        operations: Sequence[int],
    ) -> Self:
        """Read a batch, whose events have these operations; without a column of operations, all are APPEND.

        Raises MergeInvalid, SchemaMismatch.
        """
        scratch = output.scratch
        check_key(without(given.schema, output.op), key, kind)
        if output.op in given.schema.names:
            found = given.schema.field(output.op).type
            if not pa.types.is_integer(found):
                raise SchemaMismatch(
                    f"merge strategy {kind}: column {output.op!r} has operations, but is of type {found}; make it an "
                    "integer in preprocess"
                )
        if given.schema.names[0] in key:
            given = filled(given, given.schema.names[0], output.moment)
        rows = Rows.of(given, scratch, output.op)
        _check_operations(rows, operations, kind, scratch)
        old, keyed = state_of_keys(rows, key, seen, scratch)
        records = scratch.new_name("records")
        scratch.run(
            f"CREATE VIEW {records} AS SELECT {rows.columns}, {ROW} FROM {rows.table} "  # noqa: S608  # our own names
            f"UNION ALL SELECT {rows.columns}, -1 - {OFFSET} FROM {old}"
        )
        return cls(
            rows=rows,
            key=key,
            records=records,
            turns=_turns(rows, key, old, scratch),
            keyed_by=tuple(sorted(key)) if keyed else None,
            kind=kind,
            output=output,
        )

    @property
    def moment(self) -> str:
        """The event time of records that have none, as SQL."""
        field = self.rows.carrier.schema.field(0)
        carrier = Carrier(pa.schema([field]))
        nothing: Any = pa.nulls(1, field.type)
        time = carrier.carry(pa.RecordBatch.from_arrays([fill(nothing, self.output.moment)], schema=carrier.schema))
        return str(time.column(0)[0].as_py())

    def differing(self, where: str) -> str:
        """Return a query for ``n`` of the events that have other values than the event before, event times apart.

        ``where``  a condition on ``t``, a row of ``turns``; others are not compared
        """
        inside = self.rows.each_inside([c for c in self.rows.carrier.schema.names[1:] if c not in self.key])
        differs = " OR ".join([*(f"r.{c} IS DISTINCT FROM o.{c}" for c in inside), "FALSE"])
        return (
            f"SELECT t.n FROM {self.turns} t JOIN {self.records} r ON r.n = t.n "  # noqa: S608  # our own names
            f"JOIN {self.records} o ON o.n = t.before WHERE {where} AND ({differs})"
        )

    def result(self, changes: str, *, by_key: bool) -> Merged:
        """Return the records that changes make, in the order of the events that make them; ``by_key``: key by key.

        ``changes``  a table with a row for each record: ``n``, the number of the event that has it; ``op``; whether a
                     later one of this batch retracts it (``passing``); ``cause``, the number of the event that makes it
        """
        columns = ", ".join(f"r.{column}" for column in self.rows.carrier.inside.names)
        order = [*(f"r.{column}" for column in self.rows.each_inside(self.key) if by_key), "c.cause", "c.op"]
        back = f"c.op IN ({RETRACT}, {CORRECT_FROM})"
        query = (
            f"SELECT {columns}, c.op AS {OPS}, CASE WHEN {back} AND c.n < 0 THEN -1 - c.n "  # noqa: S608
            f"WHEN {back} OR c.passing THEN {PASSING} END AS {OFFSETS} "
            f"FROM {changes} c JOIN {self.records} r ON r.n = c.n ORDER BY {', '.join(order)}"
        )
        counts = self.output.scratch.table(f"SELECT op, count(*) AS n FROM {changes} GROUP BY op").to_pydict()  # noqa: S608
        found = dict(zip(counts["op"], counts["n"], strict=True))
        return replace(self.output.mixed(self.rows, query, found), keyed_by=self.keyed_by)

    def shown_key(self, number: int) -> str:
        """Return the key of an event of the batch for a message."""
        inside = ", ".join(self.rows.each_inside(self.key))
        found = self.output.scratch.table(f"SELECT {inside} FROM {self.rows.table} WHERE {ROW} = {number}")  # noqa: S608
        values = self.rows.carrier.restored(self.key, found).to_pylist()[0]
        return ", ".join(f"{column} = {value!r}" for column, value in values.items())


def sign(op: int) -> str:
    """Return an operation as RFC-015 writes it, with its number."""
    return f"{op} ({_SIGNS[op]})"


def _turns(rows: Rows, key: tuple[str, ...], old: str, scratch: Scratch) -> str:
    """Return the table ``turns`` of :class:`Events`; ``old``: the records of the ledger.

    Most keys have one event and no record: grouping costs a third of sorting, so only the others are sorted.
    """
    inside, (events, keys, turns) = rows.each_inside(key), map(scratch.new_name, ("events", "keys", "turns"))
    columns, same = ", ".join(inside), " AND ".join(f"e.{c} IS NOT DISTINCT FROM k.{c}" for c in inside)
    scratch.run(
        f"CREATE VIEW {events} AS SELECT {columns}, {ROW} AS n, CAST({rows.op or APPEND} AS INTEGER) AS op, "  # noqa: S608
        f"{EVENT_TIME} AS time FROM {rows.table} "
        f"UNION ALL SELECT {columns}, -1 - {OFFSET}, {APPEND}, {EVENT_TIME} FROM {old}"
    )
    scratch.run(
        f"CREATE TABLE {keys} AS SELECT {columns}, min(n) AS first, count(*) AS count, min(op) AS op, "  # noqa: S608
        f"min(time) AS time FROM {events} GROUP BY {columns}"
    )
    scratch.run(
        f"CREATE TABLE {turns} AS SELECT e.n, e.op, e.time, first, lag(e.n) OVER w AS before, "  # noqa: S608
        "lag(e.op) OVER w AS before_op, lead(e.n) OVER w AS after, lead(e.op) OVER w AS after_op "
        f"FROM {events} e JOIN (FROM {keys} WHERE count > 1) k ON {same} WINDOW w AS (PARTITION BY first ORDER BY e.n) "
        f"UNION ALL SELECT first, op, time, first, NULL, NULL, NULL, NULL FROM {keys} WHERE count = 1"
    )
    return turns


def _check_operations(rows: Rows, operations: Sequence[int], kind: str, scratch: Scratch) -> None:
    """Raise MergeInvalid unless all events have one of these operations."""
    if rows.op is None:
        return
    known = ", ".join(map(str, operations))
    found = scratch.first(
        f"SELECT {rows.op}, {ROW} FROM {rows.table} WHERE {rows.op} IS NULL OR {rows.op} NOT IN ({known}) "  # noqa: S608
        f"ORDER BY {ROW} LIMIT 1"
    )
    if found is not None:
        raise MergeInvalid(
            f"merge strategy {kind}: row {found[1] + 1} has the operation {found[0]}; it must be "
            f"{' or '.join(map(sign, operations))}: convert it in preprocess"
        )
