"""Changes of cubes as jobs, and questions to them: once, all or nothing, and told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kubothek.api.jobs import JOB, CommitOutcome, CubeJob, CubeState, DatasetState, ExitCode, JobResult, MemberOutcome
from kubothek.cube.handle import Cube
from kubothek.jobs import cube, outcome
from kubothek.jobs.progress import Reporter
from kubothek.table.log import owner_of
from kubothek.table.log.model import keys
from tests.faultstore import Crash, Fault, FaultStore, every_crash
from tests.jobs.conftest import Here, with_spark

pytestmark = pytest.mark.slow

MEMBERS = ("seed", "extra", "names")
SHAPE = {"dimension_columns": ["x", "y"], "partition_columns": ["p"], "index_columns": ["w"]}
SEED = "p,x,y,v\n1,1,1,10\n1,2,1,20\n2,1,1,30\n"
EXTRA = "p,x,y,w\n1,1,1,5\n2,1,1,6\n"
NAMES = "x,name\n1,one\n2,two\n"


def cube_ref(**changes: Any) -> dict[str, Any]:
    def member(name: str) -> dict[str, Any]:
        table = {"partition_on": [] if name == "names" else ["p"]}
        claim = {"owner": f"cluster/team/geo-{name}", "incarnation": f"uid-{name}"}
        dataset = {"uuid": f"geo++{name}", "claim": claim, "table": table, "adopt": changes.get("adopt", False)}
        return {"name": name, "dataset": dataset, "partition_on": [] if name == "names" else None}

    shape = {} if changes.get("adopt") else SHAPE
    return {"prefix": "geo", "seed": "seed", **shape, "members": [member(name) for name in MEMBERS]}


def cube_job(here: Here, operation: str, rows: Mapping[str, str] | None = None, **changes: Any) -> dict[str, Any]:
    sources = [{"name": name, "source": {"format": "CSV", "paths": [path]}} for name, path in (rows or {}).items()]
    job = {
        "verb": "cube",
        "job": f"{operation.lower()}-1",
        "uid": f"uid-of-{operation}",
        "store": {"name": "lake", "url": here.root.as_uri(), "conditional_writes": True},
        "cube": cube_ref(),
        "by": "cluster/team/geo",
        "commit_id": f"team/{operation.lower()}",
        "digest": json.dumps([operation, rows, changes], default=str),
        "operation": operation,
        "rows": sources,
        "spark": {"from_bytes": here.from_bytes, "conf": {"spark.master": "local[2]"}},
    }
    return job | changes


def sources(here: Here) -> dict[str, str]:
    texts = {"seed": SEED, "extra": EXTRA, "names": NAMES}
    return {name: here.put(f"in/{name}.csv", text) for name, text in texts.items()}


def done(here: Here, job: Mapping[str, Any]) -> JobResult:
    result, code = here.run(job)
    assert code == ExitCode.DONE, result
    return result


def cells(here: Here, **asked: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = Cube.open(here.store, "geo").query(**asked).to_arrow().to_pylist()
    return found


@pytest.fixture
def built(here: Here) -> Here:
    done(here, cube_job(here, "Build", sources(here)))
    return here


def test_cube_build_job_reports_cube_and_each_dataset(here: Here) -> None:
    result = done(here, cube_job(here, "Build", sources(here)))
    assert result.commit is not None
    assert (result.commit.version, result.commit.rows, result.commit.already_applied) == (1, 7, False)
    assert {member.name: (member.version, member.rows) for member in result.commit.members} == {
        "seed": (1, 3),
        "extra": (1, 2),
        "names": (1, 2),
    }
    assert result.cube is not None
    assert (result.cube.version, result.cube.seed, result.cube.dimension_columns) == (1, "seed", ("x", "y"))
    assert sorted(result.cube.members) == sorted(MEMBERS)
    assert [state.uuid for state in result.datasets] == ["geo++extra", "geo++names", "geo++seed"]
    assert [state.totals.rows for state in result.datasets] == [2, 2, 3]
    assert owner_of(here.store, "geo++names") == "cluster/team/geo-names"
    assert result.message == "version 1: 7 rows in 5 files added to seed, extra, names"
    assert [row["name"] for row in cells(here)] == ["one", "one", "two"]


def test_cube_source_with_time_zone_sets_zone_of_column(here: Here) -> None:
    given = sources(here) | {"names": here.put("in/names.csv", "x,name\n1,2025-01-01T12:00:00+01:00\n")}
    done(here, cube_job(here, "Build", given))
    assert {str(row["name"]) for row in cells(here)} == {"None", "2025-01-01 11:00:00+00:00"}
    naive = {"names": here.put("in/more.csv", "x,name\n3,2025-01-01T12:00:00\n")}
    result, code = here.run(cube_job(here, "Append", naive))
    assert (code, result.reason) == (ExitCode.INVALID, "SchemaMismatch"), result
    assert result.message.startswith("'in/more.csv', column 'name', row 1: ")


def test_cube_build_job_rerun_is_applied_once(built: Here) -> None:
    again = done(built, cube_job(built, "Build", {name: f"in/{name}.csv" for name in MEMBERS}))
    assert again.commit is not None
    assert (again.commit.version, again.commit.already_applied) == (1, True)
    assert len(cells(built)) == 3


def test_cube_job_sets_export_of_datasets_that_it_changes(built: Here) -> None:
    def exports(setting: str) -> Mapping[str, Any]:
        ref = cube_ref()
        return {**ref, "members": [m | {"dataset": m["dataset"] | {"iceberg": setting}} for m in ref["members"]]}

    def heads() -> dict[str, str]:
        members = Cube.open(built.store, "geo").snapshot().members
        return {name: member.snapshot.head.iceberg for name, member in members.items()}

    assert set(heads().values()) == {"Off"}
    more = {"seed": built.put("in/more.csv", "p,x,y,v\n3,1,1,10\n")}
    done(built, cube_job(built, "Append", more, cube=exports("Omit")))
    assert heads() == {"seed": "Omit", "extra": "Off", "names": "Off"}
    assert int(built.store.get(f"{keys.iceberg_metadata('geo++seed')}version-hint.text")) == 2
    done(built, cube_job(built, "RemovePartitions", where="p = 3", commit_id="team/less", cube=exports("Off")))
    assert heads()["seed"] == "Off"


@pytest.mark.spark
def test_cube_job_with_large_sources_runs_on_spark(
    here: Here, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_spark(here, spark, monkeypatch)
    done(here, cube_job(here, "Build", sources(here)))
    assert here.sessions == 3
    zoned = {"names": here.put("in/zoned.csv", "x,name,at\n1,one,2025-01-01T12:00:00+01:00\n2,two,\n")}
    done(here, cube_job(here, "Extend", zoned, commit_id="zoned", overwrite=True))
    assert {str(row["at"]) for row in cells(here)} == {"None", "2025-01-01 11:00:00+00:00"}
    assert [row["v"] for row in cells(here, conditions="w >= 5 AND name = 'one'")] == [10, 30]
    here.put("in/twice.csv", "p,x,y,v\n3,1,1,1\n3,1,1,2\n")
    result, code = here.run(cube_job(here, "Append", {"seed": "in/twice.csv"}))
    assert (code, result.reason) == (ExitCode.INVALID, "CubeInvalid")
    assert len(cells(here)) == 3


def test_cube_job_applies_each_verb(built: Here) -> None:
    built.put("in/more.csv", "p,x,y,v\n1,1,1,11\n")
    done(built, cube_job(built, "Append", {"seed": "in/more.csv"}))
    assert [row["v"] for row in cells(built, conditions="p = 1 AND x = 1")] == [11]
    done(built, cube_job(built, "Update", {"seed": "in/more.csv"}, where="p = 2"))
    assert {row["p"] for row in cells(built)} == {1}
    done(built, cube_job(built, "Index", columns=["v"]))
    seed = Cube.open(built.store, "geo").snapshot().seed
    assert "v" in seed.snapshot.head.index_state.wanted()
    target = {"store": {"name": "lake", "url": built.root.as_uri()}, "prefix": "g2", "rename": {"names": "labels"}}
    copied = done(built, cube_job(built, "Copy", target=target))
    assert copied.message == "copied to 'g2', as its version 1"
    assert set(Cube.open(built.store, "g2").snapshot().members) == {"seed", "extra", "labels"}
    assert done(built, cube_job(built, "Cleanup", dry_run=True)).message.endswith("would be deleted")
    done(built, cube_job(built, "RemovePartitions", where="p = 1", members=["extra"]))
    assert {row["w"] for row in cells(built)} == {None}
    gone = done(built, cube_job(built, "Delete"))
    assert gone.cube is not None
    assert gone.cube.members == ()


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        ({"operation": "Build", "rows": {"extra": "in/extra.csv"}}, "CubeInvalid"),
        ({"operation": "Append", "rows": {"seed": "in/none.csv"}}, "SourceNotFound"),
        ({"operation": "Append", "rows": {"seed": "in/null.csv"}}, "CubeInvalid"),
        ({"operation": "RemovePartitions", "where": "v = 1"}, "CubeInvalid"),
        ({"operation": "RemovePartitions", "where": "p ="}, "FilterInvalid"),
        ({"operation": "Delete", "members": ["seed"]}, "CubeInvalid"),
        ({"operation": "Index", "columns": ["nothing"]}, "CubeInvalid"),
        ({"operation": "Delete", "cube": cube_ref() | {"dimension_columns": ["x"]}}, "CubeInvalid"),
    ],
)
def test_cube_job_with_bad_input_is_refused_and_changes_nothing(built: Here, job: dict[str, Any], reason: str) -> None:
    built.put("in/null.csv", "p,x,y,v\n1,,1,11\n")
    before = Cube.open(built.store, "geo").snapshot().version
    result, code = built.run(cube_job(built, **job) | {"commit_id": "team/bad"})
    assert (code, result.reason) == (ExitCode.INVALID, reason), result.message
    assert Cube.open(built.store, "geo").snapshot().version == before


def test_cube_job_on_members_of_other_owner_is_refused(built: Here) -> None:
    ref = cube_ref()
    for member in ref["members"]:
        member["dataset"]["claim"]["owner"] = f"elsewhere/team/geo-{member['name']}"
    built.put("in/more.csv", "p,x,y,v\n1,1,1,11\n")
    result, code = built.run(cube_job(built, "Append", {"seed": "in/more.csv"}, cube=ref))
    assert (code, result.reason) == (ExitCode.FENCED, "OwnedByAnother")


# --- inspections -----------------------------------------------------------------------------------------------------


def inspect(here: Here, **changes: Any) -> JobResult:
    job = here.inspect_job("geo++seed")
    return done(here, job | {"cubes": [cube_ref(**changes)], "datasets": []})


def test_inspect_job_reports_cube_state(built: Here) -> None:
    (state,) = inspect(built).cubes
    assert (state.version, state.seed, state.partition_columns, state.problem) == (1, "seed", ("p",), None)
    assert state.index_columns == ("w",)


def test_inspect_job_of_missing_cube_reports_prefix_only(here: Here) -> None:
    assert inspect(here).cubes == (CubeState(prefix="geo"),)


def test_inspect_job_reports_cube_that_contradicts_manifest(built: Here) -> None:
    job = built.inspect_job() | {"cubes": [cube_ref() | {"partition_columns": ["q"]}], "datasets": []}
    (state,) = done(built, job).cubes
    assert state.problem == (
        "CubeMismatch: the cube 'geo' in the store has partitionColumns p: correct spec.partitionColumns"
    )


def test_cube_commit_that_crashes_is_settled_by_next_inspection(built: Here) -> None:
    """A driver dies between the heads of two datasets: readers see none of it or all, and the next look settles."""
    built.put("in/s.csv", "p,x,y,v\n5,1,1,1\n")
    built.put("in/e.csv", "p,x,y,w\n5,1,1,1\n")
    counted = built.copy(built.root.with_name("counted"))
    swaps = [call for call in _run(counted, None).calls if call.name == "put_if_match"]
    assert len(swaps) == 4, "the intent, two datasets, the cube"
    for number, fault in enumerate(every_crash(swaps, ("put_if_match",))):
        here = built.copy(built.root.with_name(f"crash-{number}"))
        with pytest.raises(Crash):
            _run(here, fault)
        assert _fifth(here) in ([], [(1, 1)]), fault
        (state,) = inspect(here).cubes
        assert state.problem is None
        done(here, _append(here))
        assert _fifth(here) == [(1, 1)], fault


def _append(here: Here) -> dict[str, Any]:
    return cube_job(here, "Append", {"seed": "in/s.csv", "extra": "in/e.csv"})


def _fifth(here: Here) -> list[tuple[int, int]]:
    return [(row["v"], row["w"]) for row in cells(here) if row["p"] == 5]


def _run(here: Here, fault: Fault | None) -> FaultStore:
    """Run the job on a store that dies."""
    store, job = FaultStore(here.store, fault), JOB.validate_python(_append(here))
    assert isinstance(job, CubeJob)
    cube.run(job, store, Reporter(here.said))
    return store


# --- questions -------------------------------------------------------------------------------------------------------


def ask(here: Here, form: str = "JSONLines", as_of: int | None = None, **asked: Any) -> tuple[JobResult, list[Any]]:
    store = {"name": "lake", "url": here.root.as_uri()}
    job = {
        "verb": "query",
        "job": "cells-query-1",
        "uid": f"uid-{json.dumps(asked)}-{as_of}".replace("/", "-")[:60],
        "store": store,
        "cube": {"prefix": "geo", **asked},
        "as_of_version": as_of,
        "location": {"store": store, "path": "reports", "format": form},
    }
    result = done(here, job)
    assert result.query is not None
    assert result.query.location is not None
    text = here.store.get(result.query.location)
    return result, [json.loads(line) for line in text.splitlines()] if form == "JSONLines" else [text]


def into_dataset(here: Here) -> dict[str, Any]:
    store = {"name": "lake", "url": here.root.as_uri()}
    dataset = {"uuid": "cells", "claim": {"owner": "cluster/team/cells", "incarnation": "u"}}
    target = {"store": store, "dataset": dataset, "commit_id": "query:team/cells"}
    return {
        "verb": "query",
        "job": "cells-query-1",
        "uid": "u",
        "store": store,
        "cube": {"prefix": "geo"},
        "becomes": target,
    }


def test_cube_query_job_writes_cells_to_file(built: Here) -> None:
    result, found = ask(built, conditions="w >= 5", payload_columns=["w", "name"])
    assert found == [{"name": "one", "p": 1, "w": 5, "x": 1, "y": 1}, {"name": "one", "p": 2, "w": 6, "x": 1, "y": 1}]
    assert result.query is not None
    assert {read.dataset: read.version for read in result.query.reads} == {
        "geo++seed": 1,
        "geo++extra": 1,
        "geo++names": 1,
    }


def test_cube_query_job_with_skipping_metadata_opens_fewer_files(either: Here) -> None:
    here = either
    shape = cube_ref()
    seed = next(member for member in shape["members"] if member["name"] == "seed")
    seed["dataset"]["table"]["skipping"] = {"indices": [{"type": "MinMax", "columns": ["v"]}]}
    built = done(here, cube_job(here, "Build", sources(here), cube=shape))
    state = next(state for state in built.datasets if state.uuid == "geo++seed")
    assert state.skipping is not None
    assert (state.version, state.skipping.files) == (1, 2)
    result, found = ask(here, conditions="v = 30 AND name = 'one'", payload_columns=["v"])
    assert found == [{"p": 2, "v": 30, "x": 1, "y": 1}]
    assert result.query is not None
    reads = {read.dataset: (read.considered, read.skipped, read.filters) for read in result.query.reads}
    assert reads["geo++seed"] == (2, 1, ("v:Equal",))
    assert reads["geo++names"] == (1, 0, ("name:Equal",))


def test_cube_query_with_newest_only_is_different_query(built: Here) -> None:
    built.put("in/more.csv", "p,x,y,v\n1,1,1,11\n")
    done(built, cube_job(built, "Append", {"seed": "in/more.csv"}))
    asked: dict[str, Any] = {"conditions": "v = 10", "payload_columns": ["v"]}
    assert ask(built, **asked)[1] == [{"p": 1, "v": 10, "x": 1, "y": 1}]
    assert ask(built, **asked, newest_only=True)[1] == []
    into = into_dataset(built)
    done(built, into | {"cube": {"prefix": "geo"} | asked})
    result, code = built.run(into | {"cube": {"prefix": "geo", "newest_only": True} | asked})
    assert (code, result.reason) == (ExitCode.INVALID, "IdReused")


def test_cube_query_job_orders_rows_by_groups(built: Here) -> None:
    _, found = ask(built, partition_by=["x"])
    assert [row["x"] for row in found] == [1, 1, 2]


def test_cube_query_job_with_explain_returns_plan(built: Here) -> None:
    _, found = ask(built, conditions="p = 1", explain=True)
    assert {(row["dataset"], row["join"]) for row in found} == {("seed", "seed"), ("extra", "left"), ("names", "left")}
    assert min(row["files_left"] for row in found if row["dataset"] == "seed") == 1


def test_cube_query_job_as_of_reads_complete_old_version(built: Here) -> None:
    done(built, cube_job(built, "RemovePartitions", where="TRUE"))
    assert ask(built)[1] == []
    assert len(ask(built, as_of=1)[1]) == 3


def test_cube_query_job_writes_cells_to_dataset(built: Here) -> None:
    result = done(built, into_dataset(built))
    assert result.query is not None
    assert (result.query.version, result.query.rows) == (1, 3)


# --- results ---------------------------------------------------------------------------------------------------------


def test_cube_result_keeps_cube_and_version_within_size_limit() -> None:
    members = tuple(
        MemberOutcome(name=f"dataset-{n}", version=n, rows=10**9, files=10**6, bytes=10**15) for n in range(32)
    )
    states = tuple(DatasetState(uuid=f"geo++dataset-{n}", version=n) for n in range(32))
    result = JobResult(
        outcome="Succeeded",
        reason="Succeeded",
        message="version 7",
        commit=CommitOutcome(version=7, rows=1, members=members),
        cube=CubeState(prefix="geo", version=7, seed="dataset-0", members=tuple(m.name for m in members)),
        datasets=states,
    )
    kept = JobResult.model_validate_json(outcome.render(result))
    assert len(outcome.render(result)) <= 4096
    assert kept.cube == result.cube
    assert kept.commit is not None
    assert kept.commit.version == 7


def test_full_inspection_result_keeps_cubes_before_datasets() -> None:
    cubes = tuple(CubeState(prefix=f"cube-{n:03}", version=1, members=("seed",)) for n in range(200))
    states = tuple(DatasetState(uuid=f"d{n}", version=1) for n in range(200))
    full = JobResult(outcome="Succeeded", reason="Succeeded", message="", cubes=cubes, datasets=states)
    kept = JobResult.model_validate_json(outcome.render(full))
    assert kept.truncated
    assert kept.datasets == ()
    assert kept.cubes == cubes[: len(kept.cubes)]
    assert kept.cubes


# --- jobs of the datasets themselves ---------------------------------------------------------------------------------


def member_job(here: Here, verb: str, **changes: Any) -> dict[str, Any]:
    """A job of the Dataset of the seed, as the operator writes it."""
    dataset = next(each["dataset"] for each in cube_ref()["members"] if each["name"] == "seed")
    store = {"name": "lake", "url": here.root.as_uri(), "conditional_writes": True}
    return {"verb": verb, "job": f"{verb}-1", "uid": f"u-{verb}", "store": store, "dataset": dataset} | changes


def test_intake_into_member_commits_version_of_cube(built: Here) -> None:
    built.put("landing/1.csv", "p,x,y,v\n7,1,1,70\n")
    source = {"format": "CSV", "store": {"name": "lake", "url": built.root.as_uri()}}
    terms = {"name": "landing", "prefix": "landing/", "max_files": 9, "max_bytes": 1 << 20, "reading": "r"}
    result = done(built, member_job(built, "intake", source=source, **terms))
    assert result.intake is not None
    assert (result.intake.commits, result.intake.rows) == (1, 1)
    assert Cube.open(built.store, "geo").snapshot().version == 2
    assert [row["v"] for row in cells(built, conditions="p = 7")] == [70]


def test_compaction_of_member_commits_cube_version_and_keeps_cells(built: Here) -> None:
    for number in range(3):
        built.put("in/more.csv", f"p,x,y,v\n1,{number},9,{number}\n")
        done(built, cube_job(built, "Append", {"seed": "in/more.csv"}, commit_id=f"more-{number}"))
    before = cells(built)
    compaction = {"commit_id": "compaction:tidy", "digest": "d", "spark": {"from_bytes": built.from_bytes}}
    result = done(built, member_job(built, "compact", **compaction))
    assert result.compact is not None
    assert (result.compact.files_before, result.compact.files_after) == (4, 1)
    assert cells(built) == before
    assert Cube.open(built.store, "geo").snapshot().version == 5
    assert inspect(built).cubes[0].problem is None
