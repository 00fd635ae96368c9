"""Stateful operators for lineage: they number their output rows and map each to the rows it was made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kubothek.in_memory_database import quoted
from kubothek.odf.lineage.trace.bounds import bounding
from kubothek.odf.transform.allowed import function_of
from kubothek.odf.transform.delta import Delta
from kubothek.odf.transform.grouped import GroupedSelect
from kubothek.odf.transform.joining import understood
from kubothek.odf.transform.operators import Operators, is_temporal
from kubothek.odf.transform.ranking import Ranked, RankedSelect
from kubothek.odf.transform.scan import HORIZON, INPUT, KEY, RECORD, WEIGHT
from kubothek.odf.transform.session import Session, listed
from kubothek.odf.transform.sources import From
from kubothek.odf.transform.state import ID, same, sort_key
from kubothek.odf.transform.temporal import Temporal
from kubothek.odf.transform.trees import column_names
from kubothek.sql.statement import Node

if TYPE_CHECKING:
    from kubothek.odf.transform.join_terms import Terms
    from kubothek.odf.transform.lateness import Lateness
    from kubothek.odf.transform.state import State
    from kubothek.odf.transform.walk import Walk

_FIRST: Final = 1 << 16
"""Number of the first operator; lower numbers are inputs."""
_OWN: Final = {INPUT: "__own_input", RECORD: "__own_record", ID: "__own_key"}
"""Names of the columns with a row's own input, record and partition, in the result of a window."""
Way = Callable[[str], str]
"""Maps a query for row numbers of an operator to a query for their origins: ``__input`` and ``__record``."""


