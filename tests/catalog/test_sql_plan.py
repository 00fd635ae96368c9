"""Which files a statement reads, and that leaving the others out never changes its answer."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kubothek
from kubothek.catalog import Lake


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Twelve files of flights, one a month; a small table of names; a partition column that is a date."""
    lake = kubothek.open(tmp_path_factory.mktemp("plan").as_uri())
    months = list(range(1, 13)) * 2
    rows: dict[str, list[Any]] = {
        "month": months,
        "carrier": ["AA", "UA"] * 12,
        "delay": [None if month == 5 else month * 10 for month in months],
        "share": [month / 4 for month in months],
    }
    lake.create_dataset("flights", ["month"]).append(pa.table(rows))
    lake.create_dataset("names").append(pa.table({"carrier": ["AA", "ZZ"], "name": ["American", "Nobody"]}))
    days = pa.table(
        {"day": pa.array(range(5), pa.date32()), "ts": pa.array(range(5), pa.timestamp("us")), "n": range(5)}
    )
    lake.create_dataset("days", ["day"]).append(days)
    return lake


def files(lake: Lake, statement: str) -> dict[str, int]:
    return {scan.name: scan.files for scan in lake.explain(statement)}


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        ("SELECT * FROM flights", 12),
        ("SELECT * FROM flights WHERE month = 3", 1),
        ("SELECT * FROM flights WHERE 3 = month", 1),
        ("SELECT * FROM flights WHERE 3 >= month AND carrier = 'AA'", 2),
        ("SELECT * FROM flights f WHERE f.month IN (1, 2, 99)", 2),
        ("SELECT * FROM flights WHERE MONTH BETWEEN 3 AND 5", 3),
        ("SELECT * FROM flights WHERE month = 1 OR (month = 2 AND length(carrier) = 2)", 2),
        ("SELECT * FROM flights WHERE month = 1 OR length(carrier) = 2", 12),
        ("SELECT * FROM flights WHERE NOT month = 1", 11),
        ("SELECT * FROM flights WHERE month = -1", 0),
        ("SELECT count(*) FROM (SELECT * FROM flights WHERE month < 3)", 2),
        ("WITH f AS (SELECT * FROM flights WHERE month = 1) SELECT * FROM f WHERE month = 2", 1),
        ("WITH flights AS (SELECT * FROM flights WHERE month = 1) SELECT * FROM flights", 12),
        ("SELECT * FROM flights WHERE month = 1 UNION ALL SELECT * FROM flights WHERE month = 4", 2),
        ("SELECT (SELECT max(delay) FROM flights WHERE month = 2)", 1),
        ("SELECT month + 1 AS month FROM flights WHERE month = 1", 1),
        ("SELECT * FROM flights TABLESAMPLE 50 PERCENT WHERE month = 1", 12),
        ("SELECT * FROM flights WHERE month = 1 USING SAMPLE 50 PERCENT", 12),
        ("SELECT * FROM flights f(a, b, c, month) WHERE month = 1", 12),
        ("SELECT * FROM flights WHERE month = 1.0", 12),
        ("SELECT * FROM flights WHERE month = '1'", 12),
    ],
)
def test_sql_where_clause_limits_opened_files(lake: Lake, statement: str, left: int) -> None:
    assert files(lake, statement)["flights"] == left


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        ("SELECT * FROM days WHERE day = DATE '1970-01-02'", 1),
        ("SELECT * FROM days WHERE day >= '1970-01-04'", 2),
        ("SELECT * FROM days WHERE day = '1970-01-02'::TIMESTAMP", 5),
        ("SELECT * FROM days WHERE ts < TIMESTAMP '1970-01-01 00:00:00.000002'", 2),
        ("SELECT * FROM days WHERE ts < '1970-01-01T00:00:00.000002+01:00'", 5),
    ],
)
def test_sql_conditions_on_dates_and_times_limit_opened_files(lake: Lake, statement: str, left: int) -> None:
    assert files(lake, statement)["days"] == left


@pytest.mark.parametrize(
    ("join", "left"),
    [
        ("flights f JOIN names n USING (carrier) WHERE month = 1", 1),
        ("flights f LEFT JOIN names n USING (carrier) WHERE f.month = 1", 1),
        ("names n LEFT JOIN flights f USING (carrier) WHERE f.month = 1", 1),
        ("names n FULL JOIN flights f USING (carrier) WHERE month = 1", 1),
        ("names n LEFT JOIN flights f USING (carrier) WHERE f.month IS NULL", 12),
        ("names n, flights f WHERE month = 1", 1),
        ("flights f, (SELECT 1 AS month) x WHERE f.month = 1", 1),
        ("flights f, (SELECT 1 AS other) x WHERE month = 1", 12),
        ("flights f POSITIONAL JOIN names n WHERE month = 1", 12),
        ("names n ASOF JOIN flights f ON n.carrier >= f.carrier WHERE f.month = 1", 12),
    ],
)
def test_sql_join_conditions_limit_opened_files(lake: Lake, join: str, left: int) -> None:
    assert files(lake, f"SELECT * FROM {join}")["flights"] == left


