"""A temporal join: each row on the left gets the version of its key that is valid at its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy

from kubothek.errors import TransformInvalid
from kubothek.in_memory_database import quoted
from kubothek.odf.transform.delta import Delta
from kubothek.odf.transform.exchange import Exchange, straight
from kubothek.odf.transform.join_terms import Terms, require_key
from kubothek.odf.transform.lateness import Lateness
from kubothek.odf.transform.scan import KEY, WEIGHT
from kubothek.odf.transform.session import Session, listed
from kubothek.odf.transform.sides import Remembered, come_together, compared, weight_of
from kubothek.odf.transform.sources import From
from kubothek.odf.transform.state import State, same, sort_key
from kubothek.odf.transform.walk import Walk
from kubothek.sql.statement import Node

_TIME = "t"


class Temporal:
    """``left JOIN right FOR SYSTEM_TIME AS OF left.time``, or DuckDB's ASOF JOIN; ``name`` is that of its state.

    Of several versions of one key and time, the greatest by all columns counts.
    """

    def __init__(
        self,
        walk: Walk,
        session: Session,
        state: State,
        lateness: Lateness,
        name: str,
        source: From,
        exchange: Exchange = straight,
    ) -> None:
        self._lateness = lateness
        self._exchange = exchange
        self._where, self._walk, self._session, self._state = walk.where, walk, session, state
        self._source = source
        self._left, self._right = source.leaves
        self._name = name

    def answer(
        self, found: Terms, items: list[str], condition: Node | None, tables: Mapping[str, Sequence[str]]
    ) -> Delta:
        """Return the delta of ``SELECT items FROM … WHERE condition``. Raises TransformInvalid, TransformTooLarge."""
        require_key(tables, self._right.table, found.equal, self._where)
        moments = self.moments(found)
        names = [f"e{number}" for number in range(len(found.equal))]
        one, other = zip(*(compared(self._session, self._source, pair) for pair in found.equal), strict=True)
        come_together(self._session, self._exchange, self._source, (one, other))
        sides = [
            Remembered(f"{self._name}.{n}", n, leaf, [*names, _TIME], [*keys, moments[n]])
            for n, (leaf, keys) in enumerate(((self._left, one), (self._right, other)))
        ]
        left, right = sides
        self._remember(left)
        keys = right.keys(self._session, self._asked([left.own(names), right.own(names)], right, names), names)
        found_rows = right.both(self._session, self._state, keys, len(names))
        self._forget_versions(right, names, keys, found_rows[1])
        versions = [self._versions(right, names, table) for table in found_rows]
        touched = self._touched(left, right, names)
        parts = [
            self._query(found, moments, items, condition, (self._left.delta.name, versions[1]), weight_of(0)),
            self._query(found, moments, items, condition, (touched, versions[1]), weight_of(0)),
            self._query(found, moments, items, condition, (touched, versions[0]), f"-{weight_of(0)}"),
        ]
        self._session.require_distinct(parts[0], self._where)
        return self._walk.answered(self._session.keep("joined", " UNION ALL ".join(parts)))

    def _asked(self, asked: list[str], side: Remembered, names: Sequence[str]) -> list[str]:
        """Add the query for all keys of the state, if rows can leave it."""
        if not self._lateness.horizon.on:
            return asked
        return [*asked, f"SELECT * FROM {self._state.keys(side.shape(self._session, len(names)))}"]

    def _remember(self, left: Remembered) -> None:
        closed = self._lateness.horizon.closed
        leaves = "false" if closed is None else f"epoch_us(CAST({_TIME} AS TIMESTAMP)) <= {closed}"
        keys = left.keys(self._session, self._asked([left.own(left.names)], left, left.names), left.names)
        left.both(self._session, self._state, keys, len(left.names), leaves)

    def _forget_versions(self, right: Remembered, names: Sequence[str], keys: str, table: str) -> None:
        """Remove closed versions from the state, except the last one, which is still valid."""
        if (closed := self._lateness.horizon.closed) is None:
            return
        past = f"epoch_us(CAST({_TIME} AS TIMESTAMP)) <= {closed}"
        last = f"max({_TIME}) FILTER ({past}) OVER (PARTITION BY {listed(names)})"
        query = f"SELECT * FROM {table} QUALIFY ({_TIME} < {last}) IS NOT TRUE"
        self._state.put(right.shape(self._session, len(names)), keys, self._session.keep("versions", query))

    def moments(self, found: Terms) -> tuple[str, str]:
        """Return the times of both sides as SQL, and drop rows that are late by them. Raises TransformInvalid."""
        found_moments = self._moments(found)
        self._lateness.judge_sides(self._source, found_moments)
        return found_moments

    def _moments(self, found: Terms) -> tuple[str, str]:
        if not found.equal:
            raise TransformInvalid(f"{self._where}: a temporal join equates the key of {self._right.alias}")
        if self._right.moment:
            parts = self._right.moment.split(".")
            left = ".".join(map(quoted, parts))
            return left, f"{quoted(self._right.alias)}.{quoted(self._right.delta.time)}"
        if len(found.after) != 1 or len(found.lower) != 1 or found.upper:
            raise TransformInvalid(
                f"{self._where}: ASOF JOIN … ON a.key = b.key AND a.event_time >= b.event_time has that one comparison"
            )
        ((one, other),) = found.after
        return self._session.text(one), self._session.text(other)

    def _versions(self, right: Remembered, names: Sequence[str], table: str) -> str:
        """Return a relation with one row for each key and time."""
        order = [f"c{n} DESC NULLS LAST" for n in range(len(self._right.delta.columns))]
        part = listed([*names, _TIME])
        query = (
            f"SELECT * FROM {table} WHERE {_TIME} IS NOT NULL "
            f"QUALIFY row_number() OVER (PARTITION BY {part} ORDER BY {listed(order)}) = 1"
        )
        return right.named(self._session, f"({query})")

    def _touched(self, left: Remembered, right: Remembered, names: Sequence[str]) -> str:
        """Return the stored rows of the left that may now get another version."""
        keys = left.keys(self._session, [right.own(names)], names)
        old = self._state.old(left.shape(self._session, len(names)), keys)
        first = f"SELECT {listed(names)}, min({_TIME}) AS first FROM ({right.changed()}) GROUP BY ALL"
        return left.named(
            self._session,
            f"(SELECT o.* FROM {old} o JOIN ({first}) f ON {same('o', 'f', names)} AND o.{_TIME} >= f.first)",
        )

    def _query(
        self,
        found: Terms,
        moments: tuple[str, str],
        items: list[str],
        condition: Node | None,
        pair: tuple[str, str],
        weight: str,
    ) -> str:
        alias = quoted(self._left.alias)
        key = sort_key([f"{alias}.{quoted(column)}" for column in self._left.delta.columns])
        hidden = [f"({weight})::BIGINT AS {WEIGHT}", f"{key} AS {KEY}"]
        return self.of_versions(found, moments, [*items, *hidden], condition, pair)

    def of_versions(
        self, found: Terms, moments: tuple[str, str], items: list[str], condition: Node | None, pair: tuple[str, str]
    ) -> str:
        """Return ``SELECT items`` over these relations for the sides; the right one has each version once."""
        tree = deepcopy(self._source.tree)
        for side, name in zip(("left", "right"), pair, strict=True):
            tree[side]["table_name"] = name
            tree[side]["qualified_name"] = {"path": [name]}
        text = self._session.text
        equal = [f"({text(one)}) = ({text(other)})" for one, other in found.equal]
        tree["ref_type"], tree["using_columns"] = "ASOF", []
        tree["condition"] = self._session.expression(" AND ".join([*equal, f"{moments[0]} >= {moments[1]}"]))
        query = f"SELECT {listed(items)} FROM {self._session.source_text(tree)}"
        return query if condition is None else f"{query} WHERE {text(condition)}"
