"""AS OF in SQL: which version of which dataset, whatever else stands in the text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import kubothek
from kubothek.catalog import Lake
from kubothek.errors import QueryInvalid, VersionNotFound


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Version n of each dataset has n - 1 rows, up to 5; then two versions get tags."""
    lake = kubothek.open(tmp_path_factory.mktemp("travel").as_uri())
    for name in ("flights", "air-lines", "of"):
        dataset = lake.create_dataset(name, schema={"n": "int64", "version": "int64"})
        for n in range(1, 5):
            dataset.append(pa.table({"n": [n], "version": [n + 1]}))
        dataset.tag("audit", 3)
        dataset.tag("v2.0-rc_1", 2)
    return lake


def counted(lake: Lake, statement: str, as_of: int | None = None) -> tuple[object, ...]:
    (row,) = lake.sql(statement, as_of).read_all().to_pylist()
    return tuple(row.values())


@pytest.mark.parametrize(
    ("source", "rows"),
    [
        ("flights", 4),
        ("flights AS OF VERSION 2", 1),
        ("flights as of version 3", 2),
        ("flights AS OF VERSION 3 f WHERE f.n > 1", 1),
        ("flights AS OF VERSION 3 AS f(a, b) WHERE f.a > 1", 1),
        ("flights AS OF VERSION 3 WHERE flights.n > 1", 1),
        ("flights AT (VERSION => 3)", 2),
        ("flights f AT (VERSION => 3) WHERE f.n > 1", 1),
        ('"air-lines" AS OF VERSION 2', 1),
        ('"air-lines" /* AS OF VERSION 4 */ AS /* so */ OF VERSION -- 5\n 2', 1),
        ("flights AS OF VERSION 2 WHERE 'x AS OF VERSION 4' <> '' -- AS OF VERSION 3", 1),
        ("of AS OF VERSION 2", 1),
        ("of AS of", 4),
        ("(SELECT * FROM flights AS OF VERSION 4) AS of", 3),
        ("(SELECT n AS of, version FROM flights AS OF VERSION 2)", 1),
        ("flights a, flights AS OF VERSION 3 b", 8),
        ("flights AS OF VERSION 2, flights AS OF VERSION 3 f", 2),
        ("flights AS OF VERSION 2 JOIN flights AS OF VERSION 3 b USING (n)", 1),
        ("flights AS OF VERSION 1", 0),
        ("flights AS OF TAG 'audit'", 2),
        ("flights as of tag 'v2.0-rc_1' f WHERE f.n = 1", 1),
        ("flights AS OF TAG 'audit' a, \"air-lines\" AS OF TAG 'v2.0-rc_1' WHERE 'x AS OF TAG y' <> ''", 2),
        ("flights AS OF TAG 'audit' JOIN flights AS OF VERSION 2 b USING (n)", 1),
    ],
)
def test_sql_as_of_version_reads_that_version(lake: Lake, source: str, rows: int) -> None:
    assert counted(lake, f"SELECT count(*) FROM {source}") == (rows,)


def test_sql_as_of_after_non_ascii_text_reads_that_version(lake: Lake) -> None:
    assert counted(lake, "SELECT 'ü€𝄞', count(*) AS \"é\" FROM flights AS OF VERSION 2 WHERE 'ß' = 'ß'") == ("ü€𝄞", 1)


def test_sql_as_of_timestamp_reads_version_of_that_time(lake: Lake) -> None:
    records = {record.version: record.time for record in lake.dataset("flights").history()}
    for version, moment in records.items():
        for text in (moment.isoformat(), moment.replace(tzinfo=None).isoformat(" ")):
            assert counted(lake, f"SELECT count(*) FROM flights AS OF TIMESTAMP '{text}'") == (min(version, 5) - 1,)
            statement = f"SELECT count(*) FROM flights AT (TIMESTAMP => TIMESTAMP '{text}')"
            assert counted(lake, statement) == (min(version, 5) - 1,)


