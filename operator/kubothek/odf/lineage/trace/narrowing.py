"""Which part of the inputs can have a share in some rows of the answer, by what these show of their columns.

What a row shows is followed down the queries, as far as an expression is a column, or a stretch of time that is a key:
of a group only through its keys, of OVER through PARTITION BY, of a join also through what is equal. So all that a row
is made of is within the ranges that come out, as these cut no group, no partition and no versions of a key in two.
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
    """From the least to the greatest value, both within. ``kind`` is their type: a column of another has none."""

    least: Any
    most: Any
    kind: object

    def longer(self, length: timedelta) -> Range | None:
        """The same, up to what lies so long behind its end; None if Python has no such moment."""
        try:
            return Range(self.least, self.most + length, self.kind)
        except OverflowError:
            return None


Ranges = dict[str, Range]
"""By the name of a column, in lower case."""
Constant = Callable[[Node], Any]
_DAYS: Final = {"year": 366, "quarter": 92, "month": 31, "week": 7, "day": 1}
_SECONDS: Final = {"hour": 3600, "minute": 60, "second": 1}


@dataclass(slots=True)
class _Table:
    """What a query reads: an input or an earlier query. ``columns`` in lower case, None if they are not known.

    ``asked``  the ranges of each place that reads it
    """

    columns: frozenset[str] | None
    asked: list[Ranges] = field(default_factory=list)

    @property
    def ranges(self) -> Ranges:
        """Those that hold for all of them."""
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
    """By input, what holds for the columns of all of its records that count.

    ``queries``   the steps, with their aliases; the last one's is not used
    ``inputs``    the columns of each, by what the queries call it
    ``shown``     what the rows that are asked about show
    ``constant``  the value of an expression
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
    """What a query gives, if its stars do not hide that."""
    if node["type"] != "SELECT_NODE" or any(item["class"] == "STAR" for item in node["select_list"]):
        return None
    return frozenset(name for name, _ in _items(node))


def _items(node: Node) -> Iterator[tuple[str, Node]]:
    for item in node["select_list"]:
        name = item["alias"] or (item["column_names"][-1] if item["class"] == "COLUMN_REF" else "")
        yield name.casefold(), item | {"alias": ""}


class _Way:
    """Down one query."""

    def __init__(self, scope: Mapping[str, _Table], constant: Constant) -> None:
        self._scope = dict(scope)
        self._constant = constant

    def query(self, node: Node, shown: Ranges) -> None:
        """Tell the tables that it reads what its rows show."""
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
        """What the columns of one part of a UNION show, whose names are those of the first part."""
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
        """The column under a SELECT, and its range; None if it says nothing of all rows that are needed."""
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
            return True  # an aggregate is no column, and goes no further
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
        """The window whose beginning an item is, if it is a key."""
        keys: list[Node] = node["group_expressions"]
        if (part := part_of(item)) is not None:
            return part[0] if part[1] == "start" else None
        if item["class"] == "COLUMN_REF" and [name.casefold() for name in item["column_names"]] == ["window", "start"]:
            return next((key for key in keys if function_of(key) == "window"), None)
        return None

    def _stretch(self, node: Node, item: Node, range_: Range) -> tuple[Node, Range] | None:
        """The time of which an item is the beginning of a stretch."""
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
        """Of which leaf a column is."""
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

    # --- what is read ----------------------------------------------------------------------------------------------

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
        else:  # lists that are unfolded, whose columns are no table's
            yield _Leaf(source.get("alias", "").casefold(), None, lambda _: None)

    def _join(self, node: Node, leaves: list[_Leaf]) -> None:
        """What is equal is within the same range; of versions, which are chosen by their time, nothing else may be."""
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
    """Both hold, of a column of which something is known already."""
    known = ranges.get(column)
    if known is not None and known.kind == range_.kind:
        range_ = Range(max(known.least, range_.least), min(known.most, range_.most), range_.kind)
    ranges[column] = range_
