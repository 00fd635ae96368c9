"""The blocks of an input, reduced to what a transformation needs: records, watermarks and columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from kubothek.errors import ChainCorrupt, FormatInvalid, InputDiverged, InputMissing, ObjectNotFound, UnsupportedVersion
from kubothek.odf.chain import BrokenChain, Stored, read_chain
from kubothek.odf.dataset.parts import moment
from kubothek.odf.derived.inputs import Input
from kubothek.odf.spec.blocks import Block
from kubothek.odf.spec.events import AddData, ExecuteTransform, SetDataSchema, SetVocab
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.spec.unknown import Unknown
from kubothek.odf.validation.state import ChainState, Vocabulary, advance
from kubothek.odf.view import Part
from kubothek.storage import Store


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of records: the schema, None before the first record, and the names of the system columns."""

    vocabulary: Vocabulary
    schema: pa.Schema | None

    @classmethod
    def of(cls, state: ChainState) -> Shape:
        """Return the columns of the next records. Raises UnsupportedVersion for an unknown column type."""
        return cls(state.vocabulary, state.readable_schema())


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One block.

    ``part``       the slice that it adds, of ``bytes`` bytes
    ``watermark``  of the event, if it is one with data (DT-04)
    ``shape``      after it
    ``unknown``    why records after it cannot be read: something of a later version is in it, or before; else empty
    """

    block: Multihash
    number: int
    system_time: Timestamp
    shape: Shape
    part: Part | None = None
    bytes: int = 0
    watermark: Timestamp | None = None
    unknown: str = ""

    @property
    def records(self) -> int:
        """Return the number of records that it adds."""
        return 0 if self.part is None else self.part.end - self.part.start + 1


NOTHING: Final = Shape(Vocabulary(), None)
"""The columns before the first block."""


def new_links(store: Store, source: Input, after: Multihash | None) -> tuple[Shape, list[Link]]:
    """Return the columns of an input at block ``after``, and the blocks after it, oldest first; None: all blocks.

    The cost is proportional to the new blocks; if these change columns, all blocks are read. Raises InputDiverged if
    ``after`` is no longer in the chain, InputMissing if the chain cannot be read, UnsupportedVersion for an unknown
    type of a column and an event of a later version.
    """
    try:
        source.chain.state.require_known()
        return _new_links(store, source, after)
    except UnsupportedVersion as error:
        raise UnsupportedVersion(f"input {source.uuid!r}: {error}") from None


def all_links(store: Store, source: Input) -> list[Link]:
    """Return all blocks of an input, oldest first, also those that this version cannot read. Otherwise as above."""
    return [*_links(source.layout, (_decoded(source, each) for each in _read(store, source, None)), ChainState())]


def _new_links(store: Store, source: Input, after: Multihash | None) -> tuple[Shape, list[Link]]:
    blocks = _read(store, source, after)
    decoded = [_decoded(source, each) for each in blocks]
    if after is None:
        return NOTHING, _known(_links(source.layout, decoded, ChainState()))
    if any(isinstance(each.content.event, SetDataSchema | SetVocab) for each in decoded):
        whole = (_decoded(source, each) for each in _read(store, source, None))
        links = _known(_links(source.layout, whole, ChainState()))
        return links[-len(decoded) - 1].shape, links[-len(decoded) :]
    return Shape.of(source.chain.state), _known(_links(source.layout, decoded, source.chain.state))


def _known(links: Iterable[Link]) -> list[Link]:
    found = [*links]
    if unknown := next((link.unknown for link in found if link.unknown), ""):
        raise UnsupportedVersion(unknown)
    return found


def watermark_at(store: Store, layout: Layout, block: Multihash | None) -> Timestamp | None:
    """Return the watermark after a block: that of the last event with data up to it. Raises InputMissing."""
    while block is not None:
        try:
            content = Block.decode(store.get(layout.block(block))).content
        except (ObjectNotFound, FormatInvalid) as error:
            raise InputMissing(f"block {block} of an input cannot be read: {error}") from error
        if isinstance(content.event, AddData | ExecuteTransform):
            return content.event.new_watermark
        block = content.prev_block_hash
    return None


def _read(store: Store, source: Input, after: Multihash | None) -> list[Stored]:
    try:
        return read_chain(store, source.layout, source.head, after)
    except BrokenChain as error:
        if error.problem.code != "Diverged":
            raise InputMissing(f"the chain of input {source.uuid!r} cannot be read: {error}") from error
        raise InputDiverged(
            f"input {source.uuid!r} has another chain than the one that was consumed up to block {after}: it was "
            "compacted, moved back or replaced. Reset the derivative dataset to rebuild it from the present chain"
        ) from error


def _decoded(source: Input, stored: Stored) -> Block:
    try:
        return stored.decode()
    except FormatInvalid as error:
        raise ChainCorrupt(f"block {stored.hash} of input {source.uuid!r}: {error}") from error


def _links(layout: Layout, blocks: Sequence[Block] | Iterator[Block], state: ChainState) -> Iterator[Link]:
    """``state`` is the one before the blocks, or any later one if no block changes columns."""
    shape, unknown = Shape.of(state), ""
    for block in blocks:
        event, content = block.content.event, block.content
        if isinstance(event, SetDataSchema | SetVocab | Unknown):
            state = advance(state, block)
            try:
                state.require_known()
                shape = Shape.of(state)
            except UnsupportedVersion as error:
                unknown = unknown or str(error)
        part = None
        data = event.new_data if isinstance(event, AddData | ExecuteTransform) else None
        if data is not None:
            part = Part(
                key=layout.data(data.physical_hash),
                start=data.offset_interval.start,
                end=data.offset_interval.end,
                vocabulary=shape.vocabulary,
                system_time=moment(content.system_time),
                block=block.hash,
            )
        yield Link(
            block=block.hash,
            number=content.sequence_number,
            system_time=content.system_time,
            shape=shape,
            part=part,
            bytes=data.size if data is not None else 0,
            watermark=event.new_watermark if isinstance(event, AddData | ExecuteTransform) else None,
            unknown=unknown,
        )
