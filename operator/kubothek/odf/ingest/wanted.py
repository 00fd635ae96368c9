"""The difference between the events of a manifest and those of a chain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kubothek.odf.dataset import Root
from kubothek.odf.spec.events import (
    AddPushSource,
    DisablePollingSource,
    DisablePushSource,
    MetadataEvent,
    SetPollingSource,
)
from kubothek.odf.validation.snapshots import resolved
from kubothek.odf.validation.state import ChainState


def missing(root: Root, wanted: Sequence[MetadataEvent]) -> list[MetadataEvent]:
    """Return the events to append, so that the chain holds these events and no other sources."""
    in_force = root.chain.definition
    new = resolved(tuple(wanted), lambda reference: None)
    return [*disabled(root.state, wanted), *(event for event in new if in_force.source(event) != event)]


def disabled(state: ChainState, wanted: Sequence[MetadataEvent]) -> Iterator[MetadataEvent]:
    """Return the events that disable the sources the manifest omits; they precede its own events."""
    if state.polling_source is not None and not any(isinstance(event, SetPollingSource) for event in wanted):
        yield DisablePollingSource()
    kept = {event.source_name for event in wanted if isinstance(event, AddPushSource)}
    yield from (DisablePushSource(source_name=name) for name in sorted(set(state.push_sources) - kept))
