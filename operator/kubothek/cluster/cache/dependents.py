"""The resources to reconcile because another one changed.

This is only a hint that makes reactions immediate: a resource that waits is also requeued after a time. Queueing too
many resources costs CPU time, too few costs latency. The cost of a change must not grow with the square of a queue: a
change of a Dataset or the end of one of its Commits wakes only the head of that queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from kubothek.api.engine import DEFAULT_ENGINE
from kubothek.cluster.cache import inspection_diff
from kubothek.cluster.cache.derivatives import neighbours, progress
from kubothek.cluster.cache.objects import Object
from kubothek.cluster.cache.runs import condition, finished, holds, subject_of
from kubothek.cluster.names import controller_of
from kubothek.cluster.queue import Key

if TYPE_CHECKING:
    from kubothek.cluster.cache.state import ClusterState

_QUEUE_HEAD = 4
"""Unfinished Commits of a dataset to wake: the next one, and some in case that one cannot proceed."""

_ON_ENGINES = (
    "ObjectStore",
    "Cube",
    "Dataset",
    "Commit",
    "Query",
    "Compaction",
    "Verification",
    "GCPolicy",
    "SkippingIndex",
    "Sync",
)
"""Kinds whose jobs run on an Engine."""


def dependants(state: ClusterState, kind: str, before: Object | None, after: Object | None) -> Iterator[Key]:
    """Yield the keys to reconcile after an object of ``kind`` changed from ``before`` to ``after`` (None = absent)."""
    obj = after or before
    if obj is None:
        return
    namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
    yield from _engines(state, namespace, kind, before, after)
    if kind == "ObjectStore":
        yield from _of_store(state, before, after)
    elif kind == "Cube":
        appeared = _respecified(before, after) or _ready(before) != _ready(after)
        if appeared:
            yield Key("ObjectStore", namespace, obj["spec"]["storeRef"]["name"])
        yield from _queues(state, namespace, {("Cube", name)}, head_only=not appeared)
        yield from _members(state, namespace, name)
    elif kind == "Engine" and _respecified(before, after):
        yield from _users_of_engine(state, namespace, name)
    elif kind == "Dataset":
        appeared = _respecified(before, after) or _ready(before) != _ready(after)
        turned = _came_or_went(before, after) or _ready(before) != _ready(after)
        yield from _of_dataset(state, obj, appeared=appeared, turned=turned)
        if "ledger" in obj["spec"] and (appeared or progress(before) != progress(after)):
            yield from neighbours(
                state.dependency_graph, state.resources["Dataset"], obj, appeared=_respecified(before, after)
            )
        yield from _policies(state, namespace, before, after)
        if _status(before, "version") != _status(after, "version"):
            yield from _followers(state, namespace, name)
    elif kind == "Commit" and (_respecified(before, after) or (after is not None and finished(after))):
        yield from _of_commit(state, obj)
    elif kind == "Query" and after is not None and (finished(after) or _has_run(before, after)):
        yield from _of_query(state, after)
    elif kind == "Compaction" and (_respecified(before, after) or (after is not None and finished(after))):
        dataset = obj["spec"]["datasetRef"]["name"]
        yield Key("Dataset", namespace, dataset)
        yield from _compactions(state, namespace, {dataset})
    else:
        yield from _of_exchange(state, kind, before, after)


def _of_store(state: ClusterState, before: Object | None, after: Object | None) -> Iterator[Key]:
    """Yield the users of the store, unless only an inspection began or ended (see :mod:`inspection_diff`)."""
    metadata = (after or before or {})["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    if _respecified(before, after) or inspection_diff.standing(before) != inspection_diff.standing(after):
        yield from _users_of_store(state, namespace, name)
        yield from _plain_files(state, namespace, name)
        yield from _queries(state, namespace, "ObjectStore", name)


def _of_dataset(state: ClusterState, dataset: Object, *, appeared: bool, turned: bool) -> Iterator[Key]:
    """Yield the dependents of a Dataset.

    ``appeared``: it was created, deleted or edited, or its readiness changed. ``turned``: whether its Commits can
    proceed may have changed. An edit wakes only the head of its queue: later Commits read it at their turn.
    """
    namespace, name = dataset["metadata"]["namespace"], dataset["metadata"]["name"]
    if appeared:
        yield Key("ObjectStore", namespace, dataset["spec"]["storeRef"]["name"])
        yield from _queries(state, namespace, "Dataset", name)
    yield from _queues(state, namespace, {("Dataset", name)}, head_only=not turned)
    yield from _compactions(state, namespace, {name})
    yield from _verifications(state, namespace, {name})
    yield from _syncs(state, namespace, "datasetRef", name)
    cube = _cube_of(dataset)
    if cube is not None:
        yield Key("Cube", namespace, cube)
        yield from _queues(state, namespace, {("Cube", cube)}, head_only=True)
    elif appeared:  # its name may be one that a Cube needs
        cubes = (other["metadata"]["name"] for other in state.resources["Cube"].objects(namespace))
        yield from (Key("Cube", namespace, other) for other in cubes if name.startswith(f"{other}-"))


def _of_commit(state: ClusterState, commit: Object) -> Iterator[Key]:
    namespace, name = commit["metadata"]["namespace"], commit["metadata"]["name"]
    subject = subject_of(commit)
    datasets = [Key("Dataset", namespace, subject[1])]
    if subject[0] == "Cube":
        yield Key("Cube", namespace, subject[1])
        datasets = list(_members(state, namespace, subject[1]))
    yield from datasets
    yield from _queues(state, namespace, {subject}, head_only=True)
    yield from _compactions(state, namespace, {key.name for key in datasets})
    yield from _waiting_for(state, namespace, name)
    yield from _queries(state, namespace, "Commit", name)


def _of_query(state: ClusterState, query: Object) -> Iterator[Key]:
    """Yield the dependents of a Query that has ended, or of which a run has."""
    namespace, target = query["metadata"]["namespace"], query["spec"]["result"].get("datasetRef")
    yield from _read_by(state, namespace, query)
    if target is not None:
        yield Key("Dataset", namespace, target["name"])
        yield from _compactions(state, namespace, {target["name"]})


def _cube_of(dataset: Object) -> str | None:
    """Return the name of the Cube that a Dataset belongs to; None if there is none."""
    owner = controller_of(dataset)
    return str(owner["name"]) if owner is not None and owner["kind"] == "Cube" else None


def _members(state: ClusterState, namespace: str, cube: str) -> Iterator[Key]:
    """Yield the Datasets of a Cube."""
    for dataset in state.resources["Dataset"].objects(namespace):
        if _cube_of(dataset) == cube:
            yield Key("Dataset", namespace, dataset["metadata"]["name"])


def _compactions(state: ClusterState, namespace: str, datasets: set[str]) -> Iterator[Key]:
    """Yield the unfinished Compactions of the datasets."""
    for dataset in datasets:
        for name in state.run_index.unfinished("Compaction", namespace, ("Dataset", dataset)):
            yield Key("Compaction", namespace, name)


def _verifications(state: ClusterState, namespace: str, datasets: set[str]) -> Iterator[Key]:
    """Yield the unfinished Verifications of the datasets."""
    for verification in state.resources["Verification"].objects(namespace):
        if verification["spec"]["datasetRef"]["name"] in datasets and not finished(verification):
            yield Key("Verification", namespace, verification["metadata"]["name"])


def _syncs(state: ClusterState, namespace: str, field: str, name: str) -> Iterator[Key]:
    """Yield the Syncs that name this Repository or Dataset."""
    for sync in state.resources["Sync"].objects(namespace):
        if sync["spec"][field]["name"] == name:
            yield Key("Sync", namespace, sync["metadata"]["name"])


def _of_exchange(state: ClusterState, kind: str, before: Object | None, after: Object | None) -> Iterator[Key]:
    if kind == "Repository" and _respecified(before, after):
        metadata = (after or before or {})["metadata"]
        yield from _syncs(state, metadata["namespace"], "repositoryRef", metadata["name"])
    elif kind == "Sync" and after is not None and _synced(before) != _synced(after):
        yield Key("Dataset", after["metadata"]["namespace"], after["spec"]["datasetRef"]["name"])


def _synced(sync: Object | None) -> object:
    """Return the time of the last synchronization; None if there was none."""
    return _status(sync, "lastSyncTime")


def _has_run(before: Object | None, after: Object) -> bool:
    """Return whether a run of a standing Query has ended."""
    return _status(before, "completionTime") != _status(after, "completionTime")


def _status(obj: Object | None, field: str) -> object:
    """Return a field of the status; None if it is absent."""
    return None if obj is None else (obj.get("status") or {}).get(field)


def _policies(state: ClusterState, namespace: str, before: Object | None, after: Object | None) -> Iterator[Key]:
    """Yield the GCPolicies if the Dataset was created, deleted or edited, or its labels changed."""
    if _respecified(before, after) or _labels(before) != _labels(after):
        for policy in state.resources["GCPolicy"].objects(namespace):
            yield Key("GCPolicy", namespace, policy["metadata"]["name"])


def _queries(state: ClusterState, namespace: str, kind: str, name: str) -> Iterator[Key]:
    """Yield the unfinished Queries that name this resource."""
    for query in state.resources["Query"].objects(namespace):
        if (kind, name) in _named_by(query["spec"]) and not finished(query):
            yield Key("Query", namespace, query["metadata"]["name"])


def _followers(state: ClusterState, namespace: str, dataset: str) -> Iterator[Key]:
    """Yield the Queries that follow a Dataset."""
    for query in state.resources["Query"].objects(namespace):
        if any(each["name"] == dataset for each in query["spec"].get("follow") or ()):
            yield Key("Query", namespace, query["metadata"]["name"])


def _read_by(state: ClusterState, namespace: str, query: Object) -> Iterator[Key]:
    """Yield the Datasets that a Query read: their status sums up the skipped files."""
    read = {each["dataset"] for each in (query.get("status") or {}).get("reads") or ()}
    for dataset in state.resources["Dataset"].objects(namespace) if read else ():
        spec, name = dataset["spec"], dataset["metadata"]["name"]
        if spec.get("uuid", name) in read and spec["storeRef"]["name"] == query["spec"]["storeRef"]["name"]:
            yield Key("Dataset", namespace, name)


def _plain_files(state: ClusterState, namespace: str, store: str) -> Iterator[Key]:
    """Yield the SkippingIndexes whose files or metadata are in this store."""
    for index in state.resources["SkippingIndex"].objects(namespace):
        locations = (index["spec"]["location"], index["spec"].get("metadata"))
        if any(location is not None and location["storeRef"]["name"] == store for location in locations):
            yield Key("SkippingIndex", namespace, index["metadata"]["name"])


def _named_by(spec: Object) -> Iterator[tuple[str, str]]:
    result = spec["result"]
    yield "ObjectStore", spec["storeRef"]["name"]
    for kind, reference in (
        ("ObjectStore", (result.get("location") or {}).get("storeRef")),
        ("Dataset", result.get("datasetRef")),
        *(("Dataset", other) for other in spec.get("follow") or ()),
        *(("Commit", other) for other in spec.get("dependsOn") or ()),
    ):
        if reference is not None:
            yield kind, reference["name"]


def _users_of_store(state: ClusterState, namespace: str, name: str) -> Iterator[Key]:
    stored = {
        dataset["metadata"]["name"]
        for dataset in state.resources["Dataset"].objects(namespace)
        if any(other["name"] == name for other in _stores_of(dataset["spec"]))
    }
    cubes = [
        cube["metadata"]["name"]
        for cube in state.resources["Cube"].objects(namespace)
        if cube["spec"]["storeRef"]["name"] == name
    ]
    yield from (Key("Dataset", namespace, dataset) for dataset in stored)
    yield from (Key("Cube", namespace, cube) for cube in cubes)
    run_index = {*(("Dataset", dataset) for dataset in stored), *(("Cube", cube) for cube in cubes)}
    yield from _queues(state, namespace, run_index, head_only=True)
    yield from _compactions(state, namespace, stored)
    yield from _verifications(state, namespace, stored)
    for commit in state.resources["Commit"].objects(namespace):
        if name in _stores_named(commit["spec"]) and not finished(commit):
            yield Key("Commit", namespace, commit["metadata"]["name"])


def _stores_named(commit: Object) -> Iterator[str]:
    """Yield the ObjectStores that a Commit's spec names, of its sources and of the target of a copy."""
    cube = commit.get("cube") or {}
    locations = (commit.get("source"), cube.get("to"), *(rows["source"] for rows in cube.get("datasets") or ()))
    for location in locations:
        if location is not None and "storeRef" in location:
            yield str(location["storeRef"]["name"])


