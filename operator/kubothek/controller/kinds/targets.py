"""Datasets that a GCPolicy selects, and their form in its job specs.

Versions that *any* policy of the namespace retains are kept, whichever policy collects. So a target has the retention
of all policies that select it, and a store has the longest grace period of those that select one of its Datasets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import NamedTuple

from kubothek.api.dataset import Dataset
from kubothek.api.gcpolicy import DatasetSelector, Expression, GCPolicy, Retention
from kubothek.api.jobs import LEFTOVERS, CollectTarget, RetentionSpec, TableSpec
from kubothek.api.objectstore import ObjectStore
from kubothek.api.values import parse_duration
from kubothek.controller.context import Context
from kubothek.controller.references import bears_one_writer, dataset_ref, usable_store

JOB_LIMIT = 100
"""Maximum number of Datasets per job: its spec must fit into a ConfigMap, and it must end before its deadline."""
_SHRINK = 3
"""Each failure divides the number of Datasets by eight, until the failing one is alone in its job."""


class Candidate(NamedTuple):
    """Dataset that can be collected now. A round visits candidates in the order of their keys, ``<store>/<name>``.

    Without a Dataset, it stands for leftovers of deleted Datasets in a store that has no other candidate.
    """

    key: str
    dataset: Dataset | None
    store: ObjectStore

    @property
    def name(self) -> str:
        """The name for messages."""
        return self.dataset.name if self.dataset else f"deleted Datasets of ObjectStore {self.store.name}"


@dataclass(frozen=True)
class Selection:
    """Datasets that a policy selects, and, sorted by key, those that can be collected now."""

    policy: GCPolicy
    context: Context
    chosen: Sequence[Dataset]

    @classmethod
    def of(cls, policy: GCPolicy, context: Context) -> Selection:
        """Return the selection of a policy."""
        return cls(
            policy, context, list(filter(matcher(policy.spec.selector), context.list(Dataset, policy.namespace)))
        )

    @cached_property
    def ready(self) -> Sequence[Candidate]:
        """Candidates in order; computed only when a job is about to start."""
        names = {dataset.spec.store_ref.name for dataset in self.chosen}
        if self.policy.spec.selector.all:
            names |= {store.name for store in self.context.list(ObjectStore, self.policy.namespace)}
        found = {name: usable_store(name, self.policy, self.context) for name in names}
        # A collection commits as well, and other writers never wait for it.
        fit = (store for store in found.values() if isinstance(store, ObjectStore) and not bears_one_writer(store))
        stores = {store.name: store for store in fit}
        candidates = [
            Candidate(f"{store.name}/{dataset.name}", dataset, store)
            for dataset in self.chosen
            if (store := stores.get(dataset.spec.store_ref.name)) is not None and _fit(dataset)
        ]
        if self.policy.spec.selector.all:
            empty = stores.keys() - {dataset.spec.store_ref.name for dataset in self.chosen}
            candidates += [Candidate(f"{name}/{LEFTOVERS}", None, stores[name]) for name in empty]
        return sorted(candidates, key=lambda candidate: candidate.key)

    def after(self, cursor: str) -> tuple[Candidate, ...]:
        """Return the candidates after a key."""
        return tuple(candidate for candidate in self.ready if candidate.key > cursor)

    def chunk(self, after: str, until: str) -> tuple[Candidate, ...]:
        """Return the candidates of one job."""
        return tuple(candidate for candidate in self.ready if after < candidate.key <= until)

    def is_last_of_store(self, last: Candidate) -> bool:
        """Return whether no later candidate is in the same store."""
        following = self.after(last.key)[:1]
        return not following or following[0].store.name != last.store.name

    def end_of_chunk(self, after: str, failures: int) -> str:
        """Return the last key of the next job, "" at the end: one store, and fewer Datasets after each failure."""
        rest = self.after(after)
        size = max(JOB_LIMIT >> _SHRINK * failures, 1)
        same_store = [candidate.key for candidate in rest[:size] if candidate.store.name == rest[0].store.name]
        return same_store[-1] if same_store else ""


@dataclass(frozen=True, slots=True)
class Keepers:
    """All policies of a namespace, each with its predicate for Datasets."""

    policies: Sequence[tuple[GCPolicy, Callable[[Dataset], bool]]]

    @classmethod
    def of(cls, namespace: str, context: Context) -> Keepers:
        """Return the existing policies, suspended ones included."""
        return cls([(policy, matcher(policy.spec.selector)) for policy in context.list(GCPolicy, namespace)])

    def target(self, dataset: Dataset, context: Context) -> CollectTarget:
        """Return a Dataset as a job needs it, without the layout of the table, which collection does not need."""
        kept = dict.fromkeys(_kept(policy.spec.retention) for policy, selects in self.policies if selects(dataset))
        ref = dataset_ref(dataset, context.settings)
        return CollectTarget(
            name=dataset.name, dataset=ref.model_copy(update={"table": TableSpec()}), policies=tuple(kept)
        )

    def grace(self, store: ObjectStore, context: Context) -> timedelta:
        """Return the longest grace period of all policies that select a Dataset of the store; at least one does."""
        stored = [d for d in context.list(Dataset, store.namespace) if d.spec.store_ref.name == store.name]
        return max(
            parse_duration(policy.spec.grace_period)
            for policy, selects in self.policies
            if policy.spec.selector.all or any(map(selects, stored))
        )


def _kept(retention: Retention) -> RetentionSpec:
    age = None if retention.age is None else parse_duration(retention.age).total_seconds()
    return RetentionSpec(versions=retention.versions, seconds=age)


def _fit(dataset: Dataset) -> bool:
    """Return whether to collect. A tag that is not set yet may pin a version, and while files are lost, an old version
    may be the only complete one.
    """
    if dataset.spec.suspend or dataset.deleting or not dataset.writable or dataset.status.corrupt is not None:
        return False
    pinned = {(tag.name, tag.version) for tag in dataset.status.tags}
    return all((tag.name, tag.version) in pinned for tag in dataset.spec.tags or ())


def matcher(selector: DatasetSelector) -> Callable[[Dataset], bool]:
    """Return the predicate that tells whether a Dataset of the namespace is selected."""
    if selector.all:
        return lambda dataset: True
    if selector.names is not None:
        names = frozenset(selector.names)
        return lambda dataset: dataset.name in names
    wanted, expressions = (selector.match_labels or {}).items(), selector.match_expressions or ()
    return lambda dataset: (
        wanted <= dataset.metadata.labels.items()
        and all(_meets(dataset.metadata.labels, expression) for expression in expressions)
    )


def _meets(labels: Mapping[str, str], expression: Expression) -> bool:
    match expression.operator:
        case "In":
            return labels.get(expression.key) in expression.values
        case "NotIn":
            return labels.get(expression.key) not in expression.values
        case "Exists":
            return expression.key in labels
        case "DoesNotExist":
            return expression.key not in labels
