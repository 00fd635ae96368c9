"""Parse a statement with DuckDB and check it against lists of allowed parts, before any of it runs.

No code here interprets raw text: DuckDB's tokenizer handles comments, strings and quoting, its parser the structure. A
kind of node, a function or a table function that is on no list is refused; additions of later DuckDB versions are
therefore refused as well.

**Time travel.** A dataset may be followed by ``AS OF VERSION 3``, ``AS OF TIMESTAMP '2026-11-21 14:00'`` (without time
zone: UTC) or ``AS OF TAG 'audit'``, then by its alias. DuckDB's own ``AT (VERSION => 3)``, which follows the alias,
means the same.

**Changes.** A call of ``table_changes`` becomes a table, as an ``AS OF`` clause does (:mod:`kubothek.sql.changes`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

import duckdb
import orjson

from kubothek.errors import QueryInvalid
from kubothek.in_memory_database import functions, nodes, quoted
from kubothek.sql.changes import FUNCTION, Feed, feed_of, is_call
from kubothek.table.log import Version
from kubothek.table.log.model.record import utc

Node: TypeAlias = dict[str, Any]

_QUERY_NODES: Final = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_TABLE_NODES: Final = frozenset(
    {"BASE_TABLE", "SUBQUERY", "JOIN", "TABLE_FUNCTION", "EXPRESSION_LIST", "EMPTY", "PIVOT", "CTE"}
)
_TABLE_FUNCTIONS: Final = frozenset({"generate_series", "range", "repeat", "unnest"})
_IMPURE_BUT_FINE: Final = frozenset(
    {"current_date", "get_current_time", "get_current_timestamp", "now", "today", "transaction_timestamp"}
    | {"error", "gen_random_uuid", "random", "uuid", "uuidv4", "uuidv7"}
)
"""Functions that DuckDB's catalogue calls impure, but that reveal and change nothing of the machine."""
_MARK: Final = " AS OF "
_FOREIGN_TRAVEL: Final = re.compile(r"\b(VERSION|TIMESTAMP|SYSTEM_TIME|SYSTEM_VERSION)\s+AS\s+OF\b", re.IGNORECASE)
"""The syntax of Spark and others; matched only in text that does not parse, for a better message."""
_UNITS: Final = {
    "VERSION": duckdb.token_type.numeric_const,
    "TIMESTAMP": duckdb.token_type.string_const,
    "TAG": duckdb.token_type.string_const,
}


class Reference(NamedTuple):
    """A dataset, and the version to read; None = that of the whole query.

    ``feed``  not the dataset is read, but its changes up to this version
    """

    name: str
    as_of: Version | None
    feed: Feed | None = None

    def __str__(self) -> str:
        if self.feed is not None:
            return str(self.feed)
        if self.as_of is None:
            return self.name
        if isinstance(self.as_of, int):
            return f"{self.name}{_MARK}VERSION {self.as_of}"
        if isinstance(self.as_of, str):
            return f"{self.name}{_MARK}TAG {self.as_of}"
        return f"{self.name}{_MARK}TIMESTAMP {self.as_of.isoformat()}"


@dataclass(frozen=True, slots=True)
class Statement:
    """One SELECT that is allowed to run.

    ``text``    SQL to run: datasets have the names of ``tables`` in it
    ``tree``    DuckDB's parse tree of it
    ``tables``  the dataset of each table name in the text
    ``local``   names of WITH clauses, in lower case: such a name may mean the clause, or a dataset
    ``outer``   names of ``tables`` that occur, at least once, outside the scope of a WITH clause with that name. They
                must be datasets, because DuckDB looks up anything else in its own catalogue
    """

    text: str
    tree: Node
    tables: Mapping[str, Reference]
    local: frozenset[str]
    outer: frozenset[str]


def parse(database: duckdb.DuckDBPyConnection, text: str, *, feeds: bool = False) -> Statement:
    """Parse and check the text; runs nothing of it. Raises QueryInvalid, and duckdb.Error for a syntax error.

    ``feeds``  allow ``table_changes``, whose calls become tables (:mod:`kubothek.sql.changes`)
    """
    marked, marks = _mark_versions(text)
    kinds = _kinds(database, text, marked)
    if kinds != ["SELECT"]:
        raise QueryInvalid(f"expected exactly one SELECT, found {', '.join(kinds) or 'nothing'}")
    tree = _tree(database, marked)
    _require_allowed(tree, feeds=feeds)
    tables = _replace_feeds(tree)
    travelled = 0
    for node in base_tables(tree):
        if node["table_name"] in tables and tables[node["table_name"]].feed is not None:
            continue
        reference = _reference(node)
        if reference.as_of is not None:
            travelled += _MARK in node["table_name"]
            node["alias"] = node["alias"] or reference.name
            node["at_clause"] = None
            node["table_name"] = str(reference)
            node["qualified_name"] = {"path": [str(reference)]}
        tables[node["table_name"]] = reference
    if travelled < marks:
        raise QueryInvalid("AS OF belongs directly after the name of a dataset, before its alias")
    _require_distinct(tables)
    if any(reference.as_of is not None or reference.feed is not None for reference in tables.values()):
        ((marked,),) = database.execute("SELECT json_deserialize_sql(?)", [orjson.dumps(tree).decode()]).fetchall()
    local = frozenset(name for node in nodes(tree) for name in _with_names(node))
    return Statement(marked, tree, tables, local, _outer(tree))


