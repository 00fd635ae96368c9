"""Healing through jobs: what can be made anew is, and what cannot is told."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from kubothek.api.jobs import JOB, ExitCode, HealJob, HealOutcome, JobResult
from kubothek.errors import StoreUnavailable
from kubothek.jobs import heal, outcome
from kubothek.jobs.progress import Reporter
from kubothek.table.log.model import keys
from tests.faultstore import Crash, Fault, FaultStore, every_crash
from tests.jobs.conftest import Here

pytestmark = pytest.mark.slow

TABLE = {"indices": [{"column": "a", "kind": "Kartothek"}]}


def filled(here: Here) -> None:
    """Versions 1 to 3, with an index."""
    for number in range(3):
        here.commit(here.put(f"{number}.csv", f"a,b\n{number},x\n"), commit_id=f"c{number}", table=TABLE)


def run(here: Here) -> JobResult:
    result, code = here.run(here.job("heal", **TABLE))
    assert code == ExitCode.DONE, result
    return result


def index_file(here: Here) -> str:
    return str(here.snapshot().head.indices["a"])


def test_heal_job_of_healthy_table_changes_nothing(here: Here) -> None:
    filled(here)
    before = {info.key: info.etag for info in here.store.list("")}
    result = run(here)
    assert (result.heal, result.message) == (HealOutcome(), "nothing to repair")
    assert result.dataset is not None
    assert (result.dataset.version, result.dataset.corrupt) == (3, None)
    after = {info.key: info.etag for info in here.store.list("")}
    assert {key: after.get(key) for key in before} == before


def test_heal_job_recreates_derived_objects_once(here: Here) -> None:
    filled(here)
    for key in (index_file(here), keys.marker("flights", "c1"), keys.common_metadata("flights", "table")):
        (here.root / key).unlink()
    result = run(here)
    assert result.heal is not None
    assert set(result.heal.repaired) == {"the index on 'a'", "the marker of version 2", "_common_metadata"}
    assert result.message.startswith("repaired: ")
    assert result.dataset is not None
    assert [(index.column, index.state) for index in result.dataset.indices] == [("a", "Ready")]
    assert run(here).heal == HealOutcome()


def test_heal_job_reports_lost_data_and_succeeds(here: Here) -> None:
    filled(here)
    lost = here.log.snapshot().head.files()
    key = list(lost.values())[-1]
    (here.root / key).unlink()
    head = here.head()
    result = run(here)
    assert result.dataset is not None
    assert result.dataset.corrupt is not None
    assert key in result.dataset.corrupt
    assert "version 2 is whole" in result.dataset.corrupt
    assert result.message.startswith(result.dataset.corrupt)
    assert here.head() == head
    here.run({**here.commit_job(commit_id="back"), "operation": "Rollback", "to_version": 2, "source": None})
    healed = run(here)
    assert healed.dataset is not None
    assert healed.dataset.corrupt is None


def test_heal_job_of_missing_table_is_refused(here: Here) -> None:
    result, code = here.run(here.job("heal"))
    assert (result.reason, code) == ("DatasetNotFound", ExitCode.INVALID)


def test_heal_job_of_table_with_other_owner_is_refused(here: Here) -> None:
    filled(here)
    (here.root / index_file(here)).unlink()
    before = {info.key: info.etag for info in here.store.list("")}
    stranger = {"uuid": "flights", "claim": {"owner": "cluster/other/x", "incarnation": "i"}}
    result, code = here.run({**here.job("heal"), "dataset": stranger})
    assert (result.reason, code) == ("OwnedByAnother", ExitCode.FENCED)
    assert {info.key: info.etag for info in here.store.list("")} == before


@pytest.mark.slow
def test_heal_job_after_crash_or_store_failure_completes_on_rerun(here: Here, tmp_path: Path) -> None:
    filled(here)
    job = JOB.validate_python(here.job("heal", **TABLE))
    assert isinstance(job, HealJob)

    schema = keys.schema("flights", here.snapshot().head.schema_hash or "")

    for key in (index_file(here), keys.marker("flights", "c1"), schema):
        (here.root / key).unlink()
    counting = FaultStore(here.copy(tmp_path / "counted").store)
    heal.run(job, counting, Reporter(here.said))
    crashes = list(every_crash(counting.calls))
    assert len(crashes) >= 6
    failures = [Fault(fault.calls, fault.nth, error=StoreUnavailable("503")) for fault in crashes if not fault.after]
    for number, fault in enumerate([*crashes, *failures]):
        twin = here.copy(tmp_path / str(number))
        with suppress(StoreUnavailable) if fault.error else pytest.raises(Crash):
            heal.run(job, FaultStore(twin.store, fault), Reporter(here.said))
        result = heal.run(job, twin.store, Reporter(here.said))
        assert result.dataset is not None
        assert (result.dataset.problem, result.dataset.corrupt) == (None, None), fault
        assert heal.run(job, twin.store, Reporter(here.said)).heal == HealOutcome(), fault
        assert [row["a"] for row in twin.rows()] == [0, 1, 2]


def test_heal_result_with_many_repairs_fits_termination_message(here: Here) -> None:
    for number in range(2):
        here.commit(here.put(f"{number}.csv", f"a\n{number}\n"), commit_id=f"c{number}")
    result = run(here)
    many = tuple("the index on " + "x" * 67 for _ in range(heal.MOST_REPAIRS))
    full = result.model_copy(update={"heal": HealOutcome(repaired=many), "message": ", ".join(many)[:2048]})
    assert len(outcome.render(full)) <= 4096
