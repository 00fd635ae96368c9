"""A chain with an event, a member of a union and fields that no version of Open Data Fabric has yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flatbuffers

from kubothek.odf.spec.blocks import Block, Dialect
from kubothek.odf.spec.events import AddPushSource, DatasetKind, Seed
from kubothek.odf.spec.layout import head_bytes
from kubothek.odf.spec.multihash import Codec
from kubothek.odf.spec.sources import MergeStrategyAppend, ReadStepNdJson
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.storage import Store
from tests.odf.making import KEY, Maker, later

READ = ReadStepNdJson(ddl_schema=("id BIGINT", "model STRING"))
EVENTS = ["Seed", "AddPushSource", "Unknown", "SetInfo", "AddPushSource"]


def chain_of_later_version(store: Store) -> list[Block]:
    """A chain whose push source ``default`` is known; the rest is of a later version."""
    maker = Maker(store, dialect=Dialect.ALIGNED)
    maker.add(Seed(dataset_id=KEY.dataset_id, dataset_kind=DatasetKind.ROOT))
    maker.add(AddPushSource(source_name="default", read=READ, merge=MergeStrategyAppend()))
    blocks = list(maker.blocks)
    for tag, event, more in ((14, empty_event, False), (8, _info, True), (11, _source, False)):
        data = manifest(Codec.METADATA_BLOCK, 3, block_of(tag, event, before=blocks[-1], more=more))
        blocks.append(Block.decode(data))
        store.put(maker.layout.block(blocks[-1].hash), data)
    store.put(maker.layout.head, head_bytes(blocks[-1].hash))
    return blocks


def add_unknown(maker: Maker, tag: int = 14) -> Block:
    """One more block, with an event of a later version; it can have records, or change anything else."""
    before = maker.blocks[-1] if maker.blocks else None
    data = manifest(Codec.METADATA_BLOCK, 3, block_of(tag, empty_event, before=before))
    block = Block.decode(data)
    maker.blocks.append(block)
    maker.store.put(maker.layout.block(block.hash), data)
    maker.store.put(maker.layout.head, head_bytes(block.hash))
    return block


def manifest(kind: int, version: int, content: bytes | None) -> bytes:
    builder: Any = flatbuffers.Builder()
    inner = builder.CreateByteVector(content) if content is not None else 0
    builder.StartObject(3)
    builder.PrependInt64Slot(0, kind, 0)
    builder.PrependInt32Slot(1, version, 0)
    builder.PrependUOffsetTRelativeSlot(2, inner, 0)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


def block_of(tag: int, event: Callable[[Any], int], *, before: Block | None = None, more: bool = False) -> bytes:
    """A MetadataBlock with an event of some tag, perhaps with a field that no version has yet."""
    builder: Any = flatbuffers.Builder()
    content = event(builder)
    link = builder.CreateByteVector(bytes(before.hash)) if before else 0
    number = before.content.sequence_number + 1 if before else 0
    moment = max(later(number), before.content.system_time) if before else Timestamp(0)
    builder.StartObject(7)
    builder.Prep(4, 16)
    builder.head -= 16
    builder.Bytes[builder.head : builder.head + 16] = moment.pack()
    builder.Slot(0)
    builder.PrependUOffsetTRelativeSlot(1, link, 0)
    builder.PrependUint64Slot(2, number, 0)
    builder.PrependUint8Slot(3, tag, 0)
    builder.PrependUOffsetTRelativeSlot(4, content, 0)
    if more:
        builder.PrependUint64Slot(6, 7, 0)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


def empty_event(builder: Any) -> int:
    builder.StartObject(1)
    return int(builder.EndObject())


def _info(builder: Any) -> int:
    description = builder.CreateString("All planes")
    builder.StartObject(4)
    builder.PrependUOffsetTRelativeSlot(0, description, 0)
    builder.PrependUint64Slot(3, 9, 0)
    return int(builder.EndObject())


def _source(builder: Any) -> int:
    name = builder.CreateString("later")
    parts = [empty_event(builder), empty_event(builder)]
    builder.StartObject(7)
    builder.PrependUOffsetTRelativeSlot(0, name, 0)
    for slot, tag, part in ((1, 6, parts[0]), (5, 9, parts[1])):
        builder.PrependUint8Slot(slot, tag, 0)
        builder.PrependUOffsetTRelativeSlot(slot + 1, part, 0)
    return int(builder.EndObject())
