"""Late records in operators: late rows are dropped, and closed rows leave the state."""

from __future__ import annotations

from collections.abc import Sequence

from kubothek.errors import TransformInvalid
from kubothek.in_memory_database import quoted
from kubothek.odf.transform.delta import Delta
from kubothek.odf.transform.keyed import Closing
from kubothek.odf.transform.late import Horizon
from kubothek.odf.transform.scan import HORIZON, INPUT, RECORD, WEIGHT
from kubothek.odf.transform.session import Session, listed
from kubothek.odf.transform.sides import horizon_of, replace_rows
from kubothek.odf.transform.sources import From


class Lateness:
    """Late records of a run. ``records`` are those of the only input; ``late`` is LATE(SIDE)'s answer, once known."""

    def __init__(self, session: Session, horizon: Horizon) -> None:
        self._session = session
        self.horizon = horizon
        self.where = "query"
        self.records: Delta | None = None
        self.late: Delta | None = None
        self._judged = False

    def closing(self, end: str | None) -> Closing | None:
        """Return what closes keys that end at ``end``; None if records are never late. Raises TransformInvalid."""
        if not self.horizon.on:
            return None
        if end is None:
            raise TransformInvalid(
                f"{self.where}: LATENESS closes windows: no key is a window(), date_trunc() or time_bucket()"
            )
        return Closing(end, self.horizon.closed, self.horizon.final)

    def judged(self, rows: Delta, end: str | None) -> str:
        """Return the rows that are not late: their keys end after the row's horizon. Raises TransformInvalid."""
        if not self.horizon.on:
            return rows.name
        self.closing(end)
        if rows.keyed or self._judged:
            self.refuse("with more than one step that has a state: make a derivative of each")
        self._judged = True
        return self._kept(rows.name, f"({end} <= {HORIZON}) IS TRUE")

    def judge_sides(self, source: From, times: Sequence[str] | None) -> None:
        """Drop the rows that are late by their own time from both sides of a join. Raises TransformInvalid."""
        if not self.horizon.on:
            return
        if times is None:
            self.refuse("of a join needs bounds: ON … AND a.event_time BETWEEN b.event_time - INTERVAL '1 hour' AND …")
        if self.horizon.final or self.horizon.side:
            self.refuse("of a join is with LATE(IGNORE) and EMIT(UPDATES)")
        if self._judged or any(leaf.delta.keyed for leaf in source.leaves):
            self.refuse("with more than one step that has a state: make a derivative of each")
        self._judged = True
        for number, (leaf, time) in enumerate(zip(source.leaves, times or (), strict=True)):
            late = f"(epoch_us(CAST({time} AS TIMESTAMP)) <= {horizon_of(number)}) IS TRUE"
            query = f"SELECT * FROM {leaf.delta.name} AS {quoted(leaf.alias)} WHERE NOT {late}"
            replace_rows(leaf, self._session.keep("side", query))

    def require_judged(self) -> None:
        """Raise TransformInvalid if records can be late, but no operator judged them."""
        if not self._judged:
            self.refuse("says nothing of a query that treats each record alone: leave the hint out")

    def refuse(self, why: str) -> None:
        """Raise TransformInvalid if records can be late."""
        if self.horizon.on:
            raise TransformInvalid(f"{self.where}: LATENESS {why}")

    def _kept(self, rows: str, late: str) -> str:
        if not self.horizon.side:
            return f"(SELECT * FROM {rows} WHERE NOT {late})"
        if self.records is None:
            self.refuse("with LATE(SIDE) is of queries over one input, whose late records are the answer")
        assert self.records is not None, "it was asked above"
        ids = listed([INPUT, RECORD, WEIGHT])
        each = self._session.keep("late", f"SELECT {ids} FROM {rows} GROUP BY ALL HAVING bool_and({late})")
        name = self._session.view("late", f"SELECT * FROM {self.records.name} SEMI JOIN {each} USING ({ids})")
        self.late = Delta(name, self.records.columns, keyed=False, whole=False)
        return f"(SELECT * FROM {rows} WHERE false)"
