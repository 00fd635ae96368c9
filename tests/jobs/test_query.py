"""Queries as jobs: the rows as a file or a dataset, exactly once, and what is refused."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kubothek
from kubothek.api.jobs import ExitCode, JobResult, QueryOutcome
from kubothek.catalog import Lake
from kubothek.errors import StoreUnavailable
from kubothek.sandbox import limited
from kubothek.table.log import Change, Snapshot
from kubothek.table.operations.merging import Merger
from tests.jobs.conftest import CLAIM, UUID, Here

pytestmark = pytest.mark.slow

SQL = "SELECT carrier, sum(delay)::BIGINT AS delay FROM flights GROUP BY 1 ORDER BY 1"
ANSWER = [{"carrier": "AA", "delay": 7}, {"carrier": "UA", "delay": -3}]


@pytest.fixture
def lake(here: Here) -> Lake:
    lake = kubothek.open(here.root.as_uri())
    flights = lake.create_dataset("flights", partition_on=["month"])
    flights.append(pa.table({"month": [1, 1, 2], "carrier": ["AA", "UA", "AA"], "delay": [5, -3, 2]}))
    return lake


def query_job(here: Here, sql: str = SQL, attempt: int = 1, **changes: Any) -> dict[str, Any]:
    store = {"name": "lake", "url": here.root.as_uri()}
    job = {
        "verb": "query",
        "job": f"top-query-{attempt}",
        "uid": "uid-q",
        "attempt": attempt,
        "store": store,
        "sql": sql,
        "location": {"store": store, "path": "reports/top", "format": "Parquet"},
    }
    return job | changes


def into(here: Here, form: str) -> dict[str, Any]:
    return {"location": {"store": {"name": "lake", "url": here.root.as_uri()}, "path": "reports/top", "format": form}}


def becomes(here: Here, uuid: str = "top", commit_id: str = "query:ns/q", **table: Any) -> dict[str, Any]:
    dataset = {"uuid": uuid, "claim": CLAIM, "table": table}
    store = {"name": "lake", "url": here.root.as_uri()}
    return {"location": None, "becomes": {"store": store, "dataset": dataset, "commit_id": commit_id}}


def done(here: Here, job: dict[str, Any]) -> QueryOutcome:
    result, code = here.run(job)
    assert code == ExitCode.DONE, result
    assert result.query is not None
    return result.query


def refused(here: Here, job: dict[str, Any], reason: str) -> JobResult:
    before = {info.key: info.etag for info in here.store.list("")}
    result, code = here.run(job)
    assert (code, result.reason) == (ExitCode.INVALID, reason), result
    assert {info.key: info.etag for info in here.store.list("")} == before
    return result


def files(here: Here) -> list[str]:
    return [info.key for info in here.store.list("reports/")]


# --- a file ---------------------------------------------------------------------------------------------------------


def test_query_job_writes_one_file_named_in_result(here: Here, lake: Lake) -> None:
    outcome = done(here, query_job(here))
    assert outcome.location is not None
    assert files(here) == [outcome.location]
    data = here.store.get(outcome.location)
    assert pq.read_table(io.BytesIO(data)).to_pylist() == ANSWER
    assert (outcome.rows, outcome.files, outcome.bytes) == (2, 1, len(data))
    assert [(read.dataset, read.version, read.files) for read in outcome.reads] == [("flights", 2, 2)]


def test_query_job_without_workers_runs_in_process(here: Here, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited, "available", lambda: False)
    monkeypatch.setattr(limited, "_pool", None)  # nothing asks for one
    outcome = done(here, query_job(here))
    assert pq.read_table(io.BytesIO(here.store.get(outcome.location or ""))).to_pylist() == ANSWER
    assert [read.dataset for read in outcome.reads] == ["flights"]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("CSV", b'"carrier","delay"\n"AA",7\n"UA",-3\n'),
        ("JSONLines", b'{"carrier":"AA","delay":7}\n{"carrier":"UA","delay":-3}\n'),
    ],
)
def test_query_job_writes_expected_text_formats(here: Here, lake: Lake, form: str, expected: bytes) -> None:
    outcome = done(here, query_job(here, **into(here, form)))
    assert here.store.get(outcome.location or "") == expected


def test_query_job_writes_valid_json_lines_for_any_value(here: Here, lake: Lake) -> None:
    sql = """SELECT 'NaN'::DOUBLE AS "a""b", 'x' || chr(10) || '"ü' AS s, NULL AS n, [1, 2] AS l,
    DATE '2024-02-29' AS d"""
    outcome = done(here, query_job(here, sql, **into(here, "JSONLines")))
    (line,) = here.store.get(outcome.location or "").splitlines()
    assert json.loads(line) == {'a"b': None, "s": 'x\n"ü', "n": None, "l": [1, 2], "d": "2024-02-29"}


@pytest.mark.parametrize("form", ["Parquet", "CSV", "JSONLines"])
def test_query_job_without_rows_writes_empty_file(here: Here, lake: Lake, form: str) -> None:
    outcome = done(here, query_job(here, "SELECT * FROM flights WHERE month = 9", **into(here, form)))
    assert (outcome.rows, outcome.files) == (0, 1)
    assert files(here) == [outcome.location]


@pytest.mark.slow
def test_query_job_writes_all_batches(here: Here, lake: Lake) -> None:
    outcome = done(here, query_job(here, "SELECT range AS x FROM range(300000)", **into(here, "JSONLines")))
    lines = here.store.get(outcome.location or "").splitlines()
    assert [json.loads(line)["x"] for line in lines] == list(range(300_000))


@pytest.mark.parametrize(
    ("as_of", "rows"),
    [
        ({}, 4),
        ({"as_of_version": 2}, 3),
        ({"as_of_tag": "audit"}, 3),
        ({"as_of_time": "2999-01-01T00:00:00Z"}, 4),
    ],
)
def test_query_job_as_of_reads_requested_version(here: Here, lake: Lake, as_of: dict[str, Any], rows: int) -> None:
    lake.dataset("flights").tag("audit", 2)
    lake.dataset("flights").append(pa.table({"month": [3], "carrier": ["DL"], "delay": [1]}))
    assert done(here, query_job(here, "SELECT * FROM flights", **as_of)).rows == rows
    assert done(here, query_job(here, "SELECT * FROM flights AS OF VERSION 2", uid="other", **as_of)).rows == 3


# --- exactly once ---------------------------------------------------------------------------------------------------


def test_query_job_with_other_tag_and_same_id_is_refused(here: Here, lake: Lake) -> None:
    for name in ("audit", "None"):
        lake.dataset("flights").tag(name, 2)
    done(here, query_job(here))
    for name in ("audit", "None"):
        refused(here, query_job(here, as_of_tag=name), "IdReused")


def test_second_query_attempt_returns_result_of_first(here: Here, lake: Lake) -> None:
    first = done(here, query_job(here))
    lake.dataset("flights").append(pa.table({"month": [3], "carrier": ["DL"], "delay": [1]}))
    assert done(here, query_job(here, attempt=2)) == first
    assert files(here) == [first.location]


def test_query_attempt_after_crash_before_record_deletes_orphan_file(
    here: Here, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> str:
        raise StoreUnavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr("kubothek.storage.file.FileStore.put_if_absent", dies)
        result, code = here.run(query_job(here))
    assert (code, result.retryable) == (ExitCode.TRANSIENT, True)
    assert len(files(here)) == 1
    outcome = done(here, query_job(here, attempt=2))
    assert files(here) == [outcome.location]
    assert outcome.location == "reports/top/uid-q-2.parquet"


def test_concurrent_query_attempts_publish_one_result(here: Here, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first looks lost, and comes back when the second has published."""
    from kubothek.storage.file import FileStore

    put = FileStore.put_if_absent
    second: list[QueryOutcome | None] = []

    def late(store: FileStore, key: str, data: bytes) -> str:
        if not second and "++queries" in key:
            second.append(None)
            second[0] = done(here, query_job(here, attempt=2))
        return put(store, key, data)

    monkeypatch.setattr(FileStore, "put_if_absent", late)
    assert done(here, query_job(here)) == second[0]
    assert files(here) == ["reports/top/uid-q-2.parquet"]