def base_tables(tree: Node) -> Iterator[Node]:
    """Return the nodes of the statement that read from a plain name."""
    return (node for node in nodes(tree) if node.get("type") == "BASE_TABLE")


def _outer(tree: Node) -> frozenset[str]:
    """Return the names of tables that occur outside the scope of a WITH clause with that name.

    A query of a WITH clause sees the earlier ones; a recursive one sees itself after its UNION.
    """
    found: set[str] = set()
    pending: list[tuple[object, frozenset[str]]] = [(tree, frozenset())]
    while pending:
        node, scope = pending.pop()
        if isinstance(node, list):
            pending.extend((each, scope) for each in node)
        if not isinstance(node, dict):
            continue
        for entry in node.get("cte_map", {}).get("map", ()):
            pending.append((entry["value"], scope))
            scope |= {entry["key"].casefold()}
        if node.get("type") == "BASE_TABLE" and node["table_name"].casefold() not in scope:
            found.add(node["table_name"])
        for key, value in node.items():
            itself = node.get("type") == "RECURSIVE_CTE_NODE" and key == "right"
            if key != "cte_map":
                pending.append((value, scope | {node["cte_name"].casefold()} if itself else scope))
    return frozenset(found)


# --- time travel ----------------------------------------------------------------------------------------------------


