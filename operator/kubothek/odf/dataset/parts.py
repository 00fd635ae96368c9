"""The slices of a chain in order, read from its blocks on demand: a merge that needs only the table reads none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

from kubothek.errors import ChainCorrupt, FormatInvalid
from kubothek.odf.chain import read_chain
from kubothek.odf.spec.blocks import Block
from kubothek.odf.spec.events import AddData, ExecuteTransform, Seed, SetVocab
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.validation.state import ChainState, Vocabulary, advance
from kubothek.odf.view import Part
from kubothek.storage import Store


@dataclass
class ChainParts(Iterable[Part]):
    """The slices up to and including the block ``head``, oldest first; None: there is no chain."""

    store: Store
    layout: Layout
    head: Multihash | None

    def __iter__(self) -> Iterator[Part]:
        return iter(self._read)

    @cached_property
    def _read(self) -> list[Part]:
        return [*parts(self.store, self.layout, self.head)]


def parts(store: Store, layout: Layout, head: Multihash | None) -> Iterator[Part]:
    """Yield the slices, oldest first. Raises ChainCorrupt."""
    state = ChainState()
    for stored in read_chain(store, layout, head) if head is not None else ():
        try:
            block = stored.decode()
        except FormatInvalid as error:
            raise ChainCorrupt(f"block {stored.hash}: {error}") from error
        yield from _part(layout, block, state.vocabulary)
        state = advance(state, block)


def parts_back(layout: Layout, blocks: Iterable[Block], state: ChainState) -> Iterator[Part]:
    """Yield the slices, newest first, of blocks newest first; ``state`` is that after the first of these.

    If a block changed the column names, slices before it are yielded once the previous names are known.
    """
    vocabulary: Vocabulary | None = state.vocabulary
    waiting: list[Block] = []
    for block in blocks:
        event = block.content.event
        if isinstance(event, Seed | SetVocab):
            named = Vocabulary.of(event) if isinstance(event, SetVocab) else Vocabulary()
            for each in waiting:
                yield from _part(layout, each, named)
            waiting, vocabulary = [], None
        elif vocabulary is None:
            waiting.append(block)
        else:
            yield from _part(layout, block, vocabulary)


def _part(layout: Layout, block: Block, vocabulary: Vocabulary) -> Iterator[Part]:
    """Yield the slice of a block, if it has one."""
    event = block.content.event
    if isinstance(event, AddData | ExecuteTransform) and event.new_data:
        yield Part(
            key=layout.data(event.new_data.physical_hash),
            start=event.new_data.offset_interval.start,
            end=event.new_data.offset_interval.end,
            vocabulary=vocabulary,
            system_time=moment(block.content.system_time),
            block=block.hash,
        )


def moment(time: Timestamp) -> datetime:
    """Return the time as a datetime, to the microsecond."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time.nanoseconds // 1000)
