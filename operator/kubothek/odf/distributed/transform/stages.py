"""Exchanges of rows by keys in a part: it begins at one, and sends rows to those after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from kubothek.in_memory_database import quoted
from kubothek.odf.transform.exchange import Inflow
from kubothek.odf.transform.session import Session, listed
from kubothek.odf.transform.state import State, sort_key

SORT: Final = "__sort"
"""The column with a key, as bytes that sort as it does."""
BEFORE: Final = "__before"
"""For a row that is sent under several keys: the one before :data:`SORT` of these, NULL for the first."""
Received = Callable[[str], Iterator[pa.RecordBatch]]
"""Returns the rows of a part, by the name of their table, with :data:`SORT`."""


def table_of(stage: int, inflow: int) -> str:
    """Return the name of the table with rows for an inflow of an exchange; exchanges are counted from 1."""
    return f"to:{stage}.{inflow}"


def step_of(table: str) -> int:
    """Return the exchange that the rows of a table are sent to."""
    return int(table.removeprefix("to:").partition(".")[0])


class Stage:
    """The exchanges of a part that begins at exchange ``number``, 0 for a part of the records.

    The state is that of the operator at this exchange, and absent for all others.

    ``sent``  after the queries: tables, and queries for their rows, in the order of their keys
    """

    def __init__(self, number: int, state: State, received: Received) -> None:
        self.sent: dict[str, str] = {}
        self._number, self._state, self._received = number, state, received
        self._at = 0
        state.here = False

    def __call__(self, session: Session, *inflows: Inflow) -> list[str]:
        self._at += 1
        self._state.here = self._at == self._number
        return [self._passed(session, each, table_of(self._at, number)) for number, each in enumerate(inflows)]

    def _passed(self, session: Session, inflow: Inflow, table: str) -> str:
        if self._at < self._number:  # there are no rows before the exchange where the part begins
            return inflow.rows
        if self._at == self._number:
            return _kept(session, inflow.rows, self._received(table))
        self.sent[table] = _sent(inflow)
        return session.view("sent", f"SELECT * FROM {inflow.rows} WHERE false")


def _kept(session: Session, rows: str, batches: Iterator[pa.RecordBatch]) -> str:
    """Store the received rows, with the columns of an empty relation."""
    first = next(batches, None)
    if first is None:
        return rows

    def all_of_them() -> Iterator[pa.RecordBatch]:
        yield first
        yield from batches

    reader = pa.RecordBatchReader.from_batches(first.schema, all_of_them())
    name = session.register("received", reader)
    columns = [f"{quoted(column)}::{kind} AS {quoted(column)}" for column, kind in session.columns(rows).items()]
    found = session.keep("received", f"SELECT {listed(columns)} FROM {name}")
    session.forget(name)
    return found


def _sent(inflow: Inflow) -> str:
    alias = quoted(inflow.alias)
    source = f"{inflow.rows} AS {alias}"
    if inflow.reach is None:
        return f"SELECT {alias}.*, {sort_key(inflow.keys)} AS {SORT} FROM {source} ORDER BY {SORT}"
    own, *others = inflow.keys
    least, most = inflow.reach
    every = (
        f"CASE WHEN ({own}) IS NULL THEN [NULL] "
        f"ELSE list_sort(list_distinct(list_append(range({least}, {most} + 1), {own}))) END AS __every"
    )
    rest = {f"__other{number}": key for number, key in enumerate(others)}
    keyed = f"SELECT {listed([f'{alias}.*', every, *(f'{key} AS {name}' for name, key in rest.items())])} FROM {source}"
    numbered = f"SELECT *, unnest(range(1, len(__every) + 1)) AS __n FROM ({keyed})"
    before = f"CASE WHEN __n > 1 THEN {sort_key(['__every[__n - 1]', *rest])} END AS {BEFORE}"
    shown = f"* EXCLUDE ({listed(['__every', '__n', *rest])})"
    return f"SELECT {shown}, {sort_key(['__every[__n]', *rest])} AS {SORT}, {before} FROM ({numbered}) ORDER BY {SORT}"
