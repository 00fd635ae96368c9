"""From a DatasetSnapshot to the first blocks of a chain (SN-01 … SN-03): a pure function, so it returns all or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, TypeVar

from kubothek.errors import EventInvalid, InputError
from kubothek.odf.spec.blocks import Block
from kubothek.odf.spec.events import (
    AddData,
    AddPushSource,
    DatasetSnapshot,
    DisablePollingSource,
    DisablePushSource,
    ExecuteTransform,
    MetadataBlock,
    MetadataEvent,
    Seed,
    SetPollingSource,
    SetTransform,
    TransformInput,
)
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.needed_version import dialect_of, require_version
from kubothek.odf.spec.sources import SqlQueryStep, Transform, TransformSql
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.spec.unknown import Unknown
from kubothek.odf.spec.versions import SpecVersion
from kubothek.odf.validation.rules import append
from kubothek.odf.validation.state import ChainState

Resolver = Callable[[str], DatasetId | None]
"""Resolves the text of a reference to a dataset; None if there is none."""
_Sql = TypeVar("_Sql", bound=Transform | None)
_NOT_GIVEN: Final = (Seed, AddData, ExecuteTransform, DisablePollingSource, DisablePushSource, Unknown)


def first_blocks(
    snapshot: DatasetSnapshot,
    dataset_id: DatasetId,
    system_time: Timestamp,
    resolve: Resolver,
    version: SpecVersion | None = None,
) -> list[Block]:
    """Return the seed and one block for each event, all of one time, as they are to be stored.

    ``version``  of the specification; None: the first one that has all events

    Raises EventInvalid for an event that a snapshot cannot hold, that the version does not have or that breaks a rule,
    InputError for inputs that do not exist, all of them at once.
    """
    for number, event in enumerate(snapshot.metadata):
        if isinstance(event, _NOT_GIVEN):
            raise EventInvalid(f"metadata[{number}] is {event.kind}, which a snapshot cannot hold")
    events: list[MetadataEvent] = [Seed(dataset_id=dataset_id, dataset_kind=snapshot.kind)]
    events += resolved(snapshot.metadata, resolve)
    if version is not None:
        require_version(events, version)
    state, blocks = ChainState(version=version), list[Block]()
    for event in events:
        content = MetadataBlock(
            system_time=system_time, prev_block_hash=state.head, sequence_number=state.length, event=event
        )
        blocks.append(Block.encode(content, dialect_of(state.version or SpecVersion.V0_34)))
        state = append(state, blocks[-1])
    return blocks


def resolved(events: tuple[MetadataEvent, ...], resolve: Resolver) -> Iterator[MetadataEvent]:
    """Return the events as a chain holds them: input ids with aliases, ``queries`` for ``query`` (ST-02, ST-03).

    Raises InputError, which names every input that does not exist.
    """
    references = [each.dataset_ref for event in events if isinstance(event, SetTransform) for each in event.inputs]
    known = {reference: resolve(reference) for reference in references}
    if missing := [reference for reference, found in known.items() if found is None]:
        raise InputError(f"the transformation's inputs do not exist: {', '.join(missing)}")
    return (_stored(event, {reference: str(found) for reference, found in known.items()}) for event in events)


def _stored(event: MetadataEvent, ids: dict[str, str]) -> MetadataEvent:
    if isinstance(event, SetTransform):
        inputs = (
            TransformInput(dataset_ref=ids[each.dataset_ref], alias=each.alias or each.dataset_ref)
            for each in event.inputs
        )
        return replace(event, inputs=tuple(inputs), transform=_normal(event.transform))
    if isinstance(event, SetPollingSource | AddPushSource):
        return replace(event, preprocess=_normal(event.preprocess))
    return event


def _normal(sql: _Sql) -> _Sql:
    if not isinstance(sql, TransformSql) or sql.query is None:
        return sql
    if sql.queries is not None:
        raise EventInvalid("a transformation has both query and queries; give one of them")
    return replace(sql, query=None, queries=(SqlQueryStep(query=sql.query),))
