"""``table_changes`` in SQL: the rows of ``Dataset.changes``, and which calls are refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kubothek
from kubothek.catalog import Lake
from kubothek.errors import InputError, LakeError, QueryInvalid, StoreError, VersionIncomplete, VersionNotFound
from kubothek.in_memory_database import in_memory_database
from kubothek.sql.statement import parse
from kubothek.table.changes import plan_changes
from kubothek.table.log import DatasetLog


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Versions of flights: 1 empty, 2 months 1 and 2, 3 more of month 2, 4 an update, 5 a delete; 4 has a tag, in 6."""
    lake = kubothek.open(tmp_path.as_uri())
    flights = lake.create_dataset("flights", ["month"])
    at = pa.array([0, 1, 2], pa.timestamp("us", "Europe/Berlin"))
    flights.append(pa.table({"month": [1, 1, 2], "n": [1, 2, 3], "at": at}))
    flights.append(pa.table({"month": [2, 2], "n": [3, 3], "at": at.take(pa.array([2, 2]))}))
    flights.update({"n": 7}, where="n = 1", row_level=True)
    flights.delete("n = 2", row_level=True)
    flights.tag("audit", 4)
    lake.create_dataset("air-lines").append(pa.table({"month": [1], "name": ["x"]}))
    return lake


def rows(table: pa.Table) -> Counter[Any]:
    return Counter(tuple(sorted(row.items())) for row in table.to_pylist())


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("table_changes('flights', 2)", (2,)),
        ("TABLE_CHANGES('flights', 0, 5)", (0, 5)),
        ("table_changes('flights', 3, 'audit')", (3, "audit")),
        ("table_changes('flights', 'audit')", ("audit",)),
        ("table_changes('flights', 5, TIMESTAMP '2999-01-01')", (5,)),
        ("table_changes('flights', 5, '2999-01-01 12:00')", (5,)),
        ("table_changes('flights', 3, 3)", (3, 3)),
    ],
)
@pytest.mark.parametrize("key", [(), ("at",), ("month", "at")])
def test_table_changes_gives_rows_of_changes(
    lake: Lake, call: str, arguments: tuple[Any, ...], key: tuple[str, ...]
) -> None:
    if key:
        call = f"{call[:-1]}, key => {list(key)})"
    found = lake.sql(f"SELECT * FROM {call}").read_all()
    expected = lake.dataset("flights").changes(*arguments, key=key).read_all()
    assert found.schema.names == expected.schema.names
    assert rows(found) == rows(expected)


@pytest.mark.parametrize(
    ("statement", "answer"),
    [
        ("SELECT count(*) FROM table_changes('flights', 0)", 8),
        ("SELECT count(*) FROM table_changes('flights', 0) c WHERE c.month = 2", 3),
        ("SELECT count(*) FROM table_changes('flights', 0) WHERE _commit_version = 4 AND n = 7", 1),
        ("SELECT count(*) FROM table_changes('flights', 0) WHERE _change_type = 'delete'", 2),
        ("SELECT count(table_changes.n) FROM table_changes('flights', 3, 4)", 2),
        ("SELECT count(x.a) FROM table_changes('flights', 3, 4) x(q, r, a) WHERE q = 1", 2),
        ("SELECT count(*) FROM table_changes('flights', 3, 4) a, table_changes('flights', 3, 4) b", 4),
        ("SELECT count(*) FROM table_changes('flights', 2, 3) a JOIN table_changes('flights', 1, 2) b USING (n)", 2),
        ("SELECT count(*) FROM table_changes('flights', 3) JOIN \"air-lines\" USING (month)", 3),
        ("SELECT count(*) FROM table_changes('flights', 3) c JOIN flights AS OF VERSION 2 f ON c.n = f.n", 2),
        ("SELECT count(*) FROM table_changes('air-lines', 1)", 1),
        ("WITH t AS (FROM table_changes('flights', 3)) SELECT (SELECT count(*) FROM t) + count(*) FROM t", 6),
        ("SELECT 'table_changes(' || count(*) FROM flights -- table_changes('flights', 3)", "table_changes(4"),
    ],
)
def test_table_changes_is_a_table(lake: Lake, statement: str, answer: object) -> None:
    assert lake.sql(statement).read_all().to_pylist()[0].popitem()[1] == answer


def test_table_changes_without_last_version_ends_at_that_of_the_query(lake: Lake) -> None:
    statement = "SELECT max(_commit_version) AS v FROM table_changes('flights', 2)"
    assert lake.sql(statement, as_of=4).read_all().to_pylist() == [{"v": 4}]
    assert lake.sql(statement.replace("2)", "2, 3)"), as_of=4).read_all().to_pylist() == [{"v": 3}]


def test_table_changes_plan_names_version_and_files(lake: Lake) -> None:
    (scan,) = lake.explain("FROM table_changes('flights', 3, 4) WHERE n = 1")
    assert (scan.name, scan.version, scan.files) == ("flights", 4, 2)
    assert scan.read.filters == ()


