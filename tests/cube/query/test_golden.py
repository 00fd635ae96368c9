"""The golden cubes: what kartothek 5.3 answered, and what the newest rows say, which is not always the same."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

import kubothek
from kubothek.cube.handle import Cube
from kubothek.cube.query import CubeQuery
from kubothek.errors import InputError
from kubothek.table.log.multi.spec import CubeSpec, is_hidden
from tests.cube.query.world import Content, Question, Shape, Table, answer
from tests.properties.filters import Filter
from tests.table import golden

pytestmark = pytest.mark.slow

STORES = ("k53-cube", "k53-cube-legacy")
CUBES = {
    (store, prefix): cube
    for store in STORES
    for prefix, cube in json.loads((golden.ROOT / store / "expected.json").read_text())["cubes"].items()
}
QUERIES = [
    pytest.param(where, query, id=f"{where[1]}:{query['name']}")
    for where, cube in CUBES.items()
    for query in (*cube["queries"], *cube.get("quirks", ()))
]
STALE = {
    *("partition-eq-and-range", "partition-by-enrichment-index", "partition-by-seed-index-and-country"),
    *("stale-cell-by-payload-condition", "stale-cell-by-partition-by"),
}
"""Recorded answers with rows that were written over: conditions choose rows before the newest of a cell is taken."""

recorded = pytest.mark.parametrize(("where", "query"), QUERIES)


def cube(where: tuple[str, str]) -> Cube:
    store, prefix = where
    return kubothek.open((golden.ROOT / store / "store").as_uri()).cube(prefix)


def ask(where: tuple[str, str], query: dict[str, Any], **how: Any) -> CubeQuery:
    names = ("conditions", "datasets", "dimension_columns", "partition_by", "payload_columns")
    return cube(where).query(**({name: query[name] for name in names} | how))


@recorded
def test_golden_query_returns_recorded_result(where: tuple[str, str], query: dict[str, Any]) -> None:
    found = ask(where, query)
    assert query["columns"] in (None, found.schema.names)
    groups = list(found.groups())
    assert [list(group.key.values()) or None for group in groups] == [each["key"] for each in query["groups"]]
    assert [in_order(group.rows) for group in groups] == [each["rows"] for each in query["groups"]]


@recorded
def test_golden_query_with_newest_only_returns_newest_rows(where: tuple[str, str], query: dict[str, Any]) -> None:
    found = ask(where, query, newest_only=True)
    columns, expected = answer(content(where), question(where, query), newest_only=True)
    assert found.schema.names == columns
    assert {tuple(group.key.values()): group.rows.to_pylist() for group in found.groups()} == expected
    same = [in_order(group.rows) for group in found.groups()] == [each["rows"] for each in query["groups"]]
    assert same is (query["name"] not in STALE)


def test_golden_query_conditions_as_text_equal_recorded_conditions() -> None:
    where = ("k53-cube", "geo")
    texts = [query for query in CUBES[where]["queries"] if "conditions_as_text" in query]
    assert texts
    for query in texts:
        as_text = ask(where, query, conditions=query["conditions_as_text"])
        assert as_text.plan.where == ask(where, query).plan.where


@pytest.mark.parametrize("error", CUBES["k53-cube", "geo"]["errors"], ids=lambda error: error["name"])
def test_golden_query_refused_by_kartothek_is_refused(error: dict[str, Any]) -> None:
    if error["call"].startswith("conditions"):
        column, value = ("temp", "a") if error["name"] == "wrong-type" else ("nope", 1)
        arguments: dict[str, Any] = {"conditions": [(column, "==", value)]}
    else:
        arguments = eval(f"dict({error['call']})")  # the call as it was recorded
    with pytest.raises(InputError):
        cube(("k53-cube", "geo")).query(**arguments)


# --- the same told to the naive model --------------------------------------------------------------------------------


def content(where: tuple[str, str]) -> Content:
    """The cube with one row a cell: the newest, as it was recorded."""
    expected = CUBES[where]
    found = {name: value for name, value in expected["discovered"].items() if name != "uuid_prefix"}
    spec = CubeSpec.of(where[1], **found)
    tables, rows = {}, {}
    indexed = (*found["index_columns"], *spec.indexed_dimensions)
    for name, each in expected["datasets"].items():
        kinds = ("partition_keys", "dimension_columns", "payload_columns")
        partition_on, dimensions, payload = (tuple(c for c in each[kind] if not is_hidden(c)) for kind in kinds)
        tables[name] = Table(name, dimensions, partition_on, payload, indexed)
        rows[name] = [
            {c: typed(where, c, value) for c, value in zip(each["cells"]["columns"], row, strict=True)}
            for row in each["cells"]["rows"]
        ]
    return Content(Shape(spec, tables), rows)


def question(where: tuple[str, str], query: dict[str, Any]) -> Question:
    literals: list[tuple[str, str, Any]] = []
    for column, op, value in query["conditions"]:
        if op == "in_interval":
            literals += [(column, ">=", typed(where, column, value[0])), (column, "<", typed(where, column, value[1]))]
        else:
            many = isinstance(value, list)
            plain = [typed(where, column, each) for each in value] if many else typed(where, column, value)
            literals.append((column, "=" if op == "==" else op, plain))
    others = ("datasets", "dimension_columns", "partition_by", "payload_columns")
    some = [None if query[name] is None else tuple(query[name]) for name in others]
    return Question(Filter((tuple(literals),)) if literals else None, *some)


def typed(where: tuple[str, str], column: str, value: Any) -> Any:
    return datetime.fromisoformat(value) if value and CUBES[where]["types"][column] == "timestamp" else value


def in_order(rows: Any) -> list[list[Any]]:
    return [[golden._notation(value) for value in row.values()] for row in rows.to_pylist()]