def _mark_versions(text: str) -> tuple[str, int]:
    """Return the text with each ``name AS OF VERSION 3`` as one quoted name "name AS OF VERSION 3", and their number.

    No statement that DuckDB accepts has these four tokens in a row, so no statement changes its meaning.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise QueryInvalid(f"the statement is no valid text: {error}") from None
    tokens = duckdb.tokenize(text)
    ends = [*(start for start, _ in tokens), len(data)][1:]
    words = [
        (start, data[start:end].decode().strip(), kind)
        for (start, kind), end in zip(tokens, ends, strict=True)
        if kind is not duckdb.token_type.comment
    ]
    pieces, done, marks = [], 0, 0
    for at in range(len(words) - 4):
        (start, name, kind), *clause, (last, literal, literal_kind) = words[at : at + 5]
        unit = clause[2][1].upper()
        spelled = [word.upper() for _, word, _ in clause[:2]] == ["AS", "OF"] and _UNITS.get(unit) is literal_kind
        if not spelled or kind not in (duckdb.token_type.identifier, duckdb.token_type.keyword):
            continue
        plain = name[1:-1].replace('""', '"') if name.startswith('"') else name
        value = literal if unit == "VERSION" else literal[1:-1]
        pieces += [data[done:start], quoted(f"{plain}{_MARK}{unit} {value}").encode()]
        done, marks = last + len(literal.encode()), marks + 1
    return b"".join([*pieces, data[done:]]).decode(), marks


def _kinds(database: duckdb.DuckDBPyConnection, text: str, marked: str) -> list[str]:
    """Return the kinds of the statements in the text. Raises QueryInvalid."""
    try:
        return [found.type.name for found in database.extract_statements(marked)]
    except ValueError:  # a kind that DuckDB's Python package does not know
        return ["another kind of statement"]
    except duckdb.ParserException as error:
        if (spelled := _FOREIGN_TRAVEL.search(text)) is None:
            raise
        unit = "TIMESTAMP '2026-11-21 14:00'" if "TIME" in spelled[0].upper() else "VERSION 3"
        hint = f"time travel is written as FROM flights AS OF {unit}"
        raise QueryInvalid(f"{error}\n{hint}") from error


def _reference(node: Node) -> Reference:
    name: str = node["table_name"]
    if node["schema_name"] or node["catalog_name"]:
        raise QueryInvalid(
            f'{node["schema_name"]}.{name}: datasets have plain names; quote one that has dots or dashes: "a-b"'
        )
    plain, mark, clause = name.partition(_MARK)
    at = node["at_clause"]
    if at is not None:
        return Reference(plain, _version(at["unit"], _literal(at["expr"])))
    if not mark:
        return Reference(name, None)
    unit, _, value = clause.partition(" ")
    return Reference(plain, _version(unit, value))


def _literal(expression: Node) -> str:
    """Return the text of a constant, which may be in casts, such as ``TIMESTAMP '2026-11-21'``."""
    while expression.get("type") == "OPERATOR_CAST":
        expression = expression["child"]
    if expression.get("type") != "VALUE_CONSTANT":
        raise QueryInvalid("the version or time to read must be a literal: AT (VERSION => 3)")
    return str(expression["literal"]["text"])


def _version(unit: str, value: str) -> Version:
    try:
        if unit.upper() == "VERSION":
            return int(value)
        if unit.upper() == "TAG":
            return value
        return utc(datetime.fromisoformat(value))
    except (ValueError, OverflowError):
        raise QueryInvalid(f"{value!r} is no {unit.lower()} to read; write 3, or '2026-11-21 14:00:00'") from None


def _replace_feeds(tree: Node) -> dict[str, Reference]:
    """Replace each call of ``table_changes`` in the tree by a table; return what these tables are."""
    tables = {}
    for node in nodes(tree):
        if is_call(node):
            feed = feed_of(node)
            reference = Reference(feed.name, feed.after, feed)
            tables[str(feed)] = reference
            kept = {name: node[name] for name in ("sample", "query_location", "column_name_alias")}
            alias = node["alias"] or FUNCTION
            node.clear()
            node.update(kept, type="BASE_TABLE", alias=alias, schema_name="", catalog_name="", at_clause=None)
            node.update(table_name=str(feed), qualified_name={"path": [str(feed)]})
    return tables


# --- allowed parts --------------------------------------------------------------------------------------------------


def _tree(database: duckdb.DuckDBPyConnection, text: str) -> Node:
    ((serialized,),) = database.execute("SELECT json_serialize_sql(?)", [text]).fetchall()
    try:
        tree = orjson.loads(serialized)
    except orjson.JSONDecodeError as error:
        raise QueryInvalid("the statement is nested too deeply") from error
    if tree["error"]:
        raise QueryInvalid(str(tree.get("error_message")))
    return dict(tree)


def _require_allowed(tree: Node, *, feeds: bool) -> None:
    impure = impure_functions()
    for node in nodes(tree):
        kind = str(node.get("type", ""))
        if kind.endswith("_NODE") and kind not in _QUERY_NODES:
            raise QueryInvalid(f"{kind.removesuffix('_NODE').removesuffix('_QUERY')} is not allowed in a query")
        if "sample" in node and kind not in _QUERY_NODES | _TABLE_NODES:
            what = "SHOW, DESCRIBE and SUMMARIZE" if kind == "SHOW_REF" else kind
            raise QueryInvalid(f"{what} is not allowed in a query; `kubothek describe` shows a dataset")
        if kind == "TABLE_FUNCTION" and not (feeds and is_call(node)):
            _require_harmless(node["function"]["function_name"])
        elif node.get("class") in ("FUNCTION", "WINDOW") and node["function_name"].casefold() in impure:
            raise QueryInvalid(
                f"function {node['function_name']!r} reads or changes something outside of the query: not allowed"
            )


def _require_harmless(function: str) -> None:
    if function.casefold() not in _TABLE_FUNCTIONS:
        raise QueryInvalid(
            f"function {function!r} is not allowed in FROM; rows come from datasets, or from "
            + ", ".join(sorted(_TABLE_FUNCTIONS))
        )


def impure_functions() -> frozenset[str]:
    """Return the functions that DuckDB's catalogue does not call pure, except harmless ones.

    These are settings, sequences, variables, the log, and imitations of PostgreSQL's catalogue.
    """
    impure = "stability <> 'CONSISTENT' OR has_side_effects OR (function_type = 'macro' AND schema_name <> 'main')"
    return functions(impure) - _IMPURE_BUT_FINE


def _require_distinct(tables: Mapping[str, Reference]) -> None:
    folded = Counter(table.casefold() for table in tables)
    if clash := sorted(table for table in tables if folded[table.casefold()] > 1):
        raise QueryInvalid(f"{' and '.join(map(repr, clash))} differ in case only, which SQL does not see")


def _with_names(node: Node) -> Iterator[str]:
    """Yield the names of a WITH clause's queries."""
    for entry in node.get("cte_map", {}).get("map", ()):
        yield entry["key"].casefold()