def test_query_job_with_same_id_and_other_statement_is_refused(here: Here, lake: Lake) -> None:
    done(here, query_job(here))
    refused(here, query_job(here, "SELECT 1 AS x"), "IdReused")


# --- a dataset ------------------------------------------------------------------------------------------------------


def test_query_job_writes_rows_to_dataset(here: Here, lake: Lake) -> None:
    outcome = done(here, query_job(here, **becomes(here, partition_on=("carrier",))))
    top = lake.dataset("top")
    assert top.scan().read_all().sort_by("carrier").select(["carrier", "delay"]).to_pylist() == ANSWER
    assert (outcome.version, outcome.rows, outcome.files) == (top.version, 2, 2)
    assert top.snapshot().head.partition_keys == ("carrier",)


def test_later_query_job_replaces_all_rows_of_dataset(here: Here, lake: Lake) -> None:
    done(here, query_job(here, **becomes(here)))
    sql = "SELECT 'ZZ' AS carrier, 1::BIGINT AS delay"
    again = query_job(here, sql, uid="uid-r", **becomes(here, commit_id="query:ns/r"))
    assert done(here, again).version == 2
    assert lake.dataset("top").scan().read_all().to_pylist() == [{"carrier": "ZZ", "delay": 1}]


def test_query_job_rerun_writes_dataset_once(here: Here, lake: Lake) -> None:
    first = done(here, query_job(here, **becomes(here)))
    again = done(here, query_job(here, uid="of-a-rebuilt-cluster", attempt=2, **becomes(here)))
    assert (again.version, again.rows) == (first.version, first.rows)
    assert lake.dataset("top").version == 1