def _stores_of(dataset: Object) -> Iterator[Object]:
    """Yield the references to the store of a Dataset and to those of its sources' files."""
    yield dataset["storeRef"]
    for source in dataset.get("sources") or ():
        if "storeRef" in source:
            yield source["storeRef"]


def _engines(
    state: ClusterState, namespace: str, kind: str, before: Object | None, after: Object | None
) -> Iterator[Key]:
    """Yield the Engines with warm drivers, which depend on the stores of Datasets and Cubes."""
    concerned = kind in ("ObjectStore", "Dataset", "Cube") and _respecified(before, after)
    for engine in state.resources["Engine"].objects(namespace) if concerned else ():
        if "warm" in engine["spec"]:
            yield Key("Engine", namespace, engine["metadata"]["name"])


def _users_of_engine(state: ClusterState, namespace: str, name: str) -> Iterator[Key]:
    for kind in _ON_ENGINES:
        for obj in state.resources[kind].objects(namespace):
            engine = (obj["spec"].get("engineRef") or {}).get("name", DEFAULT_ENGINE)
            # The Engine `default` is a layer of all others. A run may also take its Engine from its Dataset.
            if (name == DEFAULT_ENGINE or engine in (name, DEFAULT_ENGINE)) and not holds(obj, "Complete"):
                yield Key(kind, namespace, obj["metadata"]["name"])


