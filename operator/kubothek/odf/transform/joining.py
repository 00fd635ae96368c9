"""A join of two inputs. Each stores its rows by the equated columns, and by intervals of time if times are bounded.

The delta of A JOIN B is dA JOIN (B before), and (A after) JOIN dB. LEFT JOIN also keeps the rows of the left without
a partner, before and after.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

from kubothek.errors import TransformInvalid
from kubothek.in_memory_database import quoted
from kubothek.odf.transform.delta import Delta
from kubothek.odf.transform.exchange import Exchange
from kubothek.odf.transform.join_terms import Side, Terms, conjuncts, terms, using
from kubothek.odf.transform.lateness import Lateness
from kubothek.odf.transform.scan import KEY, WEIGHT
from kubothek.odf.transform.session import Session, listed
from kubothek.odf.transform.sides import Remembered, come_together, compared, weight_of
from kubothek.odf.transform.sources import From, Leaf
from kubothek.odf.transform.state import State, sort_key
from kubothek.odf.transform.walk import Walk
from kubothek.sql.statement import Node


@dataclass(slots=True)
class Sought:
    """The lookup of a side's rows: ``own`` is the key of a row itself, ``probes`` those of the rows that match it.

    ``reach``  the least and the greatest first probe, if there are several
    """

    names: list[str]
    own: list[str]
    probes: list[str]
    reach: tuple[str, str] | None = None


def understood(where: str, session: Session, source: From, condition: Node | None) -> Terms:
    """Return the terms of the condition of a join of two; in a LEFT JOIN, only ON finds partners."""
    one, other = source.leaves
    sides = [
        Side(leaf.alias.casefold(), frozenset(name.casefold() for name in leaf.delta.columns)) for leaf in (one, other)
    ]
    tree = source.tree
    conditions = list(conjuncts(tree["condition"]))
    if tree["join_type"] != "LEFT":
        conditions += conjuncts(condition)

    def constant(node: Node) -> object:
        return session.first(f"SELECT {session.text(node)}")[0]

    found = terms(conditions, (sides[0], sides[1]), session.text, constant)
    names = tree.get("using_columns") or []
    if tree["ref_type"] == "NATURAL":
        raise TransformInvalid(f"{where}: NATURAL JOIN changes its meaning with the columns; write USING (…)")
    found.equal += using(
        names, one.alias, other.alias, lambda alias, name: session.expression(f"{quoted(alias)}.{quoted(name)}")
    )
    return found


class Joined:
    """A join of two; ``name`` is that of its state.

    For a part of the keys, it joins that part's rows of the left with all matching rows of the right.
    """

    def __init__(
        self,
        walk: Walk,
        session: Session,
        state: State,
        lateness: Lateness,
        name: str,
        source: From,
        exchange: Exchange,
    ) -> None:
        self._walk, self._session, self._state, self._name = walk, session, state, name
        self._exchange = exchange
        self._lateness = lateness
        self._source = source
        self._left: Leaf = source.leaves[0]
        self._right: Leaf = source.leaves[1]
        self._outer = source.tree["join_type"] == "LEFT"

    def answer(self, found: Terms, items: list[str], condition: Node | None) -> Delta:
        """Return the delta of ``SELECT items FROM … WHERE condition``. Raises TransformInvalid, TransformTooLarge."""
        bounds = found.bounds
        self._lateness.judge_sides(self._source, None if bounds is None else bounds[0])
        left, right = self._sought(found)
        come_together(self._session, self._exchange, self._source, (left.own, right.own), right.reach)
        one = Remembered(f"{self._name}.0", 0, self._left, left.names, left.own)
        other = Remembered(f"{self._name}.1", 1, self._right, right.names, right.own)
        asked = [one.own(one.names), other.ask(right.probes, one.names, self._right.delta.name)]
        old_left, new_left = self._sides(one, asked, bounds)
        asked = [other.own(one.names), one.ask(left.probes, one.names, self._left.delta.name)]
        if self._outer:
            asked.append(one.ask(left.probes, one.names, old_left))
        old_right, new_right = self._sides(other, asked, bounds)
        weight = f"{weight_of(0)} * {weight_of(1)}"
        parts = [
            self._query(items, condition, (self._left.delta.name, old_right), weight),
            self._query(items, condition, (new_left, self._right.delta.name), weight),
        ]
        if self._outer:
            nothing = self._session.view("nothing", f"SELECT * FROM {self._right.delta.name} WHERE false")
            for sign, pair in (("-", (old_left, old_right)), ("", (new_left, new_right))):
                alone = self._session.keep("alone", f"SELECT * FROM {self._tree(pair, 'ANTI')}")
                parts.append(self._query(items, condition, (alone, nothing), f"{sign}{weight_of(0)}", "LEFT"))
        self._session.require_distinct(parts[0], self._walk.where)
        return self._walk.answered(self._session.keep("joined", " UNION ALL ".join(parts)))

    def _sides(
        self, side: Remembered, asked: list[str], bounds: tuple[tuple[str, str], int, int] | None
    ) -> tuple[str, str]:
        """Return the rows of a side under the requested keys, before and after, with the query's column names."""
        leaves = "false"
        if self._lateness.horizon.on and bounds is not None:
            _, lower, upper = bounds
            asked = [*asked, f"SELECT * FROM {self._state.keys(side.shape(self._session, len(side.names)))}"]
            if (closed := self._lateness.horizon.closed) is not None:
                reach = -lower if side.number == 0 else upper
                leaves = f"(e + 1) * {max(upper - lower, 1)} - 1 + {reach} <= {closed}"
        if side.number == 0:
            asked = [f"SELECT * FROM ({each}) WHERE {self._state.holds(side.names)}" for each in asked]
        keys = side.keys(self._session, asked, side.names)
        before, after = side.both(self._session, self._state, keys, len(side.names), leaves)
        return side.named(self._session, before), side.named(self._session, after)

    # --- keys --------------------------------------------------------------------------------------------------

    def _sought(self, found: Terms) -> tuple[Sought, Sought]:
        left, right = Sought([], [], []), Sought([], [], [])
        if (bounds := found.bounds) is not None:
            times, lower, upper = bounds
            width = max(upper - lower, 1)
            moments = [f"epoch_us(CAST({time} AS TIMESTAMP))" for time in times]
            for side, moment, least, most in ((left, moments[0], -upper, -lower), (right, moments[1], lower, upper)):
                side.names.append("e")
                side.own.append(f"{moment} // {width}")
                side.reach = f"({moment} + {least}) // {width}", f"({moment} + {most}) // {width}"
                side.probes.append(f"unnest(range({side.reach[0]}, {side.reach[1]} + 1))")
        for number, pair in enumerate(found.equal):
            for side, key in zip((left, right), compared(self._session, self._source, pair), strict=True):
                side.names.append(f"e{number}")
                side.own.append(key)
                side.probes.append(key)
        if not left.names:
            raise TransformInvalid(
                f"{self._walk.where}: a join needs columns that are equal, or times that are bounded on both sides: "
                "ON a.key = b.key AND a.event_time BETWEEN b.event_time - INTERVAL '1 hour' AND b.event_time"
            )
        return left, right

    def _tree(self, pair: tuple[str, str], kind: str) -> str:
        """Return the FROM clause over these relations."""
        tree = deepcopy(self._source.tree)
        for side, name in zip(("left", "right"), pair, strict=True):
            tree[side]["table_name"] = name
            tree[side]["qualified_name"] = {"path": [name]}
        if tree["ref_type"] != "CROSS":
            tree["join_type"] = kind
        return self._session.source_text(tree)

    def _query(
        self, items: list[str], condition: Node | None, pair: tuple[str, str], weight: str, kind: str = "INNER"
    ) -> str:
        alias = quoted(self._left.alias)
        key = sort_key([f"{alias}.{quoted(column)}" for column in self._left.delta.columns])
        hidden = [f"({weight})::BIGINT AS {WEIGHT}", f"{key} AS {KEY}"]
        query = f"SELECT {listed([*items, *hidden])} FROM {self._tree(pair, kind)}"
        return query if condition is None else f"{query} WHERE {self._session.text(condition)}"
