"""The stateful operators, as a walk through the queries calls them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from kubothek.errors import TransformInvalid
from kubothek.in_memory_database import quoted
from kubothek.odf.transform.delta import Delta
from kubothek.odf.transform.exchange import Exchange, Inflow, straight
from kubothek.odf.transform.grouped import GroupedSelect
from kubothek.odf.transform.grouping import Grouping
from kubothek.odf.transform.joining import Joined, understood
from kubothek.odf.transform.lateness import Lateness
from kubothek.odf.transform.ranking import RankedSelect
from kubothek.odf.transform.scan import KEY
from kubothek.odf.transform.session import Session, listed
from kubothek.odf.transform.sides import prepare
from kubothek.odf.transform.sources import From
from kubothek.odf.transform.state import State
from kubothek.odf.transform.temporal import Temporal
from kubothek.odf.transform.walk import Walk
from kubothek.sql.statement import Node


class Operators:
    """The stateful operators of one run; each has tables in the state, named by its position in the queries.

    ``tables``    temporal tables, in lower case, and their primary keys
    ``exchange``  exchanges rows by key; ``step`` counts the exchanges
    """

    beside: Mapping[str, str] = MappingProxyType({})
    """Columns of the engine's own, with their types, that rows keep until an operator."""

    def __init__(
        self,
        session: Session,
        state: State,
        lateness: Lateness,
        tables: Mapping[str, Sequence[str]],
        exchange: Exchange = straight,
    ) -> None:
        self._session = session
        self._state = state
        self._tables = tables
        self._passing = exchange
        self.lateness = lateness
        self.number = 0
        self.step = 0

    def _next(self, what: str) -> str:
        self.number += 1
        return f"{self.number}.{what}"

    def _exchange(self, session: Session, *inflows: Inflow) -> list[str]:
        self.step += 1
        return self._passing(session, *inflows)

    def distinct(self, walk: Walk, rows: Delta) -> Delta:
        """Return the delta of the distinct rows."""
        self.lateness.refuse("with DISTINCT, which closes nothing")
        names = {column: f"k{number}" for number, column in enumerate(rows.columns)}
        items = [f"{quoted(column)} AS {name}" for column, name in names.items()]
        given = self._session.keep("distinct", f"SELECT {listed([*items, '__weight'])} FROM {rows.name}")
        (given,) = self._exchange(self._session, Inflow(given, list(names.values())))
        types = {name: rows.columns[column] for column, name in names.items()}
        grouping = Grouping(self._next("distinct"), list(types), types, [])
        back = [f"{name} AS {quoted(column)}" for column, name in names.items()]

        def answers(groups: str) -> str:
            return f"SELECT {listed([*back, KEY])} FROM {groups}"

        return walk.answered(grouping.difference(self._session, self._state, given, answers))

    def grouped(self, walk: Walk, node: Node, source: From) -> Delta:
        """Return the delta of a SELECT with GROUP BY."""
        name = self._next("group")
        select = GroupedSelect(walk, self._session, self._state, self.lateness, name, exchange=self._exchange)
        return select.answer(node, source)

    def windowed(self, walk: Walk, node: Node, source: From) -> Delta:
        """Return the delta of a SELECT with OVER."""
        name = self._next("rank")
        select = RankedSelect(walk, self._session, self._state, self.lateness, name, exchange=self._exchange)
        return select.answer(node, source)

    def prepare(self, walk: Walk, source: From) -> None:
        """Give each side of a join its own weights. Raises TransformInvalid unless it is a join of two inputs."""
        if len(source.leaves) > 2 or source.unfolds:
            what = "a join beside a list" if source.unfolds else "a join of more than two"
            raise TransformInvalid(f"{walk.where}: {what}: one after the other, in WITH or in steps")
        prepare(self._session, source, tuple(self.beside))

    def joined(self, walk: Walk, source: From, items: list[str], condition: Node | None) -> Delta:
        """Return the delta of a join of two inputs."""
        found = understood(walk.where, self._session, source, condition)
        if is_temporal(walk.where, source):
            name = self._next("temporal")
            join = Temporal(walk, self._session, self._state, self.lateness, name, source, self._exchange)
            return join.answer(found, items, condition, self._tables)
        return Joined(
            walk, self._session, self._state, self.lateness, self._next("join"), source, self._exchange
        ).answer(found, items, condition)


def is_temporal(where: str, source: From) -> bool:
    """Return whether a join of two takes the version of the right that is valid at a time. Raises TransformInvalid."""
    if source.leaves[0].moment:
        raise TransformInvalid(f"{where}: FOR SYSTEM_TIME AS OF belongs to the right side of a join")
    return bool(source.leaves[1].moment) or source.tree["ref_type"] == "ASOF"
