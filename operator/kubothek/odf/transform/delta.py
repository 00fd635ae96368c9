"""The change of a relation: rows with weights, as a relation of the session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kubothek.odf.transform.scan import HORIZON, INPUT, KEY, RECORD, WEIGHT


@dataclass(frozen=True, slots=True)
class Delta:
    """A relation with the columns of a query, followed by the engine's own.

    ``name``     of the relation in the session
    ``columns``  those of the query, with their types
    ``keyed``    whether a stateful operator made it: then it has ``__weight``, and ``__key``, which the halves of a
                 correction share; otherwise ``__weight``, the row's origin ``__input``, ``__record``, and ``__horizon``
    ``own``      the engine's columns of a side of a join, where they have other names
    ``time``     the column with the event times, if it has this name
    ``step``     the number of the exchange (see :mod:`.exchange`) its rows come from: 0 for records, None for several
    ``whole``    each record gives one row at most, and they come in the order of the records of one input
    """

    name: str
    columns: Mapping[str, str]
    keyed: bool
    whole: bool
    own: tuple[str, ...] = ()
    time: str = "event_time"
    step: int | None = 0

    @property
    def hidden(self) -> tuple[str, ...]:
        """The engine's own columns, in their order."""
        if self.own:
            return self.own
        return (WEIGHT, KEY) if self.keyed else (WEIGHT, INPUT, RECORD, HORIZON)
