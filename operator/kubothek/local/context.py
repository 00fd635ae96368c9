"""Context of reconcilers in the local runtime, and which changes trigger which reconcilers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar, cast

from kubothek.api.bounds import Bound
from kubothek.api.commit import Commit
from kubothek.api.compaction import Compaction
from kubothek.api.cube import Cube
from kubothek.api.dataset import Dataset
from kubothek.api.engine import DEFAULT_ENGINE, Engine
from kubothek.api.gcpolicy import GCPolicy
from kubothek.api.meta import Resource
from kubothek.api.objectstore import ObjectStore
from kubothek.api.query import Query
from kubothek.api.repository import Repository
from kubothek.api.sizes import Sizes
from kubothek.api.sync import Sync
from kubothek.api.values import Reference
from kubothek.controller.context import JobView, Load, Settings
from kubothek.controller.dependency_graph import DependencyGraph
from kubothek.controller.derivation import identity, references
from kubothek.controller.run_index import Run, RunIndex, change_of
from kubothek.controller.validation.references import references_of
from kubothek.local.manifests import Key, key_of

R = TypeVar("R", bound=Resource)

_QUEUE_HEAD = 8
"""Number of a dataset's unfinished Commits that a change wakes: the next one, and some more in case it waits."""


class Objects:
    """Admitted resources of one run. Their specs are constant; their statuses change."""

    def __init__(self, resources: Mapping[Key, Resource]) -> None:
        self._by_kind: dict[tuple[str, str], dict[str, Resource]] = defaultdict(dict)
        self._users: dict[Key, list[Key]] = defaultdict(list)
        self._queues: dict[Key, list[Key]] = defaultdict(list)
        """Commits by Dataset or Cube, the next one last."""
        self.dependency_graph = DependencyGraph()
        self.run_index = RunIndex()
        for key, resource in resources.items():
            self.put(resource)
            for used in _references(resource):
                self._users[used].append(key)
            if isinstance(resource, Commit):
                self._queues[_subject(resource)].append(key)
        for queue in self._queues.values():
            queue.sort(key=lambda key: (resources[key].metadata.creation_timestamp, key.name), reverse=True)

    def get(self, key: Key) -> Resource | None:
        """Return the present resource."""
        return self._by_kind[key.kind, key.namespace].get(key.name)

    def __getitem__(self, key: Key) -> Resource:
        return self._by_kind[key.kind, key.namespace][key.name]

    def put(self, resource: Resource) -> None:
        """Replace a resource by a newer version."""
        self._by_kind[resource.kind, resource.namespace][resource.name] = resource
        if isinstance(resource, Dataset):
            self.dependency_graph.put(resource.namespace, resource.name, references(resource), identity(resource))
        elif isinstance(resource, Run):
            self.run_index.put(resource.kind, resource.namespace, resource.name, change_of(resource))

    def add(self, resource: Resource) -> None:
        """Add a resource that another one created; it may have existed, and others may refer to it already."""
        key = Key(resource.kind, resource.namespace, resource.name)
        for used in _references(resource):
            if key not in self._users[used]:
                self._users[used].append(key)
        self.put(resource)

    def list(self, kind: str, namespace: str) -> Sequence[Resource]:
        """Return all resources of a kind in a namespace."""
        return tuple(self._by_kind[kind, namespace].values())

    def __iter__(self) -> Iterator[Resource]:
        for resources in list(self._by_kind.values()):
            yield from list(resources.values())

    def woken_by(self, key: Key) -> Iterator[Key]:
        """Yield the resources whose reconciliation may change when this resource's status changes.

        Of a Dataset's Commits only the first few unfinished ones: the cost does not grow with the length of the queue.
        """
        resource = self.get(key)
        if isinstance(resource, Dataset):
            yield Key("ObjectStore", key.namespace, resource.spec.store_ref.name)
            yield from self._next_in_queue(key)
            yield from self._users[key]
            yield from self._neighbours(resource)
            if resource.cube is not None:
                cube = Key("Cube", key.namespace, resource.cube)
                yield cube
                yield from self._next_in_queue(cube)
        elif isinstance(resource, Cube):
            yield Key("ObjectStore", key.namespace, resource.spec.store_ref.name)
            yield from self._next_in_queue(key)
            yield from self._users[key]
        elif isinstance(resource, Commit):
            subject = _subject(resource)
            if resource.finished:
                yield subject
                yield from self._next_in_queue(subject)
                yield from self._users[subject]
                yield from self._users[key]
        elif isinstance(resource, Query | Compaction | Sync):
            yield from self._touched_by(resource)
        elif isinstance(resource, GCPolicy):
            others = self._by_kind["GCPolicy", key.namespace]
            yield from (Key("GCPolicy", key.namespace, name) for name in others if name != key.name)
        elif isinstance(resource, ObjectStore | Engine | Repository):
            for user in self._users[key]:
                yield user
                if user.kind in ("Dataset", "Cube"):
                    yield from self._next_in_queue(user)

    def _neighbours(self, dataset: Dataset) -> Iterator[Key]:
        """Yield the ledgers around a Dataset: its inputs list their consumers, and its descendants may wait for it."""
        if dataset.spec.ledger is None:
            return
        yield from (Key("Dataset", dataset.namespace, name) for name in references(dataset))
        derived = self.dependency_graph.descendants(dataset.namespace, dataset.name, identity(dataset))
        yield from (Key("Dataset", dataset.namespace, name) for name in sorted(derived))

    def _touched_by(self, run: Query | Compaction | Sync) -> Iterator[Key]:
        """Yield the Datasets that a run changed or read, and what waits for the changed one."""
        if isinstance(run, Sync):
            if run.status.table is not None:
                yield Key("Dataset", run.namespace, run.spec.dataset_ref.name)
            return
        if not (run.finished or run.status.completion_time is not None):
            return
        if (changed := _changed_by(run)) is not None:
            dataset = Key("Dataset", run.namespace, changed.name)
            yield dataset
            yield from self._users[dataset]
        if isinstance(run, Query):
            yield from self._read_by(run)

    def _read_by(self, query: Query) -> Iterator[Key]:
        """Yield the Datasets that a query read: they aggregate how much it skipped."""
        names = {read.dataset for read in query.status.reads}
        for other in self.list("Dataset", query.namespace):
            if isinstance(other, Dataset) and other.uuid in names and other.spec.store_ref == query.spec.store_ref:
                yield key_of(other)

    def _next_in_queue(self, dataset: Key) -> Iterator[Key]:
        queue = self._queues[dataset]
        while queue and self._finished(queue[-1]):
            queue.pop()
        yield from islice((key for key in reversed(queue) if not self._finished(key)), _QUEUE_HEAD)

    def _finished(self, key: Key) -> bool:
        commit = self.get(key)
        return isinstance(commit, Commit) and commit.finished


