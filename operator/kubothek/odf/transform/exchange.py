"""Exchange of rows by key: the points at which a run can be divided.

Everything before a stateful operator treats each record alone, so records can be divided. Everything from there to the
next one treats each key alone, so keys can be divided. In one process the rows pass through. In a divided run (see
:mod:`kubothek.odf.distributed.transform`) each part runs the whole query: it reads records, or receives rows at one
exchange, and sends rows to the exchanges after it. Elsewhere it has no rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kubothek.odf.transform.session import Session


@dataclass(frozen=True, slots=True)
class Inflow:
    """Rows before an operator; rows with different keys do not meet in it.

    ``rows``   a relation of the session; ``keys`` are SQL over it, which calls it ``alias``
    ``reach``  the least and the greatest value of the first key, a whole number, under which rows of another inflow of
               the same operator can look up a row; as SQL. None: they use its own keys
    """

    rows: str
    keys: Sequence[str]
    alias: str = "r"
    reach: tuple[str, str] | None = None


class Exchange(Protocol):
    """Exchanges the rows of all inflows of an operator; returns for each a relation with the same columns."""

    def __call__(self, session: Session, *inflows: Inflow) -> list[str]: ...


def straight(session: Session, *inflows: Inflow) -> list[str]:
    """Pass the rows on, in the same process."""
    return [each.rows for each in inflows]


@dataclass(slots=True)
class Noted:
    """Passes the rows on, and notes for each exchange whether it has keys."""

    keyed: list[bool] = field(default_factory=list)

    def __call__(self, session: Session, *inflows: Inflow) -> list[str]:
        self.keyed.append(all(each.keys for each in inflows))
        return [each.rows for each in inflows]
