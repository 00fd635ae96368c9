"""Who is woken by what, and that a long queue of Commits does not make each step of it slow."""

from __future__ import annotations

from typing import Any

import pytest

from kubothek.api.jobs import DatasetState, JobResult, StoreState
from kubothek.cluster.cache.dependents import dependants
from kubothek.cluster.cache.inspection_diff import reported_resources
from kubothek.cluster.cache.state import ClusterState
from kubothek.cluster.queue import Key
from tests.cluster.podshapes import exited, pod


def obj(kind: str, name: str, spec: dict[str, Any], *, version: int = 1, generation: int = 1, **conditions: str) -> Any:
    return {
        "apiVersion": "kubothek.io/v1alpha1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"{kind}-{name}",
            "resourceVersion": str(version),
            "generation": generation,
            "creationTimestamp": f"2026-11-21T12:00:{version:02}Z",
        },
        "spec": spec,
        "status": {"conditions": [{"type": t, "status": s} for t, s in conditions.items()]},
    }


def dataset(name: str, store: str, engine: str | None = None, **more: Any) -> Any:
    spec = {"storeRef": {"name": store}, **({"engineRef": {"name": engine}} if engine else {})}
    return obj("Dataset", name, spec, **more)


def commit(name: str, of: str, version: int = 1, spec: dict[str, Any] | None = None, **conditions: Any) -> Any:
    return obj("Commit", name, {"datasetRef": {"name": of}, **(spec or {})}, version=version, **conditions)


@pytest.fixture
def state() -> ClusterState:
    """Stores s and t; datasets a and b in s, c in t; commits of a: one complete, one failed, three waiting."""
    known = ClusterState()
    objects = [
        dataset("a", "s"),
        dataset("b", "s", engine="big"),
        dataset("c", "t"),
        commit("a-done", "a", 1, Complete="True"),
        commit("a-failed", "a", 2, Failed="True"),
        commit("a-suspended", "a", 3, {"suspend": True}),
        commit("a-next", "a", 4),
        commit("a-after", "a", 5, {"dependsOn": [{"name": "a-next"}]}),
        commit("c-from-s", "c", 6, {"source": {"storeRef": {"name": "s"}}}),
    ]
    for one in objects:
        known.resources[one["kind"]].put(one)
    return known


def woken(state: ClusterState, kind: str, before: Any, after: Any) -> set[str]:
    keys = list(dependants(state, kind, before, after))
    assert all(key.namespace == "ns" for key in keys)
    return {f"{key.kind}/{key.name}" for key in keys}


def compaction(name: str, of: str, **conditions: Any) -> Any:
    return obj("Compaction", name, {"datasetRef": {"name": of}}, **conditions)


def test_dataset_and_writer_changes_wake_compactions(state: ClusterState) -> None:
    for one in (compaction("tidy", "a"), compaction("done", "a", Complete="True"), compaction("elsewhere", "c")):
        state.resources["Compaction"].put(one)
    assert "Compaction/tidy" in woken(state, "ObjectStore", None, obj("ObjectStore", "s", {}))
    assert "Compaction/tidy" in woken(state, "Dataset", dataset("a", "s"), dataset("a", "s", version=9))
    ended = commit("a-next", "a", 9, Complete="True")
    assert "Compaction/tidy" in woken(state, "Commit", commit("a-next", "a", 4), ended)
    into = obj("Query", "q", {"storeRef": {"name": "s"}, "result": {"datasetRef": {"name": "a"}}}, Complete="True")
    assert woken(state, "Query", None, into) == {"Dataset/a", "Compaction/tidy"}
    assert "Compaction/tidy" in woken(state, "Engine", None, obj("Engine", "default", {}))


def test_dataset_change_wakes_verifications(state: ClusterState) -> None:
    checks = [
        obj("Verification", "check", {"datasetRef": {"name": "a"}}),
        obj("Verification", "done", {"datasetRef": {"name": "a"}}, Failed="True"),
        obj("Verification", "elsewhere", {"datasetRef": {"name": "c"}}),
    ]
    for one in checks:
        state.resources["Verification"].put(one)
    for woke in (
        woken(state, "Dataset", dataset("a", "s"), dataset("a", "s", version=9)),
        woken(state, "ObjectStore", None, obj("ObjectStore", "s", {})),
    ):
        assert {key for key in woke if key.startswith("Verification")} == {"Verification/check"}


