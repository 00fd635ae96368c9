"""Commits whose rows are those of a SELECT: what they write, what they read, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kubothek
from kubothek.api.jobs import JOB, CommitJob, ExitCode, JobResult
from kubothek.catalog import Lake
from kubothek.jobs import commit
from kubothek.jobs.ingest import write_answer
from kubothek.jobs.progress import Reporter
from kubothek.storage import Store
from tests.faultstore import Crash, FaultStore, every_crash
from tests.jobs.conftest import UUID, Here
from tests.webserver import Web, web

__all__ = ["web"]

pytestmark = pytest.mark.slow

SUMS = "SELECT carrier, sum(delay)::BIGINT AS delay FROM delays GROUP BY 1"
ROWS = [{"carrier": "AA", "delay": 7}, {"carrier": "UA", "delay": -3}]


@pytest.fixture
def lake(here: Here) -> Lake:
    lake = kubothek.open(here.root.as_uri())
    lake.create_dataset("delays").append(pa.table({"carrier": ["AA", "UA", "AA"], "delay": [5, -3, 2]}))
    return lake


def sql_job(here: Here, sql: str = SUMS, commit_id: str = "c1", **changes: Any) -> dict[str, Any]:
    """A Commit of a statement; ``statement`` and ``table`` add fields to these parts of the job."""
    statement = {"store": {"name": "lake", "url": here.root.as_uri()}, "sql": sql} | changes.pop("statement", {})
    job = here.job("commit", **changes.pop("table", {}))
    return job | {"commit_id": commit_id, "digest": sql, "operation": "Append", "statement": statement} | changes


def done(here: Here, job: dict[str, Any]) -> JobResult:
    result, code = here.run(job)
    assert code == ExitCode.DONE, result
    return result


def refused(here: Here, job: dict[str, Any], reason: str) -> str:
    """The message of a job that fails for good and leaves neither rows nor files."""
    before = here.head()
    result, code = here.run(job)
    assert (code, result.reason) == (ExitCode.INVALID, reason), result
    assert here.head() == before
    named = set(here.snapshot().head.files().values()) if before is not None else set()
    assert {info.key for info in here.store.list(f"{UUID}/") if info.key.endswith(".parquet")} <= named
    return result.message


def beaten_by(monkeypatch: pytest.MonkeyPatch, other: Callable[[], Any]) -> list[int]:
    """Let another writer commit after the first rows are written; the list grows with each run of the statement."""
    runs: list[int] = []
    write = write_answer

    def beaten(*given: Any, **named: Any) -> Any:
        written = write(*given, **named)
        runs.append(len(written.files))
        if len(runs) == 1:
            other()
        return written

    monkeypatch.setattr("kubothek.jobs.commit.write_answer", beaten)
    return runs


# --- rows -----------------------------------------------------------------------------------------------------------


def test_append_of_statement_adds_its_rows_once(here: Here, lake: Lake) -> None:
    first = done(here, sql_job(here))
    again = done(here, sql_job(here))
    assert first.commit is not None
    assert again.commit is not None
    assert (first.commit.version, first.commit.rows, first.commit.already_applied) == (1, 2, False)
    assert (again.commit.version, again.commit.already_applied) == (1, True)
    assert here.rows() == ROWS
    done(here, sql_job(here, commit_id="c2"))
    assert len(here.rows()) == 4


def test_statement_reads_version_of_as_of(here: Here, lake: Lake) -> None:
    lake.dataset("delays").append(pa.table({"carrier": ["UA"], "delay": [100]}))
    version = lake.dataset("delays").snapshot().head.version
    done(here, sql_job(here, statement={"as_of_version": version - 1}))
    assert here.rows() == ROWS


def test_statement_reads_another_store_than_it_writes(here: Here, lake: Lake, tmp_path: Path) -> None:
    other = kubothek.open((tmp_path / "other").as_uri())
    other.create_dataset(UUID).append(pa.table({"x": [1, 2]}))
    store = {"name": "other", "url": (tmp_path / "other").as_uri()}
    done(here, sql_job(here, f"SELECT x * 10 AS x FROM {UUID}", statement={"store": store}))
    assert here.rows() == [{"x": 10}, {"x": 20}]


def test_replace_of_statement_replaces_its_partitions(here: Here, lake: Lake) -> None:
    table = {"partition_on": ["carrier"]}
    done(here, sql_job(here, table=table))
    sql = "SELECT 'AA' AS carrier, 1::BIGINT AS delay"
    done(here, sql_job(here, sql, "c2", operation="Replace", table=table))
    assert here.rows() == [{"carrier": "AA", "delay": 1}, ROWS[1]]


def test_replace_of_statement_with_row_beyond_where_is_refused(here: Here, lake: Lake) -> None:
    table = {"partition_on": ["carrier"]}
    done(here, sql_job(here, table=table))
    job = sql_job(here, SUMS, "c2", operation="Replace", where="carrier = 'AA'", table=table)
    assert "carrier = 'UA' does not satisfy where" in refused(here, job, "FilterNotMet")


def test_overwrite_of_statement_may_change_schema(here: Here, lake: Lake) -> None:
    done(here, sql_job(here))
    job = sql_job(here, "SELECT carrier, 'late' AS delay FROM delays LIMIT 1", "c2", operation="Overwrite")
    assert "allowSchemaChange" in refused(here, job, "SchemaMismatch")
    done(here, job | {"allow_schema_change": True})
    assert [row["delay"] for row in here.rows()] == ["late"]


def test_statement_with_new_column_evolves_compatible_table(here: Here, lake: Lake) -> None:
    done(here, sql_job(here))
    job = sql_job(here, "SELECT 'B6' AS carrier, 1::BIGINT AS delay, true AS late", "c2")
    assert "late    -          bool" in refused(here, job, "SchemaMismatch")
    done(here, sql_job(here, job["statement"]["sql"], "c2", table={"schema_evolution": "Compatible"}))
    assert {"carrier": "B6", "delay": 1, "late": True} in here.rows("carrier")


def test_statement_casts_values_to_types_of_table_without_loss(here: Here, lake: Lake) -> None:
    done(here, sql_job(here))
    done(here, sql_job(here, "SELECT 'B6' AS carrier, 4.0::DOUBLE AS delay", "c2"))
    assert {"carrier": "B6", "delay": 4} in here.rows()
    refused(here, sql_job(here, "SELECT 'B6' AS carrier, 4.5::DOUBLE AS delay", "c3"), "SchemaMismatch")


@pytest.mark.parametrize("operation", ["Append", "Replace", "Overwrite"])
def test_statement_without_rows_is_a_commit(here: Here, lake: Lake, operation: str) -> None:
    table = {"partition_on": ["carrier"]}
    done(here, sql_job(here, table=table))
    empty = sql_job(here, f"SELECT * FROM ({SUMS}) WHERE delay > 99", "c2", operation=operation, table=table)
    result = done(here, empty)
    assert result.commit is not None
    assert (result.commit.version, result.commit.rows) == (2, 0)
    assert len(here.rows()) == (0 if operation == "Overwrite" else 2)


def test_append_without_rows_to_new_dataset_gives_it_columns(here: Here, lake: Lake) -> None:
    result = done(here, sql_job(here, f"SELECT * FROM ({SUMS}) WHERE delay > 99"))
    assert "no rows" in result.message
    schema = here.snapshot().schema
    assert schema is not None
    assert schema.names == ["carrier", "delay"]


# --- the dataset itself ---------------------------------------------------------------------------------------------

DOUBLED = f"SELECT carrier, (delay * 2)::BIGINT AS delay FROM {UUID}"
TWICE = [{"carrier": "AA", "delay": 14}, {"carrier": "UA", "delay": -6}]


def test_statement_reads_dataset_that_it_changes_before_the_commit(here: Here, lake: Lake) -> None:
    done(here, sql_job(here))
    done(here, sql_job(here, DOUBLED, "c2", operation="Overwrite"))
    assert here.rows() == TWICE


@pytest.mark.parametrize("operation", ["Append", "Overwrite"])
def test_statement_about_itself_conflicts_with_concurrent_commit(
    here: Here, lake: Lake, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    done(here, sql_job(here))
    runs = beaten_by(monkeypatch, lambda: done(here, sql_job(here, "SELECT 'B6' AS carrier, 1::BIGINT AS delay", "x")))
    result, code = here.run(sql_job(here, DOUBLED, "c2", operation=operation))
    assert (code, result.reason, len(runs)) == (ExitCode.CONFLICT, "Conflict", 2), "the other commit is the second"
    assert len(here.rows()) == 3


@pytest.mark.parametrize(("operation", "rows"), [("Append", 6), ("Overwrite", 3)])
def test_statement_about_itself_runs_again_on_conflict_with_retry(
    here: Here, lake: Lake, monkeypatch: pytest.MonkeyPatch, operation: str, rows: int
) -> None:
    done(here, sql_job(here))
    beaten_by(monkeypatch, lambda: done(here, sql_job(here, "SELECT 'B6' AS carrier, 1::BIGINT AS delay", "x")))
    done(here, sql_job(here, DOUBLED, "c2", operation=operation, on_conflict="Retry"))
    assert len(here.rows()) == rows
    assert {"carrier": "B6", "delay": 2} in here.rows()


def test_append_of_other_statement_conflicts_with_nothing(
    here: Here, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(here, sql_job(here))
    runs = beaten_by(monkeypatch, lambda: done(here, sql_job(here, commit_id="x")))
    done(here, sql_job(here, commit_id="c2"))
    assert len(runs) == 2, "one of each commit"
    assert len(here.rows()) == 6


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT * FROM nowhere", "QueryInvalid"),
        ("DROP TABLE delays", "QueryInvalid"),
        ("SELECT * FROM delays AS OF VERSION 99", "VersionNotFound"),
        ("SELECT error('boom') AS carrier FROM delays", "QueryInvalid"),
        ("SELECT * FROM read_csv('/etc/passwd')", "QueryInvalid"),
        ("SELECT 1 AS a, 2 AS a", "SchemaMismatch"),
        ("SELECT carrier, 'x' AS delay FROM delays", "SchemaMismatch"),
    ],
)
def test_bad_statement_is_refused_and_writes_nothing(here: Here, lake: Lake, sql: str, reason: str) -> None:
    done(here, sql_job(here))
    refused(here, sql_job(here, sql, "c2"), reason)


def test_statement_beyond_its_time_limit_is_refused(here: Here, lake: Lake) -> None:
    endless = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) AS n FROM t"
    message = refused(here, sql_job(here, endless, statement={"time_limit_seconds": 0.2}), "QueryInvalid")
    assert "longer than 0.2 s" in message


def test_statement_for_ledger_is_refused(here: Here, lake: Lake) -> None:
    refused(here, sql_job(here, push_source="default"), "InvalidInput")


def test_other_statement_under_used_id_is_refused(here: Here, lake: Lake) -> None:
    done(here, sql_job(here))
    refused(here, sql_job(here, "SELECT 'B6' AS carrier, 1::BIGINT AS delay"), "IdReused")


def test_commit_of_statement_that_crashes_commits_once_on_next_attempt(tmp_path: Path) -> None:
    source = kubothek.open((tmp_path / "source").as_uri())
    source.create_dataset("delays").append(pa.table({"carrier": ["AA", "UA", "AA"], "delay": [5, -3, 2]}))

    def run(here: Here, store: Store, *, table: dict[str, Any]) -> None:
        of = {"name": "source", "url": (tmp_path / "source").as_uri()}
        job = JOB.validate_python(sql_job(here, statement={"store": of}, table=table))
        assert isinstance(job, CommitJob)
        commit.run(job, store, Reporter(here.said))

    table = {"partition_on": ["carrier"]}
    counted = Here(tmp_path / "counted")
    counting = FaultStore(counted.store)
    run(counted, counting, table=table)
    faults = list(every_crash(counting.calls))
    assert len(faults) >= 10
    for number, fault in enumerate(faults):
        here = Here(tmp_path / str(number))
        with suppress(Crash):
            run(here, FaultStore(here.store, fault), table=table)
        run(here, here.store, table=table)
        assert here.rows() == ROWS, fault
        assert here.snapshot().head.version == 1, fault


# --- OpenLineage ----------------------------------------------------------------------------------------------------


def events(web: Web) -> list[dict[str, Any]]:
    assert {path for path, _ in web.posted} == {"/api/v1/lineage"}
    return [json.loads(body) for _, body in web.posted]


def collector(web: Web, name: str) -> dict[str, Any]:
    return {"url": web.url("").rstrip("/"), "namespace": "cluster/team", "job": name}


def test_commit_of_statement_emits_lineage_with_versions(here: Here, lake: Lake, web: Web) -> None:
    done(here, sql_job(here, lineage=collector(web, "commit/sums")))
    start, end = events(web)
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == end["run"]["runId"]
    assert (end["job"]["namespace"], end["job"]["name"]) == ("cluster/team", "commit/sums")
    assert end["job"]["facets"]["sql"]["query"] == SUMS
    assert end["job"]["facets"]["jobType"]["jobType"] == "COMMIT"
    assert start["inputs"] == [], "nothing was read yet"
    (source,), (target,) = end["inputs"], end["outputs"]
    assert source["name"] == f"{here.root}/delays"
    assert source["facets"]["version"]["datasetVersion"] == str(lake.dataset("delays").version)
    assert target["name"] == f"{here.root}/{UUID}"
    assert target["facets"]["version"]["datasetVersion"] == "1"
    assert target["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert [each["name"] for each in target["facets"]["schema"]["fields"]] == ["carrier", "delay"]


def test_merge_of_statement_emits_lineage_of_its_inputs(here: Here, lake: Lake, web: Web) -> None:
    done(here, sql_job(here))
    clauses: dict[str, Any] = {"key": ["carrier"], "when_matched": [{"action": "Update"}]}
    done(here, sql_job(here, commit_id="c2", operation="Merge", lineage=collector(web, "commit/m"), **clauses))
    end = events(web)[-1]
    assert [each["name"] for each in end["inputs"]] == [f"{here.root}/delays"]
    assert end["outputs"][0]["facets"]["version"]["datasetVersion"] == "2"


def test_failed_commit_of_statement_emits_fail_event_and_ignores_collector_error(
    here: Here, lake: Lake, web: Web
) -> None:
    done(here, sql_job(here, lineage={"url": "http://127.0.0.1:9", "namespace": "n"}))
    web.taken = 500
    refused(here, sql_job(here, "SELECT * FROM nowhere", "c2", lineage=collector(web, "x")), "QueryInvalid")
    assert [each["eventType"] for each in events(web)] == ["START", "FAIL"]
    assert "nowhere" in events(web)[1]["run"]["facets"]["errorMessage"]["message"]


def test_query_run_that_merges_emits_lineage_with_versions(here: Here, lake: Lake, web: Web) -> None:
    store = {"name": "lake", "url": here.root.as_uri()}
    dataset = {"uuid": "top", "claim": {"owner": "cluster/ns/top", "incarnation": "i"}}
    target = {"store": store, "dataset": dataset, "commit_id": "query:uid:1", "key": ["carrier"], "run": 1}
    job = {"verb": "query", "job": "q-query-1", "uid": "uid-q", "store": store, "sql": SUMS, "becomes": target}
    done(here, job | {"lineage": collector(web, "query/q")})
    _, end = events(web)
    assert [each["name"] for each in end["inputs"]] == [f"{here.root}/delays"]
    (output,) = end["outputs"]
    assert output["facets"]["version"]["datasetVersion"] == "2"
    assert [each["name"] for each in output["facets"]["schema"]["fields"]] == ["carrier", "delay"]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 2


@pytest.mark.parametrize("into_dataset", [True, False])
def test_query_run_emits_lineage_with_versions(here: Here, lake: Lake, web: Web, into_dataset: bool) -> None:
    store = {"name": "lake", "url": here.root.as_uri()}
    dataset = {"uuid": "top", "claim": {"owner": "cluster/ns/top", "incarnation": "i"}}
    result: dict[str, Any] = (
        {"becomes": {"store": store, "dataset": dataset, "commit_id": "query:ns/q"}}
        if into_dataset
        else {"location": {"store": store, "path": "reports/top", "format": "CSV"}}
    )
    job = {"verb": "query", "job": "q-query-1", "uid": "uid-q", "store": store, "sql": SUMS}
    outcome = done(here, job | result | {"lineage": collector(web, "query/q")}).query
    assert outcome is not None
    start, end = events(web)
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert (end["job"]["name"], end["job"]["facets"]["jobType"]["jobType"]) == ("query/q", "QUERY")
    assert [each["name"] for each in end["inputs"]] == [f"{here.root}/delays"]
    (target,) = end["outputs"]
    assert target["name"] == f"{here.root}/{'top' if into_dataset else 'reports/top'}"
    version = "1" if into_dataset else (outcome.location or "").rpartition("/")[2]
    assert target["facets"]["version"]["datasetVersion"] == version
    assert target["outputFacets"]["outputStatistics"]["rowCount"] == 2