def _queues(state: ClusterState, namespace: str, run_index: set[tuple[str, str]], *, head_only: bool) -> Iterator[Key]:
    """Yield the unfinished Commits of Datasets and Cubes: all, or of each the first few that block later ones."""
    commits = state.resources["Commit"]
    for subject in run_index:
        found = state.run_index.unfinished("Commit", namespace, subject)
        queue = ((name, commits.get(namespace, name)) for name in found)
        waiting = (name for name, commit in queue if not head_only or (commit and _keeps_place(state, commit)))
        yield from [Key("Commit", namespace, name) for name in islice(waiting, _QUEUE_HEAD if head_only else None)]


def _keeps_place(state: ClusterState, commit: Object) -> bool:
    """Return whether later Commits wait for this one: see :mod:`kubothek.controller.scheduling.queue`."""
    if commit["spec"].get("suspend") or commit["metadata"].get("deletionTimestamp"):
        return False
    commits, namespace = state.resources["Commit"], commit["metadata"]["namespace"]
    awaited = (commits.get(namespace, other["name"]) for other in commit["spec"].get("dependsOn") or ())
    return all(other is not None and holds(other, "Complete") for other in awaited)


def _waiting_for(state: ClusterState, namespace: str, name: str) -> Iterator[Key]:
    for commit in state.resources["Commit"].objects(namespace):
        if any(other["name"] == name for other in commit["spec"].get("dependsOn") or ()) and not finished(commit):
            yield Key("Commit", namespace, commit["metadata"]["name"])


def _respecified(before: Object | None, after: Object | None) -> bool:
    """Return whether the object was created, deleted or edited, or its deletion began."""
    if before is None or after is None or _came_or_went(before, after):
        return True
    return bool(before["metadata"].get("generation") != after["metadata"].get("generation"))


def _came_or_went(before: Object | None, after: Object | None) -> bool:
    """Return whether the object was created, deleted or replaced, or its deletion began."""
    if before is None or after is None:
        return True
    old, new = before["metadata"], after["metadata"]
    return bool(old["uid"] != new["uid"] or old.get("deletionTimestamp") != new.get("deletionTimestamp"))


def _labels(obj: Object | None) -> Object:
    return (obj["metadata"].get("labels") or {}) if obj is not None else {}


def _ready(obj: Object | None) -> str | None:
    return condition(obj, "Ready") if obj is not None else None
