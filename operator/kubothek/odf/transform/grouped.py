"""A SELECT with GROUP BY, split into expressions over rows, groups, and expressions over groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from kubothek.errors import TransformInvalid
from kubothek.in_memory_database import quoted
from kubothek.odf.transform.aggregates import Aggregate, aggregate, arguments_of
from kubothek.odf.transform.allowed import aggregates, function_of, own_nodes
from kubothek.odf.transform.delta import Delta
from kubothek.odf.transform.ends import end_of, length_of
from kubothek.odf.transform.exchange import Exchange, Inflow, straight
from kubothek.odf.transform.grouping import Grouping
from kubothek.odf.transform.keyed import Closing, Recompute
from kubothek.odf.transform.lateness import Lateness
from kubothek.odf.transform.scan import KEY, WEIGHT
from kubothek.odf.transform.session import Session, listed
from kubothek.odf.transform.sources import From
from kubothek.odf.transform.state import ID, State
from kubothek.odf.transform.trees import canon, column_names, rewrite
from kubothek.odf.transform.walk import Walk
from kubothek.odf.transform.windows import Window, part_of, window_of
from kubothek.sql.statement import Node

_CALLS = ("window", "session_window")


@dataclass(slots=True)
class _Parts:
    """The parts of the SELECT: ``keys`` and ``calls`` by their canonical form, in the order of their appearance.

    ``prefixes``  of the columns with the arguments of each call
    """

    keys: dict[str, Node] = field(default_factory=dict)
    windows: dict[str, Window] = field(default_factory=dict)
    calls: dict[str, Node] = field(default_factory=dict)
    prefixes: list[str] = field(default_factory=list)


class GroupedSelect:
    """A SELECT with GROUP BY; ``name`` is that of its state.

    ``beside``  columns of the engine's own, with their types, that rows keep until they are grouped
    ``rows``    the relation that :meth:`answer` grouped; ``keys``: those of its columns that are the key
    """

    rows: str
    keys: list[str]

    def __init__(
        self,
        walk: Walk,
        session: Session,
        state: State,
        lateness: Lateness,
        name: str,
        beside: Mapping[str, str] = MappingProxyType({}),
        exchange: Exchange = straight,
    ) -> None:
        self._walk, self._session, self._state, self._name = walk, session, state, name
        self._lateness = lateness
        self._exchange = exchange
        self._where = walk.where
        self._beside = beside
        self._alias: str | None = None

    def answer(self, node: Node, source: From) -> Delta:
        """Return the delta of its answer. Raises TransformInvalid, TransformTooLarge."""
        self._check(node)
        self._alias = source.leaves[0].alias.casefold() if len(source.leaves) == 1 else None
        select_list, groups, having = (self._plain(node[key]) for key in ("select_list", "group_expressions", "having"))
        there = {name.casefold() for name in self._session.columns(self._session.source_text(source.tree))}
        parts = _Parts()
        for key in self._keys(node, select_list, groups, there):
            self._add_key(parts, key)
        self._times_first(parts)
        for each in own_nodes([select_list, having]):
            if each.get("class") == "FUNCTION" and function_of(each) in aggregates():
                parts.calls.setdefault(canon(each, self._alias), each)
        self.rows, types = self._rows(parts, node, source)
        self.keys = [f"k{n}" for n in range(len(parts.keys))]
        called = zip(parts.prefixes, parts.calls.values(), strict=True)
        made = [self._aggregate(prefix, call, types) for prefix, call in called]
        grouping = Grouping(self._name, self.keys, types, made)
        items = [self._item(item, parts, there) for item in select_list]
        names = [item.rpartition(" AS ")[2].casefold() for item in items]
        if alike := [name for name in names if names.count(name) > 1]:
            raise TransformInvalid(f"{self._where}: column {alike[0]} occurs twice; rename one with AS")
        condition = ""
        if having is not None:
            condition = f" WHERE {self._text_after(having, parts, there, self._aliases(select_list))}"

        def answers(groups: str) -> str:
            return f"SELECT {listed([*items, KEY])} FROM {groups}{condition}"

        closing = self._lateness.closing(self._end(parts))
        return self._walk.answered(grouping.difference(self._session, self._state, self.rows, answers, closing))

    def _check(self, node: Node) -> None:
        if len(node["group_sets"]) > 1:
            raise TransformInvalid(f"{self._where}: ROLLUP, CUBE and GROUPING SETS: write a UNION ALL of steps")
        if any(
            each.get("class") == "WINDOW" for each in own_nodes([node["select_list"], node["qualify"], node["having"]])
        ):
            raise TransformInvalid(
                f"{self._where}: OVER in a SELECT with GROUP BY: group in an earlier query, or in WITH"
            )
        if any(item["class"] == "STAR" for item in node["select_list"]):
            raise TransformInvalid(f"{self._where}: * with GROUP BY: name the columns")

    # --- keys --------------------------------------------------------------------------------------------------

    def _plain(self, tree: Any) -> Any:
        """Rewrite Flink's functions for parts of windows as fields of a struct."""

        def change(node: Node) -> Node | None:
            if (found := part_of(node)) is None:
                return None
            call, part, last = found
            text = f'({self._session.text(call)})."{part}"'
            return self._session.expression(f"({text} - to_milliseconds(1))" if last else text)

        return rewrite(tree, change)

    def _keys(self, node: Node, select_list: list[Node], groups: list[Node], there: set[str]) -> list[Node]:
        if node["aggregate_handling"] == "FORCE_AGGREGATES":
            return [item for item in select_list if not _sums_up(item)]
        found = []
        named = {item["alias"].casefold(): item for item in select_list if item["alias"]}
        for each in groups:
            if each["class"] == "CONSTANT" and each["literal"]["kind"] == "INTEGER":
                position = int(each["literal"]["text"])
                if not 1 <= position <= len(select_list):
                    raise TransformInvalid(f"{self._where}: GROUP BY {position}: there are {len(select_list)} columns")
                found.append(select_list[position - 1])
            elif (
                each["class"] == "COLUMN_REF"
                and len(each["column_names"]) == 1
                and each["column_names"][0].casefold() not in there
            ):
                found.append(named.get(each["column_names"][0].casefold(), each))
            else:
                found.append(each)
        for each in found:
            if _sums_up(each):
                raise TransformInvalid(f"{self._where}: GROUP BY {self._session.text(each)}: it is an aggregate itself")
        return found

    def _add_key(self, parts: _Parts, key: Node) -> None:
        """Add a key, or the window that it is a part of."""
        inside = [each for each in own_nodes(key) if window_of(each, self._constant, self._where) is not None]
        wanted = inside[0] if inside else key
        form = canon(wanted, self._alias)
        parts.keys.setdefault(form, wanted)
        if inside:
            window = window_of(wanted, self._constant, self._where)
            assert window is not None, "it was one above"
            parts.windows[form] = window

    def _times_first(self, parts: _Parts) -> None:
        """Put times first: state is sorted by key, so rows of one time are adjacent, and old ones come first."""
        ranked = sorted(
            parts.keys.items(),
            key=lambda each: each[0] not in parts.windows and length_of(self._session, each[1]) is None,
        )
        parts.keys = dict(ranked)

    def _end(self, parts: _Parts, *, of_rows: bool = False) -> str | None:
        """Return when a group ends, in microseconds, as SQL over its keys; None: never."""
        for number, (form, key) in enumerate(parts.keys.items()):
            if (window := parts.windows.get(form)) is not None:
                part = "" if of_rows and window.gap else '."end"'
                return f"epoch_us(k{number}{part})"
            if (length := length_of(self._session, key)) is not None:
                return end_of(f"k{number}", length)
        return None

    def _constant(self, node: Node) -> Any:
        if column_names(node):
            raise TransformInvalid(f"{self._where}: {self._session.text(node)} has to be a constant")
        return self._session.first(f"SELECT {self._session.text(node)}")[0]

    # --- rows --------------------------------------------------------------------------------------------------

    def _key_items(self, parts: _Parts) -> tuple[list[str], list[str], tuple[int, int] | None]:
        """Return the keys as SQL, the tests that keys are not NULL, and the number and gap of the session key."""
        items, present = list[str](), list[str]()
        gap = None
        for number, (form, key) in enumerate(parts.keys.items()):
            window = parts.windows.get(form)
            if window is not None and window.gap:
                if gap is not None:
                    raise TransformInvalid(f"{self._where}: a SELECT has one session window")
                gap = (number, window.gap)
                items.append(f"CAST({self._session.text(window.time)} AS TIMESTAMP) AS k{number}")
            elif window is not None:
                items.append(f"{window.sql(self._session.text(window.time))} AS k{number}")
            else:
                items.append(f"{self._session.text(key)} AS k{number}")
            if window is not None:
                present.append(f"k{number} IS NOT NULL")
        return items, present, gap

    def _rows(self, parts: _Parts, node: Node, source: From) -> tuple[str, dict[str, str]]:
        """Return a relation with keys, arguments of all aggregates and weights, and the types of its columns."""
        items, present, gap = self._key_items(parts)
        known: dict[tuple[str, ...], str] = {}
        for call in parts.calls.values():
            arguments = self._arguments(call)
            if arguments not in known:
                known[arguments] = f"a{len(known)}_"
                items += [f"{argument} AS {known[arguments]}{place}" for place, argument in enumerate(arguments)]
            parts.prefixes.append(known[arguments])
        rows = self._walk.project(source, items, node["where_clause"], [*parts.keys.values(), *parts.calls.values()])
        types = dict(rows.columns)
        end = self._end(parts, of_rows=True)
        name = self._normal(self._lateness.judged(rows, end), types, present)
        if gap is not None:
            keys = [f"k{n}" for n in range(len(parts.keys)) if n != gap[0]]
            closing = self._lateness.closing(f"epoch_us(k{gap[0]})")
            (name,) = self._exchange(self._session, Inflow(name, keys))
            name = with_sessions(
                self._session,
                self._state,
                f"{self._name}.session",
                name,
                {**types, **self._beside},
                keys,
                f"k{gap[0]}",
                gap[1],
                closing,
            )
            types[f"k{gap[0]}"] = self._session.columns(name)[f"k{gap[0]}"]
        (name,) = self._exchange(self._session, Inflow(name, [f"k{n}" for n in range(len(parts.keys))]))
        return name, types

    def _arguments(self, call: Node) -> tuple[str, ...]:
        """Return the arguments as SQL; a FILTER makes them NULL, which no aggregate counts."""
        condition = call.get("filter")
        arguments = [self._session.text(each) for each in arguments_of(call)]
        if condition is not None:
            text = self._session.text(condition)
            if function_of(call) in ("list", "array_agg"):
                raise TransformInvalid(f"{self._where}: {function_of(call)}() with FILTER: filter in an earlier query")
            arguments = [f"CASE WHEN {text} THEN {argument} END" for argument in arguments or ["true"]]
        return tuple(arguments)

    def _normal(self, rows: str, types: dict[str, str], present: list[str]) -> str:
        """Give zero one sign; otherwise, which of two equal values is kept would depend on which came first."""
        items = [
            f"CASE WHEN {name} = 0 THEN 0::{kind} ELSE {name} END AS {name}" if kind in ("DOUBLE", "FLOAT") else name
            for name, kind in types.items()
        ]
        condition = f" WHERE {' AND '.join(present)}" if present else ""
        kept = listed([*items, *self._beside, WEIGHT])
        return self._session.keep("grouped", f"SELECT {kept} FROM {rows}{condition}")

    def _aggregate(self, prefix: str, call: Node, types: dict[str, str]) -> Aggregate:
        if call.get("filter") is not None and not arguments_of(call):
            call = call | {"function_name": "count", "arguments": [{"expression": self._session.expression("true")}]}
        given = [kind for name, kind in types.items() if name.startswith(prefix)]
        return aggregate(call, prefix, given, self._session.text, self._where)

    # --- answers -----------------------------------------------------------------------------------------------

    def _item(self, item: Node, parts: _Parts, there: set[str]) -> str:
        return f"{self._text_after(item, parts, there, set())} AS {quoted(self._item_name(item))}"

    def _item_name(self, item: Node) -> str:
        """Return the column of the answer that an item gives."""
        if item["alias"]:
            return str(item["alias"])
        return str(item["column_names"][-1]) if item["class"] == "COLUMN_REF" else self._session.text(item)

    def _text_after(self, tree: Node, parts: _Parts, there: set[str], aliases: set[str]) -> str:
        """Return an expression over the groups, in which keys and aggregates are columns."""
        keys = {form: f"k{number}" for number, form in enumerate(parts.keys)}
        calls = {form: f"r{number}" for number, form in enumerate(parts.calls)}
        windows = [
            name for name, key in zip(keys.values(), parts.keys.values(), strict=True) if function_of(key) in _CALLS
        ]

        def change(node: Node) -> Node | None:
            form = canon(node, self._alias)
            if (name := keys.get(form) or calls.get(form)) is not None:
                return self._session.expression(name)
            if node["class"] == "COLUMN_REF" and windows and node["column_names"][0].casefold() in _CALLS:
                return self._session.expression(".".join([windows[0], *map(quoted, node["column_names"][1:])]))
            return None

        found = rewrite(tree, change)
        for names in column_names(found):
            own = len(names) and (names[0] in keys.values() or names[0] in calls.values())
            if not own and names[0].casefold() not in aliases and (names[0].casefold() in there or len(names) > 1):
                raise TransformInvalid(
                    f"{self._where}: column {'.'.join(names)} has to be in GROUP BY, or in an aggregate as max(…)"
                )
        return self._session.text(found)

    @staticmethod
    def _aliases(select_list: list[Node]) -> set[str]:
        return {item["alias"].casefold() for item in select_list if item["alias"]}


