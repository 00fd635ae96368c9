"""At which of its neighbours a row looks through its windows: from one place to another in their order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kubothek.odf.lineage.trace.bounds import bounding
from kubothek.odf.transform.allowed import function_of
from kubothek.odf.transform.ranking import Ranked
from kubothek.odf.transform.session import Session
from kubothek.odf.transform.state import ID
from kubothek.odf.transform.trees import column_names
from kubothek.sql.statement import Node

_RANKS: Final = frozenset({"rank", "dense_rank", "rank_dense"})
_WHOLE: Final = frozenset({"percent_rank", "cume_dist", "ntile"})


@dataclass(frozen=True, slots=True)
class Frames:
    """Of the windows of one SELECT.

    ``places``  SQL that numbers the rows of a partition, a column for each window
    ``items``   SQL for the first and the last place at which a row looks, columns ``bounds``
    ``spans``   (column with places, (that of the first, that of the last)) of each window; the row itself need not be
                in between
    """

    places: list[str] = field(default_factory=list)
    items: list[str] = field(default_factory=list)
    bounds: list[str] = field(default_factory=list)
    spans: list[tuple[str, tuple[str, str]]] = field(default_factory=list)


def frames(session: Session, ranked: Ranked) -> Frames:
    """Of a SELECT that was read."""
    found = Frames()
    bounds = [*bounding(ranked.condition)]
    for number, window in enumerate(ranked.windows):
        if any(window is bound for bound in bounds):
            continue
        place, least, most = f"__place_{number}", f"__least_{number}", f"__most_{number}"
        order = session.text(_as(session, window, "row_number() OVER ()"))
        found.places.append(f"{order} AS {place}")
        first, last = _span(session, window, place)
        found.items.extend([f"({first})::BIGINT AS {least}", f"({last})::BIGINT AS {most}"])
        found.bounds.extend([least, most])
        found.spans.append((place, (least, most)))
    return found


def _span(session: Session, window: Node, place: str) -> tuple[str, str]:
    """The first and the last place that count for a row, as SQL; the first is after the last if none does."""
    name = function_of(window)
    whole = f"(count(*) OVER (PARTITION BY {ID}))"
    if name in _WHOLE:
        return "1", whole
    if name == "row_number":
        return "1", place
    if name in _RANKS:
        before = session.text(_as(session, window, "rank() OVER ()"))
        return "1", f"{before} - 1"
    if name in ("lag", "lead"):
        return _neighbours(session, window, place, whole, ahead=name == "lead")
    first = session.text(_as(session, window, f"min({place}) OVER ()", framed=True))
    last = session.text(_as(session, window, f"max({place}) OVER ()", framed=True))
    if window["ignore_nulls"] or window["exclude_clause"] != "NO_OTHER":
        return first, last
    if name == "first_value":
        return first, first
    return (last, last) if name == "last_value" else (first, last)


def _neighbours(session: Session, window: Node, place: str, whole: str, *, ahead: bool) -> tuple[str, str]:
    arguments = [each["expression"] for each in window["arguments"]]
    distance = window["offset_expr"] or (arguments[1] if len(arguments) > 1 else None)
    if window["ignore_nulls"] or (distance is not None and column_names(distance)):
        return (place, whole) if ahead else ("1", place)
    by = "1" if distance is None else f"({session.text(distance)})"
    there = f"{place} + {by} <= {whole}" if ahead else f"{place} - {by} >= 1"
    other = f"{place} + {by}" if ahead else f"{place} - {by}"
    return (
        f"CASE WHEN {there} THEN least({place}, {other}) ELSE 1 END",
        f"CASE WHEN {there} THEN greatest({place}, {other}) ELSE 0 END",
    )


def _as(session: Session, window: Node, call: str, *, framed: bool = False) -> Node:
    """Another call over the same rows in the same order; over the same frame only if that is said."""
    kept = ("partitions", "orders", *(("start", "end", "start_expr", "end_expr") if framed else ()))
    return session.expression(call) | {part: window[part] for part in kept}
