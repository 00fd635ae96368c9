"""The rows of one side of a join, stored by the keys under which the other side looks them up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kubothek.in_memory_database import quoted
from kubothek.odf.transform.delta import Delta
from kubothek.odf.transform.exchange import Exchange, Inflow
from kubothek.odf.transform.keyed import COPIES, both
from kubothek.odf.transform.scan import HORIZON, WEIGHT
from kubothek.odf.transform.session import Session, listed
from kubothek.odf.transform.sources import From, Leaf
from kubothek.odf.transform.state import ID, Shape, State, same
from kubothek.sql.statement import Node


def weight_of(number: int) -> str:
    """Return the column with the weights of one side."""
    return f"{WEIGHT}_{number}"


def horizon_of(number: int) -> str:
    """Return the column with the horizons of one side."""
    return f"{HORIZON}_{number}"


def replace_rows(leaf: Leaf, name: str) -> None:
    """Replace the relation of a side by another one with the same columns."""
    leaf.delta = replace(leaf.delta, name=name)
    leaf.node["table_name"] = name
    leaf.node["qualified_name"] = {"path": [name]}


def compared(session: Session, source: From, pair: tuple[Node, Node]) -> list[str]:
    """Return the equated expressions of left and right as SQL, cast to the type in which they are compared."""
    texts = [session.text(each) for each in pair]
    both_sides = listed([f"{leaf.delta.name} AS {quoted(leaf.alias)}" for leaf in source.leaves])
    kind = session.columns(f"(SELECT [{listed(texts)}][1] AS x FROM {both_sides})")["x"]
    return [f"CAST({text} AS {kind})" for text in texts]


def come_together(
    session: Session,
    exchange: Exchange,
    source: From,
    keys: tuple[Sequence[str], Sequence[str]],
    reach: tuple[str, str] | None = None,
) -> None:
    """Exchange the deltas of both sides by keys; ``reach`` is that of the right (see :class:`~.exchange.Inflow`)."""
    left, right = source.leaves
    inflows = [
        Inflow(left.delta.name, keys[0], left.alias),
        Inflow(right.delta.name, keys[1], right.alias, reach),
    ]
    for leaf, name in zip(source.leaves, exchange(session, *inflows), strict=True):
        replace_rows(leaf, name)


def prepare(session: Session, source: From, beside: Sequence[str] = ()) -> None:
    """Store the delta of each side; weights, horizons and the columns ``beside`` get names of their own."""
    for number, leaf in enumerate(source.leaves):
        columns = [quoted(column) for column in leaf.delta.columns]
        horizon = "NULL::BIGINT" if leaf.delta.keyed else HORIZON
        hidden = [f"{WEIGHT} AS {weight_of(number)}", f"{horizon} AS {horizon_of(number)}"]
        hidden += [f"{column} AS {column}_{number}" for column in beside]
        query = f"SELECT {listed([*columns, *hidden])} FROM {leaf.delta.name}"
        own = (weight_of(number), horizon_of(number), *(f"{column}_{number}" for column in beside))
        leaf.delta = Delta(
            leaf.delta.name, leaf.delta.columns, leaf.delta.keyed, whole=False, own=own, time=leaf.delta.time
        )
        replace_rows(leaf, session.keep("side", query))


@dataclass(frozen=True, slots=True)
class Remembered:
    """One stored side: its rows have the columns ``names``, given by ``values`` in SQL, then ``c0``, ``c1`` …

    ``state``   the name of its table
    ``number``  0 for the left, 1 for the right
    """

    state: str
    number: int
    leaf: Leaf
    names: Sequence[str]
    values: Sequence[str]

    def keys(self, session: Session, asked: Sequence[str], names: Sequence[str]) -> str:
        """Return the distinct keys of some queries, with ``__id``."""
        union = " UNION ALL ".join(asked)
        query = f"SELECT DISTINCT {listed(names)} FROM ({union})"
        return session.keep("keys", f"SELECT *, row_number() OVER () AS {ID} FROM ({query})")

    def own(self, names: Sequence[str]) -> str:
        """Return a query for the keys of this side's delta."""
        given = dict(zip(self.names, self.values, strict=True))
        return self.ask([given[name] for name in names], names, self.leaf.delta.name)

    def ask(self, values: Sequence[str], names: Sequence[str], rows: str) -> str:
        """Return a query for keys that are SQL over rows of this side."""
        items = [f"{value} AS {name}" for value, name in zip(values, names, strict=True)]
        return f"SELECT {listed(items)} FROM {rows} AS {quoted(self.leaf.alias)}"

    def shape(self, session: Session, keys: int) -> Shape:
        """Return the shape of its table, whose first ``keys`` columns are the key."""
        found = session.columns(f"({self.changed()})")
        found.pop(weight_of(self.number))
        return Shape(self.state, found | {COPIES: "BIGINT"}, keys)

    def changed(self) -> str:
        """Return a query for the delta."""
        own = [f"{value} AS {name}" for value, name in zip(self.values, self.names, strict=True)]
        alias = quoted(self.leaf.alias)
        given = [f"{alias}.{quoted(column)} AS c{n}" for n, column in enumerate(self.leaf.delta.columns)]
        return f"SELECT {listed([*own, *given, weight_of(self.number)])} FROM {self.leaf.delta.name} AS {alias}"

    def both(self, session: Session, state: State, keys: str, count: int, leaves: str = "false") -> tuple[str, str]:
        """Return the rows of some keys before and after the run; store the latter, without those that leave."""
        shape = self.shape(session, count)
        others = [column for column in shape.columns if column not in (*shape.key, COPIES)]
        weight = weight_of(self.number)
        change = (
            f"SELECT k.{ID}, {listed([f'r.{column}' for column in others])}, sum({weight})::BIGINT AS {COPIES} "
            f"FROM ({self.changed()}) r JOIN {keys} k ON {same('r', 'k', shape.key)} GROUP BY ALL"
        )
        return both(session, state, shape, keys, change, others, [COPIES], f"{COPIES} <> 0", leaves)

    def named(self, session: Session, table: str) -> str:
        """Return a relation with the query's names of the columns, and the weights of this side."""
        items = [f"c{n} AS {quoted(column)}" for n, column in enumerate(self.leaf.delta.columns)]
        return session.view("side", f"SELECT {listed([*items, f'{COPIES} AS {weight_of(self.number)}'])} FROM {table}")
