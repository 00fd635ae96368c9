"""Rules on the next block of a chain (ODF 0.34.1, "Metadata Chain" and RFC-010, RFC-011): pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from kubothek.errors import EventInvalid
from kubothek.odf.problems import Problem, Severity, judged
from kubothek.odf.spec.blocks import Block
from kubothek.odf.spec.events import (
    AddData,
    AddPushSource,
    DatasetKind,
    DisablePollingSource,
    DisablePushSource,
    ExecuteTransform,
    MetadataBlock,
    Seed,
    SetAttachments,
    SetDataSchema,
    SetPollingSource,
    SetTransform,
    SetVocab,
)
from kubothek.odf.spec.multihash import Codec
from kubothek.odf.spec.unknown import Unknown
from kubothek.odf.validation.rules_data import add_data, execute_transform
from kubothek.odf.validation.rules_definition import (
    attachments,
    data_schema,
    disable_polling_source,
    disable_push_source,
    polling_source,
    push_source,
    transform,
    vocabulary,
)
from kubothek.odf.validation.state import ChainState, advance

_KINDS: Final = {
    DatasetKind.ROOT: (AddData, SetPollingSource, AddPushSource, DisablePushSource, DisablePollingSource),
    DatasetKind.DERIVATIVE: (SetTransform, ExecuteTransform),
}
"""Events that only datasets of this kind have (EV-02)."""
_RULES: Final[dict[type, Callable[[ChainState, Any], Iterator[Problem]]]] = {
    AddData: add_data,
    ExecuteTransform: execute_transform,
    SetPollingSource: polling_source,
    AddPushSource: push_source,
    DisablePollingSource: disable_polling_source,
    DisablePushSource: disable_push_source,
    SetTransform: transform,
    SetVocab: vocabulary,
    SetAttachments: attachments,
    SetDataSchema: data_schema,
}


def problems(state: ChainState, block: Block) -> Iterator[Problem]:
    """Yield all problems of the block as the next one of the chain, those of the link first."""
    content = block.content
    for problem in (*_link(state, content), *_seed(state, content), *_event(state, content), *_unknown(block)):
        placed = replace(problem, block=block.hash, number=block.content.sequence_number)
        yield judged(placed, state.doubts, state.unknown)


def append(state: ChainState, block: Block) -> ChainState:
    """Return the state after one more block. Raises EventInvalid if the specification or the reference refuses it."""
    for problem in problems(state, block):
        if problem.severity > Severity.NOTE:
            raise EventInvalid(str(problem))
    return advance(state, block)


def _unknown(block: Block) -> Iterator[Problem]:
    if block.unknown and not isinstance(block.content.event, Unknown):
        message = f"parts of a later version of ODF, not checked: {', '.join(block.unknown)}"
        yield Problem("UnknownParts", "EV-01", message, Severity.NOTE)


def _link(state: ChainState, content: MetadataBlock) -> Iterator[Problem]:
    if content.sequence_number != state.length:
        yield Problem("Sequence", "MB-02", f"sequence number {content.sequence_number} where {state.length} is next")
    if content.prev_block_hash != state.head:
        yield Problem("PrevBlock", "MB-03", f"it follows {content.prev_block_hash}, not the block before, {state.head}")
    elif content.prev_block_hash is not None and content.prev_block_hash.codec != Codec.SHA3_256:
        yield Problem("HashForm", "HS-11", f"it names the block before by {content.prev_block_hash.codec.name}")
    if state.system_time is not None and content.system_time < state.system_time:
        yield Problem("SystemTime", "MB-04", f"its time {content.system_time} is before the last, {state.system_time}")


def _seed(state: ChainState, content: MetadataBlock) -> Iterator[Problem]:
    is_seed = isinstance(content.event, Seed)
    if state.length == 0 and not is_seed:
        yield Problem("SeedFirst", "SEED-01", f"a chain starts with a Seed, not with {content.event.kind}")
    if state.length > 0 and is_seed:
        yield Problem("SeedAgain", "SEED-02", "a chain has one Seed, its first event")


def _event(state: ChainState, content: MetadataBlock) -> Iterator[Problem]:
    event = content.event
    if isinstance(event, Unknown):
        message = (
            f"its event (tag {event.tag}) is of a later version of ODF: not checked, nor is what depends on it in "
            "later blocks"
        )
        yield Problem("UnknownEvent", "EV-01", message, Severity.NOTE)
        return
    if state.seed is not None:
        kind = state.seed.dataset_kind
        for other, events in _KINDS.items():
            if other is not kind and isinstance(event, events):
                yield Problem(
                    "EventKind", "EV-02", f"{event.kind} in a {kind.value} dataset: only {other.value} ones have it"
                )
    if rule := _RULES.get(type(event)):
        yield from rule(state, event)
