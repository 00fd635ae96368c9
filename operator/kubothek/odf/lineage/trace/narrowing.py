"""Pruning of inputs for lineage: ranges of input columns that contain all origins of some output rows.

The values of the output rows are pushed down the queries, through expressions that are a column or the start of a time
interval. They pass GROUP BY only through its keys, OVER only through PARTITION BY, and joins also through equalities.
So the ranges split no group, no partition and no set of versions of a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from kubothek.odf.transform.allowed import function_of, own_nodes
from kubothek.odf.transform.dialect import temporal
from kubothek.odf.transform.join_terms import conjuncts
from kubothek.odf.transform.trees import canon
from kubothek.odf.transform.walk import has_windows, is_grouped
from kubothek.odf.transform.windows import part_of, window_of
from kubothek.sql.statement import Node


@dataclass(frozen=True, slots=True)
class Range:
    """Least and greatest value, both inclusive. ``kind`` is their type; columns of other types have no range."""

    least: Any
    most: Any
    kind: object

    def longer(self, length: timedelta) -> Range | None:
        """Return the range with its end moved by ``length``; None if Python cannot represent that."""
        try:
            return Range(self.least, self.most + length, self.kind)
        except OverflowError:
            return None


Ranges = dict[str, Range]
"""Ranges by column name in lower case."""
Constant = Callable[[Node], Any]
_DAYS: Final = {"year": 366, "quarter": 92, "month": 31, "week": 7, "day": 1}
_SECONDS: Final = {"hour": 3600, "minute": 60, "second": 1}


@dataclass(slots=True)
class _Table:
    """A table that a query reads: an input or an earlier query. ``columns`` in lower case, None if unknown.

    ``asked``  the ranges of each reference to it
    """

    columns: frozenset[str] | None
    asked: list[Ranges] = field(default_factory=list)

    @property
    def ranges(self) -> Ranges:
        """Return ranges that cover those of all references."""
        first, *others = self.asked or [{}]
        return {
            column: Range(
                min(each[column].least for each in self.asked), max(each[column].most for each in self.asked), one.kind
            )
            for column, one in first.items()
            if all(column in other and other[column].kind == one.kind for other in others)
        }


@dataclass(slots=True)
class _Leaf:
    alias: str
    columns: frozenset[str] | None
    give: Callable[[Ranges], None]
    ranges: Ranges = field(default_factory=dict)


def narrowed(
    queries: Sequence[tuple[str, Node]], inputs: Mapping[str, Sequence[str]], shown: Ranges, constant: Constant
) -> dict[str, Ranges]:
    """Return, for each input, the ranges that hold for all of its records that can be origins.

    ``queries``   the steps, with their aliases; the last alias is unused
    ``inputs``    the columns of each input, by alias
    ``shown``     the ranges of the output rows
    ``constant``  evaluates an expression
    """
    tables = {name.casefold(): _Table(frozenset(map(str.casefold, columns))) for name, columns in inputs.items()}
    steps = [(alias.casefold(), node) for alias, node in queries]
    scope = dict(tables)
    for alias, node in steps[:-1]:
        scope[alias] = _Table(_columns(node))
    _Way(scope, constant).query(steps[-1][1], shown)
    for alias, node in reversed(steps[:-1]):
        if scope[alias].asked:
            _Way(scope, constant).query(node, scope[alias].ranges)
    return {name: tables[name.casefold()].ranges for name in inputs}


def _columns(node: Node) -> frozenset[str] | None:
    """Return the output columns of a query; None if a star hides them."""
    if node["type"] != "SELECT_NODE" or any(item["class"] == "STAR" for item in node["select_list"]):
        return None
    return frozenset(name for name, _ in _items(node))


def _items(node: Node) -> Iterator[tuple[str, Node]]:
    for item in node["select_list"]:
        name = item["alias"] or (item["column_names"][-1] if item["class"] == "COLUMN_REF" else "")
        yield name.casefold(), item | {"alias": ""}


class _Way:
    """Push-down through one query."""

    def __init__(self, scope: Mapping[str, _Table], constant: Constant) -> None:
        self._scope = dict(scope)
        self._constant = constant

    def query(self, node: Node, shown: Ranges) -> None:
        """Push the ranges of its rows to the tables that it reads."""
        own = [(entry["key"].casefold(), entry["value"]["query_node"]) for entry in node["cte_map"]["map"]]
        for name, inner in own:
            self._scope[name] = _Table(_columns(inner))
        if node["type"] == "SELECT_NODE":
            self._select(node, shown)
        else:
            by_name = node["setop_type"] == "UNION_BY_NAME"
            for child in node["children"]:
                _Way(self._scope, self._constant).query(child, shown if by_name else self._by_place(node, child, shown))
        for name, inner in reversed(own):
            if self._scope[name].asked:
                _Way(self._scope, self._constant).query(inner, self._scope[name].ranges)

    def _by_place(self, node: Node, child: Node, shown: Ranges) -> Ranges:
        """Return the ranges of one part of a UNION, whose columns have the names of the first part."""
        first: Node = node["children"][0]
        if child is first:
            return shown
        if _columns(first) is None or _columns(child) is None:
            return {}
        names = [name for name, _ in _items(first)]
        return {name: shown[names[n]] for n, (name, _) in enumerate(_items(child)) if names[n] in shown}

    def _select(self, node: Node, shown: Ranges) -> None:
        leaves = [*self._leaves(node["from_table"])]
        items, starred = dict(_items(node)), any(item["class"] == "STAR" for item in node["select_list"])
        for name, range_ in shown.items():
            item = items.get(name)
            if item is None and starred and len(leaves) == 1:
                item = {"class": "COLUMN_REF", "column_names": [name], "alias": ""}
            if item is not None and (found := self._followed(node, item, range_, leaves)) is not None:
                self._note(leaves, *found)
        self._join(node, leaves)
        for leaf in leaves:
            leaf.give(leaf.ranges)

    # --- one column ------------------------------------------------------------------------------------------------

    def _followed(self, node: Node, item: Node, range_: Range, leaves: list[_Leaf]) -> tuple[Node, Range] | None:
        """Return the column under a SELECT and its range; None if the range does not hold for all rows needed."""
        alias = leaves[0].alias if len(leaves) == 1 else None
        if is_grouped(node):
            if not self._is_key(node, item, alias):
                return None
            return self._stretch(node, item, range_)
        if has_windows(node):
            windows = [w for w in own_nodes([node["select_list"], node["qualify"]]) if w.get("class") == "WINDOW"]
            if canon(item, alias) not in {canon(part, alias) for part in windows[0]["partitions"]}:
                return None
        return item, range_

    def _is_key(self, node: Node, item: Node, alias: str | None) -> bool:
        if node["aggregate_handling"] == "FORCE_AGGREGATES":
            return True  # an aggregate is not a column, so it is not pushed further
        named = dict(_items(node))
        for key in node["group_expressions"]:
            if key["class"] == "CONSTANT" and key["literal"]["kind"] == "INTEGER":
                key = (node["select_list"][int(key["literal"]["text"]) - 1]) | {"alias": ""}
            elif key["class"] == "COLUMN_REF" and len(key["column_names"]) == 1:
                key = named.get(key["column_names"][0].casefold(), key)
            if canon(key, alias) == canon(item, alias):
                return True
        return self._window(node, item) is not None

    def _window(self, node: Node, item: Node) -> Node | None:
        """Return the window that an item is the start of, if it is a key."""
        keys: list[Node] = node["group_expressions"]
        if (part := part_of(item)) is not None:
            return part[0] if part[1] == "start" else None
        if item["class"] == "COLUMN_REF" and [name.casefold() for name in item["column_names"]] == ["window", "start"]:
            return next((key for key in keys if function_of(key) == "window"), None)
        return None

    def _stretch(self, node: Node, item: Node, range_: Range) -> tuple[Node, Range] | None:
        """Return the time column whose interval starts at an item."""
        if (call := self._window(node, item)) is not None:
            window = window_of(call, self._constant, "lineage")
            if window is None or window.gap:
                return None
            return _known(window.time, range_.longer(timedelta(microseconds=window.size)))
        name, arguments = function_of(item), [each["expression"] for each in item.get("arguments", ())]
        if name in ("date_trunc", "datetrunc") and arguments[0].get("class") == "CONSTANT":
            unit = str(self._constant(arguments[0])).casefold()
            length = timedelta(days=_DAYS.get(unit, 0), seconds=_SECONDS.get(unit, 0))
            return _known(arguments[1], range_.longer(length)) if length else None
        return item, range_

    def _note(self, leaves: list[_Leaf], item: Node, range_: Range) -> None:
        """Add the range to the leaf that has the column."""
        if item["class"] != "COLUMN_REF":
            return
        *alias, column = [name.casefold() for name in item["column_names"]]
        named = [leaf for leaf in leaves if leaf.alias == alias[0]] if alias else self._having(leaves, column)
        if len(alias) < 2 and len(named) == 1:
            _add(named[0].ranges, column, range_)

    @staticmethod
    def _having(leaves: list[_Leaf], column: str) -> list[_Leaf]:
        if any(leaf.columns is None for leaf in leaves):
            return leaves if len(leaves) == 1 else []
        return [leaf for leaf in leaves if leaf.columns is not None and column in leaf.columns]

    # --- tables ----------------------------------------------------------------------------------------------------

    def _leaves(self, source: Node) -> Iterator[_Leaf]:
        kind = source["type"]
        if kind == "JOIN":
            yield from self._leaves(source["left"])
            yield from self._leaves(source["right"])
        elif kind == "BASE_TABLE":
            name, _ = temporal(source["table_name"])
            table = self._scope.get(name.casefold(), _Table(None))
            renamed = bool(source.get("column_name_alias"))
            give: Callable[[Ranges], None] = (lambda _: table.asked.append({})) if renamed else table.asked.append
            columns = frozenset[str]() if renamed else table.columns
            yield _Leaf((source["alias"] or name).casefold(), columns, give)
        elif kind == "SUBQUERY":
            inner: Node = source["subquery"]["node"]
            way, renamed = _Way(self._scope, self._constant), bool(source.get("column_name_alias"))
            columns = frozenset() if renamed else _columns(inner)
            yield _Leaf(source["alias"].casefold(), columns, lambda ranges: way.query(inner, ranges))
        else:  # unnested lists: their columns belong to no table
            yield _Leaf(source.get("alias", "").casefold(), None, lambda _: None)

    def _join(self, node: Node, leaves: list[_Leaf]) -> None:
        """Push ranges across equalities. Versions, which are chosen by time, get no other range."""
        source = node["from_table"]
        if source["type"] != "JOIN" or len(leaves) != 2:
            for leaf in leaves if source["type"] == "JOIN" else []:
                leaf.ranges.clear()
            return
        left, right = leaves
        of_versions = source["ref_type"] == "ASOF" or temporal(source["right"].get("table_name", ""))[1]
        conditions = [*conjuncts(source["condition"])]
        if source["join_type"] != "LEFT":
            conditions += conjuncts(node["where_clause"])
        pairs = [(name.casefold(), name.casefold()) for name in source.get("using_columns") or ()]
        pairs += [pair for each in conditions if (pair := self._equal(each, left, right)) is not None]
        both = [(one, other, left.ranges.get(one) or right.ranges.get(other)) for one, other in pairs]
        if of_versions:
            right.ranges.clear()
        for one, other, range_ in both:
            if range_ is not None:
                _add(left.ranges, one, range_)
                _add(right.ranges, other, range_)

    def _equal(self, condition: Node, left: _Leaf, right: _Leaf) -> tuple[str, str] | None:
        if condition.get("class") != "COMPARISON" or condition["type"] != "COMPARE_EQUAL":
            return None
        sides = [self._side(condition[side], left, right) for side in ("left", "right")]
        columns = dict(side for side in sides if side is not None)
        return (columns[0], columns[1]) if len(columns) == 2 else None

    def _side(self, node: Node, left: _Leaf, right: _Leaf) -> tuple[int, str] | None:
        if node["class"] != "COLUMN_REF":
            return None
        *alias, column = [name.casefold() for name in node["column_names"]]
        leaves = [left, right]
        named = [leaf for leaf in leaves if leaf.alias == alias[0]] if alias else self._having(leaves, column)
        return (0 if named[0] is left else 1, column) if len(named) == 1 and len(alias) < 2 else None


def _known(item: Node, range_: Range | None) -> tuple[Node, Range] | None:
    return None if range_ is None else (item, range_)


def _add(ranges: Ranges, column: str, range_: Range) -> None:
    """Intersect with a range that the column already has."""
    known = ranges.get(column)
    if known is not None and known.kind == range_.kind:
        range_ = Range(max(known.least, range_.least), min(known.most, range_.most), range_.kind)
    ranges[column] = range_
