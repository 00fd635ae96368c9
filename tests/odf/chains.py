"""Events and states for the tests of the rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kubothek.errors import EventInvalid
from kubothek.odf.problems import Severity
from kubothek.odf.spec.arrow_schema import encode_schema
from kubothek.odf.spec.blocks import Block
from kubothek.odf.spec.events import (
    AddData,
    AddPushSource,
    Checkpoint,
    DatasetKind,
    DataSlice,
    MetadataBlock,
    MetadataEvent,
    OffsetInterval,
    Seed,
    SetDataSchema,
    SetInfo,
    SetPollingSource,
    SetTransform,
    SourceState,
    TransformInput,
)
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.multihash import Codec, Multihash
from kubothek.odf.spec.sources import (
    FetchStepUrl,
    MergeStrategyAppend,
    ReadStepCsv,
    SqlQueryStep,
    TransformSql,
)
from kubothek.odf.spec.unknown import Unknown
from kubothek.odf.validation.rules import append, problems
from kubothek.odf.validation.state import ChainState, advance
from tests.odf.making import KEY, SCHEMA, later

A, B, C = (DatasetId(bytes([number]) * 32) for number in (1, 2, 3))
H1, H2, H3 = (Multihash.sha3(bytes([number])) for number in (1, 2, 3))
ROOT = Seed(dataset_id=KEY.dataset_id, dataset_kind=DatasetKind.ROOT)
DERIVATIVE = Seed(dataset_id=KEY.dataset_id, dataset_kind=DatasetKind.DERIVATIVE)
COLUMNS = SetDataSchema(raw_arrow_schema=encode_schema(SCHEMA))
CSV = ReadStepCsv(ddl_schema=("x BIGINT",))
PUSH = AddPushSource(source_name="p", read=CSV, merge=MergeStrategyAppend())
POLL = SetPollingSource(fetch=FetchStepUrl(url="https://x"), read=CSV, merge=MergeStrategyAppend())
SQL = TransformSql(engine="spark", queries=(SqlQueryStep(query="SELECT 1"),))
TRANSFORM = SetTransform(
    inputs=(TransformInput(dataset_ref=str(A), alias="a"), TransformInput(dataset_ref=str(B), alias="b")), transform=SQL
)
STATE = SourceState(source_name="default", kind="odf/etag", value="1")


def data(start: int, end: int, **changed: Any) -> DataSlice:
    usual = {
        "logical_hash": Multihash(Codec.ARROW0_SHA3_256, H1.digest),
        "physical_hash": H1,
        "offset_interval": OffsetInterval(start=start, end=end),
        "size": 10,
    }
    return DataSlice(**{**usual, **changed})


def checkpoint(physical: Multihash) -> Checkpoint:
    return Checkpoint(physical_hash=physical, size=1)


def block(state: ChainState, event: MetadataEvent, **link: Any) -> Block:
    usual = {"system_time": later(state.length), "prev_block_hash": state.head, "sequence_number": state.length}
    return Block.encode(MetadataBlock(event=event, **{**usual, **link}))


def chain(*events: MetadataEvent) -> ChainState:
    """The state after good events."""
    state = ChainState()
    for event in events:
        state = append(state, block(state, event))
    return state


def found(state: ChainState, event: MetadataEvent, **link: Any) -> list[tuple[str, str]]:
    """The codes and rules of what is wrong; and whatever is not a note is not appended."""
    next_block = block(state, event, **link) if not isinstance(event, Unknown) else _unknown(state, event)
    wrong = list(problems(state, next_block))
    assert all(problem.block == next_block.hash for problem in wrong)
    if any(problem.severity > Severity.NOTE for problem in wrong):
        with pytest.raises(EventInvalid):
            append(state, next_block)
    else:
        assert append(state, next_block) == advance(state, next_block)
    return [(problem.code, problem.rule) for problem in wrong]


def _unknown(state: ChainState, event: Unknown) -> Block:
    known = block(state, SetInfo())
    return replace(known, content=replace(known.content, event=event))


def seeded() -> ChainState:
    return chain(ROOT, COLUMNS)


def fed() -> ChainState:
    """Two data events: records 0 to 9, a checkpoint, a watermark, a source state."""
    one = AddData(new_data=data(0, 4), new_checkpoint=checkpoint(H1), new_watermark=later(1), new_source_state=STATE)
    two = AddData(
        prev_offset=4, prev_checkpoint=H1, new_data=data(5, 9), new_checkpoint=checkpoint(H2), new_watermark=later(2)
    )
    return chain(ROOT, COLUMNS, one, two)


NEXT = AddData(
    prev_offset=9, prev_checkpoint=H2, new_data=data(10, 10), new_checkpoint=checkpoint(H3), new_watermark=later(3)
)
