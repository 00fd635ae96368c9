"""SQL over datasets: answers, push-down, and statements that must not get anywhere."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

import kubothek
from kubothek import sql
from kubothek.catalog import Lake
from kubothek.errors import QueryInvalid, StoreError, VersionIncomplete, VersionNotFound
from tests.table import golden


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = kubothek.open(tmp_path.as_uri())
    flights = lake.create_dataset("flights", partition_on=["month"])
    flights.append(pa.table({"month": [1, 1, 2], "carrier": ["AA", "UA", "AA"], "delay": [5, -3, None]}))
    lake.create_dataset("air-lines").append(pa.table({"carrier": ["AA", "UA"], "name": ["American", "United"]}))
    return lake


def rows(lake: Lake, statement: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in lake.sql(statement).read_all().to_pylist()]


def test_sql_select_with_aggregates_returns_rows(lake: Lake) -> None:
    assert rows(lake, "SELECT carrier, count(*), sum(delay) FROM flights GROUP BY 1 ORDER BY 1") == [
        ("AA", 2, 5),
        ("UA", 1, -3),
    ]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ('SELECT name FROM flights JOIN "air-lines" USING (carrier) WHERE delay = 5', [("American",)]),
        ('SELECT count(*) FROM (SELECT * FROM "air-lines") a, flights b', [(6,)]),
        ("WITH f AS (SELECT max(month) m FROM flights) SELECT m FROM f", [(2,)]),
        ("SELECT (SELECT count(*) FROM flights)", [(3,)]),
        ("FROM flights SELECT month WHERE delay IS NULL", [(2,)]),
        ("SELECT 1 AS one;", [(1,)]),
        ("SELECT count(*) FROM flights, range(3)", [(9,)]),
        ("WITH flights AS (SELECT * FROM flights WHERE month = 1) SELECT count(*) FROM flights", [(2,)]),
        ("WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3) SELECT max(n) FROM t", [(3,)]),
        (
            "SELECT month FROM flights WHERE carrier IN (SELECT carrier FROM \"air-lines\" WHERE name = 'United')",
            [(1,)],
        ),
        ("VALUES (1)", [(1,)]),
        ("SELECT month FROM flights AS f WHERE f.carrier = 'UA' -- why not", [(1,)]),
    ],
)
def test_sql_select_forms_return_expected_rows(lake: Lake, statement: str, expected: list[tuple[object, ...]]) -> None:
    assert rows(lake, statement) == expected


def test_sql_result_keeps_column_types(lake: Lake) -> None:
    lake.create_dataset("days", ["day"]).append(
        pa.table({"day": [date(2024, 2, 29)], "s": ["ü"], "l": [["a", None]], "f": [0.5], "b": [b"\xff"]})
    )
    table = lake.sql("SELECT day, s, l, f, b FROM days").read_all()
    assert table.to_pylist() == [{"day": date(2024, 2, 29), "s": "ü", "l": ["a", None], "f": 0.5, "b": b"\xff"}]
    assert table.schema.field("s").type == pa.string()


def test_sql_as_of_argument_reads_all_datasets_at_version(lake: Lake) -> None:
    flights = lake.dataset("flights")
    before = flights.version
    flights.append(pa.table({"month": [3], "carrier": ["DL"], "delay": [1]}))
    assert lake.sql("SELECT count(*) n FROM flights").read_all()["n"].to_pylist() == [4]
    assert lake.sql("SELECT count(*) n FROM flights", as_of=before).read_all()["n"].to_pylist() == [3]
    with pytest.raises(VersionNotFound):
        lake.sql("SELECT * FROM flights", as_of=99)


def test_sql_filter_on_partition_column_skips_other_files(lake: Lake) -> None:
    """The files of other months are gone, and nobody notices."""
    lake.store.delete([info.key for info in lake.store.list("flights/table/month=2/")])
    assert rows(lake, "SELECT count(*) FROM flights WHERE month = 1") == [(2,)]


@pytest.mark.slow
def test_sql_join_over_many_small_files_does_not_deadlock(lake: Lake) -> None:
    """A file system written in Python deadlocks here, see kubothek.table.filesystem."""
    many = lake.create_dataset("many", ["k"])
    many.append(pa.table({"k": list(range(100)), "x": list(range(100))}))
    for _ in range(10):
        assert rows(lake, "SELECT sum(a.x) FROM many a JOIN many b USING (k)") == [(4950,)]


def test_sql_result_streams_batches(lake: Lake) -> None:
    lake.create_dataset("long").append(pa.table({"x": pa.array(range(500_000))}))
    reader = lake.sql("SELECT x + 1 AS y FROM long")
    first = reader.read_next_batch()
    assert 0 < first.num_rows < 500_000
    assert first.num_rows + sum(batch.num_rows for batch in reader) == 500_000


def test_sql_query_over_golden_data_returns_matching_rows() -> None:
    lake = kubothek.open((golden.ROOT / "k53-table" / "store").as_uri())
    statement = """SELECT id FROM sales JOIN "sales-2" USING (id) WHERE region = '50%25' OR amount IS NULL"""
    sales = {row["id"]: row for row in lake.dataset("sales").scan().read_all().to_pylist()}
    others = set(lake.dataset("sales-2").scan(["id"]).read_all()["id"].to_pylist())
    wanted = {i for i, row in sales.items() if row["region"] == "50%25" or row["amount"] is None}
    assert {i for (i,) in rows(lake, statement)} == wanted & others


# --- what is refused ------------------------------------------------------------------------------------------------


def test_sql_unknown_table_is_refused_with_similar_names(lake: Lake) -> None:
    with pytest.raises(QueryInvalid, match="no dataset 'flight'; there is 'flights'"):
        lake.sql("SELECT * FROM flight")
    with pytest.raises(QueryInvalid, match="there is 'air-lines', 'flights'"):
        lake.sql("SELECT * FROM xyz")


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        "",
        "-- nothing",
        "SELECT",
        "SELECT 1; SELECT 2",
        "SELECT 1; DROP TABLE flights",
        "DROP TABLE flights",
        "CREATE TABLE t AS SELECT 1",
        "CREATE VIEW v AS SELECT 1",
        "INSERT INTO flights VALUES (1, 'AA', 1)",
        "UPDATE flights SET delay = 0",
        "DELETE FROM flights",
        "SET memory_limit = '1TB'",
        "RESET enable_external_access",
        "PRAGMA version",
        "PRAGMA database_list",
        "CALL pragma_version()",
        "ATTACH 'x.db'",
        "ATTACH ':memory:' AS other",
        "USE memory",
        "INSTALL httpfs",
        "LOAD httpfs",
        "COPY (SELECT 1) TO '{dir}/out.csv'",
        "COPY flights FROM '{dir}/secret.csv'",
        "EXPORT DATABASE '{dir}'",
        "IMPORT DATABASE '{dir}'",
        "EXPLAIN ANALYZE SELECT 1",
        "PREPARE p AS SELECT 1",
        "EXECUTE p",
        "BEGIN",
        "CHECKPOINT",
        "VACUUM",
        "PIVOT flights ON carrier",
        "SELECT * FROM '{dir}/secret.csv'",
        "SELECT * FROM '{dir}/*.parquet'",
        "SELECT * FROM read_csv('{dir}/secret.csv')",
        "SELECT * FROM read_csv_auto(['{dir}/secret.csv'])",
        "SELECT * FROM read_text('{dir}/secret.csv')",
        "SELECT * FROM read_blob('{dir}/secret.csv')",
        "SELECT * FROM read_parquet('https://example.invalid/x.parquet')",
        "SELECT * FROM read_json('s3://bucket/x.json')",
        "SELECT * FROM glob('{dir}/*')",
        "SELECT * FROM sniff_csv('{dir}/secret.csv')",
        "SELECT * FROM flights, (SELECT * FROM read_text('{dir}/secret.csv'))",
        "SELECT * FROM query('SELECT * FROM read_text(''{dir}/secret.csv'')')",
        "SELECT * FROM query_table('{dir}/secret.csv')",
        "SELECT getenv('HOME')",
        "SELECT * FROM caller_variable",
        "SELECT * FROM pandas_frame",
        "SELECT $1 FROM flights",
        "SELECT nothing_like_it FROM flights",
        "SELECT * FROM flights WHERE",
        "SELECT * FROM main.flights.x.y",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM sqlite_master",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM (PIVOT flights ON carrier)",
        "WITH f AS (SELECT * FROM duckdb_secrets()) SELECT * FROM f",
        "SELECT * FROM flights JOIN FLIGHTS USING (month)",
        "SELECT error('boom')",
        "SELECT carrier::INT FROM flights",
    ],
)
def test_sql_statement_other_than_select_is_refused_and_changes_nothing(
    lake: Lake, tmp_path: Path, statement: str
) -> None:
    caller_variable = pa.table({"secret": [1]})
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (outside / "secret.csv").write_text("secret\n1\n")
    before = {info.key: info.etag for info in lake.store.list("")}
    with pytest.raises(QueryInvalid):
        lake.sql(statement.format(dir=outside)).read_all()
    assert caller_variable.num_rows == 1
    assert {info.key: info.etag for info in lake.store.list("")} == before
    assert [path.name for path in outside.iterdir()] == ["secret.csv"]


def test_sql_error_describes_query(lake: Lake) -> None:
    with pytest.raises(QueryInvalid, match="exactly one SELECT, found SELECT, DROP"):
        lake.sql("SELECT 1; DROP TABLE flights")
    with pytest.raises(QueryInvalid, match='Referenced column "dely" not found'):
        lake.sql("SELECT dely FROM flights")


def test_sql_result_keeps_duplicate_column_names(lake: Lake) -> None:
    table = lake.sql("SELECT * FROM flights a JOIN flights b USING (month) WHERE month = 2").read_all()
    assert table.schema.names == ["month", "carrier", "delay", "carrier", "delay"]


def limited(lake: Lake, statement: str, limits: sql.Limits) -> pa.Table:
    return sql.prepare(lake.store, statement, lake.look(), lake.datasets, limits).rows().read_all()


def test_sql_query_beyond_memory_limit_is_refused(lake: Lake) -> None:
    with pytest.raises(QueryInvalid, match="more than 20MB of memory"):
        limited(lake, "SELECT list(a.i + b.i) FROM range(50000) a(i), range(50000) b(i)", sql.Limits("20MB"))


@pytest.mark.parametrize(
    "statement",
    [
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t",
        "SELECT a.i + b.i FROM range(10000000) a(i), range(10000000) b(i)",
    ],
)
def test_sql_query_beyond_time_limit_is_stopped(lake: Lake, statement: str) -> None:
    with pytest.raises(QueryInvalid, match="took longer than"):
        limited(lake, statement, sql.Limits(seconds=0.3))


def test_sql_query_with_missing_file_raises_version_incomplete(lake: Lake) -> None:
    lake.store.delete([info.key for info in lake.store.list("flights/table/month=2/")])
    with pytest.raises(VersionIncomplete, match="month=2"):
        lake.sql("SELECT * FROM flights").read_all()


def test_sql_statement_nested_too_deeply_is_refused(lake: Lake) -> None:
    deep = "SELECT * FROM flights"
    for _ in range(400):
        deep = f"SELECT * FROM ({deep})"
    with pytest.raises(QueryInvalid):
        lake.sql(deep)


def test_sql_join_of_damaged_and_empty_dataset_raises_store_error(lake: Lake) -> None:
    lake.create_dataset("empty", schema={"month": "int64"})
    for info in list(lake.store.list("flights/table/month=2/")):
        lake.store.put(info.key, b"PAR1 no more")
    with pytest.raises(StoreError, match="month=2"):
        lake.sql("SELECT * FROM empty FULL JOIN flights USING (month)").read_all()


def test_sql_query_with_damaged_file_raises_store_error(lake: Lake) -> None:
    for info in list(lake.store.list("flights/table/month=2/")):
        lake.store.put(info.key, b"PAR1 no more")
    with pytest.raises(StoreError, match="month=2"):
        lake.sql("SELECT * FROM flights").read_all()


# --- what stands where ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "WITH pg_settings AS (FROM pg_settings) SELECT * FROM pg_settings",
        "WITH RECURSIVE pg_settings AS (FROM pg_settings) SELECT * FROM pg_settings",
        "WITH RECURSIVE pg_class AS (SELECT 1 AS a FROM pg_class UNION ALL SELECT a + 1 FROM pg_class WHERE a < 3) "
        "SELECT * FROM pg_class",
        "WITH a AS (FROM pg_settings), pg_settings AS (SELECT 1) SELECT * FROM a",
        "WITH a AS MATERIALIZED (FROM duckdb_settings) SELECT * FROM a",
        "(WITH pg_settings AS (SELECT 1 x) FROM pg_settings) UNION ALL SELECT 2 FROM pg_settings",
        "SELECT 1 UNION ALL (WITH pg_class AS (SELECT 1 x) FROM pg_class) ORDER BY (SELECT count(*) FROM pg_class)",
        "SELECT (WITH pg_class AS (SELECT 1 x) SELECT x FROM pg_class) FROM pg_class",
        "WITH pg_class AS (SELECT * FROM (WITH b AS (FROM pg_class) FROM b)) FROM pg_class",
        "SELECT 1 WHERE EXISTS (FROM sqlite_master)",
    ],
)
def test_sql_name_outside_its_with_clause_is_resolved_as_dataset(lake: Lake, statement: str) -> None:
    with pytest.raises(QueryInvalid, match=r"no dataset '(pg_|duckdb_|sqlite_)"):
        lake.sql(statement)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("WITH pg_class AS (SELECT 1 x), b AS (FROM pg_class) FROM b", [(1,)]),
        ("WITH pg_class AS (SELECT 7 x) SELECT 2 UNION ALL SELECT x FROM pg_class ORDER BY 1", [(2,), (7,)]),
        ("WITH a AS (SELECT 1 x) SELECT * FROM (WITH a AS (SELECT x + 1 AS y FROM a) FROM a)", [(2,)]),
        ("WITH RECURSIVE r AS (SELECT 1 a UNION ALL (WITH s AS (FROM r WHERE a < 2) SELECT a + 1 FROM s)) FROM r ",
         [(1,), (2,)]),
        ("WITH a AS (SELECT 1 x) SELECT (SELECT max(x) FROM a), (SELECT count(*) FROM a) FROM flights LIMIT 1",
         [(1, 1)]),
    ],
)  # fmt: skip
def test_sql_name_of_with_clause_is_resolved_by_scope(
    lake: Lake, statement: str, expected: list[tuple[object, ...]]
) -> None:
    assert rows(lake, statement) == expected


def test_sql_statement_of_unknown_kind_is_refused(lake: Lake) -> None:
    with pytest.raises(QueryInvalid, match="expected exactly one SELECT"):
        lake.sql("UPDATE EXTENSIONS")


def test_sql_syntax_error_keeps_caret(lake: Lake) -> None:
    with pytest.raises(QueryInvalid) as caught:
        lake.sql("SELECT month\nFORM flights")
    assert str(caught.value).splitlines()[-2:] == ["LINE 2: FORM flights", "             ^^^^^^^"]


@pytest.mark.parametrize(
    ("clause", "hint"),
    [
        ("FOR VERSION AS OF 3", "FROM flights AS OF VERSION 3"),
        ("VERSION AS OF 3", "FROM flights AS OF VERSION 3"),
        ("TIMESTAMP AS OF '2026-11-21'", "FROM flights AS OF TIMESTAMP '2026-11-21 14:00'"),
        ("FOR SYSTEM_TIME AS OF '2026-11-21'", "FROM flights AS OF TIMESTAMP '2026-11-21 14:00'"),
    ],
)
def test_sql_time_travel_in_foreign_syntax_is_refused_with_hint(lake: Lake, clause: str, hint: str) -> None:
    with pytest.raises(QueryInvalid, match=hint):
        lake.sql(f"SELECT * FROM flights {clause}")


def test_sql_cube_as_table_is_refused_with_hint(lake: Lake) -> None:
    lake.create_dataset("nyc++seed").append(pa.table({"x": [1]}))
    with pytest.raises(QueryInvalid, match=r"'nyc' is a cube, not a dataset; select from its datasets \"nyc\+\+seed\""):
        lake.sql("FROM nyc")
