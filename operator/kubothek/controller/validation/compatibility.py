"""Two resources that do not go together: a Commit and a ledger, a Sync and what it would write."""

from __future__ import annotations

from collections.abc import Iterator

from kubothek.api.commit import Commit
from kubothek.api.conditions import State
from kubothek.api.dataset import Dataset
from kubothek.api.query import Query
from kubothek.api.repository import Repository
from kubothek.api.sync import Sync
from kubothek.controller.context import Lookup
from kubothek.controller.finding import Finding
from kubothek.controller.kinds.commit import against_ledger
from kubothek.controller.kinds.sync import unfit
from kubothek.controller.references import Blocked, refuse_member
from kubothek.controller.tasks.transforms import unfit_input


def commit_and_dataset(commit: Commit, there: Lookup) -> Iterator[Finding]:
    """A Commit that its Dataset will never take."""
    if commit.spec.dataset_ref is None:
        return
    dataset = there.get(Dataset, commit.namespace, commit.spec.dataset_ref.name)
    if dataset is not None:
        yield from _of(refuse_member(dataset, "create a Commit with spec.cube"), "spec.datasetRef")
        yield from _of(against_ledger(commit, dataset), "spec.datasetRef")


def query_and_dataset(query: Query, there: Lookup) -> Iterator[Finding]:
    """A Query whose rows no Dataset will take."""
    target = query.spec.result.dataset_ref
    dataset = None if target is None else there.get(Dataset, query.namespace, target.name)
    if dataset is not None:
        advice = "let the rows become a file, and append it with spec.cube of a Commit"
        yield from _of(refuse_member(dataset, advice), "spec.result.datasetRef")


def sync_and_dataset(sync: Sync, there: Lookup) -> Iterator[Finding]:
    """A Sync whose two sides do not go together, as their specs are."""
    dataset = there.get(Dataset, sync.namespace, sync.spec.dataset_ref.name)
    repository = there.get(Repository, sync.namespace, sync.spec.repository_ref.name)
    if dataset is not None and repository is not None:
        clash = unfit(sync, repository, dataset)
        if clash is not None and clash.abnormal == "Stalled":
            yield from _told(clash, "spec.datasetRef")


def dataset_and_inputs(dataset: Dataset, there: Lookup) -> Iterator[Finding]:
    """A derivative of what nothing can be derived from."""
    for name in dataset.spec.ledger.inputs if dataset.spec.ledger is not None else ():
        other = there.get(Dataset, dataset.namespace, name)
        why = None if other is None or other.name == dataset.name else unfit_input(dataset, other)
        if why is not None:
            yield Finding("TransformInvalid", "spec.ledger.metadata", why)


def _of(blocked: Blocked | None, path: str) -> Iterator[Finding]:
    if blocked is not None:
        yield from _told(blocked.state, path)


def _told(state: State, path: str) -> Iterator[Finding]:
    yield Finding(state.reason, path, state.message)