@pytest.mark.parametrize(
    ("call", "refusal"),
    [
        ("table_changes(flights, 3)", "arguments of table_changes are literals"),
        ("table_changes('flights')", "write table_changes"),
        ("table_changes('flights', 1, 2, 3)", "write table_changes"),
        ("table_changes('flights', 1, keys => 'n')", "key => "),
        ("table_changes('flights', 1, key => 3)", "the key is a text"),
        ("table_changes('flights', 1, key => [n])", "are literals"),
        ("table_changes('flights', (SELECT 1))", "are literals"),
        ("table_changes(3, 1)", "the name of the dataset is a text"),
        ("table_changes('flights', 3.5)", "'3.5' is no version"),
        ("table_changes('flights', -1)", "'-1' is no version"),
        ("table_changes('flights', NULL)", "is no version"),
        ("table_changes('flights', '2026-13-01')", "is no version"),
        ("table_changes('flights', 1) WITH ORDINALITY", "no other clauses"),
        ("main.table_changes('flights', 1)", "'table_changes' is not allowed in FROM"),
        ("table_changes('nope', 1)", "no dataset 'nope'"),
        ("table_changes('FLIGHTS', 1), table_changes('flights', 1)", "differ in case only"),
        ("table_changes('/etc/passwd', 1)", "no dataset"),
        ("table_changes('../flights', 1)", "no dataset"),
    ],
)
def test_table_changes_with_invalid_arguments_is_refused(lake: Lake, call: str, refusal: str) -> None:
    with pytest.raises(QueryInvalid, match=refusal):
        lake.sql(f"SELECT * FROM {call}")


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("table_changes('flights', 5, 4)", InputError),
        ("table_changes('flights', 1, 99)", VersionNotFound),
        ("table_changes('flights', 'nope')", VersionNotFound),
        ("table_changes('flights', 1, key => 'nope')", InputError),
    ],
)
def test_table_changes_of_versions_that_do_not_exist_fails(lake: Lake, call: str, error: type[LakeError]) -> None:
    with pytest.raises(error):
        lake.sql(f"SELECT * FROM {call}")


def test_table_changes_cannot_be_restricted_to_event_times(lake: Lake) -> None:
    from datetime import UTC, datetime

    with pytest.raises(QueryInvalid, match="cannot be restricted to event times"):
        lake.sql("FROM table_changes('flights', 1)", as_at=datetime.now(UTC))


def test_table_changes_of_lost_and_damaged_files_fail(lake: Lake) -> None:
    planned = plan_changes(DatasetLog(lake.store, "flights"), 3)
    lake.store.put(planned.items[0].removed[0], b"x" * 500)
    with pytest.raises(StoreError):
        lake.sql("FROM table_changes('flights', 3)").read_all()
    lake.store.delete([planned.items[0].removed[0]])
    with pytest.raises(VersionIncomplete):
        lake.sql("FROM table_changes('flights', 3)").read_all()


def test_table_changes_beyond_memory_limit_is_refused(lake: Lake) -> None:
    from kubothek.sql import Limits, prepare

    table = lake.create_dataset("large")
    table.append(pa.table({"n": range(200_000), "s": [f"{n:0>40}" for n in range(200_000)]}))
    table.update({"s": "x"}, where="n > 0", row_level=True)
    query = prepare(lake.store, "FROM table_changes('large', 2)", lake.look(), lake.datasets, Limits("20MB"))
    with pytest.raises(QueryInvalid, match="needs more than 20MB of memory"):
        query.rows().read_all()


def test_table_changes_of_row_level_update_needs_memory_for_changed_rows(lake: Lake) -> None:
    from kubothek.sql import Limits, prepare

    table = lake.create_dataset("large")
    table.append(pa.table({"n": range(400_000), "s": [f"{n:0>40}" for n in range(400_000)]}))
    table.update({"s": "x"}, where="n >= 200000 AND n < 200100", row_level=True)
    query = prepare(lake.store, "FROM table_changes('large', 2)", lake.look(), lake.datasets, Limits("20MB"))
    assert query.rows().read_all().num_rows == 200


def test_table_changes_is_read_anew_by_each_scan_of_a_statement(lake: Lake) -> None:
    feed = "WITH t AS NOT MATERIALIZED (FROM table_changes('flights', 3, 4))"
    statement = f"{feed} SELECT count(*) AS pairs FROM t AS a, t AS b, t AS c"
    assert lake.sql(statement).read_all()["pairs"].to_pylist() == [8]


def test_table_changes_in_portions_are_those_of_one_statement(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubothek.table.changes import rows

    statement = "FROM table_changes('flights', 0, key => 'n') ORDER BY ALL"
    at_once = lake.sql(statement).read_all()
    monkeypatch.setattr(rows, "_FILES", 1)
    assert lake.sql(statement).read_all() == at_once


def test_statements_of_transformations_have_no_table_changes() -> None:
    with in_memory_database() as database, pytest.raises(QueryInvalid, match="is not allowed in FROM"):
        parse(database, "FROM table_changes('flights', 1)")
