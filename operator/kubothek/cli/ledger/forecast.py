"""What a run would do about the ledger of a Dataset."""

from __future__ import annotations

from collections.abc import Iterator

from kubothek.cli.steps import Step, Verb
from kubothek.lake.commits import DatasetLog
from kubothek.lake.errors import BucketNotFound, DatasetDeleted, DatasetNotFound, LakeError
from kubothek.lake.ledger.feeding import missing
from kubothek.lake.ledger.manifests import read_event
from kubothek.lake.ledger.root import Root
from kubothek.lake.store import Store
from kubothek.resources.dataset import Dataset
from kubothek.runtime.local.manifests import Key
from kubothek.runtime.local.words import count


def ledger_steps(key: Key, dataset: Dataset, store: Store | LakeError | None) -> Iterator[Step]:
    """The events that its chain lacks, and its poll."""
    ledger = dataset.spec.ledger
    if ledger is None or not isinstance(store, Store | BucketNotFound):
        return
    if dataset.spec.suspend:
        yield Step(key, Verb.SUSPENDED, "its chain is left as it is")
        return
    try:
        yield _chain_step(key, dataset, store)
    except LakeError as error:
        yield Step(key, Verb.BLOCKED, f"{error.reason}: {str(error).partition(chr(10))[0]}")
        return
    if ledger.polling:
        yield Step(key, Verb.COMMIT, "its source is polled")


def _chain_step(key: Key, dataset: Dataset, store: Store | BucketNotFound) -> Step:
    assert dataset.spec.ledger is not None, "asked only of ledgers"
    wanted = [read_event(event) for event in dataset.spec.ledger.metadata]
    if isinstance(store, Store):
        try:
            root = Root(store, DatasetLog(store, dataset.uuid))
        except (DatasetNotFound, DatasetDeleted):
            pass
        else:
            lacking = [event.kind for event in missing(root, wanted)]
            if lacking:
                return Step(key, Verb.CHANGE, f"appends to its chain: {', '.join(lacking)}")
            return Step(key, Verb.KEEP, f"its chain holds all events, in {count(root.state.length, 'block')}")
    return Step(key, Verb.CREATE, f"creates its chain with {count(len(wanted), 'event')}")
