"""Replace, Overwrite, Delete, Update and Rollback as jobs, the same in process and with Spark."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.api.jobs import JOB, CommitJob, ExitCode, JobResult
from kubothek.errors import Conflict
from kubothek.jobs import commit
from kubothek.jobs.progress import Reporter
from tests.faultstore import Crash, FaultStore, every_crash
from tests.jobs.conftest import Here
from tests.table.log.hashes import require_hashes

pytestmark = pytest.mark.slow

TABLE = {"partition_on": ["p"]}
FIRST = "p,v,w\n" + "".join(f"{p},{v},{'x' if v % 2 else ''}\n" for p in (1, 2, 3) for v in range(p * 10, p * 10 + 4))


def job(here: Here, operation: str, *paths: str, **fields: Any) -> dict[str, Any]:
    """A commit job of an operation; ``fields`` are those of CommitJob."""
    made = here.commit_job(*paths, commit_id=fields.pop("commit_id", operation.lower()), table=TABLE)
    if not paths:
        del made["source"]
    digest = json.dumps([operation, paths, fields], default=str)
    return {**made, "operation": operation, "digest": digest, **fields}


def change(here: Here, operation: str, *paths: str, **fields: Any) -> JobResult:
    result, code = here.run(job(here, operation, *paths, **fields))
    assert code == ExitCode.DONE, result
    return result


@pytest.fixture
def table(either: Here) -> Here:
    """Partitions 1 to 3 with four rows each; every second has no ``w``."""
    either.put("first.csv", FIRST)
    either.commit("first.csv", commit_id="first", table=TABLE)
    return either


def values(here: Here) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in here.rows("v"):
        found.setdefault(row["p"], []).append(row["v"])
    return found


def test_replace_job_replaces_partitions_of_new_rows(table: Here) -> None:
    table.put("new.csv", "p,v,w\n1,100,a\n4,400,b\n")
    result = change(table, "Replace", "new.csv")
    assert values(table) == {"1": [100], "2": [20, 21, 22, 23], "3": [30, 31, 32, 33], "4": [400]}
    assert result.message == "version 2: 2 rows in 2 files added, 1 file removed"


def test_replace_job_with_row_outside_filter_is_refused_and_names_row(table: Here) -> None:
    table.put("new.csv", "p,v,w\n1,100,a\n1,101,a\n2,200,b\n")
    head = table.head()
    result, code = table.run(job(table, "Replace", "new.csv", where="p = 1"))
    assert (result.reason, code) == ("FilterNotMet", ExitCode.INVALID)
    assert "'new.csv', row 3: p = 2 does not satisfy where p = 1" in result.message
    assert table.head() == head
    table.put("right.csv", "p,v,w\n1,100,a\n")
    change(table, "Replace", "right.csv", where="p IN (1, 3)", commit_id="right")
    assert values(table) == {"1": [100], "2": [20, 21, 22, 23]}


def test_overwrite_and_rollback_jobs_replace_and_restore_rows(table: Here) -> None:
    table.put("new.csv", "p,v,w\n9,900,a\n")
    before = table.snapshot().head.files()
    change(table, "Overwrite", "new.csv")
    assert values(table) == {"9": [900]}
    result = change(table, "Rollback", to_version=1)
    assert table.snapshot().head.files() == before
    assert result.message == "version 3: as version 1 was"
    moment = table.log.snapshot(2).time
    assert moment is not None
    change(table, "Rollback", to_time=moment.isoformat(), commit_id="forth")
    assert values(table) == {"9": [900]}
    table.log.set_tags({"audit": 1})
    change(table, "Rollback", to_tag="audit", commit_id="audited")
    assert table.snapshot().head.files() == before


def test_overwrite_job_with_other_columns_requires_allow_schema_change(table: Here) -> None:
    table.put("new.csv", "p,z\n9,text\n")
    head = table.head()
    result, _ = table.run(job(table, "Overwrite", "new.csv"))
    assert result.reason == "SchemaMismatch"
    assert "allowSchemaChange: true" in result.message
    assert table.head() == head
    change(table, "Overwrite", "new.csv", allow_schema_change=True, commit_id="meant")
    assert table.rows() == [{"p": "9", "z": "text"}]
    result, _ = table.run(job(table, "Rollback", to_version=1))
    assert result.reason == "SchemaMismatch"
    change(table, "Rollback", to_version=1, allow_schema_change=True, commit_id="back")
    assert len(table.rows()) == 12


def test_delete_job_of_partitions_removes_their_files(table: Here) -> None:
    result = change(table, "Delete", where="p >= 2 AND p < 3")
    assert values(table).keys() == {"1", "3"}
    assert result.message == "version 2: 1 file removed"
    assert result.dataset is not None
    assert result.dataset.totals.rows == 8


def test_delete_job_of_rows_removes_matching_rows(table: Here) -> None:
    result = change(table, "Delete", where="v IN (10, 11, 12, 13) OR w IS NULL AND p = 2 OR v = 31", row_level=True)
    assert values(table) == {"2": [21, 23], "3": [30, 32, 33]}
    require_hashes(table.log)
    assert table.sessions == (0 if table.from_bytes else 2)
    assert result.commit is not None
    assert result.commit.rows == 5
    assert result.dataset is not None
    assert result.dataset.totals.rows == 5


def test_purge_job_leaves_no_version_with_deleted_rows(table: Here) -> None:
    result = change(table, "Delete", where="v = 10", row_level=True, purge=True)
    assert result.message == "version 2: 3 rows in 1 file added, 1 file removed, all versions before it have expired"
    result = change(table, "Delete", where="v = 10", row_level=True, purge=True, commit_id="again")
    assert result.message == "version 3: nothing matched, all versions before it have expired"
    assert [record.version for record in table.log.history()] == [3]


def test_purge_job_of_tagged_version_is_refused_with_tag_name(table: Here) -> None:
    table.log.tag("audit", 1)
    head = table.head()
    result, code = table.run(job(table, "Delete", where="v = 10", row_level=True, purge=True))
    assert (result.reason, result.retryable, code) == ("VersionTagged", False, ExitCode.INVALID)
    assert "'audit' (version 1)" in result.message
    assert table.head() == head


def test_update_job_moves_rows_to_changed_partition(table: Here) -> None:
    change(table, "Update", where="v >= 32", new_values={"p": "1", "w": "'moved'"}, row_level=True)
    assert values(table) == {"1": [10, 11, 12, 13, 32, 33], "2": [20, 21, 22, 23], "3": [30, 31]}
    assert {row["v"] for row in table.rows() if row["w"] == "moved"} == {32, 33}


def test_delete_job_rewrites_only_files_with_matches(either: Here) -> None:
    for number in range(12):
        either.put(f"{number}.csv", f"p,v\n1,{number}\n1,{number + 100}\n")
        either.commit(f"{number}.csv", commit_id=str(number), table=TABLE)
    before = set(either.snapshot().head.files())
    change(either, "Delete", where="v >= 100 AND v < 105", row_level=True)
    assert [row["v"] for row in either.rows("v")] == sorted([*range(12), *range(105, 112)], key=repr)
    assert len(before & set(either.snapshot().head.files())) == 7


def test_update_job_keeps_compression_of_dataset(table: Here) -> None:
    made = job(table, "Update", where="v = 10", new_values={"w": "NULL"}, row_level=True)
    made["dataset"]["table"]["compression"] = "SNAPPY"
    result, code = table.run(made)
    assert code == ExitCode.DONE, result
    codecs = {
        pq.ParquetFile(pa.BufferReader(table.store.get(key))).metadata.row_group(0).column(0).compression
        for key in table.snapshot().head.files().values()
        if "p=1" in key
    }
    assert codecs == {"SNAPPY"}


def test_delete_job_without_match_commits_once_and_never_applies_later(here: Here) -> None:
    here.put("first.csv", FIRST)
    here.commit("first.csv", commit_id="first", table=TABLE)
    result = change(here, "Delete", where="p = 9")
    assert result.message == "version 2: nothing matched, so nothing has changed"
    here.put("nine.csv", "p,v,w\n9,9,9\n")
    here.commit("nine.csv", commit_id="nine", table=TABLE)
    again = change(here, "Delete", where="p = 9")
    assert again.commit is not None
    assert again.commit.already_applied
    assert "9" in values(here)


@pytest.mark.parametrize(
    ("operation", "fields", "reason", "message"),
    [
        ("Delete", {"where": "q = 1"}, "FilterInvalid", "'q'"),
        ("Delete", {"where": "p ="}, "FilterInvalid", ""),
        ("Delete", {"where": "v = 1"}, "RowLevelNeeded", "rowLevel: true"),
        ("Delete", {"where": "p > 0"}, "FilterMatchesAll", "write TRUE"),
        ("Delete", {}, "InvalidInput", "where"),
        ("Update", {"where": "p = 1", "new_values": {"v": "1"}}, "RowLevelNeeded", "rowLevel: true"),
        ("Update", {"where": "p = 1", "new_values": {"v": "'a'"}, "row_level": True}, "FilterInvalid", "'v'"),
        (
            "Update",
            {"where": "p = 1", "new_values": {"v": "1 OR TRUE"}, "row_level": True},
            "SchemaMismatch",
            "another type",
        ),
        (
            "Update",
            {"where": "p = 1", "new_values": {"v": "w"}, "row_level": True},
            "SchemaMismatch",
            "own: v: \"'w'\"",
        ),
        ("Rollback", {}, "InvalidInput", "toVersion, toTime or toTag"),
        ("Rollback", {"to_version": 77}, "VersionNotFound", "77"),
        ("Rollback", {"to_tag": "nope"}, "VersionNotFound", "nope"),
    ],
)
def test_operation_job_with_bad_input_is_refused_and_keeps_head(
    here: Here, operation: str, fields: dict[str, Any], reason: str, message: str
) -> None:
    here.put("first.csv", FIRST)
    here.commit("first.csv", commit_id="first", table=TABLE)
    head = here.head()
    result, code = here.run(job(here, operation, **fields))
    assert (result.reason, result.retryable, code) == (reason, False, ExitCode.INVALID)
    assert message in result.message
    assert here.head() == head


def test_operation_job_on_missing_dataset_is_refused(here: Here) -> None:
    for operation, fields in (("Delete", {"where": "TRUE"}), ("Rollback", {"to_version": 1})):
        result, _ = here.run(job(here, operation, **fields))
        assert result.reason == "DatasetNotFound"
    assert here.head() is None


def test_conflicting_job_fails_or_retries_as_requested(here: Here) -> None:
    """An append to the partition comes at the moment of the commit."""
    here.put("first.csv", FIRST)
    here.put("late.csv", "p,v,w\n1,1,late\n")
    here.commit("first.csv", commit_id="first", table=TABLE)
    for on_conflict in ("Fail", "Retry"):
        late = here.commit_job("late.csv", commit_id=f"late-{on_conflict}", table=TABLE)
        parsed = JOB.validate_python(job(here, "Delete", where="p = 1", on_conflict=on_conflict))
        assert isinstance(parsed, CommitJob)

        class Interrupted(Reporter):
            def report(
                self, stage: str, tasks_done: int = 0, tasks_total: int = 0, rows: int = 0, **transfer: int
            ) -> None:
                if stage == "Committing":
                    assert here.run(late)[1] == ExitCode.DONE  # noqa: B023

        if on_conflict == "Fail":
            with pytest.raises(Conflict, match="p=1"):
                commit.run(parsed, here.store, Interrupted())
            assert 1 in values(here)["1"]
        else:
            commit.run(parsed, here.store, Interrupted())
            assert "1" not in values(here)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        ("Replace", {}),
        ("Delete", {"where": "v = 10", "row_level": True}),
        ("Update", {"where": "v = 10", "new_values": {"p": "2"}, "row_level": True}),
        ("Rollback", {"to_version": 1}),
    ],
)
def test_operation_job_that_crashes_is_applied_once_on_next_attempt(
    here: Here, operation: str, fields: dict[str, Any]
) -> None:
    here.put("first.csv", FIRST)
    here.put("new.csv", "p,v,w\n1,100,a\n")
    here.commit("first.csv", commit_id="first", table=TABLE)
    here.commit("new.csv", commit_id="second", table=TABLE)
    paths = ("new.csv",) if operation == "Replace" else ()
    made = job(here, operation, *paths, **fields)
    counting = FaultStore(here.store)
    parsed = JOB.validate_python({**made, "commit_id": "counted"})
    assert isinstance(parsed, CommitJob)
    commit.run(parsed, counting, Reporter(here.said))
    expected = values(here)
    for number, fault in enumerate(every_crash(counting.calls)):
        version = f"c{number}"
        here.run(job(here, "Rollback", to_version=2, commit_id=f"back {number}"))
        dying = JOB.validate_python({**made, "commit_id": version})
        assert isinstance(dying, CommitJob)
        with pytest.raises(Crash):
            commit.run(dying, FaultStore(here.store, fault), Reporter(here.said))
        result, code = here.run({**made, "commit_id": version, "attempt": 2})
        assert code == ExitCode.DONE, (fault, result)
        assert values(here) == expected, fault
        assert [record.id for record in here.log.history()].count(version) == 1
