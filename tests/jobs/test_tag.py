"""Tags through jobs: exactly those that the Dataset names."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kubothek.api.jobs import JOB, ExitCode, JobResult, TagJob
from kubothek.errors import StoreUnavailable
from kubothek.jobs import outcome, tag
from kubothek.jobs.progress import Reporter
from kubothek.table.log import DatasetLog, Operation
from tests.faultstore import Crash, Fault, FaultStore, every_crash
from tests.jobs.conftest import Here

pytestmark = pytest.mark.slow


def filled(here: Here) -> None:
    """Versions 1 to 3."""
    for number in range(3):
        here.commit(here.put(f"{number}.csv", f"a\n{number}\n"), commit_id=f"c{number}")


def job(here: Here, **tags: int) -> dict[str, Any]:
    return {**here.job("tag"), "tags": tags}


def run(here: Here, **tags: int) -> JobResult:
    result, code = here.run(job(here, **tags))
    assert code == ExitCode.DONE, result
    return result


def test_tag_job_sets_exactly_tags_of_dataset(here: Here) -> None:
    filled(here)
    result = run(here, first=1, good=2)
    assert result.dataset is not None
    assert result.dataset.tags == {"first": 1, "good": 2}
    assert result.message == "tags: first is version 1, good is version 2"
    assert here.rows() == [{"a": 0}, {"a": 1}, {"a": 2}]
    result = run(here, good=3)
    assert result.dataset is not None
    assert result.dataset.tags == {"good": 3}
    result = run(here)
    assert result.dataset is not None
    assert (result.dataset.tags, result.message) == ({}, "the table has no tags")


def test_tag_job_with_unchanged_tags_makes_no_commit(here: Here) -> None:
    filled(here)
    run(here, first=1)
    head = here.head()
    assert run(here, first=1).dataset is not None
    assert here.head() == head


def test_collect_job_keeps_tagged_version(here: Here) -> None:
    filled(here)
    run(here, first=1)
    target = {"name": "flights", "dataset": here.job("tag")["dataset"], "policies": [{"versions": 1}]}
    base = {name: value for name, value in here.job("collect").items() if name != "dataset"}
    result, code = here.run({**base, "targets": [target], "enforce": True, "grace_seconds": 60.0})
    assert code == ExitCode.DONE, result
    assert here.log.snapshot("first").version == 1


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        ({"never": 99}, "VersionNotFound"),
        ({"zero": 0}, "VersionNotFound"),
        ({"first": 1, "never": 99}, "VersionNotFound"),
        ({"no name": 1}, "InvalidInput"),
        ({"7": 1}, "InvalidInput"),
    ],
)
def test_tag_job_with_invalid_tag_keeps_all_tags(here: Here, tags: dict[str, int], reason: str) -> None:
    filled(here)
    run(here, good=2)
    head = here.head()
    result, code = here.run(job(here, **tags))
    assert (result.reason, result.retryable, code) == (reason, False, ExitCode.INVALID)
    assert here.head() == head


def test_tag_job_of_missing_table_is_refused(here: Here) -> None:
    result, code = here.run(job(here, first=1))
    assert (result.reason, code) == ("DatasetNotFound", ExitCode.INVALID)


def test_tag_job_of_deleted_table_is_refused(here: Here) -> None:
    filled(here)
    here.run(here.job("delete"))
    result, code = here.run(job(here, first=1))
    assert (result.reason, code) == ("DatasetDeleted", ExitCode.FENCED)


def test_tag_job_of_table_with_other_owner_is_refused(here: Here) -> None:
    filled(here)
    stranger = {"uuid": "flights", "claim": {"owner": "cluster/other/x", "incarnation": "i"}}
    result, code = here.run({**job(here, first=1), "dataset": stranger})
    assert (result.reason, code) == ("OwnedByAnother", ExitCode.FENCED)


def test_tag_job_after_crash_or_store_failure_is_applied_once_on_rerun(here: Here, tmp_path: Path) -> None:
    filled(here)
    parsed = JOB.validate_python(job(here, second=2))
    assert isinstance(parsed, TagJob)
    counting = FaultStore(here.copy(tmp_path / "counted").store)
    tag.run(parsed, counting, Reporter(here.said))
    crashes = list(every_crash(counting.calls))
    failures = [Fault(fault.calls, fault.nth, after=fault.after, error=StoreUnavailable("503")) for fault in crashes]
    assert len(crashes) >= 4
    for number, fault in enumerate([*crashes, *failures]):
        store = here.copy(tmp_path / str(number)).store
        with suppress(StoreUnavailable) if fault.error else pytest.raises(Crash):
            tag.run(parsed, FaultStore(store, fault), Reporter(here.said))
        result = tag.run(parsed, store, Reporter(here.said))
        assert result.dataset is not None
        assert (result.dataset.tags, result.dataset.problem) == ({"second": 2}, None), fault
        log = DatasetLog(store, "flights")
        assert [record.operation for record in log.history()].count(Operation.TAG) == 1
        assert log.snapshot("second").version == 2


def test_tag_result_with_many_tags_fits_termination_message(here: Here) -> None:
    filled(here)
    result = run(here, **{f"release-{number:03}": 1 + number % 3 for number in range(64)})
    assert "and 56 more" in result.message
    told = JobResult.model_validate_json(outcome.render(result))
    assert told.dataset == result.dataset
