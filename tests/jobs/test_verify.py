"""Verification through jobs: the verdict is the result, whatever it is, and inspections learn of what is wrong."""

from __future__ import annotations

import pytest

from kubothek.api.jobs import JOB, ExitCode, FindingState, JobResult, VerifyJob, VerifyOutcome
from kubothek.errors import StoreUnavailable
from kubothek.jobs import outcome, verify
from kubothek.jobs.progress import Reporter
from kubothek.table.log.model import keys
from tests.faultstore import Fault, FaultStore
from tests.jobs.conftest import Here

pytestmark = pytest.mark.slow

TABLE = {"indices": [{"column": "a", "kind": "Kartothek"}]}


def filled(here: Here) -> None:
    """Versions 1 to 3, with an index."""
    for number in range(3):
        here.commit(here.put(f"{number}.csv", f"a,b\n{number},x\n"), commit_id=f"c{number}", table=TABLE)


def run(here: Here, **how: object) -> VerifyOutcome:
    result, code = here.run({**here.job("verify", **TABLE), **how})
    assert code == ExitCode.DONE, result
    assert result.verify is not None
    assert result.reason == ("Succeeded" if result.verify.first is None else "Corrupt")
    return result.verify


def newest(here: Here) -> str:
    return list(here.snapshot().head.files().values())[-1]


def corrupt(here: Here) -> str | None:
    """What the next inspection says."""
    job = {**here.job("inspect"), "datasets": [here.job("heal")["dataset"]]}
    del job["dataset"]
    result, code = here.run(job)
    assert code == ExitCode.DONE, result
    (state,) = result.datasets
    return state.corrupt


def test_verify_job_of_sound_table_reports_counts_and_writes_nothing(here: Here) -> None:
    filled(here)
    before = {info.key: info.etag for info in here.store.list("")}
    found = run(here)
    assert (found.version, found.files, found.rows, found.unproven) == (3, 3, 3, 0)
    assert (found.blocks, found.wrong, found.first) == (None, 0, None)
    assert run(here, level="Chain").files == 0
    assert run(here, since_version=2).files == 1
    after = {info.key: info.etag for info in here.store.list("")}
    assert {key: after.get(key) for key in before} == before
    assert keys.damage("flights") not in after


def test_verify_job_names_damage_and_inspections_report_until_repaired(here: Here) -> None:
    filled(here)
    assert corrupt(here) is None
    key = newest(here)
    whole = (here.root / key).read_bytes()
    (here.root / key).write_bytes(whole[:-8] + b"x" * 8)
    found = run(here)
    assert found.wrong == 1
    assert found.first is not None
    assert (found.first.code, found.first.object) == ("FileHash", key)
    told = corrupt(here)
    assert told is not None
    assert key in told
    healed, _ = here.run(here.job("heal", **TABLE))
    assert healed.dataset is not None
    assert healed.dataset.corrupt == told, "healing does not look at bytes"
    (here.root / key).write_bytes(whole)
    assert run(here).first is None
    assert corrupt(here) is None


def test_verify_job_with_spark_returns_same_verdict(either: Here) -> None:
    filled(either)
    before, key = either.sessions, newest(either)
    (either.root / key).write_bytes(b"x")
    found = run(either, spark={"from_bytes": either.from_bytes, "conf": {"spark.master": "local[2]"}})
    assert found.first is not None
    assert (found.files, found.wrong, found.first.object) == (3, 1, key)
    assert either.sessions == before + (either.from_bytes == 0)


def test_verify_job_reports_missing_head_and_refuses_missing_dataset(here: Here) -> None:
    result, code = here.run(here.job("verify"))
    assert (result.reason, code) == ("DatasetNotFound", ExitCode.INVALID)
    filled(here)
    (here.root / keys.head("flights")).unlink()
    found = run(here)
    assert found.first is not None
    assert found.first.code == "HeadMissing"
    here.store.put(keys.head("flights"), b"x")
    assert run(here).first != found.first


def test_verify_job_of_table_with_other_owner_changes_nothing(here: Here) -> None:
    filled(here)
    (here.root / newest(here)).write_bytes(b"")
    before = {info.key: info.etag for info in here.store.list("")}
    stranger = {"uuid": "flights", "claim": {"owner": "cluster/other/x", "incarnation": "i"}}
    found = run(here, dataset=stranger)
    assert found.first is not None
    after = {info.key for info in here.store.list("")} - before.keys()
    assert all(key.startswith(keys.jobs("flights")) for key in after)


def test_verify_job_with_unavailable_store_fails_without_verdict(here: Here) -> None:
    filled(here)
    job = JOB.validate_python(here.job("verify", **TABLE))
    assert isinstance(job, VerifyJob)
    silent = FaultStore(here.store, Fault(("get",), key=newest(here), error=StoreUnavailable("503")))
    with pytest.raises(StoreUnavailable):
        verify.run(job, silent, Reporter(here.said))
    assert verify.run(job, silent, Reporter(here.said)).verify is not None


def test_verify_result_with_long_finding_fits_termination_message(here: Here) -> None:
    long = FindingState(code="DataLogical", message="ü" * 600, block="f" * 69, object="o" * 300, column="ü" * 300)
    found = VerifyOutcome(version=3, wrong=9, first=long)
    full = JobResult(outcome="Succeeded", reason="Corrupt", message="ü" * 2048, verify=found)
    rendered = outcome.render(full)
    assert len(rendered) <= 4096
    again = JobResult.model_validate_json(rendered).verify
    assert again is not None
    assert again.first == long, "it is the text for people that is cut"
