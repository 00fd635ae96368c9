"""Where the rows of a query come together by their keys: the places at which a run can be divided.

Everything before an operator with a state looks at each record alone, so records may be treated in any parts; all after
it, up to the next one, looks at its keys alone, so keys may be. In one process the rows pass through. In a run that is
divided (see :mod:`.divided`), rows end at the places that are not the part's own, and begin at the one that is; all
parts run the whole query, on nothing where the other part of the work is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kubothek.odf.transform.session import Session


@dataclass(frozen=True, slots=True)
class Inflow:
    """Rows before an operator. Those of other keys never meet in it.

    ``rows``   a relation of the session, and ``keys`` are SQL over it, which calls it ``alias``
    ``reach``  the least and the greatest value of the first key, a whole number, under which rows of another inflow of
               the same operator can look for one; as SQL. None: they look under its own keys
    """

    rows: str
    keys: Sequence[str]
    alias: str = "r"
    reach: tuple[str, str] | None = None


class Exchange(Protocol):
    """What becomes of the rows of all inflows of an operator: for each a relation with the same columns."""

    def __call__(self, session: Session, *inflows: Inflow) -> list[str]: ...


def straight(session: Session, *inflows: Inflow) -> list[str]:
    """They go on, in the same process."""
    return [each.rows for each in inflows]


@dataclass(slots=True)
class Noted:
    """They go on; notes of each place whether there are keys."""

    keyed: list[bool] = field(default_factory=list)

    def __call__(self, session: Session, *inflows: Inflow) -> list[str]:
        self.keyed.append(all(each.keys for each in inflows))
        return [each.rows for each in inflows]