@pytest.mark.parametrize(
    ("sql", "table", "reason"),
    [
        (SQL, {"partition_on": ("month",)}, "PartitionInvalid"),
        (SQL, {"columns": ({"name": "carrier", "type": "int64"},)}, "SchemaMismatch"),
        ("SELECT 1 AS a, 2 AS a", {}, "SchemaMismatch"),
        (
            "SELECT 1::BIGINT AS a, NULL::BIGINT AS b",
            {"columns": ({"name": "a", "type": "int64"}, {"name": "b", "type": "int64", "nullable": False})},
            "DataTypeMismatch",
        ),
    ],
)
def test_query_job_with_rows_that_mismatch_target_is_refused(
    here: Here, lake: Lake, sql: str, table: dict[str, Any], reason: str
) -> None:
    result, code = here.run(query_job(here, sql, **becomes(here, **table)))
    assert (code, result.reason) == (ExitCode.INVALID, reason), result
    assert "top" not in lake.datasets()


def test_query_job_with_conflict_on_target_reads_again_on_retry(
    here: Here, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kubothek.jobs.ingest import write_answer

    sql = "SELECT max(x) + 1 AS x FROM counter"
    lake.create_dataset("counter").append(pa.table({"x": [1]}))
    write = write_answer

    def beaten(*given: Any, **named: Any) -> Any:
        written = write(*given, **named)
        monkeypatch.setattr("kubothek.jobs.query.write_answer", write)
        done(here, query_job(here, sql, **becomes(here, "counter", commit_id="query:ns/faster")))
        return written

    monkeypatch.setattr("kubothek.jobs.query.write_answer", beaten)
    result, code = here.run(query_job(here, sql, **becomes(here, "counter")))
    assert (code, result.reason, result.retryable) == (ExitCode.CONFLICT, "Conflict", True)
    done(here, query_job(here, sql, attempt=2, **becomes(here, "counter")))
    assert lake.dataset("counter").scan().read_all().to_pylist() == [{"x": 3}]


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT * FROM nowhere", "QueryInvalid"),
        ("DROP TABLE flights", "QueryInvalid"),
        ("SELECT * FROM flights AS OF VERSION 99", "VersionNotFound"),
        ("SELECT error('boom') FROM flights", "QueryInvalid"),
    ],
)
def test_query_job_with_bad_statement_is_refused_and_writes_nothing(
    here: Here, lake: Lake, sql: str, reason: str
) -> None:
    refused(here, query_job(here, sql), reason)