def _subject(commit: Commit) -> Key:
    return Key(commit.subject.kind, commit.namespace, commit.subject.name)


def _changed_by(run: Query | Compaction) -> Reference | None:
    return run.spec.result.dataset_ref if isinstance(run, Query) else run.spec.dataset_ref


def _references(resource: Resource) -> Iterable[Key]:
    """Return what the resource refers to, or uses by default.

    Without the subject of a Commit, which has a queue, and the Datasets of a GCPolicy, which change when they run.
    """
    left_out = (Dataset, Cube) if isinstance(resource, Commit | GCPolicy) else ()
    named = ((kind, name) for _, kind, name in references_of(resource) if kind not in left_out)
    found = [Key(kind.__name__, resource.namespace, name) for kind, name in named]
    if isinstance(resource, Dataset) and resource.cube is not None:
        found.append(Key("Cube", resource.namespace, resource.cube))
    if "engine_ref" in type(resource.spec).model_fields:
        found.append(Key("Engine", resource.namespace, DEFAULT_ENGINE))
    return dict.fromkeys(found)


@dataclass(frozen=True, slots=True)
class LocalContext:
    """A :class:`~kubothek.controller.context.Context`, consistent because resources change only on its thread."""

    objects: Objects
    settings: Settings
    now: datetime
    view: Callable[[str, str], JobView | None] = field(repr=False)
    """Returns the attempt by namespace and name."""
    refusals: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """Why a Dataset of another resource was refused, by namespace and name."""

    @property
    def load(self) -> Load:
        """Always empty: locally, only the number of cores limits jobs."""
        return Load()

    @property
    def dependency_graph(self) -> DependencyGraph:
        """Which Datasets are derived from which."""
        return self.objects.dependency_graph

    @property
    def engine_limits(self) -> Sizes:
        """The operator's limits for job sizes."""
        return self.settings.engine_limits

    @property
    def engine_defaults(self) -> Mapping[str, Any]:
        """The operator's layer below all Engines."""
        return self.settings.engine_defaults

    def bounds(self, namespace: str) -> Sequence[Bound]:
        """Return nothing: there are no quotas locally."""
        return ()

    @property
    def run_index(self) -> RunIndex:
        """Which runs change which Dataset or Cube."""
        return self.objects.run_index

    def get(self, kind: type[R], namespace: str, name: str) -> R | None:
        """Return the resource, or None."""
        return cast("R | None", self.objects.get(Key(kind.__name__, namespace, name)))

    def list(self, kind: type[R], namespace: str) -> Sequence[R]:
        """Return all resources of a kind in the namespace."""
        return cast("Sequence[R]", self.objects.list(kind.__name__, namespace))

    def invalid(self, kind: type[R], namespace: str) -> Sequence[str]:
        """Return nothing: a run starts only with valid manifests."""
        return ()

    def job(self, namespace: str, name: str) -> JobView | None:
        """Return the attempt of this name, or None if there is no trace of it."""
        return self.view(namespace, name)

    def launch_refusal(self, namespace: str, name: str) -> tuple[str, str] | None:
        """Return why a Dataset was refused, or None; launches are never refused locally."""
        return self.refusals.get((namespace, name))

    def warm_pool(self, engine: Engine) -> None:
        """Return None: there are no warm drivers locally."""
