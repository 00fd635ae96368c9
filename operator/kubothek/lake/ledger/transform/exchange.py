"""Where the rows of a query come together by their keys: the place at which a run can be divided.

Everything before an operator with a state looks at each record alone, so records may be treated in any parts; all after
it looks at the keys alone, so keys may be. In one process the rows pass through. In a run that is divided (see
:mod:`.divided`), parts of the records end here, and parts of the keys begin here; both run the whole query, on nothing
where the other part of the work is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from kubothek.lake.ledger.transform.session import Session, listed
from kubothek.lake.ledger.transform.state import sort_key

SORT = "__sort"
"""The column with a key as bytes that sort as it does."""


class Exchange(Protocol):
    """What becomes of rows before an operator. ``rows`` is a relation of the session, and so is what comes back; rows
    of other ``keys`` never meet in the operator.
    """

    def __call__(self, session: Session, rows: str, keys: Sequence[str]) -> str: ...


def straight(session: Session, rows: str, keys: Sequence[str]) -> str:
    """They go on, in the same process."""
    return rows


@dataclass(slots=True)
class Noted:
    """They go on; notes by which keys they come together, each time."""

    keys: list[tuple[str, ...]] = field(default_factory=list)

    def __call__(self, session: Session, rows: str, keys: Sequence[str]) -> str:
        self.keys.append(tuple(keys))
        return rows


@dataclass(slots=True)
class Sent:
    """They end here, and are there to be read in the order of their keys; nothing goes on."""

    query: str = ""

    def __call__(self, session: Session, rows: str, keys: Sequence[str]) -> str:
        self.query = f"SELECT *, {sort_key(keys)} AS {SORT} FROM {rows} ORDER BY {SORT}"
        return session.view("sent", f"SELECT * FROM {rows} WHERE false")


@dataclass(frozen=True, slots=True)
class Received:
    """They begin here: of the rows that were sent these, with :data:`SORT`, go on. ``rows`` has none of its own."""

    batches: Iterator[pa.RecordBatch]

    def __call__(self, session: Session, rows: str, keys: Sequence[str]) -> str:
        columns = [f"{name}::{kind} AS {name}" for name, kind in session.columns(rows).items()]
        first = next(self.batches, None)
        if first is None:
            return rows

        def all_of_them() -> Iterator[pa.RecordBatch]:
            yield first
            yield from self.batches

        reader = pa.RecordBatchReader.from_batches(first.schema, session.watched(all_of_them()))
        name = session.register("received", reader)
        found = session.keep("received", f"SELECT {listed(columns)} FROM {name}")
        session.forget(name)
        return found
