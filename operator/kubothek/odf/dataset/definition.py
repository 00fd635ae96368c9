"""The part of a chain that is needed to extend it, so that not all of its blocks have to be read.

The blocks that still define it (seed, vocabulary, schema, sources, and what describes the dataset) are stored unchanged
in one object. It is named by its content and rewritten only when one of them changes. The rest of the chain's state is
a few numbers in the head (:class:`~kubothek.table.log.model.ledgers.ChainNote`). Both are derived: if the object is
missing, it is made from the chain again.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final, Self, TypeVar

import orjson

from kubothek.errors import ChainCorrupt, FormatInvalid, ObjectNotFound
from kubothek.odf.chain import read_chain
from kubothek.odf.dataset.slicing import Types
from kubothek.odf.spec.blocks import Block
from kubothek.odf.spec.events import (
    AddData,
    AddPushSource,
    DatasetSnapshot,
    DisablePollingSource,
    DisablePushSource,
    MetadataEvent,
    Seed,
    SetAttachments,
    SetDataSchema,
    SetInfo,
    SetLicense,
    SetPollingSource,
    SetTransform,
    SetVocab,
    SourceState,
)
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.spec.unknown import Unknown
from kubothek.odf.spec.versions import SpecVersion
from kubothek.odf.validation.state import ChainState, Consumed, advance
from kubothek.storage import Store
from kubothek.table.log.model import keys
from kubothek.table.log.model.ledgers import ChainNote

_FORMAT: Final = 1
_LASTING: Final = (
    Seed,
    SetVocab,
    SetDataSchema,
    SetPollingSource,
    SetTransform,
    SetInfo,
    SetLicense,
    SetAttachments,
)
"""Events of which the last one counts."""

Event = TypeVar("Event")


@dataclass(frozen=True, slots=True)
class Definition:
    """The blocks that still define a chain, as stored, in the order of the chain; keyed by what they define."""

    blocks: Mapping[str, bytes] = field(default_factory=dict)

    def after(self, block: Block) -> Definition:
        """Return the definition after one more block; itself if the block defines nothing."""
        event = block.content.event
        if isinstance(event, DisablePollingSource):
            return self._without(SetPollingSource.kind)
        if isinstance(event, DisablePushSource):
            return self._without(_push(event.source_name))
        if isinstance(event, AddPushSource):
            name = _push(event.source_name)
        elif isinstance(event, _LASTING):
            name = event.kind
        elif isinstance(event, Unknown) and event.kind not in self.blocks:
            name = event.kind  # the first: what the chain has after it is not known
        else:
            return self
        return Definition({**self._without(name).blocks, name: block.data})

    def _without(self, name: str) -> Definition:
        return Definition({key: data for key, data in self.blocks.items() if key != name})

    def event(self, kind: type[Event]) -> Event | None:
        """Return the event of this class that is in force."""
        for data in self.blocks.values():
            if isinstance(found := Block.decode(data).content.event, kind):
                return found
        return None

    def source(self, event: MetadataEvent) -> MetadataEvent | None:
        """Return the event in force that this one would replace."""
        name = _push(event.source_name) if isinstance(event, AddPushSource) else event.kind
        return Block.decode(self.blocks[name]).content.event if name in self.blocks else None

    def snapshot(self, name: str) -> DatasetSnapshot:
        """Return the events in force as the snapshot of a dataset of this name, without those of later versions."""
        seed, *events = (Block.decode(data).content.event for data in self.blocks.values())
        assert isinstance(seed, Seed), "a chain begins with one"
        known = tuple(event for event in events if not isinstance(event, Unknown))
        return DatasetSnapshot(name=name, kind=seed.dataset_kind, metadata=known)

    def render(self) -> bytes:
        """Return the stored form."""
        blocks = {name: b64encode(data).decode() for name, data in self.blocks.items()}
        return orjson.dumps({"format": _FORMAT, "blocks": blocks})

    @property
    def name(self) -> str:
        """The name of the object that holds it."""
        return sha256(self.render()).hexdigest()

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Parse the stored form. Raises FormatInvalid if it is invalid, or of a later Kubothek."""
        try:
            found = orjson.loads(data)
            if found["format"] != _FORMAT:
                raise FormatInvalid(f"the definition of a chain has format {found['format']!r}")
            return cls({str(name): b64decode(text) for name, text in found["blocks"].items()})
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise FormatInvalid(f"no definition of a chain: {error!r}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """A chain up to some block: its state and its definition; ``types`` and ``table`` are of the dataset.

    ``keyed_by``  what a merge knew of the keys in the table, see :class:`ChainNote`; blocks do not have it, so a block
                  that brings records or renames columns resets it
    """

    state: ChainState = field(default_factory=ChainState)
    definition: Definition = field(default_factory=Definition)
    types: Types = Types.KAMU
    table: bool = True
    keyed_by: tuple[str, ...] | None = None

    def after(self, block: Block, check: Callable[[ChainState, Block], ChainState] = advance) -> Chain:
        """Return the chain after one more block."""
        event = block.content.event
        stays = not isinstance(event, SetVocab) and not (isinstance(event, AddData) and event.new_data)
        return replace(
            self,
            state=check(self.state, block),
            definition=self.definition.after(block),
            keyed_by=self.keyed_by if stays else None,
        )

    def emptied(self) -> Chain:
        """Return the chain before its first block, written in the same way."""
        return Chain(types=self.types, table=self.table, state=ChainState(version=self.state.version))

    @property
    def note(self) -> ChainNote:
        """Its note in the head."""
        state = self.state
        assert state.head is not None, "a chain has a seed"
        return ChainNote(
            head=str(state.head),
            length=state.length,
            definition=self.definition.name,
            system_time=str(state.system_time),
            offset=state.last_offset,
            last_slice=None if state.last_slice is None else str(state.last_slice),
            watermark=None if state.watermark is None else str(state.watermark),
            checkpoint=None if state.checkpoint is None else str(state.checkpoint),
            types=self.types,
            table=self.table,
            sources={name: (each.kind, each.value) for name, each in state.source_states.items()},
            inputs={
                str(name): (None if each.block is None else str(each.block), each.offset)
                for name, each in state.consumed.items()
            },
            keyed_by=self.keyed_by,
            spec=None if state.version is None else str(state.version),
        )


def read_noted(store: Store, uuid: str, note: ChainNote, known: Chain | None = None) -> Chain:
    """Return the chain that a head describes: one request, or none if ``known`` has the same definition.

    Reads the whole chain if the object with its definition is missing or invalid. Raises ChainCorrupt.
    """
    if known is not None and known.definition.name == note.definition:
        definition = known.definition
    else:
        try:
            definition = Definition.parse(store.get(keys.definition(uuid, note.definition)))
        except (ObjectNotFound, FormatInvalid):
            return fold(store, Layout(keys.chain(uuid)), note)
    state = ChainState()
    for data in definition.blocks.values():
        state = advance(state, Block.decode(data))
    return Chain(
        state=replace(state, **_numbers(note, state.version)),
        definition=definition,
        types=Types(note.types),
        table=note.table,
        keyed_by=note.keyed_by,
    )


def fold(store: Store, layout: Layout, note: ChainNote) -> Chain:
    """Return the same from all blocks of the chain. Raises ChainCorrupt."""
    state = ChainState(version=None if note.spec is None else SpecVersion(note.spec))
    chain = Chain(types=Types(note.types), table=note.table, state=state)
    for stored in read_chain(store, layout, Multihash.parse(note.head)):
        try:
            chain = chain.after(stored.decode())
        except FormatInvalid as error:
            raise ChainCorrupt(f"block {stored.hash}: {error}") from error
    return chain


def _numbers(note: ChainNote, defined: SpecVersion | None) -> dict[str, Any]:
    return {
        "version": defined if note.spec is None else SpecVersion(note.spec),
        "length": note.length,
        "head": Multihash.parse(note.head),
        "system_time": Timestamp.parse(note.system_time),
        "last_offset": note.offset,
        "last_slice": None if note.last_slice is None else Multihash.parse(note.last_slice),
        "checkpoint": None if note.checkpoint is None else Multihash.parse(note.checkpoint),
        "watermark": None if note.watermark is None else Timestamp.parse(note.watermark),
        "source_states": {
            name: SourceState(source_name=name, kind=kind, value=value) for name, (kind, value) in note.sources.items()
        },
        "consumed": {
            DatasetId.parse(name): Consumed(None if block is None else Multihash.parse(block), offset)
            for name, (block, offset) in note.inputs.items()
        },
    }


def _push(name: str) -> str:
    return f"{AddPushSource.kind} {name}"
