"""The rules of the events that bring data: AddData and ExecuteTransform (AD-01 … AD-11, DS, SS, ET)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubothek.errors import FormatInvalid
from kubothek.odf.problems import Doubt, Problem, Severity
from kubothek.odf.spec.events import AddData, DataSlice, ExecuteTransform, ExecuteTransformInput, SourceState
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.multihash import Codec
from kubothek.odf.spec.object_links import summary_fault
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.validation.state import ChainState, Consumed

_CONTENT: Final = Doubt.CHECKPOINT | Doubt.WATERMARK | Doubt.SOURCES
"""What an event changes if it has no data."""


def add_data(state: ChainState, event: AddData) -> Iterator[Problem]:
    """Yield the problems of AddData."""
    try:
        if (fault := summary_fault(event)) is not None:
            yield Problem("LinkSummary", "OL-04", fault, Severity.REFUSED)
    except FormatInvalid as error:
        yield Problem("LinkSummary", "OL-04", str(error), Severity.REFUSED)
    yield from _data(state, event)
    known = event.new_source_state
    if known:
        yield from _source_state(known)
    carried = [event.new_data, event.new_checkpoint, event.new_watermark, known]
    if all(each is None for each in carried):
        yield Problem("EmptyEvent", "AD-09", "AddData has no content", Severity.REFUSED)
    elif _same(state, event) and (known is None or state.source_states.get(known.source_name) == known):
        yield Problem("NoOpEvent", "AD-10", "AddData changes nothing", Severity.REFUSED, depends=_CONTENT)


def execute_transform(state: ChainState, event: ExecuteTransform) -> Iterator[Problem]:
    """Yield the problems of ExecuteTransform."""
    yield from _data(state, event)
    yield from _inputs(state, event)
    if _same(state, event):
        consumed = any(each.new_block_hash for each in event.query_inputs)
        # the later reference accepts a run that only consumed inputs
        severity = Severity.NOTE if consumed else Severity.REFUSED
        yield Problem("NoOpEvent", "ET-06", "ExecuteTransform changes nothing", severity, depends=_CONTENT)


def _same(state: ChainState, event: AddData | ExecuteTransform) -> bool:
    checkpoint = event.new_checkpoint.physical_hash if event.new_checkpoint else None
    watermark = event.new_watermark or state.watermark
    return event.new_data is None and checkpoint == state.checkpoint and watermark == state.watermark


def _data(state: ChainState, event: AddData | ExecuteTransform) -> Iterator[Problem]:
    if event.prev_offset != state.last_offset:
        message = f"prevOffset is {event.prev_offset}, the last record's offset {state.last_offset}"
        # whatever an unknown event did: offsets only grow
        went_back = _number(event.prev_offset) < _number(state.last_offset)
        yield Problem("PrevOffset", "AD-02", message, depends=Doubt.NONE if went_back else Doubt.OFFSET)
    if event.prev_checkpoint != state.checkpoint:
        message = f"prevCheckpoint is {event.prev_checkpoint}, the last data event left {state.checkpoint}"
        yield Problem("PrevCheckpoint", "AD-04", message, depends=Doubt.CHECKPOINT)
    if state.watermark is not None and (event.new_watermark is None or event.new_watermark < state.watermark):
        message = f"the watermark goes from {state.watermark} to {event.new_watermark}; it never goes back"
        yield Problem("Watermark", "AD-06", message)
    if event.new_data:
        if state.data_schema is None:
            yield Problem(
                "NoSchema", "AD-11", "it has data before SetDataSchema defines the columns", depends=Doubt.SCHEMA
            )
        start = _number(event.prev_offset) + 1 if Doubt.OFFSET in state.doubts else state.next_offset
        yield from _slice(start, event.new_data)
    if event.new_checkpoint and event.new_checkpoint.physical_hash.codec != Codec.SHA3_256:
        yield Problem("HashForm", "DS-02", f"a checkpoint hashed by {event.new_checkpoint.physical_hash.codec.name}")


def _number(offset: int | None) -> int:
    return -1 if offset is None else offset


def _slice(start: int, data: DataSlice) -> Iterator[Problem]:
    interval = data.offset_interval
    if interval.start != start or interval.end < interval.start:
        message = f"records {interval.start} to {interval.end}, where {start} is the next offset"
        yield Problem("Offsets", "AD-03", message)
    if (data.physical_hash.codec, data.logical_hash.codec) != (Codec.SHA3_256, Codec.ARROW0_SHA3_256):
        used = f"{data.physical_hash.codec.name} and {data.logical_hash.codec.name}"
        yield Problem("HashForm", "DS-01", f"a slice is hashed by SHA3_256 and ARROW0_SHA3_256, not by {used}")


def _source_state(state: SourceState) -> Iterator[Problem]:
    if state.kind == "odf/last-modified":
        try:
            Timestamp.parse(state.value)
        except FormatInvalid as error:
            yield Problem("SourceState", "SS-01", f"odf/last-modified: {error}", Severity.REFUSED)


# --- the inputs of a transformation ----------------------------------------------------------------------------------


def _inputs(state: ChainState, event: ExecuteTransform) -> Iterator[Problem]:
    used = [each.dataset_id for each in event.query_inputs]
    if state.transform is None:
        yield Problem("NoTransform", "ET-05", "ExecuteTransform before any SetTransform", depends=Doubt.TRANSFORM)
    else:
        declared = [DatasetId.parse(each.dataset_ref) for each in state.transform.inputs if _is_id(each.dataset_ref)]
        if set(used) != set(declared) or len(used) != len(declared):
            message = "its inputs are not those of SetTransform, each once"
            yield Problem("Inputs", "ET-01", message, depends=Doubt.TRANSFORM)
        elif used != declared:
            message = "its inputs are not in the order of SetTransform"
            yield Problem("InputsOrder", "ET-05", message, Severity.REFUSED, depends=Doubt.TRANSFORM)
    for each in event.query_inputs:
        yield from _input(state.consumed.get(each.dataset_id, Consumed()), each)


def _input(before: Consumed, each: ExecuteTransformInput) -> Iterator[Problem]:
    name = f"input {each.dataset_id}: "
    if (each.prev_block_hash, each.prev_offset) != (before.block, before.offset):
        message = f"it continues from block {each.prev_block_hash}, offset {each.prev_offset}"
        message = f"{name}{message}, consumed were {before.block}, {before.offset}"
        yield Problem("InputLink", "ET-03", message, depends=Doubt.INPUTS)
    if each.new_block_hash is not None and each.new_block_hash == each.prev_block_hash:
        yield Problem("InputLink", "ET-04", f"{name}newBlockHash is prevBlockHash", Severity.REFUSED)
    if each.new_offset is not None:
        if each.new_block_hash is None:
            yield Problem("InputLink", "ET-04", f"{name}newOffset without newBlockHash", Severity.REFUSED)
        if each.prev_offset is not None and each.new_offset <= each.prev_offset:
            yield Problem("InputLink", "ET-02", f"{name}offsets go from {each.prev_offset} to {each.new_offset}")


def _is_id(reference: str) -> bool:
    try:
        DatasetId.parse(reference)
    except FormatInvalid:
        return False
    return True
