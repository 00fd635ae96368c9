"""Chains made for tests, good ones and forged ones: nothing here asks the rules."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.odf.spec.arrow_schema import encode_schema
from kubothek.odf.spec.blocks import Block, Dialect
from kubothek.odf.spec.digest import logical_hash
from kubothek.odf.spec.events import (
    AddData,
    Checkpoint,
    DatasetKind,
    DataSlice,
    MetadataBlock,
    MetadataEvent,
    OffsetInterval,
    Seed,
    SetDataSchema,
)
from kubothek.odf.spec.identity import OwnerKey
from kubothek.odf.spec.layout import Layout, head_bytes
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.storage import Store

KEY = OwnerKey(bytes(range(32)))
NOON = Timestamp.of(datetime(2024, 1, 1, 12, tzinfo=UTC))
MINUTE = 60 * 10**9
_FIELDS: list[pa.Field[Any]] = [
    pa.field("offset", pa.int64()),
    pa.field("op", pa.int32(), nullable=False),
    pa.field("system_time", pa.timestamp("ms", "UTC"), nullable=False),
    pa.field("event_time", pa.timestamp("ms", "UTC")),
    pa.field("city", pa.string()),
    pa.field("population", pa.int64()),
]
SCHEMA = pa.schema(_FIELDS)


def later(minutes: int) -> Timestamp:
    return Timestamp(NOON.nanoseconds + minutes * MINUTE)


def rows(start: int, count: int, minutes: int = 0, **columns: Any) -> pa.Table:
    """Records from an offset on, with what ``columns`` says in place of the usual."""
    moment = later(minutes).nanoseconds // 10**6
    usual = {
        "offset": list(range(start, start + count)),
        "op": [0] * count,
        "system_time": [moment] * count,
        "event_time": [moment - 1000 * number for number in range(count)],
        "city": [None if number % 3 == 2 else f"city {number}" for number in range(start, start + count)],
        "population": list(range(count)),
    }
    values = {**usual, **columns}
    arrays = [pa.array(values[column.name], type=column.type) for column in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def changes(**columns: Any) -> pa.Table:
    """Records 3 to 6 after ``rows(0, 3, 1)``: one more, the first retracted, the second corrected."""
    moment = later(1).nanoseconds // 10**6
    usual = {
        "op": [0, 1, 2, 3],
        "city": ["new", "city 0", "city 1", "city 1"],
        "population": [9, 0, 1, 7],
        "event_time": [moment, moment, moment - 1000, moment - 1000],
    }
    return rows(3, 4, 2, **{**usual, **columns})


@dataclass
class Maker:
    """Writes blocks and what they name, one after the other, whatever they say."""

    store: Store
    layout: Layout = field(default_factory=Layout)
    dialect: Dialect = Dialect.UNALIGNED
    blocks: list[Block] = field(default_factory=list)

    def add(self, event: MetadataEvent, minutes: int = 0, **link: Any) -> Block:
        """One more block; ``link`` replaces what links it to the last."""
        usual = {
            "system_time": later(minutes),
            "prev_block_hash": self.blocks[-1].hash if self.blocks else None,
            "sequence_number": len(self.blocks),
        }
        content = MetadataBlock(event=event, **{**usual, **link})
        block = Block.encode(content, self.dialect)
        self.blocks.append(block)
        self.store.put(self.layout.block(block.hash), block.data)
        self.store.put(self.layout.head, head_bytes(block.hash))
        return block

    def start(self, schema: pa.Schema = SCHEMA) -> None:
        self.add(Seed(dataset_id=KEY.dataset_id, dataset_kind=DatasetKind.ROOT))
        self.add(SetDataSchema(raw_arrow_schema=encode_schema(schema)))

    def slice(self, table: pa.Table, start: int, **changed: Any) -> DataSlice:
        """A slice of these records, stored; ``changed`` replaces what is said of it."""
        buffer = io.BytesIO()
        dictionary: Any = ["op", "system_time"]
        pq.write_table(table, buffer, version="1.0", use_dictionary=dictionary, store_schema=False)
        return self.stored(buffer.getvalue(), table, start, **changed)

    def stored(self, data: bytes, table: pa.Table, start: int, **changed: Any) -> DataSlice:
        physical = Multihash.sha3(data)
        self.store.put(self.layout.data(physical), data)
        usual = {
            "logical_hash": logical_hash(table.schema, table.to_batches()),
            "physical_hash": physical,
            "offset_interval": OffsetInterval(start=start, end=start + table.num_rows - 1),
            "size": len(data),
        }
        return DataSlice(**{**usual, **changed})

    def checkpoint(self, content: bytes) -> Checkpoint:
        physical = Multihash.sha3(content)
        self.store.put(self.layout.checkpoint(physical), content)
        return Checkpoint(physical_hash=physical, size=len(content))

    def data(self, table: pa.Table, minutes: int = 0, **changed: Any) -> Block:
        """A block with these records, which go on where the last ended."""
        before = [block.content.event for block in self.blocks if isinstance(block.content.event, AddData)]
        ends = [event.new_data.offset_interval.end for event in before if event.new_data]
        last = ends[-1] if ends else None
        usual = {
            "prev_offset": last,
            "prev_checkpoint": before[-1].new_checkpoint.physical_hash
            if before and before[-1].new_checkpoint
            else None,
            "new_data": self.slice(table, 0 if last is None else last + 1),
            "new_watermark": later(minutes),
        }
        return self.add(AddData(**{**usual, **changed}), minutes)


def small(store: Store, layout: Layout | None = None, dialect: Dialect = Dialect.UNALIGNED) -> Maker:
    """A chain with two slices, corrections, and a checkpoint."""
    maker = Maker(store, layout or Layout(), dialect)
    maker.start()
    maker.data(rows(0, 3, 1), 1, new_checkpoint=maker.checkpoint(b"state 1"))
    maker.data(changes(), 2, new_checkpoint=maker.checkpoint(b"state 2"))
    return maker
