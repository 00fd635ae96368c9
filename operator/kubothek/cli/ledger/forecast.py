"""Forecast for the ledger of a Dataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kubothek.api.dataset import Dataset
from kubothek.api.meta import Resource
from kubothek.api.transforms import is_identity
from kubothek.cli.steps import Step, Verb
from kubothek.errors import BucketNotFound, DatasetDeleted, DatasetNotFound, InputMissing, LakeError
from kubothek.local.manifests import Key
from kubothek.odf.dataset import Root
from kubothek.odf.derived import Derivative, inputs_of, open_ledger
from kubothek.odf.ingest import missing
from kubothek.odf.spec.events import MetadataEvent
from kubothek.odf.spec.manifests import read_event
from kubothek.storage import Store
from kubothek.table.log import DatasetLog
from kubothek.words import count


def ledger_steps(
    key: Key, dataset: Dataset, store: Store | LakeError | None, resources: Mapping[Key, Resource]
) -> Iterator[Step]:
    """Yield the events that its chain lacks, and its poll or the run of its transformation."""
    ledger = dataset.spec.ledger
    if ledger is None or ledger.kind == "Copy" or not isinstance(store, Store | BucketNotFound):
        return
    if dataset.spec.suspend:
        yield Step(key, Verb.SUSPENDED, "its chain does not change")
        return
    names = dict(_inputs(key, dataset, resources))
    try:
        there = _opened(dataset, store)
        yield _chain_step(key, dataset, there, names)
        if ledger.kind == "Derivative":
            yield _derived_step(key, dataset, there, names)
    except LakeError as error:
        yield Step(key, Verb.BLOCKED, f"{error.reason}: {str(error).partition(chr(10))[0]}")
        return
    if ledger.fetch is not None and ledger.fetch["kind"] == "Container":
        yield Step(key, Verb.BLOCKED, "SourceRefused: its source is a container: poll --allow-containers, or a cluster")
    elif ledger.polling:
        yield Step(key, Verb.COMMIT, "its source is polled")


def _inputs(key: Key, dataset: Dataset, resources: Mapping[Key, Resource]) -> Iterator[tuple[str, str]]:
    """Yield the resource names and store names of inputs that manifests have."""
    assert dataset.spec.ledger is not None, "asked only of ledgers"
    for name in dataset.spec.ledger.inputs:
        other = resources.get(Key("Dataset", key.namespace, name))
        if isinstance(other, Dataset):
            yield name, other.uuid


def _opened(dataset: Dataset, store: Store | BucketNotFound) -> Root | Derivative | None:
    """Return the existing ledger; None if there is none."""
    if not isinstance(store, Store):
        return None
    try:
        return open_ledger(store, DatasetLog(store, dataset.uuid))
    except (DatasetNotFound, DatasetDeleted):
        return None


def _chain_step(key: Key, dataset: Dataset, there: Root | Derivative | None, names: Mapping[str, str]) -> Step:
    assert dataset.spec.ledger is not None, "asked only of ledgers"
    wanted = [read_event(event) for event in dataset.spec.ledger.metadata]
    if there is None:
        return Step(key, Verb.CREATE, f"creates its chain with {count(len(wanted), 'event')}")
    lacking = [event.kind for event in _lacking(there, wanted, names)]
    if not lacking:
        return Step(key, Verb.KEEP, f"its chain holds all events, in {count(there.state.length, 'block')}")
    return Step(key, Verb.CHANGE, f"appends to its chain: {', '.join(lacking)}")


def _lacking(there: Root | Derivative, wanted: list[MetadataEvent], names: Mapping[str, str]) -> list[MetadataEvent]:
    if isinstance(there, Root):
        return missing(there, wanted)
    return there.missing(wanted, inputs_of(there.store, names))


def _derived_step(key: Key, dataset: Dataset, there: Root | Derivative | None, names: Mapping[str, str]) -> Step:
    """Return what waits in the inputs now; their own runs come first, and may add more."""
    assert dataset.spec.ledger is not None, "asked only of ledgers"
    if dataset.spec.ledger.following.suspend:
        return Step(key, Verb.SUSPENDED, "what is new in its inputs waits: ledger.transform.suspend is true")
    if not isinstance(there, Derivative):
        known = [name for name in dataset.spec.ledger.inputs if name in names or is_identity(name)]
        if absent := [name for name in dataset.spec.ledger.inputs if name not in known]:
            raise InputMissing(f"no manifest has the input {absent[0]!r}")
        return Step(key, Verb.COMMIT, "consumes all records of its inputs")
    waiting = there.pending(inputs_of(there.store, names))
    for trouble in waiting.troubles:
        return Step(key, Verb.BLOCKED, f"{trouble.code}: {trouble.message.partition(chr(10))[0]}")
    if waiting.empty:
        return Step(key, Verb.KEEP, f"waits for the first data of {', '.join(waiting.empty)}")
    if not waiting.moved:
        return Step(key, Verb.KEEP, "its inputs have nothing new")
    return Step(key, Verb.COMMIT, f"takes {count(waiting.records, 'new record')} of its inputs")
