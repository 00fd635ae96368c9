"""From queries to the deltas of their answers: each part of a query maps weighted rows to weighted rows.

Rows of an input have the weight 1 or -1. A part that treats each row alone passes weights on; a part with a state gives
the difference between its answers after and before. So parts compose, and it is irrelevant how runs divide the inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Protocol

from kubothek.errors import TransformInvalid
from kubothek.in_memory_database import quoted
from kubothek.odf.transform.allowed import aggregates, function_of, own_nodes, require_allowed, require_columns
from kubothek.odf.transform.delta import Delta
from kubothek.odf.transform.lateness import Lateness
from kubothek.odf.transform.scan import INPUT, KEY, RECORD, WEIGHT
from kubothek.odf.transform.session import Session, listed
from kubothek.odf.transform.sources import From, has_unnest, joins, read_from
from kubothek.odf.transform.state import sort_key
from kubothek.sql.statement import Node

Scope = Mapping[str, Delta]
_UNIONS: Final = {"UNION": "UNION ALL", "UNION_BY_NAME": "UNION ALL BY NAME"}


class StatefulOperators(Protocol):
    """What a walk calls of :class:`~kubothek.odf.transform.operators.Operators`: a method for each kind of node."""

    lateness: Lateness
    step: int

    def distinct(self, walk: Walk, rows: Delta) -> Delta: ...

    def prepare(self, walk: Walk, source: From) -> None: ...

    def grouped(self, walk: Walk, node: Node, source: From) -> Delta: ...

    def windowed(self, walk: Walk, node: Node, source: From) -> Delta: ...

    def joined(self, walk: Walk, source: From, items: list[str], condition: Node | None) -> Delta: ...


class Walk:
    """A walk through the queries of one transformation; ``where`` names the current query in messages."""

    def __init__(self, session: Session, operators: StatefulOperators) -> None:
        self._session = session
        self.operators = operators
        self.where = "query"

    def query(self, node: Node, scope: Scope) -> Delta:
        """Return the delta of a query's answer. Raises TransformInvalid, TransformTooLarge."""
        self.operators.lateness.where = self.where
        scope = self._with(node, scope)
        distinct = self._modifiers(node)
        match node["type"]:
            case "SELECT_NODE":
                found = self._select(node, scope)
            case "SET_OPERATION_NODE":
                found = self._union(node, scope)
                distinct = distinct or not node["setop_all"]
            case kind:
                raise TransformInvalid(f"{self.where}: {kind.removesuffix('_NODE')} cannot be kept up to date")
        return self.operators.distinct(self, found) if distinct else found

    def _with(self, node: Node, scope: Scope) -> Scope:
        for entry in node["cte_map"]["map"]:
            if entry["value"]["aliases"]:
                raise TransformInvalid(f"{self.where}: WITH {entry['key']}(…): name the columns inside, with AS")
            found = self.query(entry["value"]["query_node"], scope)
            scope = {**scope, entry["key"].casefold(): found}
        return scope

    def _modifiers(self, node: Node) -> bool:
        """Return whether duplicates are removed. Raises TransformInvalid for modifiers other than DISTINCT."""
        distinct = False
        for each in node["modifiers"]:
            if each["type"] == "DISTINCT_MODIFIER" and not each["distinct_on_targets"]:
                distinct = True
            elif each["type"] == "DISTINCT_MODIFIER":
                raise TransformInvalid(
                    f"{self.where}: DISTINCT ON: write QUALIFY row_number() OVER (PARTITION BY … ORDER BY …) = 1"
                )
            elif each["type"] == "ORDER_MODIFIER":
                raise TransformInvalid(f"{self.where}: ORDER BY: records have their order, by event time; leave it out")
            else:
                raise TransformInvalid(
                    f"{self.where}: LIMIT: write QUALIFY row_number() OVER (ORDER BY …) <= n, which stays true"
                )
        return distinct

    # --- UNION ALL -----------------------------------------------------------------------------------------------

    def _union(self, node: Node, scope: Scope) -> Delta:
        word = _UNIONS.get(node["setop_type"])
        if word is None:
            raise TransformInvalid(
                f"{self.where}: {node['setop_type']} cannot be kept up to date; there is UNION [ALL]"
            )
        parts = [self.query(child, scope) for child in node["children"]]
        keyed = any(part.keyed for part in parts)
        queries = [f"SELECT {self._all(part, keyed)} FROM {part.name}" for part in parts]
        name = self._session.view("union", f" {word} ".join(queries))
        steps = {part.step for part in parts}
        return self.delta(name, keyed=keyed, step=steps.pop() if len(steps) == 1 else None)

    @staticmethod
    def _all(part: Delta, keyed: bool) -> str:
        columns = [quoted(column) for column in part.columns]
        if not keyed or part.keyed:
            return listed([*columns, *part.hidden])
        key = f"{sort_key([INPUT, RECORD])} AS {KEY}"
        return listed([*columns, WEIGHT, key])

    # --- SELECT --------------------------------------------------------------------------------------------------

    def _select(self, node: Node, scope: Scope) -> Delta:
        parts = [node[part] for part in ("select_list", "where_clause", "group_expressions", "having", "qualify")]
        require_allowed(parts, self.where)
        if node["sample"] is not None:
            raise TransformInvalid(f"{self.where}: a sample is not decided by the inputs alone; filter by a column")
        source = read_from(node["from_table"], scope, lambda inner: self.query(inner, scope), self.where)
        parts += [join["condition"] for join in joins(source.tree)]
        require_allowed(parts, self.where)
        columns = {column.casefold() for leaf in source.leaves for column in leaf.delta.columns}
        require_columns([*parts, source.tree], columns, self.where)
        if not source.leaves:
            raise TransformInvalid(f"{self.where}: it reads no input; there are {', '.join(sorted(scope))}")
        if len(source.leaves) > 1:
            self.operators.prepare(self, source)
        if is_grouped(node):
            return self.operators.grouped(self, node, source)
        if has_windows(node):
            return self.operators.windowed(self, node, source)
        return self.project(source, self.items(node["select_list"], source), node["where_clause"], node["select_list"])

    def items(self, select_list: list[Node], source: From) -> list[str]:
        """Return the SELECT list as SQL; stars leave out the engine's own columns."""
        return [self._item(item, source) for item in select_list]

    def _item(self, item: Node, source: From) -> str:
        if item["class"] == "STAR":
            if item["columns"]:
                raise TransformInvalid(f"{self.where}: COLUMNS(…): name the columns")
            relation = item["relation_name"].casefold()
            own = [
                column
                for leaf in source.leaves
                if not relation or leaf.alias.casefold() == relation
                for column in leaf.delta.hidden
            ]
            return self._session.text(item | {"exclude_list": [*item["exclude_list"], *own]})
        text = self._session.text(item)
        return f"{text} AS {quoted(item['alias'])}" if item["alias"] else text

    def project(self, source: From, items: list[str], condition: Node | None, parts: object) -> Delta:
        """Return the delta of ``SELECT items FROM source WHERE condition``; ``parts`` is the tree of the items."""
        if len(source.leaves) > 1:
            return self.operators.joined(self, source, items, condition)
        (leaf,) = source.leaves
        query = f"SELECT {listed([*items, *leaf.delta.hidden])} FROM {self._session.source_text(source.tree)}"
        if condition is not None:
            query += f" WHERE {self._session.text(condition)}"
        self._session.require_distinct(query, self.where)
        name = self._session.view("rows", query)
        whole = leaf.delta.whole and not source.unfolds and not has_unnest(parts)
        return self.delta(name, keyed=leaf.delta.keyed, whole=whole, step=leaf.delta.step)

    def answered(self, name: str) -> Delta:
        """Return the delta that a stateful operator made of the rows exchanged last. Raises as :meth:`delta`."""
        return self.delta(name, keyed=True, step=self.operators.step)

    def delta(self, name: str, *, keyed: bool, whole: bool = False, step: int | None = 0) -> Delta:
        """Return the delta that a part of the query made. Raises TransformInvalid for ambiguous columns."""
        found = Delta(name, {}, keyed, whole, step=step)
        columns = {column: kind for column, kind in self._session.columns(name).items() if column not in found.hidden}
        return replace(found, columns=columns)


def is_grouped(node: Node) -> bool:
    """Return whether a SELECT aggregates rows."""
    if node["group_expressions"] or node["group_sets"] or node["having"] is not None:
        return True
    if node["aggregate_handling"] == "FORCE_AGGREGATES":
        return True
    return any(
        each.get("class") == "FUNCTION" and function_of(each) in aggregates() for each in own_nodes(node["select_list"])
    )


def has_windows(node: Node) -> bool:
    """Return whether a SELECT has window functions."""
    parts = (node["select_list"], node["qualify"])
    return any(each.get("class") == "WINDOW" for each in own_nodes(parts))
