"""Manifests meet the state of earlier runs: identities are given, edits checked, absences noticed."""

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
from kubothek.api.query import Query, QueryStatus
from kubothek.api.skippingindex import SkippingIndex
from kubothek.api.sync import Sync
from kubothek.api.verification import Verification, VerificationStatus
from kubothek.controller.scheduling.schedule import fault, next_slot
from kubothek.local.documents import ManifestError, Problem
from kubothek.local.manifests import Key, Manifests, key_of
from kubothek.local.state import State, admit
from kubothek.local.summary import summarise


@dataclass(frozen=True, slots=True)
class Applied:
    """What a run works on."""

    resources: Mapping[Key, Resource]
    """As an API server would hold them, with the statuses of earlier runs."""
    states: Mapping[Key, State]
    """Where each is remembered; an Engine, and what names no known store, is not."""
    secrets: Mapping[tuple[str, str], Mapping[str, bytes]]
    absent: Sequence[Key]
    """Resources of earlier runs that are not in these manifests, nor named by them; unchanged."""


def states_of(manifests: Manifests, base: Path) -> dict[Key, State]:
    """The state that each resource belongs to: that of its store, or of its Dataset's store."""
    states = {
        key: State.of(resource.spec.url, resource.spec.endpoint, base)
        for key, resource in manifests.resources.items()
        if isinstance(resource, ObjectStore)
    }
    for key, resource in manifests.resources.items():  # Datasets come before what changes them
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
    """The Dataset or Cube, or if no manifest has it the store that an earlier run kept it in."""
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
    """Admit all manifests or none. Raises ManifestError with every edit that is forbidden. Writes nothing."""
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
    """What resources of the manifests name: the Dataset or Cube that they change, and what they depend on."""
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
    return named


def _kept(key: Key, state: State, resources: Mapping[Key, Resource], named: Container[Key]) -> Resource | None:
    """A resource of an earlier run that is in no manifest, and that one of the manifests made or names."""
    resource = state.load(KINDS[key.kind], key) if key.kind in KINDS else None
    if key in named:
        return resource
    owner = resource.controller if resource is not None else None
    if owner is None or Key(owner.kind, key.namespace, owner.name) not in resources:
        return None
    return resource


def _once_more(resources: Mapping[Key, Resource], now: datetime) -> dict[Key, Resource]:
    """A run is a person's request to try again what an earlier one left undone.

    A failed Commit, Query, Compaction or Verification starts over, as if it had been deleted and created again; its old
    attempts keep their logs. A store that is not fine, or holds a Dataset that is not, is looked at now and not at the
    next interval, and so are every source, that of a ledger too, the files of every SkippingIndex, and both sides of
    every Sync. A GCPolicy makes up for a slot that came between two runs, however late.
    """
    again = dict(resources)
    for key, resource in resources.items():
        if isinstance(resource, Dataset) and resource.status.sources:
            again[key] = resource.model_copy(update={"status": _looked_at_now(resource.status)})
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
        elif isinstance(resource, ObjectStore | Cube | Dataset) and not summarise(resource).phase.fine:
            home = resource.name if isinstance(resource, ObjectStore) else resource.spec.store_ref.name
            store = resources.get(Key("ObjectStore", key.namespace, home))
            if store is not None:
                again[key_of(store)] = requested(store, now)
        elif isinstance(resource, SkippingIndex | GCPolicy | Sync) and _has_work(resource, now):
            again[key] = requested(resource, now)
    return again


def _has_work(resource: SkippingIndex | GCPolicy | Sync, now: datetime) -> bool:
    if isinstance(resource, GCPolicy):
        return _slot_has_passed(resource, now) or resource.status.holds("Stalled")
    return True


def requested(resource: Resource, now: datetime) -> Resource:
    """The resource with the request to do now what is otherwise done at intervals."""
    annotations = resource.metadata.annotations | {REQUEST_ANNOTATIONS[0]: now.isoformat()}
    metadata = resource.metadata.model_copy(update={"annotations": annotations})
    return resource.model_copy(update={"metadata": metadata})


def _slot_has_passed(policy: GCPolicy, now: datetime) -> bool:
    schedule, last = policy.spec.schedule, policy.status.round or policy.status.last
    since = (last and last.slot) or policy.metadata.creation_timestamp
    return since is not None and fault(schedule) is None and next_slot(schedule, since) <= now


def _looked_at_now(status: DatasetStatus) -> DatasetStatus:
    due = {"look_time": None, "next_look_time": None}
    return status.model_copy(update={"sources": tuple(source.model_copy(update=due) for source in status.sources)})


def _polled_now(status: DatasetStatus) -> DatasetStatus:
    """With a poll that is due, and with another try of what the chain could not be made to hold, or to derive."""
    over: dict[str, object] = {"cause": "", "done": True, "problem": None}
    changes: dict[str, object] = {}
    if status.polling is not None and (status.polling.done or status.polling.problem is not None):
        changes["polling"] = status.polling.model_copy(update=over)
    for name in ("defining", "transforming"):
        errand = getattr(status, name)
        if errand is not None and errand.problem is not None:
            changes[name] = errand.model_copy(update=over)
    return status.model_copy(update=changes)


def save(applied: Applied) -> None:
    """Remember what was admitted, before anything is done about it."""
    for key, state in applied.states.items():
        state.save(applied.resources[key])