def test_dataset_creation_or_deletion_wakes_engines_with_warm_drivers(state: ClusterState) -> None:
    for one in (obj("Engine", "hot", {"warm": {"min": 1}}), obj("Engine", "cold", {})):
        state.resources["Engine"].put(one)
    cube = obj("Cube", "geo", {"storeRef": {"name": "s"}})
    for kind, one in (("Dataset", dataset("new", "s")), ("Cube", cube), ("ObjectStore", obj("ObjectStore", "s", {}))):
        for before, after in ((None, one), (one, None)):
            woke = woken(state, kind, before, after)
            assert {key for key in woke if key.startswith("Engine")} == {"Engine/hot"}
    later = dataset("new", "s", version=9)
    assert not {key for key in woken(state, "Dataset", dataset("new", "s"), later) if key.startswith("Engine")}


def test_compaction_end_wakes_dataset_and_waiting_compactions(state: ClusterState) -> None:
    for one in (compaction("tidy", "a"), compaction("next", "a")):
        state.resources["Compaction"].put(one)
    before, ended = compaction("tidy", "a"), compaction("tidy", "a", version=9, Complete="True")
    state.resources["Compaction"].put(ended)
    assert woken(state, "Compaction", before, ended) == {"Dataset/a", "Compaction/next"}
    assert woken(state, "Compaction", before, compaction("tidy", "a", version=9)) == set(), "progress is no news"


def test_store_change_wakes_datasets_queue_heads_and_reading_commits(
    state: ClusterState,
) -> None:
    store = obj("ObjectStore", "s", {})
    assert woken(state, "ObjectStore", None, store) == {
        "Dataset/a",
        "Dataset/b",
        "Commit/a-next",
        "Commit/c-from-s",
    }


def test_engine_edit_wakes_users_and_failed_commits(state: ClusterState) -> None:
    engine = obj("Engine", "big", {})
    assert "Dataset/b" in woken(state, "Engine", None, engine)
    default = woken(state, "Engine", None, obj("Engine", "default", {}))
    assert {"Dataset/a", "Commit/a-failed", "Commit/a-next"} <= default
    assert "Commit/a-done" not in default


def test_engine_status_change_wakes_nothing(state: ClusterState) -> None:
    assert woken(state, "Engine", obj("Engine", "default", {}), obj("Engine", "default", {}, version=2)) == set()


def test_dataset_creation_or_readiness_wakes_store_and_all_its_commits(state: ClusterState) -> None:
    everyone = {"ObjectStore/s", "Commit/a-suspended", "Commit/a-next", "Commit/a-after"}
    assert woken(state, "Dataset", None, dataset("a", "s")) == everyone
    assert woken(state, "Dataset", dataset("a", "s"), dataset("a", "s", Ready="True")) == everyone


def test_dataset_version_change_wakes_only_head_of_queue(state: ClusterState) -> None:
    before, after = dataset("a", "s", Ready="True"), dataset("a", "s", version=2, Ready="True")
    assert woken(state, "Dataset", before, after) == {"Commit/a-next"}


def test_dataset_edit_wakes_store_and_head_of_queue(state: ClusterState) -> None:
    before, after = dataset("a", "s", Ready="True"), dataset("a", "s", version=2, generation=2, Ready="True")
    assert woken(state, "Dataset", before, after) == {"ObjectStore/s", "Commit/a-next"}


def test_commit_end_wakes_dataset_next_commit_and_dependents(state: ClusterState) -> None:
    ended = commit("a-next", "a", 7, Complete="True")
    state.resources["Commit"].put(ended)
    assert woken(state, "Commit", commit("a-next", "a", 4), ended) == {"Dataset/a", "Commit/a-after"}


def test_commit_progress_wakes_nothing(state: ClusterState) -> None:
    assert woken(state, "Commit", commit("a-next", "a", 4), commit("a-next", "a", 7)) == set()


def test_commit_suspension_wakes_dataset(state: ClusterState) -> None:
    suspended = obj("Commit", "a-next", {"datasetRef": {"name": "a"}, "suspend": True}, version=7, generation=2)
    state.resources["Commit"].put(suspended)
    assert "Dataset/a" in woken(state, "Commit", commit("a-next", "a", 4), suspended)