def _sums_up(tree: Node) -> bool:
    return any(each.get("class") == "FUNCTION" and function_of(each) in aggregates() for each in own_nodes(tree))


# Session windows: the rows of a key that follow each other within a gap.


def with_sessions(
    session: Session,
    state: State,
    name: str,
    rows: str,
    types: Mapping[str, str],
    keys: Sequence[str],
    time: str,
    gap: int,
    closing: Closing | None,
) -> str:
    """Return the rows with their session, a struct of its start and end, in place of their time.

    A session ends ``gap`` microseconds after its last row, so rows ``gap`` apart are in two sessions.
    """
    operator = Recompute(name, keys, types)
    others = [column for column in types if column != time]

    def parted(table: str) -> tuple[str, str, str]:
        """Return a query for the rows with the number of their session, and SQL for the session's start and end."""
        order = f"PARTITION BY {ID} ORDER BY {time}"
        apart = f"epoch_us({time}) - epoch_us(lag({time}) OVER ({order})) >= {gap}"
        first = f"SELECT *, coalesce({apart}, true)::INTEGER AS __new FROM {table}"
        query = f"SELECT *, sum(__new) OVER ({order}, __new DESC ROWS UNBOUNDED PRECEDING) AS __session FROM ({first})"
        part = f"PARTITION BY {ID}, __session"
        return query, f"min({time}) OVER ({part})", f"make_timestamp(epoch_us(max({time}) OVER ({part})) + {gap})"

    def answer(table: str) -> str:
        query, start, end = parted(table)
        window = f'struct_pack("start" := {start}, "end" := {end}) AS {time}'
        return f"SELECT {listed([*others, window, ID])} FROM ({query})"

    def left(table: str) -> str:
        query, _, end = parted(table)
        assert closing is not None, "it is asked for where there is one"
        open_ = "true" if closing.at is None else f"epoch_us({end}) > {closing.at}"
        return f"SELECT * EXCLUDE (__new, __session) FROM ({query}) QUALIFY {open_}"

    stays = left if closing is not None and closing.at is not None else None
    closes = closing if stays is not None else None
    return operator.difference(session, state, rows, answer, closes, stays)
