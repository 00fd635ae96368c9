"""New blocks on top of a chain, as one transaction puts them there: all of one time, each checked by the rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

from kubothek.odf.dataset.definition import Chain
from kubothek.odf.dataset.slicing import Sliced
from kubothek.odf.spec.arrow_schema import encode_schema
from kubothek.odf.spec.blocks import Block
from kubothek.odf.spec.events import (
    AddData,
    Checkpoint,
    DataSlice,
    ExecuteTransform,
    ExecuteTransformInput,
    MetadataBlock,
    MetadataEvent,
    SetDataSchema,
    SourceState,
)
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.validation.rules import append
from kubothek.storage import Store
from kubothek.table.log.model import keys
from kubothek.table.log.model.ledgers import ChainMove, LedgerChange
from kubothek.table.log.records import parallel

DEFAULT_SOURCE: Final = "default"
"""The name of the polling source, and of the push source that is not named (SS-03)."""


class Extension:
    """Blocks that go on top of ``base``, which starts as the present chain and stays what it was.

    ``chain``  what it amounts to with them
    """

    def __init__(self, base: Chain, now: Timestamp) -> None:
        """``now`` is the time of all blocks, or that of the last block, if that is later (MB-04)."""
        last = base.state.system_time
        self.system_time = max(now, last) if last is not None else now
        self.chain = base
        self._base = base
        self._blocks: list[Block] = []

    @property
    def blocks(self) -> Sequence[Block]:
        """The new ones, oldest first."""
        return self._blocks

    @property
    def lasting_source_state(self) -> SourceState | None:
        """What an event that no source brought repeats (AD-07): the state of the source that is active, if it is one.

        The reference takes a polling source whose state is not in the last data event for one that cannot tell what is
        new, and polls it no more.
        """
        state = self.chain.state
        active = [*state.push_sources] if state.polling_source is None else [DEFAULT_SOURCE]
        states = [state.source_states[name] for name in active if name in state.source_states]
        return states[0] if len(states) == 1 else None

    def add(self, event: MetadataEvent) -> None:
        """One more block. Raises EventInvalid for an event that may not follow, InputError for what no block holds."""
        state = self.chain.state
        block = Block.encode(
            MetadataBlock(
                system_time=self.system_time, prev_block_hash=state.head, sequence_number=state.length, event=event
            )
        )
        self.take(block)

    def take(self, block: Block) -> None:
        """One more block, as it is. Raises EventInvalid."""
        self.chain = self.chain.after(block, append)
        self._blocks.append(block)

    def set_schema(self, schema: pa.Schema) -> None:
        """The schema of slices to come, if it is not that already (WR-06)."""
        if self.chain.state.schema is None or not self.chain.state.schema.equals(schema):
            self.add(SetDataSchema(schema=encode_schema(schema)))

    def add_slices(
        self, slices: Sequence[Sliced], source: str, state: SourceState | None, checkpoint: Checkpoint | None
    ) -> None:
        """The events of these slices, which came in one go from a source: one each.

        The source's state of before is repeated until all of its rows are there, then ``state`` is (AD-07); the
        watermark is the greatest event time so far (TIM-05).
        """
        before = self.chain.state.source_states.get(source)
        for number, each in enumerate(slices, 1):
            known = (state or before) if number == len(slices) else before
            self.add_data(each.data, each.latest, known, checkpoint)

    def add_data(
        self,
        data: DataSlice | None,
        watermark: Timestamp | None,
        source_state: SourceState | None,
        checkpoint: Checkpoint | None,
    ) -> None:
        """One AddData, with all that the last one left and that must be repeated (AD-02 … AD-07)."""
        state = self.chain.state
        self.add(
            AddData(
                prev_checkpoint=state.checkpoint,
                prev_offset=state.last_offset,
                new_data=data,
                new_checkpoint=checkpoint,
                new_watermark=self._not_before(watermark),
                new_source_state=source_state,
            )
        )

    def add_run(
        self,
        inputs: Sequence[ExecuteTransformInput],
        data: DataSlice | None,
        watermark: Timestamp | None,
        checkpoint: Checkpoint | None,
    ) -> None:
        """One ExecuteTransform, as :meth:`add_data` otherwise (ET-01, DT-07)."""
        state = self.chain.state
        self.add(
            ExecuteTransform(
                query_inputs=tuple(inputs),
                prev_checkpoint=state.checkpoint,
                prev_offset=state.last_offset,
                new_data=data,
                new_checkpoint=checkpoint,
                new_watermark=self._not_before(watermark),
            )
        )

    def _not_before(self, watermark: Timestamp | None) -> Timestamp | None:
        """A watermark never goes back."""
        marks = [mark for mark in (self.chain.state.watermark, watermark) if mark is not None]
        return max(marks, default=None)

    @property
    def change(self) -> LedgerChange:
        """What of the commit concerns the chain."""
        base, head = self._base.state.head, self.chain.state.head
        assert head is not None, "a chain has a seed"
        return LedgerChange(move_of(base, head, self._blocks), self.chain.note)

    def write(self, store: Store, uuid: str) -> None:
        """Store the blocks, and the chain's definition if it is another one; slices are there. Raises StoreError."""
        layout = Layout(keys.chain(uuid))
        parallel(lambda block: store.put(layout.block(block.hash), block.data), list(self._blocks))
        if self.chain.definition is not self._base.definition:
            data = self.chain.definition.render()
            store.put(keys.definition(uuid, self.chain.definition.name), data)


def move_of(base: Multihash | None, head: Multihash, blocks: Iterable[Block]) -> ChainMove:
    """The move from one block to another that brings these blocks, and all that they name.

    A collector goes by it for as long as the record is kept, so nothing may be left out, written now or before.
    """
    brought = [*blocks]
    events = [each.content.event for each in brought if isinstance(each.content.event, AddData | ExecuteTransform)]
    slices = (event.new_data.physical_hash for event in events if event.new_data)
    checkpoints = (event.new_checkpoint.physical_hash for event in events if event.new_checkpoint)
    return ChainMove(
        base=None if base is None else str(base),
        head=str(head),
        blocks=tuple(str(each.hash) for each in brought),
        data=tuple(dict.fromkeys(map(str, slices))),
        checkpoints=tuple(dict.fromkeys(map(str, checkpoints))),
    )