def test_commit_end_among_thousand_commits_wakes_few() -> None:
    state = ClusterState()
    for index in range(1000):
        state.resources["Commit"].put(commit(f"c{index:04}", "d", index % 60))
    ended = commit("c0000", "d", 60, Complete="True")
    keys = list(dependants(state, "Commit", None, ended))
    assert Key("Dataset", "ns", "d") in keys
    assert len(keys) <= 8


# --- queries --------------------------------------------------------------------------------------------------------


def query(name: str, result: dict[str, Any], version: int = 1, **conditions: Any) -> Any:
    spec = {"storeRef": {"name": "s"}, "result": result, "dependsOn": [{"name": "a-next"}]}
    return obj("Query", name, spec, version=version, **conditions)


@pytest.fixture
def queries(state: ClusterState) -> ClusterState:
    """One into a file in store t, one into dataset b, one that has ended."""
    for one in (
        query("file", {"location": {"path": "x", "storeRef": {"name": "t"}}}),
        query("table", {"datasetRef": {"name": "b"}}),
        query("ended", {"datasetRef": {"name": "b"}}, Complete="True"),
    ):
        state.resources["Query"].put(one)
    return state


@pytest.mark.parametrize(
    ("kind", "after", "expected"),
    [
        ("ObjectStore", obj("ObjectStore", "s", {}), {"Query/file", "Query/table"}),
        ("ObjectStore", obj("ObjectStore", "t", {}), {"Query/file"}),
        ("Dataset", dataset("b", "s"), {"Query/table"}),
        ("Commit", commit("a-next", "a", 7, Complete="True"), {"Query/file", "Query/table"}),
        ("Engine", obj("Engine", "default", {}), {"Query/file", "Query/table"}),
    ],
)
def test_query_reference_change_wakes_query_until_end(
    queries: ClusterState, kind: str, after: Any, expected: set[str]
) -> None:
    assert {key for key in woken(queries, kind, None, after) if key.startswith("Query/")} == expected


def test_query_end_wakes_result_dataset(queries: ClusterState) -> None:
    ended = query("table", {"datasetRef": {"name": "b"}}, 7, Complete="True")
    assert woken(queries, "Query", query("table", {"datasetRef": {"name": "b"}}), ended) == {"Dataset/b"}
    assert woken(queries, "Query", None, query("file", {"location": {"path": "x"}}, 7, Complete="True")) == set()


def test_dataset_version_change_wakes_queries_that_follow_it(state: ClusterState) -> None:
    spec = {"storeRef": {"name": "s"}, "result": {"datasetRef": {"name": "b"}}, "follow": [{"name": "a"}]}
    state.resources["Query"].put(obj("Query", "follows", spec))
    before, after = dataset("a", "s", version=1), dataset("a", "s", version=2)
    before["status"]["version"], after["status"]["version"] = 1, 2
    assert "Query/follows" in woken(state, "Dataset", before, after)
    assert "Query/follows" not in woken(state, "Dataset", after, after)
    assert "Query/follows" not in woken(state, "Dataset", dataset("b", "s"), dataset("b", "s", version=2))


def test_end_of_run_of_standing_query_wakes_result_dataset(queries: ClusterState) -> None:
    before, after = (query("table", {"datasetRef": {"name": "b"}}) for _ in range(2))
    after["status"] = {"completionTime": "2026-11-28T08:00:00Z"}
    assert woken(queries, "Query", before, after) == {"Dataset/b"}
    assert woken(queries, "Query", after, after) == set()


def test_store_change_wakes_datasets_that_ingest_from_store() -> None:
    known = ClusterState()
    taking = dataset("a", "s")
    taking["spec"]["sources"] = [{"name": "landing"}, {"name": "other", "storeRef": {"name": "inbox"}}]
    for one in (taking, dataset("b", "s")):
        known.resources["Dataset"].put(one)
    inbox = obj("ObjectStore", "inbox", {"url": "s3://inbox"})
    assert woken(known, "ObjectStore", None, inbox) == {"Dataset/a"}


def labelled(version: int, generation: int = 1, **labels: str) -> Any:
    found = dataset("a", "s", version=version, generation=generation)
    return found | {"metadata": found["metadata"] | {"labels": labels}}


