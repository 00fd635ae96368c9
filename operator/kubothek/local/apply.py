"""Admission of manifests against the state of earlier runs: identities, forbidden edits, absent resources."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from kubothek.api.commit import Commit, CommitStatus
from kubothek.api.compaction import Compaction, CompactionStatus
from kubothek.api.cube import Cube
from kubothek.api.dataset import Dataset, DatasetStatus
from kubothek.api.gcpolicy import GCPolicy
from kubothek.api.kinds import KINDS
from kubothek.api.meta import REQUEST_ANNOTATIONS, Resource
from kubothek.api.objectstore import ObjectStore
from kubothek.api.query import Query, QueryRun, QueryStatus
from kubothek.api.schedules import Schedule
from kubothek.api.skippingindex import SkippingIndex
from kubothek.api.sync import Sync
from kubothek.api.verification import Verification, VerificationStatus
from kubothek.controller.scheduling.schedule import fault, next_slot
from kubothek.controller.tasks.ledger import DEFINE
from kubothek.controller.tasks.task_runs import task_run_of
from kubothek.controller.tasks.transforms import TRANSFORM
from kubothek.local.documents import ManifestError, Problem
from kubothek.local.manifests import Key, Manifests, key_of
from kubothek.local.state import State, admit
from kubothek.local.summary import summarise


@dataclass(frozen=True, slots=True)
class Applied:
    """Input of a run."""

    resources: Mapping[Key, Resource]
    """As an API server would hold them, with the statuses of earlier runs."""
    states: Mapping[Key, State]
    """State directory of each resource; Engines, and resources without a known store, have none."""
    secrets: Mapping[tuple[str, str], Mapping[str, bytes]]
    absent: Sequence[Key]
    """Resources of earlier runs that are neither in these manifests nor referred to by them; they stay unchanged."""


def states_of(manifests: Manifests, base: Path) -> dict[Key, State]:
    """Return the state of each resource: that of its store, or of its Dataset's store."""
    states = {
        key: State.of(resource.spec.url, resource.spec.endpoint, base)
        for key, resource in manifests.resources.items()
        if isinstance(resource, ObjectStore)
    }
    for key, resource in manifests.resources.items():  # Datasets precede the resources that refer to them
        if isinstance(resource, Cube | Dataset | Query):
            home = Key("ObjectStore", key.namespace, resource.spec.store_ref.name)
        elif isinstance(resource, Commit):
            home = _home_of(Key(resource.subject.kind, key.namespace, resource.subject.name), manifests, states)
        elif isinstance(resource, Compaction | Verification | Sync):
            home = _home_of(Key("Dataset", key.namespace, resource.spec.dataset_ref.name), manifests, states)
        elif isinstance(resource, SkippingIndex):
            home = Key("ObjectStore", key.namespace, resource.spec.location.store_ref.name)
        elif isinstance(resource, GCPolicy):
            stores = (other for other in states if (other.kind, other.namespace) == ("ObjectStore", key.namespace))
            home = min(stores, default=key)
        else:
            continue
        if home in states:
            states[key] = states[home]
    return states


def _home_of(dataset: Key, manifests: Manifests, states: Mapping[Key, State]) -> Key:
    """Return the key of the Dataset or Cube, or of the store in which an earlier run saved it if no manifest has it."""
    if dataset in manifests.resources:
        return dataset
    for key, state in states.items():
        if (
            key.kind == "ObjectStore"
            and key.namespace == dataset.namespace
            and state.load(KINDS[dataset.kind], dataset)
        ):
            return key
    return dataset


def apply(manifests: Manifests, states: Mapping[Key, State], now: datetime) -> Applied:
    """Admit all manifests or none. Raises ManifestError with every forbidden edit. Writes nothing."""
    resources: dict[Key, Resource] = {}
    problems: list[Problem] = []
    for key, resource in manifests.resources.items():
        state = states.get(key)
        old = state.load(type(resource), key) if state is not None else None
        resources[key], refused = admit(resource, old, now)
        problems += [
            Problem(manifests.where(key, problem.path), f"{key.kind} {key.name}: {problem}") for problem in refused
        ]
    if problems:
        raise ManifestError(problems)
    known = {key: state for state in set(states.values()) for key in state.known() if key not in resources}
    named = _named(resources)
    made = {key: found for key, state in known.items() if (found := _kept(key, state, resources, named)) is not None}
    homes = {**states, **{key: known[key] for key in made}}
    absent = sorted(key for key in known if key not in made)
    return Applied(_once_more({**resources, **made}, now), homes, manifests.secrets, absent)


def _named(resources: Mapping[Key, Resource]) -> set[Key]:
    """Return the Datasets, Cubes and Commits that resources of the manifests refer to."""
    named = set[Key]()
    for key, resource in resources.items():
        if isinstance(resource, Commit):
            named.add(Key(resource.subject.kind, key.namespace, resource.subject.name))
        elif isinstance(resource, Compaction | Verification | Sync):
            named.add(Key("Dataset", key.namespace, resource.spec.dataset_ref.name))
        if isinstance(resource, Commit | Query):
            named |= {Key("Commit", key.namespace, each.name) for each in resource.spec.depends_on}
        if isinstance(resource, Query) and resource.spec.result.dataset_ref is not None:
            named.add(Key("Dataset", key.namespace, resource.spec.result.dataset_ref.name))
        if isinstance(resource, Query):
            named |= {Key("Dataset", key.namespace, each.name) for each in resource.spec.follow}
    return named


