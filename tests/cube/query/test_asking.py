"""What can be asked of a cube, in which forms, and what is refused."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from kubothek.cube.handle import Cube
from kubothek.cube.query import C, as_conditions
from kubothek.errors import FilterInvalid, QueryInvalid
from kubothek.storage import StoreConfig, open_store
from kubothek.table.expressions import Predicate, parse
from tests.cube.query.small import built

pytestmark = pytest.mark.slow

COLUMNS: dict[str, pa.DataType] = {
    "x": pa.int64(),
    "big": pa.uint64(),
    "city": pa.string(),
    "share": pa.float64(),
    "open": pa.bool_(),
    "day": pa.date32(),
    "at": pa.timestamp("us"),
}


@pytest.fixture(scope="module")
def cube(tmp_path_factory: pytest.TempPathFactory) -> Cube:
    return built(open_store(StoreConfig(Path(tmp_path_factory.mktemp("cube")).as_uri())))


FORMS: list[tuple[Any, str]] = [
    (None, "TRUE"),
    ([], "TRUE"),
    ("x = 1 AND city != 'a'", "x = 1 AND city != 'a'"),
    (parse("x < 3"), "x < 3"),
    ([("x", "==", 1), ("city", "in", ["a", "b"])], "x = 1 AND city IN ('a', 'b')"),
    ([[("x", "==", 1), ("city", "isin", ("a",))], [("day", "is null")]], "(x = 1 AND city IN ('a')) OR day IS NULL"),
    ([("x", ">", 1), "city = 'a' OR city IS NULL"], "(x > 1 AND city = 'a') OR (x > 1 AND city IS NULL)"),
    ([("x", "in_interval", (1, 3))], "x >= 1 AND x < 3"),
    ([("x", "in_interval", [1, None])], "x >= 1"),
    ([[("x", "in_interval", (None, 3))], [("x", "==", 9)]], "x < 3 OR x = 9"),
    ([C("x") >= 1, C("city").isin(["a"])], "x >= 1 AND city IN ('a')"),
    (
        (C("x") == 1) & (C("day") < date(2024, 1, 1)) | C("city").is_null(),
        "(x = 1 AND day < '2024-01-01') OR city IS NULL",
    ),
    (C("x").in_interval(np.int64(1), 3) & (C("x") != 2), "x >= 1 AND x < 3 AND x != 2"),
    ([C("x") <= 1, C("x") > 0, C("open").is_not_null()], "x <= 1 AND x > 0 AND open IS NOT NULL"),
    ("city == Köln & x >= 15", "city = 'Köln' AND x >= 15"),
    ("city = 'New Castle' & share < 0.5", "city = 'New Castle' AND share < 5e-1"),
    ("open == true&x!=3", "open = TRUE AND x != 3"),
    ("day == 2024-01-01 & at < 2024-01-01T10:00", "day = '2024-01-01' AND at < '2024-01-01 10:00:00'"),
]


@pytest.mark.parametrize(("given", "meant"), FORMS, ids=[meant for _, meant in FORMS])
def test_query_conditions_in_each_form_bind_to_same_predicate(given: Any, meant: str) -> None:
    schema = pa.schema(list(COLUMNS.items()))
    assert same(as_conditions(given, COLUMNS).bind(schema)) == same(parse(meant).bind(schema))


def same(predicate: Predicate) -> set[frozenset[str]]:
    return {frozenset(repr((t.column, t.op, t.value)) for t in terms) for terms in predicate.conjunctions}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("x = y", "expected a literal"),
        ("x == city", "expected a literal"),
        ("x == 1 & nope == 2", "unexpected '&'"),
        ("x == a & city == b", "'a' is not a valid int64"),
        ("x == 1 AND", "incomplete after AND"),
        ("x ==", "expected a literal"),
        ({"x": 1}, "conditions are text"),
        (7, "conditions are text"),
        ([("x", "==", None)], "nothing compares with NULL"),
        ([("x", "~", 1)], "the operator is one of"),
        ([("x", "in_interval", 1)], "takes (start, stop)"),
        ([("x", "in_interval", (None, None))], "without start and stop"),
        ([["x", 1]], "expected (column, operator, literal)"),
        ([[]], "expected a list of (column, operator, literal)"),
    ],
)
def test_query_conditions_that_are_invalid_are_refused(given: Any, said: str) -> None:
    with pytest.raises(FilterInvalid) as error:
        as_conditions(given, {**COLUMNS, "y": pa.int64()})
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"conditions": "nope = 1"}, "nope"),
        ({"conditions": "n = 'a'"}, "column 'n' is int64: cannot compare it with the string 'a'"),
        ({"conditions": [("kind", "==", 1)]}, "column 'kind' is string: cannot compare it with the integer 1"),
        ({"conditions": "stock = 1", "datasets": ["sales"]}, "stock"),
        ({"datasets": ["sales", "zzz"]}, "datasets: the cube has no dataset 'zzz'; there is 'sales', 'kinds', 'stock'"),
        ({"datasets": ["kinds"]}, "the seed 'sales' is missing"),
        ({"datasets": "stock"}, "the seed 'sales' is missing"),
        ({"dimension_columns": []}, "dimension_columns cannot be empty"),
        ({"dimension_columns": ["x", "p"]}, "the cube has no dimension column 'p'"),
        ({"dimension_columns": ["x", "x"]}, "'x' is named twice"),
        ({"dimension_columns": ["x"]}, "cannot project dataset 'sales' with the dimensions 'x', 'y' to 'x'"),
        ({"dimension_columns": ["y"], "payload_columns": ["kind"]}, "cannot project dataset 'kinds'"),
        ({"dimension_columns": ["x"], "payload_columns": [], "conditions": "n = 1"}, "keep its payload 'n'"),
        (
            {"dimension_columns": ["x"], "payload_columns": ["y"]},
            "'y' is a dimension that dimension_columns leave out",
        ),
        ({"payload_columns": ["stok"]}, "payload_columns: the cube has no column 'stok'; did you mean 'stock'?"),
        ({"payload_columns": [3]}, "payload_columns: 3 of type int is not a name"),
        ({"partition_by": ["zzz"]}, "partition_by: the cube has no column 'zzz'"),
        (
            {"partition_by": ["n"]},
            "partition_by: 'n' has no index; indexed are 'kind', 'p', 'x'",
        ),
    ],
)
def test_query_with_invalid_arguments_is_refused_with_name_and_rule(
    cube: Cube, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises((QueryInvalid, FilterInvalid)) as error:
        cube.query(**arguments)
    assert said in str(error.value)


def test_query_accepts_dimension_subset_as_projection(cube: Cube) -> None:
    found = cube.query("y = 0 AND x < 20", dimension_columns="x", payload_columns=["kind", "p"])
    assert found.to_arrow().to_pylist() == [
        {"kind": "k0", "p": 0, "x": 0},
        {"kind": None, "p": 0, "x": 1},
        {"kind": "k1", "p": 1, "x": 10},
        {"kind": None, "p": 1, "x": 11},
    ]
    (group,) = cube.query(dimension_columns="y", partition_by=["p"], conditions="p = 2", payload_columns=[]).groups()
    assert (group.key, group.rows.to_pylist()) == ({"p": 2}, [{"p": 2, "y": 0}])


def test_query_result_in_pandas_uses_float_for_missing_integers(cube: Cube) -> None:
    found = cube.query("x IN (0, 1)", payload_columns=["stock", "note"]).to_pandas()
    assert found.columns.tolist() == ["note", "p", "stock", "x", "y"]
    assert found.index.equals(pd.RangeIndex(2))
    assert found["stock"].dtype == "float64"
    assert found["stock"].isna().tolist() == [False, True]


def test_query_condition_with_pandas_timestamp_binds_as_literal() -> None:
    schema = pa.schema(list(COLUMNS.items()))
    moment = datetime(2024, 1, 1, 10)
    assert same(as_conditions([("at", "<", pd.Timestamp(moment))], COLUMNS).bind(schema)) == same(
        parse("at < '2024-01-01 10:00:00'").bind(schema)
    )
