"""What jobs tell of a table beside its head: how its files are, what is missing, what is lost."""

from __future__ import annotations

import base64
import random
import zlib
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from kubothek.api.jobs import (
    JOB,
    RESULT_LIMIT_BYTES,
    CommitJob,
    DatasetRef,
    DatasetState,
    ExitCode,
    InspectJob,
    JobResult,
)
from kubothek.catalog import Lake
from kubothek.errors import OwnedByAnother, SchemaMismatch, StoreUnavailable
from kubothek.jobs import outcome, translate
from kubothek.jobs.writers import admit_writers
from kubothek.storage import Store
from kubothek.table.layout import Layout
from kubothek.table.log.model import keys
from tests.faultstore import Crash, Fault, FaultStore, every_crash
from tests.jobs.conftest import CLAIM, Here

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


# --- writers beside manifests ----------------------------------------------------------------------------------------


def writers_job(here: Here, *writers: tuple[str, list[str]], uid: str = "uid-1", **table: Any) -> dict[str, Any]:
    job = here.inspect_job()
    [dataset] = job["datasets"]
    return {
        **job,
        "datasets": [
            {
                **dataset,
                "claim": {**dataset["claim"], "incarnation": uid},
                "table": table,
                "writers": [{"name": name, "operations": operations} for name, operations in writers],
            }
        ],
    }


def admitted(here: Here, *writers: tuple[str, list[str]], **options: Any) -> DatasetState:
    result, code = here.run(writers_job(here, *writers, **options))
    assert code == ExitCode.DONE, result
    return result.datasets[0]


def appended(here: Here, *values: int, writer: str = "etl") -> None:
    Lake(here.store, writer).dataset("flights").append(pa.table({"n": values}))


def test_inspection_without_writers_commits_nothing(filled: Here) -> None:
    before = filled.head()
    assert inspected(filled).writers == ()
    assert filled.head() == before


def test_inspection_grants_withdraws_and_repeats_nothing(filled: Here) -> None:
    state = admitted(filled, ("etl", ["Append"]), ("bi", ["Tag"]))
    assert (state.version, state.writers) == (4, ("bi", "etl"))
    assert admitted(filled, ("etl", ["Append"]), ("bi", ["Tag"])).version == 4
    appended(filled, 7)
    state = admitted(filled)
    assert (state.version, state.writers, state.totals.rows) == (6, (), 4)
    with pytest.raises(OwnedByAnother, match="writers is empty"):
        appended(filled, 8)
    assert [(str(record.operation), record.by) for record in filled.log.history()][:3] == [
        ("Layout", CLAIM["owner"]),
        ("Append", "etl"),
        ("Layout", CLAIM["owner"]),
    ]


def test_inspection_settles_commit_of_writer_without_repair(filled: Here) -> None:
    admitted(filled, ("etl", ["Append"]))
    appended(filled, 7)
    after = filled.head()
    state = admitted(filled, ("etl", ["Append"]))
    assert filled.head() == after
    assert (state.version, state.totals.rows, state.ailments, state.problem) == (5, 4, (), None)


def test_inspection_replaces_grant_of_former_incarnation(filled: Here) -> None:
    admitted(filled, ("etl", ["Append"]))
    state = admitted(filled, ("etl", ["Append"]), uid="uid-2")
    assert (state.version, state.writers) == (5, ("etl",))
    assert (grant := filled.snapshot().head.grant) is not None
    assert grant.incarnation == "uid-2"


def test_inspection_creates_table_for_writers_with_layout_of_the_dataset(here: Here) -> None:
    columns = [{"name": "n", "type": "int64"}, {"name": "day", "type": "date32"}]
    table = {"columns": columns, "sort_by": ["n"], "partition_on": ["day"], "indices": [{"column": "n"}]}
    state = admitted(here, ("etl", ["Append"]), **table)
    assert (state.version, state.totals.rows, state.partition_on) == (1, 0, ("day",))
    assert [(index.column, index.kind) for index in state.indices] == [("n", "Native")]
    rows = pa.table({"n": [2, 1], "day": pa.array([0, 0], pa.date32())})
    Lake(here.store, "etl").dataset("flights").append(rows)
    assert here.rows("n") == [{"n": 1, "day": "1970-01-01"}, {"n": 2, "day": "1970-01-01"}]
    assert admitted(here, ("etl", ["Append"]), **table).version == 2
    with pytest.raises(SchemaMismatch):
        Lake(here.store, "etl").dataset("flights").append(pa.table({"other": [1]}))


def test_inspection_creates_table_without_columns_for_writers(here: Here) -> None:
    assert admitted(here, ("etl", ["Append"])).version == 1
    appended(here, 1, 2)
    here.put("more.csv", "n\n3\n")
    here.commit("more.csv")
    assert sorted(row["n"] for row in here.rows()) == [1, 2, 3]


def test_inspection_without_writers_creates_no_table(here: Here) -> None:
    assert admitted(here).version is None
    assert here.head() is None


def test_inspection_brings_edited_layout_to_writers(filled: Here) -> None:
    admitted(filled, ("etl", ["Append"]))
    state = admitted(filled, ("etl", ["Append"]), sort_by=["n"])
    assert state.version == 5
    appended(filled, 9, 8)
    assert Layout.of(filled.snapshot().head).sort_by == ("n",)


def test_inspection_reports_layout_that_no_writer_can_use(filled: Here) -> None:
    state = admitted(filled, ("etl", ["Append"]), sort_by=["absent"])
    assert state.problem is not None
    assert state.problem.startswith("LayoutInvalid:")


def test_inspection_of_deleted_dataset_creates_no_table(filled: Here) -> None:
    filled.log.delete()
    state = admitted(filled, ("etl", ["Append"]))
    assert (state.version, state.deleted, state.writers) == (4, True, ())


def test_inspection_killed_at_any_call_grants_at_the_next(tmp_path_factory: pytest.TempPathFactory) -> None:
    def fresh() -> tuple[Here, DatasetRef]:
        here = Here(tmp_path_factory.mktemp("here") / "store")
        job = InspectJob.model_validate(writers_job(here, ("etl", ["Append"])))
        return here, job.datasets[0]

    def granted(here: Here, store: Store, ref: DatasetRef) -> bool:
        return admit_writers(store, translate.dataset_log(store, ref, conditional_writes=True), ref)

    here, ref = fresh()
    counting = FaultStore(here.store)
    granted(here, counting, ref)
    for fault in every_crash(counting.calls):
        here, ref = fresh()
        with pytest.raises(Crash):
            granted(here, FaultStore(here.store, fault), ref)
        granted(here, here.store, ref)
        assert [str(record.operation) for record in here.log.history()] == ["Create"], fault
        assert not granted(here, here.store, ref), fault
