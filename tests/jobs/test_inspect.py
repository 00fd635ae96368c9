"""What jobs tell of a table beside its head: how its files are, what is missing, what is lost."""

from __future__ import annotations

import base64
import random
import zlib
from typing import Any

import pytest
from pydantic import ValidationError

from kubothek.api.jobs import JOB, RESULT_LIMIT_BYTES, CommitJob, DatasetState, ExitCode, JobResult
from kubothek.errors import StoreUnavailable
from kubothek.jobs import outcome
from kubothek.table.log.model import keys
from tests.faultstore import Fault, FaultStore
from tests.jobs.conftest import Here

pytestmark = pytest.mark.slow

TABLE = {"indices": [{"column": "n", "kind": "Kartothek"}]}


@pytest.fixture
def filled(here: Here) -> Here:
    """Version 3: three small files, one value each, with an index."""
    for number in range(3):
        here.put(f"{number}.csv", f"n\n{number}\n")
        here.commit(f"{number}.csv", commit_id=f"c{number}", table=TABLE)
    return here


def inspected(here: Here) -> DatasetState:
    result, code = here.run(here.inspect_job())
    assert code == ExitCode.DONE, result
    return result.datasets[0]


def test_commit_job_reports_file_health_after_commit(filled: Here) -> None:
    filled.put("more.csv", "n\n7\n")
    state = filled.commit("more.csv", commit_id="c3", table=TABLE).dataset
    assert state is not None
    assert state.health is not None
    told = state.health.model_dump(exclude={"sizes"})
    assert told == {
        "version": 4,
        "small_files": 4,
        "small_percent": 100,
        "worst_partition_small_files": 4,
        "versions": 4,
        "history_files": 0,
        "history_bytes": 0,
        "garbage_files": 0,
        "garbage_bytes": 0,
    }
    assert [(step.below, step.files) for step in state.health.sizes] == [(65536, 4)]
    assert inspected(filled) == state


def test_commit_job_reads_only_its_own_record_for_health(filled: Here) -> None:
    filled.put("more.csv", "n\n7\n")
    job = JOB.validate_python(filled.commit_job("more.csv", commit_id="c3", table=TABLE))
    assert isinstance(job, CommitJob)
    counting = FaultStore(filled.store)
    from kubothek.jobs.commit import run
    from kubothek.jobs.progress import Reporter

    run(job, counting, Reporter(filled.said))
    read = [call.key for call in counting.calls if call.name in ("get", "get_with_info") and "/commits/" in call.key]
    assert len(read) == 1, "its own record"
    assert not [call for call in counting.calls if call.name == "list" and call.key.startswith(f"{filled.log.uuid}/")]


