"""The version of the specification that a block needs: the first one that has all of its forms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kubothek.errors import EventInvalid
from kubothek.odf.spec.blocks import Block, Dialect
from kubothek.odf.spec.events import AddData, AddPushSource, MetadataEvent, SetDataSchema, SetPollingSource
from kubothek.odf.spec.sources import (
    FetchStepEthereumLogs,
    FetchStepMqtt,
    MergeStrategyChangelogStream,
    MergeStrategyUpsertStream,
)
from kubothek.odf.spec.unknown import Unknown
from kubothek.odf.spec.versions import SpecVersion

_SINCE: Final[dict[type, SpecVersion]] = {
    FetchStepMqtt: SpecVersion.V0_35,
    FetchStepEthereumLogs: SpecVersion.V0_36,
    MergeStrategyUpsertStream: SpecVersion.V0_37,
    MergeStrategyChangelogStream: SpecVersion.V0_37,
}
_DIALECTS: Final = {Dialect.UNALIGNED: SpecVersion.V0_34, Dialect.ALIGNED: SpecVersion.V0_37}


def dialect_of(version: SpecVersion) -> Dialect:
    """Return the form of new blocks in a version."""
    return max(dialect for dialect, since in _DIALECTS.items() if since <= version)


def needed_by_block(block: Block) -> SpecVersion:
    """Return the version that a block needs; what even this Kubothek does not know counts as its newest version."""
    return max(_DIALECTS[block.dialect], needed_by_event(block.content.event))


def needed_by_event(event: MetadataEvent) -> SpecVersion:
    """Return the version that an event needs."""
    found = [SpecVersion.V0_34]
    match event:
        case SetPollingSource():
            found += [_since(event.fetch), _since(event.merge), _of_read(event.read)]
        case AddPushSource():
            found += [_since(event.merge), _of_read(event.read)]
        case SetDataSchema() if event.schema is not None:
            found.append(SpecVersion.V0_37)
        case AddData() if event.extra is not None:
            found.append(SpecVersion.V0_37)
    return max(found)


def require_version(events: Iterable[MetadataEvent], version: SpecVersion) -> None:
    """Raise EventInvalid for an event that a version does not have."""
    for event in events:
        if (needed := needed_by_event(event)) > version:
            raise EventInvalid(
                f"{event.kind} needs version {needed} of the specification, and the chain is to be written in version "
                f"{version}: set spec.ledger.specVersion to {needed} or later, or change the event"
            )


def _since(part: Any) -> SpecVersion:
    return SpecVersion.V0_39 if isinstance(part, Unknown) else _SINCE.get(type(part), SpecVersion.V0_34)


def _of_read(read: Any) -> SpecVersion:
    return _since(read) if getattr(read, "schema", None) is None else SpecVersion.V0_38
