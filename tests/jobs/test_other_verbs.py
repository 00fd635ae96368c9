from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

from kubothek.api.jobs import JOB, ExitCode, InspectJob, JobResult
from kubothek.errors import StoreUnavailable
from kubothek.jobs import outcome
from kubothek.jobs.inspect import run as run_inspect
from kubothek.jobs.progress import Reporter
from kubothek.table.log.model import keys
from tests.faultstore import Fault, FaultStore
from tests.jobs.conftest import Here

pytestmark = pytest.mark.slow


def inspected(here: Here, *uuids: str) -> JobResult:
    result, code = here.run(here.inspect_job(*uuids))
    assert code == ExitCode.DONE, result
    return result


def test_inspect_job_reports_store_and_datasets_in_order(here: Here) -> None:
    here.put("x.csv", "a\n1\n2\n")
    done = here.commit("x.csv")
    result = inspected(here, "zebra", "flights", "ant")
    assert result.store is not None
    assert result.store.conditional_writes
    assert [state.uuid for state in result.datasets] == ["ant", "flights", "zebra"]
    assert result.datasets[1] == done.dataset
    assert [state.version for state in result.datasets] == [None, 1, None]
    assert not (here.root / ".kubothek" / "ant").exists(), "looking claims nothing"


def test_inspect_job_settles_commit_of_crashed_job(here: Here) -> None:
    here.put("x.csv", "a\n1\n")
    here.commit("x.csv")
    marker, schema = here.root / keys.marker("flights", "c1"), here.root / "flights/table/_common_metadata"
    whole = schema.read_bytes()
    marker.unlink()
    schema.unlink()
    state = inspected(here).datasets[0]
    assert state.problem is None
    assert marker.exists()
    assert schema.read_bytes() == whole


def test_inspect_job_of_dataset_with_other_owner_writes_nothing(here: Here) -> None:
    here.put("x.csv", "a\n1\n")
    here.commit("x.csv")
    before = {path: path.stat().st_mtime_ns for path in here.root.rglob("*") if "probe" not in str(path)}
    job = here.inspect_job()
    job["datasets"][0]["claim"] = {"owner": "other/default/flights", "incarnation": "uid-2"}
    result, _ = here.run(job)
    assert result.datasets[0].problem is not None
    assert result.datasets[0].problem.startswith("OwnedByAnother: ")
    after = {path: path.stat().st_mtime_ns for path in before if path.is_file()}
    assert after == {path: time for path, time in before.items() if path.is_file()}


def test_inspect_job_reports_damaged_dataset_beside_others(here: Here) -> None:
    here.put("x.csv", "a\n1\n")
    here.commit("x.csv")
    (here.root / keys.head("broken")).write_text("no json")
    (here.root / keys.head("gone")).write_text('{"dataset_metadata_version": 4}')
    states = {state.uuid: state for state in inspected(here, "broken", "flights", "gone").datasets}
    assert states["flights"].problem is None
    assert states["broken"].problem is not None
    assert states["broken"].problem.startswith("HeadUnreadable: ")
    assert states["gone"].problem is not None


def test_inspect_job_with_full_result_stops_and_is_marked_truncated(here: Here) -> None:
    uuids = sorted(sha256(bytes([number])).hexdigest() * 2 for number in range(100))  # nothing that could be packed
    result = inspected(here, *uuids)
    message = outcome.render(result)
    assert len(message) <= 4096
    told = JobResult.model_validate_json(message)
    assert told.truncated
    assert 0 < len(told.datasets) < 100
    assert [state.uuid for state in told.datasets] == uuids[: len(told.datasets)]
    assert len(result.datasets) < 100, "what cannot be told is not looked at"


def test_inspect_job_with_unavailable_store_fails(here: Here) -> None:
    here.put("x.csv", "a\n1\n")
    here.commit("x.csv")
    job = JOB.validate_python(here.inspect_job())
    assert isinstance(job, InspectJob)
    broken = FaultStore(here.store, Fault(("get_with_info",), error=StoreUnavailable("503")))
    with pytest.raises(StoreUnavailable):
        run_inspect(job, broken, Reporter(here.said))


def test_inspect_job_of_store_without_directory_is_refused(tmp_path: Path) -> None:
    here = Here(tmp_path / "lake")
    job = here.inspect_job()
    job["store"]["url"] = (tmp_path / "nowhere").as_uri()
    result, code = here.run(job)
    assert (result.reason, code) == ("BucketNotFound", ExitCode.INVALID)


def test_delete_and_restore_jobs_are_idempotent(here: Here) -> None:
    here.put("x.csv", "a\n1\n")
    here.commit("x.csv")
    for _ in range(2):
        result, code = here.run(here.job("delete"))
        assert code == ExitCode.DONE
        assert result.dataset is not None
        assert (result.dataset.deleted, result.dataset.version) == (True, 2)
    assert inspected(here).datasets[0].deleted
    fenced, code = here.run(here.commit_job("x.csv", commit_id="late"))
    assert (fenced.reason, fenced.retryable, code) == ("DatasetDeleted", False, ExitCode.FENCED)
    for _ in range(2):
        result, code = here.run(here.job("restore"))
        assert code == ExitCode.DONE
        assert result.dataset is not None
        assert (result.dataset.deleted, result.dataset.version) == (False, 3)
    assert here.rows() == [{"a": 1}]


def test_delete_job_of_missing_dataset_succeeds(here: Here) -> None:
    result, code = here.run(here.job("delete"))
    assert (code, result.message) == (ExitCode.DONE, "there was nothing to delete")


def test_restore_job_of_missing_dataset_fails(here: Here) -> None:
    result, code = here.run(here.job("restore"))
    assert (result.reason, code) == ("DatasetNotFound", ExitCode.INVALID)


def test_commit_job_of_new_incarnation_after_deletion_starts_empty(here: Here) -> None:
    here.put("x.csv", "a\n1\n")
    here.commit("x.csv")
    here.run(here.job("delete"))
    job = here.commit_job("x.csv")
    job["dataset"]["claim"] = {"owner": "cluster/default/flights", "incarnation": "uid-2"}
    result, code = here.run(job)
    assert code == ExitCode.DONE
    assert result.commit is not None
    assert not result.commit.already_applied
    assert here.rows() == [{"a": 1}]


def test_full_job_result_is_stored_beside_dataset(here: Here) -> None:
    here.put("x.csv", "a\n1\n")
    result = here.commit("x.csv")
    kept = JobResult.model_validate_json(here.store.get(keys.job("flights", "uid-of-commit")))
    assert kept == result
    here.run(here.commit_job("nowhere.csv", commit_id="c2"))
    assert json.loads(here.store.get(keys.job("flights", "uid-of-commit")))["reason"] == "SourceNotFound"


def test_job_result_is_not_stored_in_dataset_of_other_owner(here: Here) -> None:
    here.put("x.csv", "a\n1\n")
    here.commit("x.csv")
    job = here.commit_job("x.csv", commit_id="c2")
    job["dataset"]["claim"] = {"owner": "other/default/flights", "incarnation": "uid-2"}
    result, code = here.run({**job, "uid": "other"})
    assert (result.reason, code) == ("OwnedByAnother", ExitCode.FENCED)
    assert not (here.root / keys.job("flights", "other")).exists()