def test_sql_as_of_in_statement_overrides_version_of_query(lake: Lake) -> None:
    statement = "SELECT (SELECT count(*) FROM flights AS OF VERSION 2), (SELECT count(*) FROM flights)"
    assert counted(lake, statement, as_of=4) == (1, 3)


def test_sql_as_of_ignores_with_clause_of_same_name(lake: Lake) -> None:
    statement = (
        "WITH flights AS (SELECT 0 AS n) SELECT (SELECT count(*) FROM flights AS OF VERSION 4), count(*) FROM flights"
    )
    assert counted(lake, statement) == (3, 1)


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("SELECT * FROM flights f AS OF VERSION 3", "directly after the name"),
        ("SELECT n AS OF VERSION 3 FROM flights", "directly after the name"),
        ("SELECT * FROM f AS OF VERSION 2, flights f AS OF VERSION 2", "directly after the name"),
        ("SELECT * FROM (SELECT 1) AS OF VERSION 3", "syntax error"),
        ("SELECT * FROM range(3) AS OF VERSION 3", "syntax error"),
        ("SELECT * FROM main.flights AS OF VERSION 3", "plain names"),
        ("SELECT * FROM flights AS OF VERSION 3.5", "is no version"),
        ("SELECT * FROM flights AS OF VERSION -1", "syntax error"),
        ("SELECT * FROM flights AS OF TIMESTAMP 'soon'", "is no timestamp"),
        ("SELECT * FROM flights AS OF TAG audit", "syntax error"),
        ("SELECT * FROM flights AS OF TAG 3", "syntax error"),
        ("SELECT * FROM flights f AS OF TAG 'audit'", "directly after the name"),
        ("SELECT * FROM flights AT (VERSION => (SELECT 3))", "must be a literal"),
        ("SELECT * FROM flights AT (TIMESTAMP => now())", "must be a literal"),
        ("SELECT * FROM flights AT (SNAPSHOT => 3)", "SNAPSHOT"),
        ("SELECT * FROM range(3) AT (VERSION => 3)", "AT"),
    ],
)
def test_sql_invalid_as_of_clause_is_refused(lake: Lake, statement: str, complaint: str) -> None:
    with pytest.raises(QueryInvalid, match=complaint):
        lake.sql(statement).read_all()


@pytest.mark.parametrize("clause", ["VERSION 9", "VERSION 0", "TIMESTAMP '1999-01-01'", "TAG 'Audit'", "TAG ''"])
def test_sql_as_of_nonexistent_version_raises_version_not_found(lake: Lake, clause: str) -> None:
    with pytest.raises(VersionNotFound):
        lake.sql(f"SELECT * FROM flights AS OF {clause}")


def test_sql_as_of_future_timestamp_reads_current_version(lake: Lake) -> None:
    later = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    assert counted(lake, f"SELECT count(*) FROM flights AS OF TIMESTAMP '{later}'") == (4,)


def test_sql_as_of_version_without_columns_is_refused(tmp_path: Path) -> None:
    lake = kubothek.open(tmp_path.as_uri())
    lake.create_dataset("t").append(pa.table({"a": [1]}))
    with pytest.raises(QueryInvalid, match="version 1 of dataset 't' has no columns yet"):
        lake.sql("SELECT * FROM t AS OF VERSION 1")


def test_sql_as_of_version_uses_schema_of_that_version(tmp_path: Path) -> None:
    lake = kubothek.open(tmp_path.as_uri())
    lake.create_dataset("t").append(pa.table({"a": [1], "b": pa.nulls(1)}))
    lake.dataset("t").append(pa.table({"a": [2], "b": ["x"]}))
    assert lake.sql("SELECT * FROM t AS OF VERSION 2").read_all().to_pylist() == [{"a": 1, "b": None}]
    assert lake.sql("SELECT b FROM t WHERE a = 2").read_all().to_pylist() == [{"b": "x"}]
