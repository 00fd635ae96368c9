"""Merge as a job: rows of files and of statements, by key."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kubothek.api.jobs import JOB, CommitJob, ExitCode
from kubothek.errors import Conflict
from kubothek.jobs import commit, merge
from kubothek.jobs.progress import Reporter
from tests.faultstore import Crash, FaultStore, every_crash
from tests.jobs.conftest import Here
from tests.jobs.test_operations import FIRST, TABLE, change, job

pytestmark = pytest.mark.slow

UPSERT = {"key": ["v"], "when_matched": [{"action": "Update"}], "when_not_matched": [{"action": "Insert"}]}
NEW = "p,v,w\n1,10,new\n2,99,added\n"


@pytest.fixture
def table(here: Here) -> Here:
    """Partitions 1 to 3 with four rows each; every second has no ``w``."""
    here.put("first.csv", FIRST)
    here.commit("first.csv", commit_id="first", table=TABLE)
    here.put("new.csv", NEW)
    return here


def rows(here: Here) -> dict[int, tuple[str, str | None]]:
    return {row["v"]: (row["p"], row["w"]) for row in here.rows("v")}


def test_merge_job_updates_and_inserts_once(table: Here) -> None:
    before = rows(table)
    result = change(table, "Merge", "new.csv", **UPSERT)
    assert rows(table) == before | {10: ("1", "new"), 99: ("2", "added")}
    assert result.message == "version 2: 5 rows in 2 files added, 1 file removed"
    again = change(table, "Merge", "new.csv", **UPSERT)
    assert again.message == "version 2 had made this change before"


def test_merge_job_with_clauses_computes_deletes_and_moves_rows(table: Here) -> None:
    table.put("some.parquet", pa.table({"v": [10, 11, 20, 77], "factor": [10, None, 3, 4]}))
    made = job(
        table,
        "Merge",
        "some.parquet",
        key=["v"],
        when_matched=[
            {"action": "Delete", "where": "source.factor IS NULL"},
            {"action": "Update", "set": {"w": "'times ' || source.factor", "p": "3"}, "where": "source.factor > 5"},
        ],
        when_not_matched_by_source=[{"action": "Update", "set": {"w": "'left'"}, "where": "target.p = 3"}],
    )
    made["source"]["format"] = "Parquet"
    before = rows(table)
    result, code = table.run(made)
    assert code == ExitCode.DONE, result
    moved = {10: ("3", "times 10")} | dict.fromkeys(range(30, 34), ("3", "left"))
    assert rows(table) == {v: row for v, row in before.items() if v != 11} | moved


def test_merge_job_of_statement_takes_its_rows(table: Here) -> None:
    change(table, "Merge", "new.csv", **UPSERT)
    made = job(table, "Merge", **UPSERT)
    made["statement"] = {"sql": "SELECT 2 AS p, 20 AS v, 'asked' AS w", "store": made["store"]}
    result, code = table.run({**made, "commit_id": "asked"})
    assert code == ExitCode.DONE, result
    assert rows(table)[20] == ("2", "asked")
    made["statement"]["sql"] = "SELECT p, v, 'own' AS w FROM flights"
    result, code = table.run({**made, "commit_id": "own", "digest": "own"})
    assert (result.reason, code) == ("InvalidInput", ExitCode.INVALID)
    assert "source.sql reads 'flights', which this Merge changes" in result.message


@pytest.mark.parametrize(
    ("data", "fields", "reason", "said"),
    [
        ("p,v,w\n1,10,a\n1,10,b\n", UPSERT, "DuplicateKeys", "v = 10"),
        ("p,v,w\n1,x,a\n", UPSERT, "DataTypeMismatch", "'v'"),
        ("p,v,w,z\n1,10,a,b\n", UPSERT, "SchemaMismatch", "not in the table"),
        ("p,v,w\n", UPSERT, "SourceEmpty", "no rows"),
        (NEW, {**UPSERT, "key": ["none"]}, "InvalidInput", "'none'"),
        (NEW, {**UPSERT, "when_matched": [{"action": "Update", "where": "source.q > 1"}]}, "FilterInvalid", "q"),
    ],
)
def test_merge_job_with_wrong_input_is_refused_before_first_byte(
    table: Here, data: str, fields: dict[str, Any], reason: str, said: str
) -> None:
    table.put("wrong.csv", data)
    head, files = table.head(), sorted(table.root.rglob("*.parquet"))
    result, code = table.run(job(table, "Merge", "wrong.csv", **fields))
    assert (result.reason, code) == (reason, ExitCode.INVALID), result.message
    assert said in result.message
    assert table.head() == head
    assert sorted(table.root.rglob("*.parquet")) == files


def test_merge_job_conflicts_with_commit_of_same_rows_only(table: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Any = merge.prepare

    def run(concurrent: dict[str, Any], **fields: Any) -> tuple[str, int]:
        def prepared(*given: Any) -> Any:
            monkeypatch.setattr(merge, "prepare", real)
            decide = real(*given)
            result, code = table.run(concurrent)
            assert code == ExitCode.DONE, result
            return decide

        monkeypatch.setattr(merge, "prepare", prepared)
        result, code = table.run(job(table, "Merge", "new.csv", **UPSERT, **fields))
        return result.reason, code

    other = job(table, "Update", where="v = 30", new_values={"w": "'other'"}, row_level=True, commit_id="other")
    assert run(other, commit_id="merge-1") == ("Succeeded", ExitCode.DONE)
    assert rows(table)[30] == ("3", "other")
    assert rows(table)[10] == ("1", "new")
    same = {"where": "v = 11", "new_values": {"w": "'same'"}, "row_level": True}
    table.put("new.csv", NEW.replace("new", "newer"))
    assert run(job(table, "Update", **same, commit_id="same"), commit_id="merge-2")[0] == Conflict.reason
    same["new_values"] = {"w": "'twice'"}
    again = job(table, "Update", **same, commit_id="again")
    assert run(again, commit_id="merge-3", on_conflict="Retry")[0] == "Succeeded"
    assert (rows(table)[10], rows(table)[11]) == (("1", "newer"), ("1", "twice"))


def test_merge_job_that_crashes_at_any_call_is_made_once(table: Here) -> None:
    made = job(table, "Merge", "new.csv", **UPSERT)

    def parsed(commit_id: str) -> CommitJob:
        found = JOB.validate_python({**made, "commit_id": commit_id})
        assert isinstance(found, CommitJob)
        return found

    counting = FaultStore(table.store)
    commit.run(parsed("first-merge"), counting, Reporter(table.said))
    expected = rows(table)
    for number, fault in enumerate(every_crash(counting.calls)):
        table.run(job(table, "Rollback", to_version=1, commit_id=f"back {number}"))
        with pytest.raises(Crash):
            commit.run(parsed(f"c{number}"), FaultStore(table.store, fault), Reporter(table.said))
        result, code = table.run({**made, "commit_id": f"c{number}", "attempt": 2})
        assert code == ExitCode.DONE, (fault, result)
        assert rows(table) == expected, fault
        assert [record.id for record in table.log.history()].count(f"c{number}") == 1
