"""The state of a chain after some of its blocks: all that rules, sources and merges need to continue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pyarrow as pa

from kubothek.errors import FormatInvalid, UnsupportedVersion
from kubothek.odf.problems import ALL_DOUBTS, Doubt
from kubothek.odf.spec.blocks import Block
from kubothek.odf.spec.decode import NEWER, REMEDY
from kubothek.odf.spec.events import (
    AddData,
    AddPushSource,
    DisablePollingSource,
    DisablePushSource,
    ExecuteTransform,
    MetadataEvent,
    Seed,
    SetDataSchema,
    SetPollingSource,
    SetTransform,
    SetVocab,
    SourceState,
)
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.logical_types import columns_of
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.needed_version import needed_by_block
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.spec.unknown import Unknown
from kubothek.odf.spec.versions import SpecVersion


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The names of the common columns (SV-01)."""

    offset: str = "offset"
    op: str = "op"
    system_time: str = "system_time"
    event_time: str = "event_time"

    @classmethod
    def of(cls, event: SetVocab) -> Self:
        """Return the names that an event sets, with defaults for those it leaves out."""
        return cls(
            event.offset_column or "offset",
            event.operation_type_column or "op",
            event.system_time_column or "system_time",
            event.event_time_column or "event_time",
        )

    @property
    def names(self) -> tuple[str, str, str, str]:
        """All four names, in the order of a slice's columns."""
        return self.offset, self.op, self.system_time, self.event_time


@dataclass(frozen=True, slots=True)
class Consumed:
    """The position up to which a transformation has consumed one input."""

    block: Multihash | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainState:
    """The chain up to and including the block ``head``; the default is the empty chain.

    ``length``         number of blocks, and so the next sequence number
    ``last_offset``    of the last record, None if there is none
    ``last_slice``     the last slice, None if there is none
    ``checkpoint``     of the last data event, None if it has none
    ``schema``         that of later slices, None before SetDataSchema (or if that event cannot be read)
    ``data_schema``    the event that it is from
    ``version``        the version of the specification in which blocks are written; None: 0.34, as none needs a later;
                       no part of equality, because blocks do not say it
    ``source_states``  the last of each source, by its name
    ``push_sources``   the active ones, by name
    ``unknown``        number of the first block with an event of a later version, None if there is none
    ``doubts``         parts of the state that such an event may have changed; no part of equality, because a head does
                       not record which of them later data events have settled
    """

    length: int = 0
    head: Multihash | None = None
    system_time: Timestamp | None = None
    seed: Seed | None = None
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    schema: pa.Schema | None = None
    data_schema: SetDataSchema | None = None
    version: SpecVersion | None = field(default=None, compare=False)
    polling_source: SetPollingSource | None = None
    push_sources: Mapping[str, AddPushSource] = field(default_factory=dict)
    transform: SetTransform | None = None
    last_offset: int | None = None
    last_slice: Multihash | None = None
    checkpoint: Multihash | None = None
    watermark: Timestamp | None = None
    source_states: Mapping[str, SourceState] = field(default_factory=dict)
    consumed: Mapping[DatasetId, Consumed] = field(default_factory=dict)
    unknown: int | None = None
    doubts: Doubt = field(default=Doubt.NONE, compare=False)

    @property
    def next_offset(self) -> int:
        """The offset of the next record."""
        return 0 if self.last_offset is None else self.last_offset + 1

    def readable_schema(self) -> pa.Schema | None:
        """Return ``schema``; None only before SetDataSchema. Raises UnsupportedVersion for an unknown column type."""
        if self.schema is None and self.data_schema is not None:
            return columns_of(self.data_schema)  # raises, and names the column
        return self.schema

    def require_known(self) -> None:
        """Raise UnsupportedVersion if an event of a later version may have changed the state."""
        if self.unknown is not None:
            raise UnsupportedVersion(
                f"block {self.unknown} of the chain has an event {NEWER}, so the state after it is not known; {REMEDY}"
            )


def advance(state: ChainState, block: Block) -> ChainState:
    """Return the state after one more block, whether that is valid or not."""
    content = block.content
    change, is_unknown = _CHANGES.get(type(content.event)), isinstance(content.event, Unknown)
    return replace(
        state,
        length=state.length + 1,
        head=block.hash,
        system_time=content.system_time,
        version=_later(state.version, needed_by_block(block)),
        unknown=content.sequence_number if state.unknown is None and is_unknown else state.unknown,
        doubts=ALL_DOUBTS if is_unknown else state.doubts & ~_settled(content.event) if state.doubts else state.doubts,
        **(change(state, content.event) if change else {}),
    )


def _later(version: SpecVersion | None, needed: SpecVersion) -> SpecVersion | None:
    return version if needed <= (version or SpecVersion.V0_34) else needed


def _settled(event: MetadataEvent) -> Doubt:
    """Return the parts of the state that an event says itself, whatever they were before."""
    match event:
        case AddData() | ExecuteTransform():
            found = Doubt.OFFSET | Doubt.CHECKPOINT
            found |= Doubt.INPUTS if isinstance(event, ExecuteTransform) else Doubt.NONE
            return found if event.new_watermark is None else found | Doubt.WATERMARK
        case SetVocab():
            return Doubt.VOCABULARY
        case SetDataSchema():
            return Doubt.SCHEMA
        case SetTransform():
            return Doubt.TRANSFORM
    return Doubt.NONE  # sources: which others there are is still not known


def _data(state: ChainState, event: AddData | ExecuteTransform) -> dict[str, Any]:
    changed: dict[str, Any] = {
        "checkpoint": event.new_checkpoint.physical_hash if event.new_checkpoint else None,
        "watermark": event.new_watermark or state.watermark,
    }
    if Doubt.OFFSET in state.doubts:
        changed["last_offset"] = event.prev_offset
    if event.new_data:
        changed["last_offset"] = event.new_data.offset_interval.end
        changed["last_slice"] = event.new_data.physical_hash
    if isinstance(event, AddData):
        if event.new_source_state:
            changed["source_states"] = {
                **state.source_states,
                event.new_source_state.source_name: event.new_source_state,
            }
        return changed
    consumed = dict(state.consumed)
    for each in event.query_inputs:
        before = consumed.get(each.dataset_id, Consumed())
        if Doubt.INPUTS in state.doubts:
            before = Consumed(each.prev_block_hash, each.prev_offset)
        offset = before.offset if each.new_offset is None else each.new_offset
        consumed[each.dataset_id] = Consumed(each.new_block_hash or before.block, offset)
    return {**changed, "consumed": consumed}


def _schema(_: ChainState, event: SetDataSchema) -> dict[str, Any]:
    try:
        schema = columns_of(event)
    except (FormatInvalid, UnsupportedVersion):
        schema = None  # the rules report it
    return {"schema": schema, "data_schema": event}


_CHANGES: Any = {
    Seed: lambda _, event: {"seed": event},
    SetVocab: lambda _, event: {"vocabulary": Vocabulary.of(event)},
    SetDataSchema: _schema,
    SetPollingSource: lambda _, event: {"polling_source": event},
    DisablePollingSource: lambda _, event: {"polling_source": None},
    AddPushSource: lambda state, event: {"push_sources": {**state.push_sources, event.source_name: event}},
    DisablePushSource: lambda state, event: {
        "push_sources": {name: each for name, each in state.push_sources.items() if name != event.source_name}
    },
    SetTransform: lambda _, event: {"transform": event},
    AddData: _data,
    ExecuteTransform: _data,
}