def test_sql_versions_of_one_dataset_are_planned_separately(lake: Lake) -> None:
    scans = lake.explain("SELECT * FROM flights AS OF VERSION 2 a, flights b WHERE a.month = 1 AND b.month < 3")
    assert [(scan.name, scan.version, scan.files) for scan in scans] == [("flights", 2, 2), ("flights", 2, 1)]


@pytest.mark.slow
def test_sql_in_list_of_many_values_limits_opened_files(lake: Lake) -> None:
    values = ", ".join(str(number) for number in range(11, 20_000))
    assert files(lake, f"SELECT * FROM flights WHERE month IN ({values})") == {"flights": 2}


def test_sql_columns_that_differ_only_in_case_are_not_pushed_down(lake: Lake, tmp_path: Path) -> None:
    """DuckDB gives one of the two another name."""
    lonely = kubothek.open(tmp_path.as_uri())
    lonely.create_dataset("t", ["k"]).append(pa.table({"k": [1, 2], "K": [2, 1]}))
    (scan,) = lonely.explain("SELECT * FROM t WHERE k = 1")
    assert scan.where.to_sql() == "TRUE"


def test_sql_deeply_nested_condition_is_answered(lake: Lake) -> None:
    deep = "month = 1"
    for month in range(400):
        deep = f"({deep} AND delay > 0) OR month = {month % 3}"
    assert files(lake, f"SELECT * FROM flights WHERE {deep}")["flights"] >= 2
    assert lake.sql(f"SELECT count(DISTINCT month) AS n FROM flights WHERE {deep}").read_all()["n"].to_pylist() == [2]


def test_sql_explain_reports_files_left_by_each_step(lake: Lake) -> None:
    (scan,) = lake.explain("SELECT * FROM flights WHERE month > 3 AND delay >= 110")
    assert [tuple(step) for step in scan.steps] == [
        ("table", 12),
        ("partition keys", 9),
        ("secondary indices", 9),
        ("skipping metadata", 9),
        ("file statistics", 2),
    ]
    assert scan.where.to_sql() == "month > 3 AND delay >= 110"


def test_sql_explain_reads_no_data_files(lake: Lake, tmp_path: Path) -> None:
    lonely = kubothek.open(tmp_path.as_uri())
    lonely.create_dataset("t", ["k"]).append(pa.table({"k": [1, 2], "x": [1, 2]}))
    lonely.store.delete([info.key for info in lonely.store.list("t/table/k=")])
    assert files(lonely, "SELECT * FROM t WHERE k = 1") == {"t": 1}


CONDITIONS = [
    "{t}month = 2",
    "{t}month <> 2",
    "{t}month > 10 OR {t}month IN (1, 2)",
    "{t}delay = 50",
    "{t}delay <= 30",
    "{t}delay IS NOT NULL",
    "{t}delay IS NULL",
    "{t}share BETWEEN 0.25 AND 0.75",
    "NOT ({t}month = 2)",
    "{t}carrier = 'AA' AND {t}month < 4",
    "{t}month = NULL",
    "({t}month = 1 OR {t}delay = 20) AND ({t}carrier <> 'UA' OR {t}month > 11)",
]
SHAPES = [
    "flights f WHERE {c}",
    "flights f LEFT JOIN names n USING (carrier) WHERE {c}",
    "names n LEFT JOIN flights f USING (carrier) WHERE {c}",
    "names n FULL JOIN flights f USING (carrier) WHERE {c}",
    "days n ASOF JOIN flights f ON n.n * 30 >= f.delay WHERE {c}",
    "(SELECT * FROM flights WHERE month % 2 = 0) f WHERE {c}",
]


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "condition"), list(product(SHAPES, CONDITIONS)))
def test_sql_pruning_never_changes_result(lake: Lake, shape: str, condition: str) -> None:
    """The same condition in a form that nobody can plan with: as the result of a CASE."""
    plain, opaque = (
        lake.sql(f"SELECT f.*, 1 AS one FROM {shape.format(c=text)} ORDER BY ALL").read_all().to_pylist()
        for text in (condition.format(t="f."), f"CASE WHEN {condition.format(t='f.')} THEN true END")
    )
    assert plain == opaque
