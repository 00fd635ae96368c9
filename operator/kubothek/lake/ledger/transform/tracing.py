"""Of which records of an input a group was made: those whose keys are the ones that its row shows (PV-01).

It is told of one SELECT with GROUP BY over one input. What the row shows of the keys narrows down which records are
looked at, so that whoever reads them can leave out slices by their statistics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.lake.errors import TransformInvalid
from kubothek.lake.ledger.duckdb_rows import cast, for_duckdb
from kubothek.lake.ledger.sources import TransformSql
from kubothek.lake.ledger.transform.contract import TransformInput
from kubothek.lake.ledger.transform.grouped import GroupedSelect
from kubothek.lake.ledger.transform.late import nothing_late
from kubothek.lake.ledger.transform.lateness import Lateness
from kubothek.lake.ledger.transform.operators import Operators
from kubothek.lake.ledger.transform.run import MEMORY, engine_of, hints_of, parsed, steps_of
from kubothek.lake.ledger.transform.scan import RECORD, scan
from kubothek.lake.ledger.transform.session import Session
from kubothek.lake.ledger.transform.sources import From, read_from
from kubothek.lake.ledger.transform.state import State
from kubothek.lake.ledger.transform.walk import Walk, is_grouped
from kubothek.lake.sql.statement import Node

Reader = Callable[[pc.Expression | None], pa.RecordBatchReader]
"""Gives the records of the input for which a condition holds, and perhaps others."""


@dataclass(frozen=True, slots=True)
class Members:
    """Offsets of records of the input, of a correction that of its first half.

    ``exact``  whether the row shows all keys, so that these are of its group and of no other
    """

    offsets: list[int]
    exact: bool


def members(
    transform: TransformSql, given: TransformInput, row: pa.RecordBatch, read: Reader, scratch: Path
) -> Members | None:
    """The records of the group that a row of the output is of; None if it is of no such group.

    ``given``  the input, without records
    ``row``    of the output
    """
    try:
        with _Traced(transform, given, None) as traced:
            where = traced.narrowed(row)
        with _Traced(transform, replace(given, rows=lambda: read(where)), scratch) as traced:
            return traced.members(row)
    except TransformInvalid:
        return None


class _Traced:
    """The one SELECT over an input, in a session of its own. Raises TransformInvalid for any other query."""

    def __init__(self, transform: TransformSql, given: TransformInput, scratch: Path | None) -> None:
        self._session, self._schema = Session(engine_of(transform), scratch, MEMORY), given.schema
        try:
            self._node, self._source, self._select = self._read(transform, given)
        except BaseException:
            self._session.close()
            raise

    def __enter__(self) -> _Traced:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def _read(self, transform: TransformSql, given: TransformInput) -> tuple[Node, From, GroupedSelect]:
        steps, session = steps_of(transform), self._session
        (statement, *more) = parsed(session, steps)
        node: Node = statement.tree["statements"][0]["node"]
        if more or node["type"] != "SELECT_NODE" or node["cte_map"]["map"] or not is_grouped(node):
            raise TransformInvalid("it is not one SELECT with GROUP BY")
        horizon = nothing_late(hints_of(transform), 1)
        state, lateness = State(session, None, ""), Lateness(session, horizon)
        walk = Walk(session, Operators(session, state, lateness, {}))
        relation = scan(session, 0, given.schema, given.vocabulary, given.rows, [], again=False)
        scope = {given.query_alias.casefold(): walk.delta(relation, keyed=False, whole=True)}
        source = read_from(node["from_table"], scope, lambda inner: walk.query(inner, scope), walk.where)
        if len(source.leaves) != 1 or not source.leaves[0].table or source.unfolds:
            raise TransformInvalid("it reads something else than one input")
        return node, source, GroupedSelect(walk, session, state, lateness, "traced")

    def narrowed(self, row: pa.RecordBatch) -> pc.Expression | None:
        """What holds for the columns of all records of the group."""
        shown, found = self._select.shown(self._node, self._source), list[pc.Expression]()
        for name, column, size in shown.narrowing:
            place, inside = row.schema.get_field_index(name), self._schema.get_field_index(column)
            if place < 0 or inside < 0 or row.schema.field(place).type != self._schema.field(inside).type:
                continue
            value = row.column(place)[0]
            if not value.is_valid or pa.types.is_floating(value.type):
                continue
            if size is None:
                found.append(pc.field(column) == value)
            else:
                end = pa.scalar(value.as_py() + timedelta(microseconds=size), value.type)
                found.append((pc.field(column) >= value) & (pc.field(column) < end))
        whole = None
        for each in found:
            whole = each if whole is None else whole & each
        return whole

    def members(self, row: pa.RecordBatch) -> Members:
        """The records of the group."""
        inside = pa.schema([pa.field(field.name, for_duckdb(field.type)) for field in row.schema])
        wanted = self._session.register("row", pa.Table.from_batches([cast(row, inside)]))
        shown = self._select.shown(self._node, self._source)
        conditions = " AND ".join(f"({text}) IS NOT DISTINCT FROM w.{name}" for name, text in shown.items) or "true"
        query = f"SELECT DISTINCT r.{RECORD} FROM {shown.rows} r, {wanted} w WHERE {conditions} ORDER BY 1"
        found: list[Any] = self._session.table(query).column(0).to_pylist()
        return Members(found, shown.exact)
