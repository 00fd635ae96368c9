"""A Cube, its Datasets, and the Commits that change it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kubothek.api import jobs
from kubothek.api.cube import Cube
from kubothek.api.dataset import Dataset, Sharing
from kubothek.controller.context import FailureClass
from kubothek.controller.kinds.members import refusal_key
from kubothek.controller.references import iceberg_of
from tests.controller.fake import COMMIT_SPEC, STORE_SPEC, Fake, seen

KEY = ("Cube", "geo")
BUILD = ("Commit", "build")
SPEC: dict[str, Any] = {
    "storeRef": {"name": "lake"},
    "dimensionColumns": ["x", "y"],
    "partitionColumns": ["p"],
    "indexColumns": ["i"],
    "datasets": [{"name": "seed"}, {"name": "Names_1", "partitionOn": []}],
}
ADOPTED: dict[str, Any] = {"storeRef": {"name": "lake"}, "adopt": True}
SOURCE = {"paths": ["in/a.csv"], "format": "CSV"}
MEMBERS = ["geo-seed", "geo-names-1"]


def rows(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "source": SOURCE} for name in names]


def change(operation: str, **spec: Any) -> dict[str, Any]:
    return {"cube": {"cubeRef": {"name": "geo"}, "operation": operation} | spec}


BUILD_SPEC = change("Build", datasets=rows("seed", "Names_1"))


def found(version: int | None = None, *members: str, **changes: Any) -> jobs.CubeState:
    """What a job tells of the cube."""
    if version is None:
        return jobs.CubeState(prefix="geo", **changes)
    shape = {"seed": "seed", "dimension_columns": ("x", "y"), "partition_columns": ("p",), "index_columns": ("i",)}
    return jobs.CubeState(prefix="geo", version=version, members=members, **(shape | changes))


def inspect(context: Fake, *cubes: jobs.CubeState, datasets: tuple[jobs.DatasetState, ...] = ()) -> None:
    """The inspection that is due ends with these answers."""
    context.pass_time(timedelta(minutes=11))
    context.settle("ObjectStore", "lake")
    last = context.store.status.last_inspection
    assert last is not None
    asked = {
        ref.uuid
        for launch in context.launches[-1:]
        if isinstance(launch.job, jobs.InspectJob)
        for ref in launch.job.datasets
    }
    states = datasets or tuple(seen(uuid=uuid) for uuid in sorted(asked))
    state = jobs.StoreState(conditional_writes=True)
    context.job_ends(f"lake-inspect-{last.attempt}", store=state, cubes=cubes, datasets=states)
    context.settle("ObjectStore", "lake")


def settle(context: Fake) -> None:
    """The Cube and its Datasets, until nothing changes."""
    for _ in range(2):
        context.settle(*KEY)
        for dataset in [r for r in context.resources.values() if isinstance(r, Dataset)]:
            context.settle("Dataset", dataset.name)
    context.settle(*KEY)


def cube(context: Fake) -> Cube:
    resource = context.resources[KEY]
    assert isinstance(resource, Cube)
    return resource


def dataset(context: Fake, name: str) -> Dataset:
    resource = context.resources["Dataset", name]
    assert isinstance(resource, Dataset)
    return resource


def cube_jobs(context: Fake) -> list[jobs.CubeJob]:
    return [launch.job for launch in context.launches if isinstance(launch.job, jobs.CubeJob)]


@pytest.fixture
def context() -> Fake:
    fake = Fake()
    fake.create("ObjectStore", "lake", STORE_SPEC)
    return fake


@pytest.fixture
def ready(context: Fake) -> Fake:
    context.create(*KEY, SPEC, labels={"tier": "hot"})
    settle(context)
    inspect(context, found())
    settle(context)
    return context


@pytest.fixture
def built(ready: Fake) -> Fake:
    ready.create(*BUILD, BUILD_SPEC)
    ready.settle(*BUILD)
    done = jobs.CommitOutcome(
        version=1,
        rows=12,
        files=2,
        bytes=2000,
        members=(
            jobs.MemberOutcome(name="seed", version=1, rows=10, files=1, bytes=1000),
            jobs.MemberOutcome(name="Names_1", version=1, rows=2, files=1, bytes=1000),
        ),
    )
    states = (seen(1, "geo++Names_1"), seen(1, "geo++seed"))
    ready.job_ends("build-1", commit=done, cube=found(1, "seed", "Names_1"), datasets=states)
    ready.settle(*BUILD)
    settle(ready)
    return ready


# --- its datasets ----------------------------------------------------------------------------------------------------


def test_cube_creates_one_owned_dataset_for_each_member(context: Fake) -> None:
    maintenance, exports = {"compaction": {"minFiles": 4}}, {"iceberg": {"enabled": True}}
    spec = SPEC | {"maintenance": maintenance, "engineRef": {"name": "big"}, "export": exports}
    context.create("Engine", "big", {})
    context.create(*KEY, spec, labels={"tier": "hot"})
    context.settle(*KEY)
    seed, names = dataset(context, "geo-seed"), dataset(context, "geo-names-1")
    assert (seed.uuid, names.uuid) == ("geo++seed", "geo++Names_1")
    assert (seed.spec.table.partition_on, names.spec.table.partition_on) == (("p",), ())
    assert seed.cube == "geo"
    assert seed.controller is not None
    assert seed.controller.uid == cube(context).metadata.uid
    assert seed.metadata.labels == {"tier": "hot", "kubothek.io/cube": "geo"}, "so that a GCPolicy selects them"
    assert seed.spec.maintenance.compaction is not None
    assert (iceberg_of(seed.spec), iceberg_of(names.spec)) == ("Omit", "Omit")
    assert seed.spec.engine_ref == cube(context).spec.engine_ref
    assert seed.spec.deletion_policy == "Retain"
    assert context.kstatus(*KEY) == "InProgress"


def test_cube_is_ready_after_inspection_of_store_and_datasets(ready: Fake) -> None:
    assert ready.condition(*KEY) == ("True", "Succeeded")
    assert [(m.name, m.dataset, m.version) for m in cube(ready).status.members] == [
        ("seed", "geo-seed", None),
        ("Names_1", "geo-names-1", None),
    ]
    inspections = [launch.job for launch in ready.launches if isinstance(launch.job, jobs.InspectJob)]
    (asked,) = inspections[-1].cubes
    assert (asked.prefix, asked.dimension_columns, asked.index_columns) == ("geo", ("x", "y"), ("i",))
    assert {member.name: member.dataset.claim.owner for member in asked.members} == {
        "seed": "cluster/team/geo-seed",
        "Names_1": "cluster/team/geo-names-1",
    }


def test_cube_in_desired_state_needs_no_actions(ready: Fake) -> None:
    assert ready.settle(*KEY).actions == ()


def test_cube_edit_updates_datasets_and_keeps_foreign_labels(ready: Fake) -> None:
    ready.resources["Dataset", "geo-seed"] = dataset(ready, "geo-seed").model_copy(
        update={
            "metadata": dataset(ready, "geo-seed").metadata.model_copy(
                update={"labels": dataset(ready, "geo-seed").metadata.labels | {"theirs": "yes"}}
            )
        }
    )
    more: dict[str, Any] = {"datasets": [{"name": "seed"}, {"name": "new"}], "sharing": {"exposed": True}}
    ready.edit(*KEY, maintenance={"compaction": {"minFiles": 9}}, **more)
    ready.settle(*KEY)
    assert dataset(ready, "geo-seed").spec.sharing == Sharing(exposed=True)
    assert iceberg_of(dataset(ready, "geo-seed").spec) == "Omit", "what a gateway serves is exported"
    compaction = dataset(ready, "geo-seed").spec.maintenance.compaction
    assert compaction is not None
    assert compaction.min_files == 9
    assert dataset(ready, "geo-seed").metadata.labels["theirs"] == "yes"
    assert dataset(ready, "geo-new").uuid == "geo++new"
    assert ("Dataset", "geo-names-1") in ready.resources, "data that is no longer listed is not let go of"


def test_cube_with_existing_dataset_of_same_name_reports_collision(context: Fake) -> None:
    context.create("Dataset", "geo-seed", {"storeRef": {"name": "lake"}})
    context.create(*KEY, SPEC)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "NameCollision")
    assert context.kstatus(*KEY) == "Failed"
    assert dataset(context, "geo-seed").uuid == "geo-seed"
    context.delete("Dataset", "geo-seed")
    context.settle(*KEY)
    assert dataset(context, "geo-seed").uuid == "geo++seed"


def test_cube_with_unreadable_dataset_of_same_name_reports_collision(context: Fake) -> None:
    context.unreadable["Dataset"] = ("geo-names-1",)
    context.create(*KEY, SPEC)
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "NameCollision")


def test_cube_with_refused_dataset_is_reported(context: Fake) -> None:
    context.refusals[refusal_key("geo-seed")] = ("Forbidden", "exceeded quota")
    context.create(*KEY, SPEC)
    settle(context)
    inspect(context, found())
    settle(context)
    assert context.condition(*KEY) == ("False", "DatasetRefused")
    assert "exceeded quota" in context.message(*KEY)


def test_cube_recreates_deleted_dataset(ready: Fake) -> None:
    ready.delete("Dataset", "geo-seed")
    ready.settle(*KEY)
    assert dataset(ready, "geo-seed").cube == "geo"


def test_cube_deletion_needs_no_finalizer(ready: Fake) -> None:
    assert cube(ready).metadata.finalizers == ()
    ready.delete(*KEY)
    assert KEY not in ready.resources


@pytest.mark.parametrize(
    ("state", "expected", "writable"),
    [
        ({"problem": "OwnedByAnother: prod/x"}, ("False", "DatasetNotReady"), False),
        ({"corrupt": "a.parquet is lost"}, ("False", "DatasetTrouble"), True),
    ],
)
def test_cube_reports_problem_of_member_dataset(
    ready: Fake, state: dict[str, Any], expected: tuple[str, str], writable: bool
) -> None:
    inspect(ready, found(1, "seed"), datasets=(seen(1, "geo++Names_1"), seen(1, "geo++seed", **state)))
    settle(ready)
    assert ready.condition(*KEY) == expected
    assert "'geo-seed'" in ready.message(*KEY)
    assert cube(ready).writable is writable


def test_cube_reports_problem_found_by_store_inspection(ready: Fake) -> None:
    inspect(ready, found(None, problem="CubeBroken: v is in two datasets"))
    settle(ready)
    assert ready.condition(*KEY) == ("False", "CubeBroken")


def test_cube_suspension_suspends_its_datasets(ready: Fake) -> None:
    ready.edit(*KEY, suspend=True)
    settle(ready)
    assert ready.condition(*KEY) == ("True", "Suspended")
    assert dataset(ready, "geo-seed").spec.suspend
    ready.create(*BUILD, BUILD_SPEC)
    ready.settle(*BUILD)
    assert cube_jobs(ready) == []


# --- adoption --------------------------------------------------------------------------------------------------------


def test_cube_adoption_finds_datasets_by_prefix(context: Fake) -> None:
    context.create(*KEY, ADOPTED)
    context.settle(*KEY)
    assert not [r for r in context.resources.values() if isinstance(r, Dataset)]
    inspect(context, found(0, "seed", "Extra_2"))
    settle(context)
    seed, extra = dataset(context, "geo-seed"), dataset(context, "geo-extra-2")
    assert (extra.uuid, extra.spec.adopt, seed.spec.table.partition_on) == ("geo++Extra_2", True, ())
    inspect(context, found(0, "seed", "Extra_2"), datasets=(seen(0, "geo++Extra_2"), seen(0, "geo++seed")))
    settle(context)
    assert context.condition(*KEY) == ("True", "Succeeded")
    shape = cube(context).status.shape
    assert shape is not None
    assert (shape.seed, shape.dimension_columns, shape.datasets) == ("seed", ("x", "y"), ("seed", "Extra_2"))


def test_cube_adoption_without_datasets_fails(context: Fake) -> None:
    context.create(*KEY, ADOPTED)
    context.settle(*KEY)
    inspect(context, found())
    settle(context)
    assert context.condition(*KEY) == ("False", "CubeNotFound")


@pytest.mark.parametrize(
    ("members", "reason"), [(("seed", "n" * 40), "NameTooLong"), (("seed", "a_b", "A-b"), "NameCollision")]
)
def test_cube_adoption_with_invalid_dataset_names_is_reported(
    context: Fake, members: tuple[str, ...], reason: str
) -> None:
    context.create(*KEY, ADOPTED)
    context.settle(*KEY)
    inspect(context, found(0, *members))
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", reason)
    assert "spec.uuidPrefix" in context.message(*KEY) or "a-b" in context.message(*KEY)


# --- commits ---------------------------------------------------------------------------------------------------------


def test_cube_commit_attempt_passes_all_inputs_to_job(ready: Fake) -> None:
    ready.create(*BUILD, BUILD_SPEC | {"id": "first"})
    ready.settle(*BUILD)
    (job,) = cube_jobs(ready)
    assert (job.job, job.commit_id, job.operation, job.by) == ("build-1", "first", "Build", "cluster/team/geo")
    assert (job.cube.prefix, job.cube.seed, job.cube.partition_columns) == ("geo", "seed", ("p",))
    assert [(member.name, member.partition_on) for member in job.cube.members] == [("seed", None), ("Names_1", ())]
    assert [(each.name, each.source.paths) for each in job.rows] == [
        (name, ("in/a.csv",)) for name in ("seed", "Names_1")
    ]
    store = job.rows[0].source.store
    assert store is not None
    assert store.name == "lake"


def test_cube_commit_passes_optional_fields_to_job(built: Fake) -> None:
    built.create("ObjectStore", "archive", {"url": "s3://archive", "credentialsSecretRef": {"name": "keys"}})
    built.reconcile("ObjectStore", "archive")
    built.job_ends("archive-inspect-1", store=jobs.StoreState(conditional_writes=True))
    built.settle("ObjectStore", "archive")
    to = {"storeRef": {"name": "archive"}, "uuidPrefix": "g2", "rename": {"Names_1": "n"}, "overwrite": True}
    built.create("Commit", "copy", change("Copy", to=to, members=["seed"]))
    built.settle("Commit", "copy")
    job = cube_jobs(built)[-1]
    assert job.target is not None
    assert (job.target.store.url, job.target.prefix, job.target.rename) == ("s3://archive", "g2", {"Names_1": "n"})
    assert (job.target.overwrite, job.members) == (True, ("seed",))
    assert built.launches[-1].secrets == {"archive": "keys"}


def test_cube_commit_success_updates_commit_cube_and_datasets(built: Fake) -> None:
    commit = built.commit("build")
    assert (commit.status.version, commit.status.rows) == (1, 12)
    assert [(m.name, m.version, m.rows) for m in commit.status.members] == [("seed", 1, 10), ("Names_1", 1, 2)]
    assert dataset(built, "geo-seed").status.version == 1
    status = cube(built).status
    assert (status.version, status.rows, status.bytes) == (1, 10, 2000)
    assert [m.version for m in status.members] == [1, 1]
    assert built.kstatus(*KEY) == "Current"


def test_cube_commits_run_one_by_one(ready: Fake) -> None:
    ready.create(*BUILD, BUILD_SPEC)
    ready.pass_time(timedelta(seconds=1))
    ready.create("Commit", "more", change("Append", datasets=rows("seed")))
    ready.settle("Commit", "more")
    assert ready.condition("Commit", "more") == ("False", "Waiting")
    assert "Cube 'geo'" in ready.message("Commit", "more")
    ready.settle(*BUILD)
    ready.job_fails("build-1", FailureClass.REPORT, "CubeInvalid")
    ready.settle(*BUILD)
    ready.settle("Commit", "more")
    assert [job.job for job in cube_jobs(ready)] == ["build-1", "more-1"]


def test_cube_commit_to_undeclared_member_is_refused(ready: Fake) -> None:
    ready.create(*BUILD, change("Build", datasets=rows("seed", "other")))
    ready.settle(*BUILD)
    assert ready.condition(*BUILD) == ("False", "MemberNotFound")
    assert "'other'" in ready.message(*BUILD)
    ready.edit(*KEY, datasets=[*SPEC["datasets"], {"name": "other"}])
    settle(ready)
    inspect(ready, found())
    settle(ready)
    ready.settle(*BUILD)
    assert [job.job for job in cube_jobs(ready)] == ["build-1"]


def test_cube_commit_without_cube_waits_and_resumes(context: Fake) -> None:
    context.create(*BUILD, BUILD_SPEC)
    context.settle(*BUILD)
    assert context.condition(*BUILD) == ("False", "CubeNotFound")
    context.create(*KEY, SPEC)
    settle(context)
    context.settle(*BUILD)
    assert context.condition(*BUILD) == ("False", "DependencyNotReady")
    inspect(context, found())
    settle(context)
    context.settle(*BUILD)
    assert len(cube_jobs(context)) == 1


def test_cube_member_refuses_direct_commits_and_queries(built: Fake) -> None:
    built.create("Commit", "plain", COMMIT_SPEC | {"datasetRef": {"name": "geo-seed"}})
    built.settle("Commit", "plain")
    assert built.condition("Commit", "plain") == ("False", "MemberOfCube")
    assert "spec.cube" in built.message("Commit", "plain")
    query = {"sql": "SELECT 1", "storeRef": {"name": "lake"}, "result": {"datasetRef": {"name": "geo-seed"}}}
    built.create("Query", "fill", query)
    built.settle("Query", "fill")
    assert built.condition("Query", "fill") == ("False", "MemberOfCube")


def test_compaction_of_cube_member_waits_for_cube_commits(built: Fake) -> None:
    built.create("Commit", "more", change("Append", datasets=rows("seed")))
    built.settle("Commit", "more")
    built.create("Compaction", "tidy", {"datasetRef": {"name": "geo-names-1"}})
    built.settle("Compaction", "tidy")
    assert built.condition("Compaction", "tidy") == ("False", "Waiting")
    built.job_fails("more-1", FailureClass.REPORT, "CubeInvalid")
    built.settle("Commit", "more")
    built.settle("Compaction", "tidy")
    assert built.launches[-1].job.job == "tidy-compaction-1"


def test_cube_member_ingestion_starts_after_first_build(ready: Fake) -> None:
    source = {"name": "landing", "prefix": "in/", "format": "CSV"}
    ready.edit(*KEY, datasets=[{"name": "seed", "sources": [source]}, {"name": "Names_1", "partitionOn": []}])
    settle(ready)
    inspect(ready, found())
    settle(ready)
    assert not [launch for launch in ready.launches if isinstance(launch.job, jobs.IntakeJob)]
    inspect(ready, found(1, "seed"), datasets=(seen(uuid="geo++Names_1"), seen(1, "geo++seed")))
    settle(ready)
    (intake,) = [launch.job for launch in ready.launches if isinstance(launch.job, jobs.IntakeJob)]
    assert intake.dataset.uuid == "geo++seed"
    ready.create("Commit", "more", change("Append", datasets=rows("seed")))
    ready.settle("Commit", "more")
    assert ready.condition("Commit", "more") == ("False", "Waiting"), "they take turns"


# --- questions -------------------------------------------------------------------------------------------------------


def test_cube_query_runs_without_cube_resource(context: Fake) -> None:
    inspect(context)
    asked: dict[str, Any] = {"uuidPrefix": "geo", "conditions": "p = 1", "partitionBy": ["p"], "payloadColumns": ["v"]}
    asked |= {"newestOnly": True, "explain": True}
    result = {"location": {"path": "reports"}}
    context.create(
        "Query", "cells", {"storeRef": {"name": "lake"}, "cube": asked, "asOf": {"version": 3}, "result": result}
    )
    context.settle("Query", "cells")
    job = context.launches[-1].job
    assert isinstance(job, jobs.QueryJob)
    assert job.cube == jobs.CubeQuestion(
        prefix="geo",
        conditions="p = 1",
        partition_by=("p",),
        payload_columns=("v",),
        newest_only=True,
        explain=True,
    )
    assert (job.sql, job.as_of_version) == (None, 3)
