"""What has a state, as it is traced: its rows are numbered, and it can tell of which rows under it each was made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kubothek.odf.lineage.trace.frames import frames
from kubothek.odf.transform.delta import Delta
from kubothek.odf.transform.grouped import GroupedSelect
from kubothek.odf.transform.joining import understood
from kubothek.odf.transform.operators import Operators, is_temporal
from kubothek.odf.transform.ranking import RankedSelect
from kubothek.odf.transform.scan import HORIZON, INPUT, KEY, RECORD, WEIGHT
from kubothek.odf.transform.session import Session, listed, quoted
from kubothek.odf.transform.sources import From
from kubothek.odf.transform.state import ID, same, sort_key
from kubothek.odf.transform.temporal import Temporal
from kubothek.sql.statement import Node

if TYPE_CHECKING:
    from kubothek.odf.transform.join_terms import Terms
    from kubothek.odf.transform.lateness import Lateness
    from kubothek.odf.transform.state import State
    from kubothek.odf.transform.walk import Walk

_FIRST: Final = 1 << 16
"""The number of the first operator; inputs have those below."""
_OWN: Final = {INPUT: "__own_input", RECORD: "__own_record", ID: "__own_key"}
"""What a row's own place, and the key of its partition, are called beside the answer."""
Way = Callable[[str], str]
"""From a query for numbers of an operator's rows, to one for what they were made of: ``__input`` and ``__record``."""


class Ways:
    """From the rows of all operators of one question to those under them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ways: list[Way] = []

    def add(self, way: Way) -> int:
        """The number of an operator, which is above those of all that its rows were made of."""
        self._ways.append(way)
        return _FIRST + len(self._ways) - 1

    def back(self, rows: str) -> str:
        """From a relation with ``__input`` and ``__record`` of rows, whosever they are, to those of the inputs."""
        for number, way in reversed([*enumerate(self._ways, _FIRST)]):
            ids = f"SELECT {RECORD} FROM {rows} WHERE {INPUT} = {number}"
            others = f"SELECT {INPUT}, {RECORD} FROM {rows} WHERE {INPUT} <> {number}"
            rows = self._session.keep("origins", f"{others} UNION {way(ids)}")
        return rows


class Tracing(Operators):
    """Of one question. All rows that it is given have the weight 1, and what it gives is of no state."""

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
        """The rows of a query, numbered in some order, without the columns that are ``own`` to the operator."""
        numbered = f"SELECT *, row_number() OVER (ORDER BY {listed(order) or '1'}) AS {RECORD} FROM ({query})"
        kept = self._session.keep("made", numbered)
        number = self._ways.add(way(kept))
        hidden = [f"1::BIGINT AS {WEIGHT}", f"{number}::INTEGER AS {INPUT}", RECORD, f"NULL::BIGINT AS {HORIZON}"]
        shown = f"SELECT * EXCLUDE ({listed([*own, RECORD])}), {listed(hidden)} FROM {kept}"
        return walk.delta(self._session.view("made", shown), keyed=False)

    # --- one row of several ----------------------------------------------------------------------------------------

    def distinct(self, walk: Walk, rows: Delta) -> Delta:
        """Of all rows that are equal to it."""
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
        """Of all rows of its group."""
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

    # --- a row and its neighbours ----------------------------------------------------------------------------------

    def windowed(self, walk: Walk, node: Node, source: From) -> Delta:
        """Of its own row, and of those that its windows look at."""
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

    # --- a row of two ----------------------------------------------------------------------------------------------

    def joined(self, walk: Walk, source: From, items: list[str], condition: Node | None) -> Delta:
        """Of a row of each side, or of one of the left that has no partner."""
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
