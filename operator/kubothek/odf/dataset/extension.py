"""New blocks of one transaction on top of a chain: all have one time, and the rules check each of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

from kubothek.errors import UnsupportedVersion
from kubothek.odf.dataset.definition import Chain
from kubothek.odf.dataset.slicing import Sliced
from kubothek.odf.spec.arrow_schema import encode_schema
from kubothek.odf.spec.blocks import Block
from kubothek.odf.spec.data_schema import ExtraAttributes
from kubothek.odf.spec.decode import NEWER
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
from kubothek.odf.spec.logical_types import from_arrow, logical_type
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.needed_version import dialect_of
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.spec.versions import SpecVersion
from kubothek.odf.validation.rules import append
from kubothek.storage import Store
from kubothek.table.log.model import keys
from kubothek.table.log.model.ledgers import ChainMove, LedgerChange
from kubothek.table.log.records import parallel

DEFAULT_SOURCE: Final = "default"
"""The name of the polling source, and of a push source without a name (SS-03)."""


class Extension:
    """New blocks on top of ``base``, which itself does not change.

    ``chain``  the chain with them
    """

    def __init__(self, base: Chain, now: Timestamp) -> None:
        """``now`` is the time of all blocks, or that of the last block, if that is later (MB-04)."""
        last = base.state.system_time
        self.system_time = max(now, last) if last is not None else now
        self.chain = base
        self._base = base
        self._blocks: list[Block] = []

    @property
    def version(self) -> SpecVersion:
        """The version of the specification in which blocks are written."""
        return self.chain.state.version or SpecVersion.V0_34

    @property
    def blocks(self) -> Sequence[Block]:
        """The new blocks, oldest first."""
        return self._blocks

    @property
    def lasting_source_state(self) -> SourceState | None:
        """The state that an event without a source repeats (AD-07): that of the active source, if there is only one.

        If the last data event lacks the state of a polling source, the reference stops polling: it assumes that the
        source cannot tell what is new.
        """
        state = self.chain.state
        active = [*state.push_sources] if state.polling_source is None else [DEFAULT_SOURCE]
        states = [state.source_states[name] for name in active if name in state.source_states]
        return states[0] if len(states) == 1 else None

    def add(self, event: MetadataEvent) -> None:
        """Add one block.

        Raises EventInvalid for an event that may not follow, InputError for what no block holds, UnsupportedVersion for
        an event with data after one of a later version.
        """
        state = self.chain.state
        if isinstance(event, AddData | ExecuteTransform):
            state.require_known()
        block = Block.encode(
            MetadataBlock(
                system_time=self.system_time, prev_block_hash=state.head, sequence_number=state.length, event=event
            ),
            dialect_of(self.version),
        )
        self.take(block)

    def take(self, block: Block) -> None:
        """Add one block, as it is. Raises EventInvalid."""
        self.chain = self.chain.after(block, append)
        self._blocks.append(block)

    def set_schema(self, schema: pa.Schema) -> None:
        """Set the schema of later slices, if it differs from the present one (WR-06).

        An Arrow schema before specification 0.37, an ODF schema since, or if the chain has one already: attributes of
        its columns stay. Raises UnsupportedVersion if this version cannot read the present one.
        """
        state = self.chain.state
        event, present = state.data_schema, state.readable_schema()
        if self.version < SpecVersion.V0_37 and (event is None or event.schema is None):
            if present is None or not present.equals(schema):
                self.add(SetDataSchema(raw_arrow_schema=encode_schema(schema)))
        elif present is None or not _same_columns(present, schema):
            self.add(SetDataSchema(schema=from_arrow(schema, None if event is None else event.schema)))

    def add_slices(
        self, slices: Sequence[Sliced], source: str, state: SourceState | None, checkpoint: Checkpoint | None
    ) -> None:
        """Add one event for each of these slices, which come from one ingest of a source.

        The events repeat the previous state of the source, except the last, which has ``state`` (AD-07). The watermark
        is the greatest event time so far (TIM-05).
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
        extra: ExtraAttributes | None = None,
    ) -> None:
        """Add one AddData, with the fields that repeat or continue those of the last data event (AD-02 … AD-07)."""
        state = self.chain.state
        self.add(
            AddData(
                prev_checkpoint=state.checkpoint,
                prev_offset=state.last_offset,
                new_data=data,
                new_checkpoint=checkpoint,
                new_watermark=self._not_before(watermark),
                new_source_state=source_state,
                extra=extra,
            )
        )

    def add_run(
        self,
        inputs: Sequence[ExecuteTransformInput],
        data: DataSlice | None,
        watermark: Timestamp | None,
        checkpoint: Checkpoint | None,
    ) -> None:
        """Add one ExecuteTransform, otherwise as :meth:`add_data` (ET-01, DT-07)."""
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
        """Return the later one of this watermark and the present one: a watermark never goes back."""
        marks = [mark for mark in (self.chain.state.watermark, watermark) if mark is not None]
        return max(marks, default=None)

    @property
    def change(self) -> LedgerChange:
        """The part of the commit that concerns the chain."""
        base, head = self._base.state.head, self.chain.state.head
        assert head is not None, "a chain has a seed"
        return LedgerChange(move_of(base, head, self._blocks), self.chain.note)

    def write(self, store: Store, uuid: str) -> None:
        """Store the blocks, and the chain's definition if it changed; slices are stored already. Raises StoreError."""
        layout = Layout(keys.chain(uuid))
        parallel(lambda block: store.put(layout.block(block.hash), block.data), list(self._blocks))
        if self.chain.definition is not self._base.definition:
            data = self.chain.definition.render()
            store.put(keys.definition(uuid, self.chain.definition.name), data)


def require_known(block: Block) -> None:
    """Raise UnsupportedVersion for a block that cannot be written again: a part of it would be lost."""
    if block.unknown:
        raise UnsupportedVersion(
            f"block {block.content.sequence_number}: {NEWER} ({', '.join(block.unknown)}), and writing it again would "
            "lose that; do it with a newer version of Kubothek"
        )


def _same_columns(one: pa.Schema, other: pa.Schema) -> bool:
    return one.names == other.names and all(
        logical_type(field) == logical_type(two) for field, two in zip(one, other, strict=True)
    )


def move_of(base: Multihash | None, head: Multihash, blocks: Iterable[Block]) -> ChainMove:
    """Return the move from one block to another with these blocks, and all objects that they name.

    The collector relies on it while the commit record is retained, so it has to be complete, with objects from before.
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