@pytest.mark.parametrize("form", ["Parquet", "CSV", "JSONLines"])
def test_query_job_with_duplicate_column_names_is_refused(here: Here, lake: Lake, form: str) -> None:
    assert (
        "'a' occurs more than once"
        in refused(here, query_job(here, "SELECT 1 AS a, 2 AS a", **into(here, form)), "SchemaMismatch").message
    )


@pytest.mark.parametrize("time", ["2026-02-30T00:00:00Z", "0001-01-01T00:00:00+14:00"])
def test_query_job_as_of_invalid_time_is_refused(here: Here, lake: Lake, time: str) -> None:
    assert "is no time" in refused(here, query_job(here, as_of_time=time), "InvalidInput").message


def test_query_job_with_list_column_as_csv_is_refused(here: Here, lake: Lake) -> None:
    assert "JSONLines" in refused(here, query_job(here, "SELECT [1] AS l", **into(here, "CSV")), "QueryInvalid").message


def test_query_job_into_directory_of_dataset_is_refused(here: Here, lake: Lake) -> None:
    store = {"name": "lake", "url": here.root.as_uri()}
    job = query_job(here, location={"store": store, "path": f"{UUID}/table", "format": "CSV"})
    assert "directory of dataset 'flights'" in refused(here, job, "InvalidInput").message


def test_query_job_beyond_time_or_memory_limit_is_refused(here: Here, lake: Lake) -> None:
    endless = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) AS n FROM t"
    assert (
        "took longer than 0.2 s"
        in refused(here, query_job(here, endless, time_limit_seconds=0.2), "QueryInvalid").message
    )
    greedy = "SELECT list(a.range + b.range) AS l FROM range(50000) a, range(50000) b"
    assert "20MiB of memory" in refused(here, query_job(here, greedy, memory_bytes=20 << 20), "QueryInvalid").message