def test_dataset_selection_change_wakes_gc_policies_of_namespace(state: ClusterState) -> None:
    for name in ("nightly", "weekly"):
        state.resources["GCPolicy"].put(obj("GCPolicy", name, {"selector": {"all": True}}))
    policies = {"GCPolicy/nightly", "GCPolicy/weekly"}
    plain = labelled(7)
    assert policies <= woken(state, "Dataset", None, plain)
    assert policies <= woken(state, "Dataset", plain, None)
    assert policies <= woken(state, "Dataset", plain, labelled(8, tier="hot"))
    assert policies <= woken(state, "Dataset", plain, labelled(8, generation=2))
    assert not policies & woken(state, "Dataset", plain, labelled(8)), "a status changes no selection"


def test_engine_edit_wakes_gc_policies_that_use_engine(state: ClusterState) -> None:
    state.resources["GCPolicy"].put(obj("GCPolicy", "nightly", {"engineRef": {"name": "small"}}))
    assert "GCPolicy/nightly" in woken(state, "Engine", None, obj("Engine", "small", {}))
    assert "GCPolicy/nightly" not in woken(state, "Engine", None, obj("Engine", "large", {}))


def test_query_end_wakes_datasets_read_by_query(state: ClusterState) -> None:
    ended = obj("Query", "q", {"storeRef": {"name": "s"}, "result": {"location": {"path": "out"}}}, Complete="True")
    ended["status"]["reads"] = [{"dataset": "a"}, {"dataset": "c"}, {"dataset": "gone"}]
    assert woken(state, "Query", None, ended) == {"Dataset/a"}, "c is in another store"


def test_sync_wakes_on_both_references_and_its_end_wakes_dataset(state: ClusterState) -> None:
    spec = {"repositoryRef": {"name": "theirs"}, "datasetRef": {"name": "a"}, "direction": "Pull"}
    there = obj("Repository", "theirs", {"url": "https://example.org"})
    before, after = obj("Sync", "in", spec), obj("Sync", "in", spec, version=2)
    after["status"]["lastSyncTime"] = "2026-11-22T12:00:00Z"
    state.resources["Sync"].put(before)
    state.resources["Sync"].put(obj("Sync", "other", spec | {"datasetRef": {"name": "c"}}))
    assert woken(state, "Repository", None, there) == {"Sync/in", "Sync/other"}
    assert woken(state, "Repository", there, there) == set(), "its status says nothing of interest"
    assert "Sync/in" in woken(state, "Dataset", dataset("a", "s"), dataset("a", "s", version=9))
    assert "Sync/other" not in woken(state, "Dataset", dataset("a", "s"), dataset("a", "s", version=9))
    assert woken(state, "Sync", before, after) == {"Dataset/a"}
    assert woken(state, "Sync", after, after) == set()
    assert "Sync/in" in woken(state, "Engine", None, obj("Engine", "default", {}))


def test_store_and_engine_changes_wake_skipping_indexes(state: ClusterState) -> None:
    location = {"storeRef": {"name": "s"}, "prefix": "landing"}
    for name, spec in {"here": {}, "beside": {"metadata": {"storeRef": {"name": "side"}}}}.items():
        state.resources["SkippingIndex"].put(obj("SkippingIndex", name, {"location": location, **spec}))
    assert woken(state, "ObjectStore", None, obj("ObjectStore", "side", {})) == {"SkippingIndex/beside"}
    both = {"SkippingIndex/here", "SkippingIndex/beside"}
    assert both <= woken(state, "ObjectStore", None, obj("ObjectStore", "s", {}))
    assert both <= woken(state, "Engine", None, obj("Engine", "default", {}))


# --- cubes -----------------------------------------------------------------------------------------------------------


def member(name: str, cube: str, **more: Any) -> Any:
    made = dataset(name, "s", **more)
    owner = {
        "apiVersion": "kubothek.io/v1alpha1",
        "kind": "Cube",
        "name": cube,
        "uid": f"Cube-{cube}",
        "controller": True,
    }
    made["metadata"]["ownerReferences"] = [owner]
    return made