def test_commit_job_with_unavailable_health_still_succeeds(filled: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    filled.put("more.csv", "n\n7\n")
    failing = FaultStore(filled.store, Fault(("get",), key="inventory", error=StoreUnavailable("503")))
    monkeypatch.setattr("kubothek.jobs.main.open_store", lambda _config: failing)
    state = filled.commit("more.csv", commit_id="c3", table=TABLE).dataset
    assert state is not None
    assert (state.version, state.health) == (4, None)


def test_inspect_job_reports_missing_index_and_heal_job_restores_index(filled: Here) -> None:
    index = str(filled.snapshot().head.indices["n"])
    filled.store.delete([index])
    assert inspected(filled).ailments == ("the index on 'n'",)
    result, code = filled.run(filled.job("heal", **TABLE))
    assert code == ExitCode.DONE
    assert result.heal is not None
    assert result.heal.repaired == ("the index on 'n'",)
    assert result.dataset is not None
    assert (result.dataset.ailments, result.dataset.corrupt, inspected(filled).ailments) == ((), None, ())


def test_inspect_job_reports_lost_data_until_restored(filled: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    key = list(filled.snapshot().head.files().values())[-1]
    data = filled.store.get(key)
    filled.store.delete([key])
    told = inspected(filled).corrupt
    assert told is not None
    assert f"1 data file is lost: {key}; missing in version 3; version 2 is whole" in told
    monkeypatch.setattr(random, "sample", lambda _files, _size: [])  # the luck of the draw
    assert inspected(filled).corrupt == told
    filled.store.put(key, data)
    assert inspected(filled).corrupt is None


def test_missing_file_found_by_job_is_reported_by_inspections(filled: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "sample", lambda _files, _size: [])
    filled.store.delete(list(filled.snapshot().head.files().values())[-1:])
    assert inspected(filled).corrupt is None
    compaction: dict[str, Any] = {**filled.job("compact", **TABLE), "commit_id": "compaction", "digest": "d"}
    result, _ = filled.run(compaction)
    assert result.reason == "VersionIncomplete"
    assert inspected(filled).corrupt is not None


def test_inspect_job_restores_schema_object(filled: Here) -> None:
    schema_hash = filled.snapshot().head.schema_hash
    assert schema_hash is not None
    key = keys.schema("flights", schema_hash)
    data = filled.store.get(key)
    filled.store.delete([key])
    assert inspected(filled).problem is None
    assert filled.store.get(key) == data


def test_inspect_job_reports_unrecoverable_schema_as_problem(filled: Here) -> None:
    schema_hash = filled.snapshot().head.schema_hash
    assert schema_hash is not None
    filled.store.delete([keys.schema("flights", schema_hash), keys.common_metadata("flights", "table")])
    problem = inspected(filled).problem
    assert problem is not None
    assert problem.startswith("VersionIncomplete: ")
    assert problem.endswith("restore either from a backup")


def test_inspect_job_reports_partition_columns(here: Here) -> None:
    here.put("a.csv", "k,n\n1,2\n")
    here.commit("a.csv", commit_id="a", table={"partition_on": ["k"]})
    assert inspected(here).partition_on == ("k",)


def test_worst_case_table_state_leaves_room_for_others_in_result(filled: Here) -> None:
    files = list(filled.snapshot().head.files().values())
    filled.store.delete(files)
    state = inspected(filled)
    worst = state.model_copy(update={"uuid": "x" * 128, "corrupt": "x" * 512, "ailments": ("x" * 80,) * 8})
    told = JobResult(outcome="Succeeded", reason="Succeeded", message="", datasets=(worst, state))
    assert len(JobResult.model_validate_json(outcome.render(told)).datasets) == 2


def test_inspect_job_omits_unchanged_known_state(filled: Here) -> None:
    first = inspected(filled)
    job = filled.inspect_job() | {"known": {first.uuid: first.digest}}
    result, code = filled.run(job)
    assert (code, result.datasets, result.truncated) == (ExitCode.DONE, (), False)
    filled.put("more.csv", "n\n9\n")
    filled.commit("more.csv", commit_id="more", table=TABLE)
    result, _ = filled.run(job)
    assert [state.version for state in result.datasets] == [4]


def test_inspect_result_packs_many_similar_tables(filled: Here) -> None:
    """However they are told, the operator reads the same; and what a pod says is not believed to be small."""
    state = inspected(filled)
    random_ = random.Random(1)
    many = tuple(
        state.model_copy(update={"uuid": f"events-{number:05}", "etag": f"{random_.getrandbits(128):032x}"})
        for number in range(400)
    )
    told = JobResult(outcome="Succeeded", reason="Succeeded", message="", datasets=many)
    data = outcome.render(told)
    read = JobResult.model_validate_json(data)
    assert len(data) <= RESULT_LIMIT_BYTES
    assert read.truncated
    assert len(read.datasets) >= 60, "as many as there is room for"
    assert read.datasets == many[: len(read.datasets)]
    bomb = base64.b85encode(zlib.compress(b"[" + b" " * (1 << 26))).decode()
    for packed in ("?", "Zm9v", bomb):
        with pytest.raises(ValidationError, match="packed"):
            JobResult.model_validate({"outcome": "Succeeded", "reason": "", "message": "", "packed": packed})
