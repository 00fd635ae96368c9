"""Hard compaction: the chain is rewritten with fewer, larger slices (``kamu system compact``; left open by ODF).

Slices of consecutive data events become one while they stay below the limits; any other event ends such a group.
Records keep their offsets and their times, so the table stays as it is. From the seed on, the blocks are new, with the
present time: it is another chain of the same dataset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from kubothek.errors import ChainCorrupt
from kubothek.odf.chain import read_chain
from kubothek.odf.dataset.definition import Chain
from kubothek.odf.dataset.extension import Extension, require_known
from kubothek.odf.dataset.ingesting import Ground, Made
from kubothek.odf.dataset.slicing import cast_column
from kubothek.odf.spec.events import AddData, DataSlice, MetadataEvent
from kubothek.odf.validation.slices import Expected, read_batches
from kubothek.odf.validation.verification import verify
from kubothek.table.log import Change, Operation


@dataclass
class _Group:
    """Data events that become one, as far as memory allows."""

    events: list[AddData] = field(default_factory=list)

    @property
    def slices(self) -> list[DataSlice]:
        return [event.new_data for event in self.events if event.new_data]

    @property
    def sources(self) -> set[str]:
        return {event.new_source_state.source_name for event in self.events if event.new_source_state}

    def takes(self, event: AddData, slice_bytes: int, slice_records: int | None) -> bool:
        """Return whether one more event fits. An event has room for the state of one source, and own attributes."""
        if self.events and any(each.extra is not None for each in (event, *self.events)):
            return False
        slices = [*self.slices, *([event.new_data] if event.new_data else [])]
        records = sum(each.offset_interval.end - each.offset_interval.start + 1 for each in slices)
        within = sum(each.size for each in slices) <= slice_bytes
        known = {event.new_source_state.source_name} if event.new_source_state else set[str]()
        few = slice_records is None or records <= slice_records
        return not self.events or (within and few and len(self.sources | known) <= 1)


def compact(ground: Ground, slice_bytes: int, slice_records: int | None) -> Made | None:
    """Return the chain with larger slices; None if it would have as many blocks as before.

    Raises ChainCorrupt if the chain, or the result, is not sound.
    """
    _require_sound(ground, ground.chain, "the chain")
    times = [time for time in (ground.now, ground.chain.state.system_time) if time is not None]
    extension = Extension(ground.chain.emptied(), max(times))
    for group in _groups(ground, slice_bytes, slice_records):
        if isinstance(group, _Group):
            _rewrite(ground, extension, group, slice_bytes)
        else:
            extension.add(group)
    if len(extension.blocks) >= ground.chain.state.length:
        return None
    extension.write(ground.store, ground.uuid)
    _require_sound(ground, extension.chain, "the chain that was made of it")
    ledger = extension.change
    ledger = replace(ledger, move=replace(ledger.move, base=str(ground.chain.state.head)))
    change = Change(operation=Operation.LEDGER, ledger=ledger, by=ground.by)
    return Made(change=change, extension=extension)


def _groups(ground: Ground, slice_bytes: int, slice_records: int | None) -> Iterator[_Group | MetadataEvent]:
    group = _Group()
    for stored in read_chain(ground.store, ground.layout, ground.chain.state.head):
        block = stored.decode()
        require_known(block)
        event = block.content.event
        if isinstance(event, AddData):
            if not group.takes(event, slice_bytes, slice_records):
                yield group
                group = _Group()
            group.events.append(event)
            continue
        if group.events:
            yield group
            group = _Group()
        yield event
    if group.events:
        yield group


def _rewrite(ground: Ground, extension: Extension, group: _Group, slice_bytes: int) -> None:
    """Add one event for the group, or several if its rows take too much memory; the last has the final state."""
    state, last = extension.chain.state, group.events[-1]
    states = [event.new_source_state for event in group.events if event.new_source_state]
    known = states[-1] if states else None
    written: Sequence[DataSlice | None] = group.slices or [None]
    if len(written) > 1:
        schema = state.schema
        assert schema is not None, "a sound chain has one before it has slices"
        with replace(ground, slice_bytes=slice_bytes).slice_writer(schema, state, extension.system_time) as writer:
            for batch in _records(ground, extension, group.slices, schema):
                writer.take(batch)
            written = [each.data for each in writer.finish()]
    for number, data in enumerate(written, 1):
        final = number == len(written)
        mark, state_now = (last.new_watermark, known) if final else (None, None)
        extension.add_data(data, mark, state_now, last.new_checkpoint, last.extra if final else None)


def _records(
    ground: Ground, extension: Extension, slices: Sequence[DataSlice], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for each in slices:
        expected = Expected(
            data=each,
            vocabulary=extension.chain.state.vocabulary,
            schema=schema,
            block=each.physical_hash,
            number=extension.chain.state.length,
        )
        for batch in read_batches(ground.store, ground.layout, expected):
            # slices of other writers may differ in nullability, and in the memory layout of texts
            columns = [cast_column(column, field) for column, field in zip(batch.columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _require_sound(ground: Ground, chain: Chain, what: str) -> None:
    if (problem := verify(ground.store, ground.layout, chain.state.head).first) is not None:
        raise ChainCorrupt(f"{what} of {ground.uuid!r} is not sound, and nothing was changed: {problem}")
