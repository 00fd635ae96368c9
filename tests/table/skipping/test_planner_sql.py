"""What SQL says reaches skipping metadata, and changes no answer: DuckDB over all rows is the judge."""

from __future__ import annotations

from datetime import datetime, timedelta

import duckdb
import pyarrow as pa
import pytest

import kubothek
from kubothek.catalog import Lake
from kubothek.table.skipping.model import IndexDefinition

START = datetime(2019, 12, 30, 12)
ROWS = 2
FILES = 12


def data() -> pa.Table:
    """Twelve parts of two rows; one a month, more or less, with a NULL in every second row of some columns."""
    numbers = range(FILES * ROWS)
    return pa.table(
        {
            "part": [number // ROWS for number in numbers],
            "n": list(numbers),
            "word": [f"w{number // ROWS:02d}-{'ab'[number % 2]}" if number % 4 else None for number in numbers],
            "flag": [number < 6 for number in numbers],
            "ts": [START + timedelta(days=31 * (number // ROWS), hours=number % ROWS) for number in numbers],
            "nest": [{"a": number, "b": {"c": f"c{number}"}} if number % 4 else None for number in numbers],
        }
    )


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = kubothek.open(tmp_path_factory.mktemp("sql").as_uri())
    indices = [IndexDefinition("MinMax", (column,)) for column in ("n", "flag", "ts", "nest.a", "nest.b.c")]
    lake.create_dataset("t", ["part"], skipping=[*indices, IndexDefinition("ValueList", ("word",))]).append(data())
    return lake


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("n = 5", 1),
        ("NOT n < 20", 2),
        ("NOT (n >= 4 OR word = 'x')", 2),
        ("NOT (n < 20 AND word = 'w03-a')", FILES),
        ("n NOT BETWEEN 2 AND 21", 2),
        ("n NOT IN (0, 1)", FILES),
        ("word LIKE 'w03%'", 1),
        ("word LIKE '%3-b'", 1),
        ("word LIKE '%1_a'", 2),
        ("word NOT LIKE '%-b'", FILES // 2),
        ("word > 'w03-a' AND word < 'w03-b'", 0),
        ("word > 'w03-a' AND word < 'w05-b' AND word != 'w03-b'", 2),
        ("starts_with(word, 'w0')", 10),
        ("suffix(word, '7-b')", 1),
        ("contains(word, '11')", 1),
        ("contains(word, '%')", FILES),
        ("word = 'w03-a' OR word = 'w05-b'", 2),
        ("flag", 3),
        ("NOT flag", 9),
        ("flag = true AND n > 3", 1),
        ("CAST(ts AS DATE) = DATE '2019-12-30'", 1),
        ("ts::DATE < DATE '2020-03-02'", 3),
        ("ts::DATE >= '2020-11-01'", 2),
        ("year(ts) = 2019", 1),
        ("year(ts) > 2019", 11),
        ("2019 >= year(ts)", 1),
        ("CAST(n AS BIGINT) = 7", 1),
        ("CAST(n AS VARCHAR) = '7'", 1),
        ("CAST(n AS VARCHAR) = '07'", FILES),
        ("nest.a > 21", 1),
        ("t.nest.a = 5", 1),
        ("nest.b.c = 'c5'", 1),
        ("nest IS NULL AND n = 4", 1),
        ("nest.a IS NOT NULL", FILES),
        ("word IS NULL AND n < 3", 2),
        ("n + 1 = 5", FILES),
        ("lower(word) = 'w03-a'", FILES),
        ("n = (SELECT max(n) FROM t)", FILES),
    ],
)
def test_sql_condition_skips_files_and_matches_duckdb_result(lake: Lake, where: str, left: int) -> None:
    statement = f"SELECT n FROM t WHERE {where} ORDER BY n"
    (*_, scan) = lake.explain(statement)
    assert dict(scan.steps)["skipping metadata"] == left
    with duckdb.connect() as database:
        database.register("t", data())
        expected = database.sql(statement).fetchall()
    assert [tuple(row.values()) for row in lake.sql(statement).read_all().to_pylist()] == expected


@pytest.mark.parametrize(
    ("where", "left"), [("nest.a > 21", 1), ("nest.b.c = 'c5'", 1), ("word LIKE '%3-b'", 1), ("nest.a IS NULL", FILES)]
)
def test_filter_on_nested_fields_and_patterns_matches_duckdb_result(lake: Lake, where: str, left: int) -> None:
    table = lake.dataset("t")
    assert dict(table.plan(where).steps)["skipping metadata"] == left
    with duckdb.connect() as database:
        database.register("t", data())
        expected = [number for (number,) in database.sql(f"SELECT n FROM t WHERE {where} ORDER BY n").fetchall()]
    assert sorted(table.scan(["n"], where).read_all()["n"].to_pylist()) == expected  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("tables", "left"),
    [
        ("t a LEFT JOIN t b ON a.n = b.n + 100 WHERE b.word IS NULL", FILES),
        ("t a, t nest WHERE nest.n = 5", FILES),
        ("(SELECT 1 AS k) x LEFT JOIN t ON t.n = x.k + 100 WHERE NOT t.flag IS NOT NULL", FILES),
    ],
)
def test_join_query_with_skipping_matches_duckdb_result(lake: Lake, tables: str, left: int) -> None:
    statement = f"SELECT count(*) AS n FROM {tables}"
    (scan,) = lake.explain(statement)
    assert scan.files == left
    with duckdb.connect() as database:
        database.register("t", data())
        expected = database.sql(statement).fetchall()
    assert [tuple(row.values()) for row in lake.sql(statement).read_all().to_pylist()] == expected