def _kept(key: Key, state: State, resources: Mapping[Key, Resource], named: Container[Key]) -> Resource | None:
    """Return an absent resource of an earlier run that one of the manifests owns or refers to, otherwise None."""
    resource = state.load(KINDS[key.kind], key) if key.kind in KINDS else None
    if key in named:
        return resource
    owner = resource.controller if resource is not None else None
    if owner is None or Key(owner.kind, key.namespace, owner.name) not in resources:
        return None
    return resource


def _once_more(resources: Mapping[Key, Resource], now: datetime) -> dict[Key, Resource]:
    """Reset what an earlier run left undone: a new run is a request to try again.

    A failed Commit, Query, Compaction or Verification starts over, as if it had been deleted and created again; logs of
    its attempts stay. All sources, polls, SkippingIndexes and Syncs are due now, not at their interval. So is the
    inspection of a store that is not fine, or holds a Dataset that is not, or one that others write. A GCPolicy and a
    standing Query catch up on a slot between two runs, however late.
    """
    again = dict(resources)
    for key, resource in resources.items():
        if isinstance(resource, Dataset) and resource.status.sources:
            again[key] = resource.model_copy(update={"status": _with_due_sources(resource.status)})
        if isinstance(resource, Dataset) and resource.spec.ledger is not None:
            again[key] = resource.model_copy(update={"status": _polled_now(resource.status)})
        if isinstance(resource, Commit) and resource.status.holds("Failed"):
            fresh = CommitStatus(attempt=resource.status.attempt + 1)
            again[key] = resource.model_copy(update={"status": fresh})
        elif isinstance(resource, Query) and resource.status.holds("Failed"):
            again[key] = resource.model_copy(update={"status": QueryStatus(attempt=resource.status.attempt + 1)})
        elif isinstance(resource, Compaction) and resource.status.holds("Failed"):
            again[key] = resource.model_copy(update={"status": CompactionStatus(attempt=resource.status.attempt + 1)})
        elif isinstance(resource, Verification) and resource.status.holds("Failed"):
            again[key] = resource.model_copy(update={"status": VerificationStatus(attempt=resource.status.attempt + 1)})
        elif isinstance(resource, ObjectStore | Cube | Dataset) and (
            not summarise(resource).phase.fine or _has_writers(resource)
        ):
            home = resource.name if isinstance(resource, ObjectStore) else resource.spec.store_ref.name
            store = resources.get(Key("ObjectStore", key.namespace, home))
            if store is not None:
                again[key_of(store)] = requested(store, now)
        elif isinstance(resource, SkippingIndex | GCPolicy | Sync | Query) and _has_work(resource, resources, now):
            again[key] = requested(resource, now)
    return again


def _has_writers(resource: Resource) -> bool:
    """Return whether clients of the library may have written to it since the last run, or are to be withdrawn."""
    return isinstance(resource, Dataset) and bool(resource.spec.writers or resource.status.writers)


def _has_work(
    resource: SkippingIndex | GCPolicy | Sync | Query, resources: Mapping[Key, Resource], now: datetime
) -> bool:
    if isinstance(resource, GCPolicy):
        last = resource.status.round or resource.status.last
        slot = last.slot if last is not None else None
        return _slot_has_passed(resource, resource.spec.schedule, slot, now) or resource.status.holds("Stalled")
    if isinstance(resource, Query):
        run = resource.status.run
        if run is None:  # it runs once, or for the first time
            return False
        is_due = _slot_has_passed(resource, resource.spec.schedule, run.slot, now)
        return run.problem is not None or (is_due and _may_have_other_rows(resource, run, resources))
    return True


def _may_have_other_rows(query: Query, run: QueryRun, resources: Mapping[Key, Resource]) -> bool:
    """Return whether an input has changed since the last run, or the Query follows none."""
    inputs = (resources.get(Key("Dataset", query.namespace, each.name)) for each in run.inputs)
    now = [each.status.version for each in inputs if isinstance(each, Dataset)]
    return not query.spec.follow or now != [each.version for each in run.inputs]


def requested(resource: Resource, now: datetime) -> Resource:
    """Return the resource with the annotation that requests immediate reconciliation."""
    annotations = resource.metadata.annotations | {REQUEST_ANNOTATIONS[0]: now.isoformat()}
    metadata = resource.metadata.model_copy(update={"annotations": annotations})
    return resource.model_copy(update={"metadata": metadata})


def _slot_has_passed(resource: Resource, schedule: Schedule | None, last: datetime | None, now: datetime) -> bool:
    since = last or resource.metadata.creation_timestamp
    if schedule is None or since is None:
        return False
    return fault(schedule) is None and next_slot(schedule, since) <= now


def _with_due_sources(status: DatasetStatus) -> DatasetStatus:
    due = {"look_time": None, "next_look_time": None}
    return status.model_copy(update={"sources": tuple(source.model_copy(update=due) for source in status.sources)})


def _polled_now(status: DatasetStatus) -> DatasetStatus:
    """Return the status with a poll that is due, and with a retry of failed definitions and transformations."""
    over: dict[str, object] = {"cause": "", "done": True, "problem": None}
    changes: dict[str, object] = {}
    if status.polling is not None and (status.polling.done or status.polling.problem is not None):
        changes["polling"] = status.polling.model_copy(update=over)
    for task_type in (DEFINE, TRANSFORM):
        task_run = task_run_of(task_type, status)
        if task_run is not None and task_run.problem is not None:
            changes[task_type.field] = task_run.model_copy(update=over)
    return status.model_copy(update=changes)


def save(applied: Applied) -> None:
    """Save what was admitted, before any action."""
    for key, state in applied.states.items():
        state.save(applied.resources[key])