class Ways:
    """The mappings of all operators of one request, from output rows to the rows they were made from."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ways: list[Way] = []

    def add(self, way: Way) -> int:
        """Register an operator and return its number, which is above those of the operators that it reads."""
        self._ways.append(way)
        return _FIRST + len(self._ways) - 1

    def back(self, rows: str) -> str:
        """Return the input records that rows of any operators derive from; both relations have ``__input`` and
        ``__record``.
        """
        for number, way in reversed([*enumerate(self._ways, _FIRST)]):
            ids = f"SELECT {RECORD} FROM {rows} WHERE {INPUT} = {number}"
            others = f"SELECT {INPUT}, {RECORD} FROM {rows} WHERE {INPUT} <> {number}"
            rows = self._session.keep("origins", f"{others} UNION {way(ids)}")
        return rows


class Tracing(Operators):
    """Operators of one request. All input rows have weight 1, and output rows belong to no state."""

    beside = MappingProxyType({INPUT: "INTEGER", RECORD: "BIGINT"})

    def __init__(
        self,
        ways: Ways,
        session: Session,
        state: State,
        lateness: Lateness,
        tables: Mapping[str, Sequence[str]],
    ) -> None:
        super().__init__(session, state, lateness, tables)
        self._ways = ways

    def _made(
        self, walk: Walk, query: str, own: Sequence[str], order: Sequence[str], way: Callable[[str], Way]
    ) -> Delta:
        """Return the rows of a query, numbered in some order, without the operator's ``own`` columns."""
        numbered = f"SELECT *, row_number() OVER (ORDER BY {listed(order) or '1'}) AS {RECORD} FROM ({query})"
        kept = self._session.keep("made", numbered)
        number = self._ways.add(way(kept))
        hidden = [f"1::BIGINT AS {WEIGHT}", f"{number}::INTEGER AS {INPUT}", RECORD, f"NULL::BIGINT AS {HORIZON}"]
        shown = f"SELECT * EXCLUDE ({listed([*own, RECORD])}), {listed(hidden)} FROM {kept}"
        return walk.delta(self._session.view("made", shown), keyed=False)

    # --- one row from several --------------------------------------------------------------------------------------

    def distinct(self, walk: Walk, rows: Delta) -> Delta:
        """Return distinct rows; origins of a row are all rows equal to it."""
        self.lateness.refuse("with DISTINCT, which closes nothing")
        columns = [quoted(column) for column in rows.columns]
        given = self._session.keep("distinct", f"SELECT {listed([*columns, INPUT, RECORD])} FROM {rows.name}")

        def way(kept: str) -> Way:
            return lambda ids: (
                f"SELECT d.{INPUT}, d.{RECORD} FROM {given} d "
                f"SEMI JOIN (SELECT * FROM {kept} WHERE {RECORD} IN ({ids})) m ON {same('d', 'm', columns)}"
            )

        return self._made(walk, f"SELECT DISTINCT {listed(columns)} FROM {given}", [], columns, way)

    def grouped(self, walk: Walk, node: Node, source: From) -> Delta:
        """Return aggregated rows; origins of a row are all rows of its group."""
        select = GroupedSelect(walk, self._session, self._state, self.lateness, self._next("group"), self.beside)
        found = select.answer(node, source)
        key = self._session.view("grouped", f"SELECT *, {sort_key(select.keys)} AS __group FROM {select.rows}")

        def way(kept: str) -> Way:
            return lambda ids: (
                f"SELECT {INPUT}, {RECORD} FROM {key} "
                f"WHERE __group IN (SELECT {KEY} FROM {kept} WHERE {RECORD} IN ({ids}))"
            )

        query = f"SELECT * EXCLUDE ({WEIGHT}) FROM {found.name} WHERE {WEIGHT} > 0"
        return self._made(walk, query, [KEY], [KEY], way)

    # --- one row from a window -------------------------------------------------------------------------------------

    def windowed(self, walk: Walk, node: Node, source: From) -> Delta:
        """Return rows with windows; origins of a row are its own row and the rows in its windows."""
        select = RankedSelect(walk, self._session, self._state, self.lateness, self._next("rank"), [*self.beside])
        ranked = select.read(node, source)
        distinct = f"SELECT DISTINCT {listed(ranked.keys) or '1'} FROM {ranked.rows}"
        keys = self._session.keep("keys", f"SELECT *, row_number() OVER () AS {ID} FROM ({distinct})")
        rows = f"(SELECT r.*, k.{ID} FROM {ranked.rows} r JOIN {keys} k ON {same('r', 'k', ranked.keys)})"
        found = frames(self._session, ranked)
        given = ranked.given(rows)
        alias = given.rpartition(" AS ")[2]
        placed = self._session.keep("placed", f"SELECT {listed(['*', *found.places])} FROM {given}")
        own = [*_OWN.values(), *found.bounds]
        items = [*(f"{column} AS {name}" for column, name in _OWN.items()), *found.items]
        query = ranked.over(f"{placed} AS {alias}", items, [place for place, _ in found.spans])

        def way(kept: str) -> Way:
            def of(ids: str) -> str:
                asked = f"(SELECT * FROM {kept} WHERE {RECORD} IN ({ids}))"
                parts = [f"SELECT {_OWN[INPUT]}, {_OWN[RECORD]} FROM {asked}"]
                for place, (least, most) in found.spans:
                    parts.append(
                        f"SELECT p.{INPUT}, p.{RECORD} FROM {placed} p JOIN {asked} m "
                        f"ON p.{ID} = m.{_OWN[ID]} AND p.{place} BETWEEN m.{least} AND m.{most}"
                    )
                return " UNION ".join(parts)

            return of

        return self._made(walk, query, own, [_OWN[INPUT], _OWN[RECORD]], way)

    # --- one row from two ------------------------------------------------------------------------------------------

    def joined(self, walk: Walk, source: From, items: list[str], condition: Node | None) -> Delta:
        """Return joined rows; origins of a row are one row of each side, or of the left side only without a match."""
        found = understood(walk.where, self._session, source, condition)
        ids = [f"{column}_{number}" for number in (0, 1) for column in self.beside]
        if is_temporal(walk.where, source):
            query = self._temporal(walk, source, found, [*items, *ids], condition)
        else:
            self.lateness.judge_sides(source, None if found.bounds is None else found.bounds[0])
            query = f"SELECT {listed([*items, *ids])} FROM {self._session.source_text(source.tree)}"
            if condition is not None:
                query += f" WHERE {self._session.text(condition)}"

        def way(kept: str) -> Way:
            return lambda asked: " UNION ".join(
                f"SELECT {INPUT}_{number}, {RECORD}_{number} FROM {kept} "
                f"WHERE {RECORD} IN ({asked}) AND {RECORD}_{number} IS NOT NULL"
                for number in (0, 1)
            )

        return self._made(walk, query, ids, ids, way)

    def _temporal(self, walk: Walk, source: From, found: Terms, items: list[str], condition: Node | None) -> str:
        join = Temporal(walk, self._session, self._state, self.lateness, self._next("temporal"), source)
        moments = join.moments(found)
        left, right = source.leaves
        part = [*(self._session.text(other) for _, other in found.equal), moments[1]]
        order = [f"{quoted(column)} DESC NULLS LAST" for column in right.delta.columns]
        versions = (
            f"SELECT * FROM {right.delta.name} AS {quoted(right.alias)} WHERE {moments[1]} IS NOT NULL QUALIFY "
            f"row_number() OVER (PARTITION BY {listed(part)} ORDER BY {listed([*order, f'{RECORD}_1'])}) = 1"
        )
        pair = (left.delta.name, self._session.keep("versions", versions))
        return join.of_versions(found, moments, items, condition, pair)


# The rows that the windows of a row read, as ranges of positions in the window order.


_RANKS: Final = frozenset({"rank", "dense_rank", "rank_dense"})
_WHOLE: Final = frozenset({"percent_rank", "cume_dist", "ntile"})


@dataclass(frozen=True, slots=True)
class Frames:
    """Window frames of one SELECT.

    ``places``  SQL that numbers the rows of a partition, one column per window
    ``items``   SQL for the first and the last position that a row reads, columns ``bounds``
    ``spans``   (position column, (column of the first, column of the last)) of each window; the row itself can be
                outside
    """

    places: list[str] = field(default_factory=list)
    items: list[str] = field(default_factory=list)
    bounds: list[str] = field(default_factory=list)
    spans: list[tuple[str, tuple[str, str]]] = field(default_factory=list)


def frames(session: Session, ranked: Ranked) -> Frames:
    """Return the frames of a parsed SELECT."""
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
    """Return the first and the last position that affect a row, as SQL; first is greater than last if none does."""
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
    """Return another call over the same rows in the same order, over the same frame only if ``framed``."""
    kept = ("partitions", "orders", *(("start", "end", "start_expr", "end_expr") if framed else ()))
    return session.expression(call) | {part: window[part] for part in kept}
