"""Preprocess (PP) and the columns that every ledger has (WR)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from kubothek.errors import DataTypeMismatch, QueryInvalid, SchemaMismatch
from kubothek.odf.sources.readers import latest_event_time, normalise, preprocess
from kubothek.odf.sources.readers.normalise import MILLISECONDS
from kubothek.odf.spec.sources import SqlQueryStep, TransformSql
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.validation.state import Vocabulary
from kubothek.sql import Limits
from tests.hostile.conftest import cases
from tests.odf.sources.conftest import SOAK

ROWS = pa.table({"a": [1, 2, 3], "s": ["x", "y", None]})
SOURCE_TIME = Timestamp.parse("2026-11-22T13:00:00.123Z")
MOMENT = datetime(2026, 11, 22, 13, 0, 0, 123000, UTC)


def run(*queries: str | tuple[str, str], rows: pa.Table = ROWS, engine: str = "datafusion", **limits: Any) -> pa.Table:
    steps = tuple(
        SqlQueryStep(query=each) if isinstance(each, str) else SqlQueryStep(alias=each[0], query=each[1])
        for each in queries
    )
    return preprocess(TransformSql(engine=engine, queries=steps), rows.to_reader(1), Limits(**limits)).read_all()


def normal(rows: pa.Table, **vocabulary: str) -> tuple[pa.Table, bool]:
    found = normalise(rows.to_reader(1), vocabulary=Vocabulary(**vocabulary), event_time=SOURCE_TIME)
    return found.rows.read_all(), found.event_time_given


@pytest.mark.requirement("PP-01")
def test_preprocess_sql_reads_input_table() -> None:
    assert run("SELECT a * 2 AS b, upper(s) AS t FROM input WHERE a < 3").to_pylist() == [
        {"b": 2, "t": "X"},
        {"b": 4, "t": "Y"},
    ]
    single = TransformSql(engine="duckdb", query="select count(*) as n from Input -- all")
    assert preprocess(single, ROWS.to_reader()).read_all().to_pylist() == [{"n": 3}]
    assert preprocess(None, ROWS.to_reader()).read_all() == ROWS


@pytest.mark.requirement("PP-01")
def test_preprocess_query_is_view_for_later_queries() -> None:
    found = run(
        ("small", "SELECT * FROM input WHERE a < 3"),
        ('od"d', "SELECT a + 10 AS a FROM small"),
        'SELECT l.a, r.a AS b, (SELECT sum(a) FROM input) AS n FROM small l JOIN "od""d" r ON l.a + 10 = r.a '
        "ORDER BY 1",
    )
    assert found.to_pylist() == [{"a": 1, "b": 11, "n": 6}, {"a": 2, "b": 12, "n": 6}]
    assert found.schema.field("n").type == pa.int64()
    twice = run("WITH c AS (SELECT a FROM input) SELECT count(*) AS n FROM c x, c y, input z")
    assert twice.to_pylist() == [{"n": 27}]


@pytest.mark.requirement("PP-01")
def test_preprocess_keeps_types_and_times() -> None:
    times = pa.array([1, None, 3], pa.timestamp("ms", "UTC"))
    uuids = pa.array([UUID(int=each).bytes for each in (1, 2, 3)], pa.binary(16))
    rows = pa.table({"t": times, "u": uuids, "d": pa.array([1, 2, 3], pa.decimal128(5, 2))})
    found = run("SELECT t, u, d, CAST(t AS DATE) AS day FROM input WHERE t IS NOT NULL", rows=rows)
    assert found.column("u").to_pylist() == [uuids[0].as_py(), uuids[2].as_py()]
    assert found.schema.field("u").type == pa.binary(16)
    assert found.column("day").to_pylist() == [date(1970, 1, 1)] * 2
    assert normal(found)[0].column("t").to_pylist() == [
        datetime(1970, 1, 1, 0, 0, 0, 1000 * each, UTC) for each in (1, 3)
    ]


@pytest.mark.requirement("PP-01")
@pytest.mark.parametrize(("engine", "half"), [("datafusion", 2), ("flink", 2), ("spark", 2.5), ("DuckDB", 2.5)])
def test_preprocess_integer_division_follows_engine(engine: str, half: float) -> None:
    assert run("SELECT 5 / 2 AS h", engine=engine).to_pylist() == [{"h": half}]


@pytest.mark.requirement("PP-01")
@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SELECT * FROM '/etc/passwd'", "there is no table"),
        ("SELECT * FROM read_csv('/etc/passwd')", "'read_csv' is not allowed in FROM"),
        ("SELECT * FROM input; DROP TABLE input", "expected exactly one SELECT"),
        ("COPY input TO '/tmp/x'", "expected exactly one SELECT, found COPY"),
        ("INSTALL httpfs", "expected exactly one SELECT"),
        ("SELECT getenv('HOME')", "getenv"),
        ("SELECT current_setting('temp_directory')", "current_setting"),
        ("SELECT * FROM duckdb_settings()", "is not allowed in FROM"),
        ("SELECT * FROM information_schema.tables", "plain names|no table"),
        ("SELECT * FROM rows", "there is no table 'rows'; there is input"),
        ("SELECT * FROM input AS OF VERSION 3", "no earlier versions"),
        ("SELECT nothing FROM input", "nothing"),
        ("SELECT", "query 1"),
        ("SELECT error('no') FROM input", "preprocess"),
        ("SELECT CAST(s AS INT) FROM input", "preprocess: .*Could not convert string '[xy]'"),
    ],
)
def test_preprocess_with_hostile_or_invalid_sql_is_refused(query: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(QueryInvalid, match=problem):
        run(query)
    with pytest.raises(QueryInvalid, match=problem):
        run(("view", query), "SELECT * FROM view")


@pytest.mark.requirement("PP-01")
@cases("statements", every=1 if SOAK else 6)
def test_preprocess_runs_no_hostile_statement(case: dict[str, Any], tmp_path: Path) -> None:
    sql = re.sub(r"\bflights\b", "input", str(case["sql"])).replace("{dir}", str(tmp_path))
    sql = sql.replace("{parentheses}", f"SELECT {'(' * 20_000}1{')' * 20_000}")
    refusal = str(case["refusal"]).replace("no dataset", "no dataset|there is no table|no earlier versions")
    refusal = refusal.replace("are literals", "'table_changes' is not allowed")  # there are no versions to compare
    (tmp_path / "secret.csv").write_text("month,carrier\n1,x\n")
    rows = pa.table({"month": [1], "carrier": ["x"], "a": [1]})
    with pytest.raises(QueryInvalid, match=refusal):
        run(sql, rows=rows, seconds=0.5, memory="200MB")


@pytest.mark.requirement("PP-01")
def test_preprocess_columns_that_differ_only_in_case_are_refused() -> None:
    with pytest.raises(QueryInvalid, match=r"columns 'a' and 'A' are one to SQL"):
        run("SELECT * FROM input", rows=pa.table({"a": [1], "b": [1], "A": [2]}))


@pytest.mark.requirement("PP-01")
def test_preprocess_enforces_limits_and_query_definitions() -> None:
    with pytest.raises(QueryInvalid, match=r"took longer than 0.2 s"):
        run("SELECT count(*) FROM range(1000000000) a, range(1000) b WHERE a.range * b.range % 7 = 1", seconds=0.2)
    with pytest.raises(QueryInvalid, match=r"no engine 'pandas' here"):
        run("SELECT 1", engine="pandas")
    with pytest.raises(QueryInvalid, match=r"needs an alias"):
        run("SELECT 1", "SELECT 2")
    with pytest.raises(QueryInvalid, match=r"alias 'INPUT' exists already"):
        run(("INPUT", "SELECT 1"), "SELECT 2")
    with pytest.raises(QueryInvalid, match=r"has no query"):
        run()


@pytest.mark.requirement("PP-01")
@pytest.mark.parametrize("query", ["SELECT * FROM input", "SELECT count(*) FROM input a, input b"])
def test_preprocess_keeps_error_of_source_rows(query: str) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches()
        raise DataTypeMismatch("'x.csv', row 4")

    rows = pa.RecordBatchReader.from_batches(ROWS.schema, batches())
    with pytest.raises(DataTypeMismatch, match=r"'x.csv', row 4"):
        preprocess(TransformSql(engine="duckdb", queries=(SqlQueryStep(query=query),)), rows).read_all()


@pytest.mark.requirement("PP-01")
def test_preprocess_beyond_memory_spills_to_disk() -> None:
    rows = pa.table({"a": pa.array(range(400_000)), "s": ["some text that takes some room"] * 400_000})
    step = TransformSql(engine="duckdb", queries=(SqlQueryStep(query="SELECT * FROM input ORDER BY hash(a), s"),))
    found = preprocess(step, rows.to_reader(100_000), Limits("40MB"))
    assert sum(batch.num_rows for batch in found) == 400_000


@pytest.mark.requirement("WR-01")
@pytest.mark.parametrize("name", ["offset", "op", "system_time"])
def test_source_with_system_columns_of_ledger_is_refused(name: str) -> None:
    rows = pa.table({name: [1]})
    with pytest.raises(SchemaMismatch, match=f"the source has a column '{name}', which is the ledger's own"):
        normal(rows)
    assert normal(rows, **{name: "other"})[0].column_names == ["event_time", name]


@pytest.mark.requirement("WR-01")
def test_missing_event_time_is_filled() -> None:
    found, given = normal(ROWS)
    assert (found.column_names, given) == (["event_time", "a", "s"], False)
    assert found.column("event_time").to_pylist() == [MOMENT] * 3
    times = pa.array([0, None, 1_999], pa.timestamp("us"))
    found, given = normal(ROWS.append_column("event_time", times))
    assert (found.column_names, given) == (["event_time", "a", "s"], True)
    assert found.column(0).to_pylist() == [
        datetime(1970, 1, 1, tzinfo=UTC),
        MOMENT,
        datetime(1970, 1, 1, 0, 0, 0, 1000, UTC),
    ]
    found, _ = normal(ROWS.append_column("when", pa.array([0, None, 1], pa.date32())), event_time="when")
    assert found.column(0).to_pylist() == [date(1970, 1, 1), date(2026, 11, 22), date(1970, 1, 2)]
    with pytest.raises(SchemaMismatch, match=r"'event_time' is the event time, but of type string"):
        normal(ROWS.append_column("event_time", pa.array(["x"] * 3)))
    with pytest.raises(SchemaMismatch, match=r"more than one column 'a'"):
        normal(ROWS.append_column("a", ROWS.column("a")))


@pytest.mark.requirement("WR-02")
def test_source_times_become_utc_milliseconds() -> None:
    rows = pa.table(
        {
            "naive": pa.array([-1], pa.timestamp("us")),
            "zoned": pa.array([1_999_999], pa.timestamp("ns", "Europe/Zurich")),
            "list": pa.array([[1_500]], pa.list_(pa.timestamp("us"))),
            "pair": pa.array([{"t": 1_500, "x": 1}], pa.struct([("t", pa.timestamp("us")), ("x", pa.int64())])),
            "word": pa.array(["x"]).dictionary_encode(),
            "none": pa.nulls(1),
            "large": pa.array(["x"], pa.large_string()),
            "clock": pa.array([1], pa.time32("s")),
        }
    )
    found, _ = normal(rows)
    kinds = (MILLISECONDS, MILLISECONDS, pa.list_(MILLISECONDS), pa.struct([("t", MILLISECONDS), ("x", pa.int64())]))
    assert found.schema.types[1:] == [*kinds, pa.string(), pa.string(), pa.string(), pa.time32("ms")]
    assert [each.value for each in (found.column("naive")[0], found.column("zoned")[0])] == [-1, 1]
    assert found.column("list")[0][0].value == found.column("pair")[0]["t"].value == 1


@pytest.mark.requirement("WR-04")
def test_latest_event_time_is_found_in_timestamps_and_dates() -> None:
    times = pa.chunked_array([pa.array([5, None], MILLISECONDS), pa.array([3], MILLISECONDS)])
    assert latest_event_time(times) == Timestamp(5 * 10**6)
    assert latest_event_time(pa.array([None, date(1970, 1, 2)])) == Timestamp(86_400 * 10**9)
    assert latest_event_time(pa.array([None], pa.date32())) is None
    assert latest_event_time(pa.array([], MILLISECONDS)) is None
