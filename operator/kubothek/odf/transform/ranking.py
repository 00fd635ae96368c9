"""A SELECT with OVER: deduplication, Top-N, neighbours. All its windows have one PARTITION BY, which is the key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Final

from kubothek.errors import TransformInvalid
from kubothek.in_memory_database import quoted
from kubothek.odf.transform.allowed import function_of, own_nodes
from kubothek.odf.transform.delta import Delta
from kubothek.odf.transform.ends import end_of, length_of
from kubothek.odf.transform.exchange import Exchange, Inflow, straight
from kubothek.odf.transform.keyed import Closing, Recompute
from kubothek.odf.transform.lateness import Lateness
from kubothek.odf.transform.scan import WEIGHT
from kubothek.odf.transform.session import Session, listed
from kubothek.odf.transform.sources import From
from kubothek.odf.transform.state import ID, State
from kubothek.odf.transform.trees import canon, column_names
from kubothek.odf.transform.walk import Walk
from kubothek.sql.statement import Node

_PEERS_ALIKE: Final = frozenset({"rank", "dense_rank", "rank_dense", "percent_rank", "cume_dist"})
"""Functions that give equal rows the same result: their order is not completed."""
_ORDERED: Final = frozenset({"row_number", "ntile", "lag", "lead", "first_value", "last_value", "nth_value"})
_SUMS: Final = frozenset({"count", "count_star", "min", "max", "sum"})


@dataclass(frozen=True, slots=True)
class Ranked:
    """A compiled SELECT with OVER.

    ``rows``     a relation with the delta of the rows that it reads: its ``columns``, and the internal ones to keep
    ``keys``     those of the columns that are the PARTITION BY
    ``windows``  their trees, with total orders
    ``given``    returns, for a relation of rows with the ``__id`` of their key, the FROM clause of the SELECT
    ``items``    returns the SELECT list, as SQL over that clause; its stars leave out the columns that are passed
    ``qualify``  the QUALIFY clause as SQL, '' if there is none; ``condition`` is its tree
    """

    rows: str
    columns: Mapping[str, str]
    keys: list[str]
    windows: list[Node]
    given: Callable[[str], str]
    items: Callable[[Sequence[str]], list[str]]
    qualify: str
    condition: Node | None
    closing: Closing | None

    def answer(self, table: str) -> str:
        """Return a query for the answer over all rows of some keys, with the ``__id`` of these."""
        return self.over(self.given(table), [ID])

    def over(self, given: str, more: Sequence[str], hidden: Sequence[str] = ()) -> str:
        """Return the query over ``given``, which also has ``hidden`` columns; ``more`` columns follow the answer's."""
        return f"SELECT {listed([*self.items(hidden), *more])} FROM {given}{self.qualify}"