def change(name: str, cube: str, version: int = 1, **conditions: Any) -> Any:
    spec = {"cube": {"cubeRef": {"name": cube}, "operation": "Delete"}}
    return obj("Commit", name, spec, version=version, **conditions)


@pytest.fixture
def cubes() -> ClusterState:
    """A cube geo in s, with two datasets, two Commits and a Compaction; and another cube."""
    known = ClusterState()
    objects = [
        obj("Cube", "geo", {"storeRef": {"name": "s"}}),
        obj("Cube", "other", {"storeRef": {"name": "t"}}),
        member("geo-seed", "geo"),
        member("geo-names", "geo"),
        change("first", "geo", 1),
        change("second", "geo", 2),
        compaction("tidy", "geo-names"),
    ]
    for one in objects:
        known.resources[one["kind"]].put(one)
    return known


def test_member_dataset_change_wakes_cube_and_its_commits(cubes: ClusterState) -> None:
    found = woken(cubes, "Dataset", member("geo-seed", "geo"), member("geo-seed", "geo", Ready="True"))
    assert {"Cube/geo", "Commit/first"} <= found
    assert "Cube/other" not in found


def test_foreign_dataset_deletion_wakes_cube_that_needs_name(cubes: ClusterState) -> None:
    assert "Cube/geo" in woken(cubes, "Dataset", dataset("geo-extra", "s"), None)
    assert "Cube/geo" not in woken(cubes, "Dataset", dataset("else", "s"), None)


def test_cube_change_wakes_store_commits_and_datasets(cubes: ClusterState) -> None:
    found = woken(cubes, "Cube", None, obj("Cube", "geo", {"storeRef": {"name": "s"}}))
    assert found == {"ObjectStore/s", "Commit/first", "Commit/second", "Dataset/geo-seed", "Dataset/geo-names"}


def test_cube_commit_end_wakes_cube_datasets_and_next_commit(cubes: ClusterState) -> None:
    ended = change("first", "geo", 9, Complete="True")
    cubes.resources["Commit"].put(ended)
    assert woken(cubes, "Commit", change("first", "geo"), ended) == {
        *("Cube/geo", "Dataset/geo-seed", "Dataset/geo-names", "Commit/second", "Compaction/tidy")
    }


def test_store_change_wakes_cubes_and_their_commits(cubes: ClusterState) -> None:
    store = obj("ObjectStore", "s", {"url": "s3://a"})
    assert {"Cube/geo", "Commit/first", "Dataset/geo-seed"} <= woken(cubes, "ObjectStore", None, store)


def inspected(number: int, **status: Any) -> Any:
    """The store with an inspection of this number that has ended."""
    store = obj("ObjectStore", "s", {"url": "s3://a"}, version=number, Ready="True")
    store["status"]["conditions"][0]["reason"] = "Succeeded"
    store["status"] |= {"lastInspection": {"attempt": number, "finished": f"2026-11-21T12:00:0{number}Z"}} | status
    return store


def test_inspection_end_wakes_only_datasets_with_changed_state(state: ClusterState) -> None:
    """Ten thousand Datasets are not looked at because their stores were."""
    state.put_pod(told("s-inspect-2", "a"))
    assert woken(state, "ObjectStore", inspected(1), inspected(2)) == set()
    assert [key.name for key in reported_resources(state, inspected(1), inspected(2))] == ["a"]
    begun = inspected(2, lastInspection={"attempt": 3})
    assert [key.name for key in reported_resources(state, inspected(1), begun)] == ["a"], (
        "the next one may have begun by then"
    )
    assert list(reported_resources(state, inspected(2), inspected(2))) == []
    other = inspected(2, capabilities={"conditionalWrites": False})
    assert {"Dataset/a", "Dataset/b"} <= woken(state, "ObjectStore", inspected(2), other)


def told(name: str, *uuids: str) -> Any:
    """The pod of an inspection that found something new about these Datasets."""
    result = JobResult(
        outcome="Succeeded",
        reason="Succeeded",
        message="",
        store=StoreState(conditional_writes=True),
        datasets=tuple(DatasetState(uuid=uuid, version=1) for uuid in uuids),
    )
    shown = pod(phase="Succeeded", state=exited(0, result.model_dump_json()))
    shown["metadata"] |= {"name": name, "namespace": "ns"}
    return shown
