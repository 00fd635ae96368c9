"""Rules about pairs of resources: a Commit and the ledger of its Dataset, a Sync and what it writes."""

from __future__ import annotations

from collections.abc import Iterator

from kubothek.api.commit import DEFAULT_PUSH_SOURCE, Commit
from kubothek.api.conditions import State, stalled, waiting
from kubothek.api.dataset import Dataset
from kubothek.api.query import Query
from kubothek.api.repository import Repository
from kubothek.api.sync import Sync
from kubothek.controller.context import Lookup
from kubothek.controller.finding import Finding
from kubothek.controller.references import Blocked, refuse_member
from kubothek.controller.tasks.transforms import unfit_input


def commit_and_dataset(commit: Commit, there: Lookup) -> Iterator[Finding]:
    """Yield a finding if the Dataset of a Commit can never accept it."""
    if commit.spec.dataset_ref is None:
        return
    dataset = there.get(Dataset, commit.namespace, commit.spec.dataset_ref.name)
    if dataset is not None:
        yield from _of(refuse_member(dataset, "create a Commit with spec.cube"), "spec.datasetRef")
        yield from _of(ledger_blocker(commit, dataset), "spec.datasetRef")


def query_and_dataset(query: Query, there: Lookup) -> Iterator[Finding]:
    """Yield a finding if the Dataset of a Query can never accept its rows, and for each one that it cannot follow."""
    target = query.spec.result.dataset_ref
    dataset = None if target is None else there.get(Dataset, query.namespace, target.name)
    if dataset is not None:
        yield from _of(query_blocker(dataset), "spec.result.datasetRef")
    for index, reference in enumerate(query.spec.follow):
        other = there.get(Dataset, query.namespace, reference.name)
        unfit = None if other is None else unfit_followed(query, other)
        if unfit is not None:
            yield Finding("QueryInvalid", f"spec.follow[{index}]", unfit)


def sync_and_dataset(sync: Sync, there: Lookup) -> Iterator[Finding]:
    """Yield a finding if the specs of a Sync's two sides do not fit each other."""
    dataset = there.get(Dataset, sync.namespace, sync.spec.dataset_ref.name)
    repository = there.get(Repository, sync.namespace, sync.spec.repository_ref.name)
    if dataset is not None and repository is not None:
        clash = sync_blocker(sync, repository, dataset)
        if clash is not None and clash.abnormal == "Stalled":
            yield from _findings_of(clash, "spec.datasetRef")


def dataset_and_inputs(dataset: Dataset, there: Lookup) -> Iterator[Finding]:
    """Yield a finding for each input that nothing can be derived from."""
    for name in dataset.spec.ledger.inputs if dataset.spec.ledger is not None else ():
        other = there.get(Dataset, dataset.namespace, name)
        why = None if other is None or other.name == dataset.name else unfit_input(dataset, other)
        if why is not None:
            yield Finding("TransformInvalid", "spec.ledger.metadata", why)


def query_blocker(dataset: Dataset) -> Blocked | None:
    """Return why a Dataset can never accept the rows of a Query, or None."""
    member = refuse_member(dataset, "let the rows become a file, and append it with spec.cube of a Commit")
    if member is not None or dataset.spec.ledger is None:
        return member
    message = f"Dataset {dataset.name!r} has a ledger, of which rows change through its sources only"
    return Blocked(stalled("LedgerOnly", f"{message}: let the rows become a file, and append it with a Commit"))


def unfit_followed(query: Query, dataset: Dataset) -> str | None:
    """Return why a Query cannot follow a Dataset, given both manifests, or None."""
    if dataset.spec.store_ref == query.spec.store_ref:
        return None
    return (
        f"Dataset {dataset.name!r} of spec.follow is in ObjectStore {dataset.spec.store_ref.name!r}, which the Query "
        f"does not read: follow Datasets of {query.spec.store_ref.name!r}"
    )


def ledger_blocker(commit: Commit, dataset: Dataset) -> Blocked | None:
    """Return why the Dataset of a Commit can never accept it because of its ledger, or None."""
    ledger, source = dataset.spec.ledger, commit.spec.push_source
    if ledger is None:
        why = None if source is None else "has no ledger; create the Commit again without spec.pushSource"
    elif ledger.kind == "Copy":
        why = "is a copy of another party's chain, to which nothing is appended here: append there"
    elif commit.spec.operation != "Append":
        why = "has a ledger, of which rows change through its sources only: append what corrects them"
    elif ledger.kind == "Derivative":
        why = "is derived from its inputs, and takes no other rows: append to them"
    elif commit.spec.source is not None and commit.spec.source.sql is not None:
        why = (
            "has a ledger, whose push sources read files, and the Commit has source.sql: let a Query write the rows to "
            "a file, and name that in source.paths"
        )
    elif ledger.push_sources and (source or DEFAULT_PUSH_SOURCE) in ledger.push_sources:
        why = None
    else:
        known = ", ".join(map(repr, ledger.push_sources)) or "none"
        name = source or DEFAULT_PUSH_SOURCE
        why = f"has no push source {name!r} in spec.ledger: add an AddPushSource; there is: {known}"
    return None if why is None else Blocked(stalled("LedgerOnly", f"Dataset {dataset.name!r} {why}"))


def sync_blocker(sync: Sync, repository: Repository, dataset: Dataset) -> State | None:
    """Return why a Sync cannot run between this Repository and this Dataset, or None."""
    ledger = dataset.spec.ledger
    if ledger is None:
        return stalled("NotALedger", f"Dataset {dataset.name!r} has no spec.ledger: only ledgers are pulled and pushed")
    if sync.pulls:
        if ledger.kind == "Copy":
            return None
        message = (
            f"Dataset {dataset.name!r} has a chain of its own: push it, or pull into a Dataset with ledger.kind: Copy"
        )
        return stalled("NotACopy", message)
    if not repository.spec.push:
        message = f"Repository {repository.name!r} does not allow it: set its spec.push to true, or pull"
        return stalled("PushNotAllowed", message)
    if dataset.status.ledger is None:
        return waiting("Waiting", f"Dataset {dataset.name!r} has no chain yet, so there is nothing to push")
    return None


def _of(blocked: Blocked | None, path: str) -> Iterator[Finding]:
    if blocked is not None:
        yield from _findings_of(blocked.state, path)


def _findings_of(state: State, path: str) -> Iterator[Finding]:
    yield Finding(state.reason, path, state.message)