class RankedSelect:
    """A SELECT with OVER; ``name`` is that of its state.

    ``beside``  columns of the engine's own that rows keep
    """

    def __init__(
        self,
        walk: Walk,
        session: Session,
        state: State,
        lateness: Lateness,
        name: str,
        beside: Sequence[str] = (),
        exchange: Exchange = straight,
    ) -> None:
        self._walk, self._session, self._state, self._name = walk, session, state, name
        self._lateness = lateness
        self._exchange = exchange
        self._where = walk.where
        self._beside = beside

    def answer(self, node: Node, source: From) -> Delta:
        """Return the delta of its answer. Raises TransformInvalid, TransformTooLarge."""
        found = self.read(node, source)
        operator = Recompute(self._name, found.keys, found.columns)
        changed = operator.difference(self._session, self._state, found.rows, found.answer, found.closing)
        return self._walk.answered(changed)

    def read(self, node: Node, source: From) -> Ranked:
        """Compile the SELECT. Raises TransformInvalid, TransformTooLarge."""
        if len(source.leaves) > 1 or source.unfolds:
            raise TransformInvalid(f"{self._where}: OVER beside a join or a list: join in an earlier query, or in WITH")
        (leaf,) = source.leaves
        parts = deepcopy([node["select_list"], node["qualify"]])
        windows = [each for each in own_nodes(parts) if each.get("class") == "WINDOW"]
        partitions = self._partitions(windows, leaf.alias.casefold())
        columns = self._used(node, leaf.delta)
        inside = {f"c{number}": column for number, column in enumerate(columns)}
        keys = {f"p{number}": self._session.text(each) for number, each in enumerate(partitions)}
        items = [f"{text} AS {name}" for name, text in keys.items()]
        items += [f"{quoted(leaf.alias)}.{quoted(column)} AS {name}" for name, column in inside.items()]
        rows = self._walk.project(source, items, node["where_clause"], None)
        for window in windows:
            self._complete(window, columns, source)
        lengths = {name: length_of(self._session, each) for name, each in zip(keys, partitions, strict=True)}
        end = next((end_of(name, length) for name, length in lengths.items() if length is not None), None)
        judged = self._lateness.judged(rows, end)
        kept = self._session.keep("ranked", f"SELECT {listed([*rows.columns, *self._beside, WEIGHT])} FROM {judged}")
        (kept,) = self._exchange(self._session, Inflow(kept, list(keys)))
        select_list, qualify = parts
        names = [f"{name} AS {quoted(column)}" for name, column in inside.items()]
        found = Ranked(
            rows=kept,
            columns=rows.columns,
            keys=list(keys),
            windows=windows,
            given=lambda table: f"(SELECT {listed([*names, *self._beside, ID])} FROM {table}) AS {quoted(leaf.alias)}",
            items=lambda hidden: self._items(select_list, hidden),
            qualify="" if qualify is None else f" QUALIFY {self._session.text(qualify)}",
            condition=qualify,
            closing=self._lateness.closing(end),
        )
        self._session.require_distinct(found.answer(f"(SELECT *, 0::BIGINT AS {ID} FROM {kept})"), self._where)
        return found

    def _partitions(self, windows: list[Node], alias: str) -> list[Node]:
        forms = {canon({"parts": sorted(canon(each, alias) for each in window["partitions"])}) for window in windows}
        if len(forms) > 1:
            raise TransformInvalid(f"{self._where}: windows with different PARTITION BY: one after the other, in steps")
        partitions: list[Node] = windows[0]["partitions"]
        return partitions

    def _used(self, node: Node, delta: Delta) -> list[str]:
        """Return the columns that rows in the state need."""
        if any(item["class"] == "STAR" for item in node["select_list"]):
            return list(delta.columns)
        words = {name.casefold() for names in column_names([node["select_list"], node["qualify"]]) for name in names}
        return [column for column in delta.columns if column.casefold() in words]

    def _complete(self, window: Node, columns: list[str], source: From) -> None:
        """Make the order of a window total: rows that are equal in it are equal in all columns that the query uses."""
        name = function_of(window)
        frames = {window["start"], window["end"]}
        if name in _SUMS:
            self._check_sum(window, source)
        elif name not in _ORDERED | _PEERS_ALIKE:
            known = ", ".join(sorted(_ORDERED | _PEERS_ALIKE | _SUMS))
            raise TransformInvalid(f"{self._where}: {name}() OVER cannot be kept up to date; there are {known}")
        by_rows = any(frame.endswith(("_ROWS", "_GROUPS")) for frame in frames)
        if name in _ORDERED or (name in _SUMS and by_rows):
            window["orders"] = [*window["orders"], *(self._order(column) for column in (*columns, *self._beside))]
        window["partitions"] = [self._session.expression(ID)]

    def _order(self, column: str) -> Node:
        return {
            "type": "ASCENDING",
            "null_order": "NULLS FIRST",
            "expression": self._session.expression(quoted(column)),
        }

    def _check_sum(self, window: Node, source: From) -> None:
        if function_of(window) != "sum":
            return
        value = self._session.text(window["arguments"][0]["expression"])
        kinds = self._session.columns(f"(SELECT {value} FROM {self._session.source_text(source.tree)})")
        if set(kinds.values()) & {"DOUBLE", "FLOAT"}:
            raise TransformInvalid(f"{self._where}: sum({value}) OVER of doubles depends on the order; cast to DECIMAL")

    def _items(self, select_list: list[Node], hidden: Sequence[str]) -> list[str]:
        found = []
        for item in select_list:
            if item["class"] == "STAR":
                own = [*item["exclude_list"], *self._beside, *hidden, ID]
                found.append(self._session.text(item | {"exclude_list": own}))
            else:
                text = self._session.text(item)
                found.append(f"{text} AS {quoted(item['alias'])}" if item["alias"] else text)
        return found