def test_query_job_writes_result_to_other_store(here: Here, lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    store = {"name": "elsewhere", "url": (tmp_path / "elsewhere").as_uri()}
    outcome = done(here, query_job(here, location={"store": store, "path": "out", "format": "CSV"}))
    assert (tmp_path / "elsewhere" / (outcome.location or "")).exists()
    assert files(here) == []


# --- a dataset, merged by key ---------------------------------------------------------------------------------------


def merges(
    here: Here, key: tuple[str, ...] = ("carrier",), commit_id: str = "query:uid:1", **table: Any
) -> dict[str, Any]:
    job = becomes(here, commit_id=commit_id, **table)
    return job | {"becomes": job["becomes"] | {"key": key, "run": 1}}


def keys_of(here: Here) -> list[str]:
    return [info.key for info in here.store.list("top/table/") if info.key.endswith(".parquet")]


def rows_of(lake: Lake, name: str = "top") -> list[dict[str, Any]]:
    return sorted(lake.dataset(name).scan().read_all().to_pylist(), key=str)


def test_query_job_with_key_creates_table_then_merges_rows(here: Here, lake: Lake) -> None:
    first = done(here, query_job(here, **merges(here)))
    assert (first.version, first.rows) == (2, 2)
    assert rows_of(lake) == ANSWER
    lake.dataset("flights").append(pa.table({"month": [3, 3], "carrier": ["UA", "DL"], "delay": [10, 1]}))
    changed = "SELECT carrier, sum(delay)::BIGINT AS delay FROM flights WHERE carrier <> 'AA' GROUP BY 1"
    second = done(here, query_job(here, changed, 2, **merges(here, commit_id="query:uid:2")))
    assert second.version == 3
    assert rows_of(lake) == [ANSWER[0], {"carrier": "DL", "delay": 1}, {"carrier": "UA", "delay": 7}]


def test_query_job_with_key_happens_once_for_each_run(here: Here, lake: Lake) -> None:
    first = done(here, query_job(here, **merges(here)))
    lake.dataset("flights").append(pa.table({"month": [3], "carrier": ["UA"], "delay": [10]}))
    again = done(here, query_job(here, attempt=2, **merges(here)))
    assert (again.version, again.reads) == (first.version, ())
    assert rows_of(lake) == ANSWER


def test_query_job_with_key_keeps_declared_partitions(here: Here, lake: Lake) -> None:
    sql = "SELECT month, carrier, sum(delay)::BIGINT AS delay FROM flights GROUP BY ALL"
    done(here, query_job(here, sql, **merges(here, ("month", "carrier"), partition_on=["month"])))
    assert {key.split("/")[2] for key in keys_of(here)} == {"month=1", "month=2"}
    assert len(rows_of(lake)) == 3


def test_query_job_with_key_and_no_rows_changes_no_row(here: Here, lake: Lake) -> None:
    done(here, query_job(here, **merges(here)))
    nothing = "SELECT carrier, 1::BIGINT AS delay FROM flights WHERE month = 9"
    outcome = done(here, query_job(here, nothing, 2, **merges(here, commit_id="query:uid:2")))
    assert (outcome.version, outcome.rows) == (3, 0)
    assert rows_of(lake) == ANSWER


@pytest.mark.parametrize(
    ("sql", "key", "reason"),
    [
        ("SELECT carrier, delay FROM flights", ("carrier",), "DuplicateKeys"),
        ("SELECT carrier, delay FROM flights", ("airline",), "InvalidInput"),
    ],
)
def test_query_job_with_unusable_key_commits_no_rows(
    here: Here, lake: Lake, sql: str, key: tuple[str, ...], reason: str
) -> None:
    result, code = here.run(query_job(here, sql, **merges(here, key)))
    assert (code, result.reason) == (ExitCode.INVALID, reason), result
    assert rows_of(lake) == []


def test_query_job_that_merges_into_what_it_reads_is_refused(here: Here, lake: Lake) -> None:
    done(here, query_job(here, **merges(here)))
    job = query_job(here, "SELECT carrier, delay + 1 AS delay FROM top", 2, **merges(here, commit_id="query:uid:2"))
    result, code = here.run(job)
    assert code == ExitCode.INVALID
    assert "the query reads 'top', the dataset of its result" in result.message
    assert rows_of(lake) == ANSWER


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ("SELECT 'UA' AS carrier, 100::BIGINT AS delay", "Conflict"),
        ("SELECT 'DL' AS carrier, 100::BIGINT AS delay", "Succeeded"),
    ],
)
def test_query_job_with_key_conflicts_with_commit_of_same_rows_only(
    here: Here, lake: Lake, monkeypatch: pytest.MonkeyPatch, other: str, reason: str
) -> None:
    """A newer run must not be undone by a job of an older one that is still there."""
    done(here, query_job(here, **merges(here)))
    change = Merger.change

    def late(merger: Merger, snapshot: Snapshot) -> Change:
        made = change(merger, snapshot)
        monkeypatch.setattr(Merger, "change", change)
        done(here, query_job(here, other, 3, **merges(here, commit_id="query:uid:3")))
        return made

    monkeypatch.setattr(Merger, "change", late)
    result, code = here.run(query_job(here, attempt=2, **merges(here, commit_id="query:uid:2")))
    assert (result.reason, result.retryable) == (reason, reason == "Conflict")
    assert code == (ExitCode.CONFLICT if reason == "Conflict" else ExitCode.DONE)
    assert any(row["delay"] == 100 for row in rows_of(lake))


def test_query_job_with_key_beside_other_attempt_of_run_commits_once(
    here: Here, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(here, query_job(here, **merges(here)))
    change = Merger.change
    sql = "SELECT 'DL' AS carrier, 100::BIGINT AS delay"

    def late(merger: Merger, snapshot: Snapshot) -> Change:
        made = change(merger, snapshot)
        monkeypatch.setattr(Merger, "change", change)
        done(here, query_job(here, sql, 3, **merges(here, commit_id="query:uid:2")))
        return made

    monkeypatch.setattr(Merger, "change", late)
    assert done(here, query_job(here, sql, 2, **merges(here, commit_id="query:uid:2"))).version == 3
    assert [record.version for record in lake.dataset("top").history()] == [3, 2, 1]
    assert rows_of(lake) == [ANSWER[0], {"carrier": "DL", "delay": 100}, ANSWER[1]]
