"""Creation of a derivative dataset: inputs resolved to ids, the query validated (ST-02, ST-03, EN-05)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from kubothek.errors import EventInvalid
from kubothek.odf.dataset.creating import begin_chain, digest_of
from kubothek.odf.dataset.slicing import Types
from kubothek.odf.dataset.table import Table
from kubothek.odf.derived.definition import stored_transform
from kubothek.odf.derived.handle import Derivative
from kubothek.odf.derived.inputs import Inputs
from kubothek.odf.spec.blocks import Block
from kubothek.odf.spec.events import DatasetKind, DatasetSnapshot, SetTransform, SetVocab
from kubothek.odf.spec.identity import DatasetId, OwnerKey
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.spec.versions import NEWEST, SpecVersion
from kubothek.odf.validation.snapshots import first_blocks
from kubothek.odf.validation.state import Vocabulary
from kubothek.storage import Store
from kubothek.table.log import Change, DatasetLog, Operation

_USUAL: Final = Table()


def create(
    store: Store,
    log: DatasetLog,
    snapshot: DatasetSnapshot,
    owner: OwnerKey,
    inputs: Inputs,
    *,
    table: Table | None = _USUAL,
    types: Types = Types.KAMU,
    version: SpecVersion = NEWEST,
    metadata: Mapping[str, Any] = MappingProxyType({}),
    commit_id: str | None = None,
    by: str = "",
    foreign: bool = False,
) -> Derivative:
    """Commit the first blocks of the chain, with one SetTransform among them; otherwise as for a root dataset.

    ``inputs``   finds the datasets that the transformation names
    ``foreign``  an engine of another party is to run it; only that engine can validate the query

    Raises DatasetExists; InputError, which names every input that does not exist, or for an input that is the dataset
    itself; TransformInvalid; EventInvalid for an event that cannot begin a derivative dataset.
    """
    if snapshot.kind is not DatasetKind.DERIVATIVE:
        raise EventInvalid(f"{snapshot.name}: a {snapshot.kind.value} dataset has no transformation")
    number = sum(isinstance(event, SetTransform) for event in snapshot.metadata)
    if number != 1:
        raise EventInvalid(f"{snapshot.name}: a derivative dataset has one SetTransform, not {number}")

    def first(now: Timestamp) -> list[Block]:
        named = next((Vocabulary.of(event) for event in snapshot.metadata if isinstance(event, SetVocab)), Vocabulary())
        events = (
            stored_transform(event, inputs, named, itself=owner.dataset_id, foreign=foreign)
            if isinstance(event, SetTransform)
            else event
            for event in snapshot.metadata
        )
        return first_blocks(replace(snapshot, metadata=tuple(events)), owner.dataset_id, now, DatasetId.parse, version)

    digest = digest_of(snapshot, table, types)
    change = Change(operation=Operation.CREATE, metadata=metadata, by=by)
    begin_chain(
        store, log, first, change, table=table, types=types, version=version, commit_id=commit_id, digest=digest
    )
    return Derivative(store, log, by=by)
