"""The runs of a chain in a form that can be replayed, each with the part of its inputs that it consumed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from kubothek.errors import FormatInvalid, InputDiverged, UnsupportedVersion
from kubothek.odf.chain import Stored
from kubothek.odf.derived.batching import Batch, InputBatch, Waiting, batch_of
from kubothek.odf.derived.links import NOTHING, Link
from kubothek.odf.derived.running import Task, sql_of
from kubothek.odf.spec.events import Checkpoint, DataSlice, ExecuteTransform, ExecuteTransformInput, SetTransform
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.validation.state import ChainState, Consumed, advance


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One ExecuteTransform: its input and its result. Plain data, serialisable.

    ``schema``       of slices, None before the first slice
    ``next_offset``  of its first record
    ``before``       the checkpoint that it started from
    """

    block: Multihash
    number: int
    task: Task
    schema: pa.Schema | None
    next_offset: int
    before: Multihash | None
    data: DataSlice | None
    checkpoint: Checkpoint | None
    watermark: Timestamp | None

    @property
    def left(self) -> Multihash | None:
        """Return the checkpoint that it wrote."""
        return None if self.checkpoint is None else self.checkpoint.physical_hash


@dataclass(frozen=True, slots=True)
class Past:
    """All blocks of one input, oldest first; ``places`` are their positions, ``watermarks`` those after each block."""

    links: Sequence[Link]
    places: Mapping[Multihash, int] = field(init=False)
    watermarks: Sequence[Timestamp | None] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "places", {link.block: place for place, link in enumerate(self.links)})
        marks: list[Timestamp | None] = []
        for link in self.links:
            marks.append(link.watermark or (marks[-1] if marks else None))
        object.__setattr__(self, "watermarks", marks)

    def after(self, block: Multihash | None, alias: str) -> int:
        """Return the position after this block. Raises InputDiverged."""
        if block is None:
            return 0
        if (place := self.places.get(block)) is None:
            raise InputDiverged(
                f"block {block} of input {alias!r}, which was consumed, is no longer in its chain: it was "
                "compacted, moved back or replaced. Reset the derivative dataset to rebuild it from the present chain"
            )
        return place + 1


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A run that cannot be replayed: its block, and the reason."""

    block: Multihash
    number: int
    error: InputDiverged | UnsupportedVersion


def recorded(blocks: Sequence[Stored], pasts: Mapping[DatasetId, Past]) -> Iterator[Recorded | Unreadable]:
    """Yield the runs of a sound chain, oldest first, up to the first that cannot be replayed. Raises FormatInvalid."""
    state = ChainState()
    for stored in blocks:
        block = stored.decode()
        event, content = block.content.event, block.content
        if isinstance(event, ExecuteTransform):
            try:
                state.require_known()
                transform = state.transform
                if transform is None or state.seed is None:
                    raise FormatInvalid(f"block {block.hash} runs a transformation before there is one")
                state.readable_schema()
                sql = sql_of(transform.transform)
                taken = Batch(inputs=tuple(_inputs(state, transform, event, pasts)))
            except (InputDiverged, UnsupportedVersion) as error:
                yield Unreadable(block.hash, content.sequence_number, error)
                return
            yield Recorded(
                block=block.hash,
                number=content.sequence_number,
                task=Task(
                    transform=sql,
                    vocabulary=state.vocabulary,
                    batch=taken,
                    system_time=content.system_time,
                    previous_watermark=state.watermark,
                    dataset_id=state.seed.dataset_id,
                    next_offset=state.next_offset,
                ),
                schema=state.schema,
                next_offset=state.next_offset,
                before=state.checkpoint,
                data=event.new_data,
                checkpoint=event.new_checkpoint,
                watermark=event.new_watermark,
            )
        state = advance(state, block)


def _inputs(
    state: ChainState, transform: SetTransform, event: ExecuteTransform, pasts: Mapping[DatasetId, Past]
) -> Iterator[InputBatch]:
    aliases = {DatasetId.parse(each.dataset_ref): each.alias or each.dataset_ref for each in transform.inputs}
    for each in event.query_inputs:
        yield _taken(each, aliases[each.dataset_id], pasts[each.dataset_id], state)


def _taken(each: ExecuteTransformInput, alias: str, past: Past, state: ChainState) -> InputBatch:
    first = past.after(each.prev_block_hash, alias)
    last = past.after(each.new_block_hash, alias) if each.new_block_hash is not None else first
    if last and (unknown := past.links[last - 1].unknown):
        raise UnsupportedVersion(f"input {alias!r}: {unknown}")
    waiting = Waiting(
        id=each.dataset_id,
        alias=alias,
        consumed=state.consumed.get(each.dataset_id, Consumed()),
        links=past.links[first:],
        shape=past.links[first - 1].shape if first else NOTHING,
        last_offset=None,
        previous_watermark=past.watermarks[first - 1] if first else None,
    )
    return batch_of(waiting, past.links[first:last])
