"""Comparison of two chains of one dataset: their relation, and the blocks that only the other side has.

Chains are compared by hash and sequence number. The walk over their chain goes back from its head to our head, or down
to the number of our head. Blocks that an interrupted walk stored are not fetched again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kubothek.errors import ChainCorrupt, Diverged, FormatInvalid, ObjectNotFound, UnsupportedVersion
from kubothek.odf.chain import ADVICE, Place, Stored, checked
from kubothek.odf.spec.blocks import Block
from kubothek.odf.spec.decode import NEWER, REMEDY
from kubothek.odf.spec.events import Seed
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.unknown import Unknown
from kubothek.odf.sync.gathering import Gathering
from kubothek.odf.sync.repository import Repository
from kubothek.odf.validation.state import ChainState
from kubothek.storage import Store

_SHORT: Final = 64
"""Number of blocks that a walk reads from the store one by one, before it lists the store."""


class Relation(StrEnum):
    """Relation of their chain to ours."""

    EQUAL = "Equal"
    AHEAD = "Ahead"
    """Theirs extends ours."""
    BEHIND = "Behind"
    """Ours extends theirs."""
    DIVERGED = "Diverged"
    """Each has blocks that the other lacks."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Result of a comparison.

    ``head``    their last block
    ``blocks``  blocks that only they have, oldest first; of diverged chains only on request
    """

    relation: Relation
    head: Multihash
    blocks: tuple[Stored, ...] = ()


def compare(
    theirs: Repository,
    head: Multihash,
    store: Store,
    layout: Layout,
    ours: ChainState,
    writing: Gathering[Stored],
    *,
    wholly: bool = False,
    told: Callable[[int], None] = lambda blocks: None,
) -> Difference:
    """Compare their chain, which ends with ``head``, with ours.

    ``writing``  receives new blocks
    ``wholly``   walk the blocks of a diverged chain as well
    ``told``     called with the number of new blocks so far

    Raises ChainCorrupt; Diverged for the chain of another dataset; StoreError.
    """
    if head == ours.head:
        return Difference(Relation.EQUAL, head)
    blocks = _Blocks(theirs, store, layout, writing, is_new=ours.head is None)
    mine = _Own(store, layout, ours)
    found: list[Stored] = []
    place = Place(head, None)
    while True:
        data, number, before = blocks.get(place)
        if mine.at(number) == place.block:
            break
        if number < ours.length and not wholly:
            return Difference(Relation.DIVERGED, head)
        found.append(Stored(place.block, data))
        told(len(found))
        if before is None:
            _require_same_dataset(data, ours, theirs.url)
            break
        if before == ours.head:
            return Difference(Relation.AHEAD, head, tuple(found[::-1]))
        place = Place(before, number - 1)
    if not found:
        return Difference(Relation.BEHIND, head)
    relation = Relation.AHEAD if ours.head is None else Relation.DIVERGED
    return Difference(relation, head, tuple(found[::-1]))


def _require_same_dataset(seed: bytes, ours: ChainState, url: str) -> None:
    try:
        event = Block.decode(seed).content.event
    except FormatInvalid as error:
        raise ChainCorrupt(f"the first block at {url}: {error}") from error
    if isinstance(event, Unknown):
        raise UnsupportedVersion(f"the chain at {url} begins with an event {NEWER}; {REMEDY}")
    if not isinstance(event, Seed):
        raise ChainCorrupt(f"the chain at {url} starts with {event.kind}, not with a Seed; {ADVICE}")
    if ours.seed is not None and event.dataset_id != ours.seed.dataset_id:
        raise Diverged(f"{url} is another dataset, {event.dataset_id}; this one is {ours.seed.dataset_id}")


class _Own:
    """Our blocks by sequence number, read from the last one down."""

    def __init__(self, store: Store, layout: Layout, ours: ChainState) -> None:
        self._store = store
        self._layout = layout
        self._block = ours.head
        self._number = ours.length - 1

    def at(self, number: int) -> Multihash | None:
        """Return our block of this number; None above our last one."""
        while self._block is not None and self._number > number:
            place = Place(self._block, self._number)
            try:
                data = self._store.get(self._layout.block(self._block))
            except ObjectNotFound as error:
                raise ChainCorrupt(f"our own block {self._block} no longer exists; {ADVICE}") from error
            _, self._block = checked(data, place)
            self._number -= 1
        return self._block if self._number == number else None


class _Blocks:
    """Their blocks, read from the store if they are there, else fetched and stored."""

    def __init__(
        self, theirs: Repository, store: Store, layout: Layout, writing: Gathering[Stored], *, is_new: bool
    ) -> None:
        self._theirs = theirs
        self._store = store
        self._layout = layout
        self._there: frozenset[str] | None = None
        self._writing = writing
        self._asked = _SHORT if is_new else 0

    def get(self, place: Place) -> tuple[bytes, int, Multihash | None]:
        """Return a block, its number and its predecessor. Raises ChainCorrupt, StoreError."""
        if self._may_be_there(place.block):
            try:
                data = self._store.get(self._layout.block(place.block))
                return data, *checked(data, place)
            except (ObjectNotFound, ChainCorrupt):
                pass  # theirs replaces it, or raises the same error
        try:
            data = self._theirs.block(place.block)
        except ObjectNotFound as error:
            message = f"there is no block {place.block} at {self._theirs.url}; {ADVICE}"
            raise place.broken("BlockMissing", "CH-02", message) from error
        number, before = checked(data, place)
        self._writing.give(Stored(place.block, data))
        return data, number, before

    def _may_be_there(self, block: Multihash) -> bool:
        self._asked += 1
        if self._asked > _SHORT and self._there is None:
            names = (info.key.removeprefix(self._layout.blocks) for info in self._store.list(self._layout.blocks))
            self._there = frozenset(names)
        return self._there is None or str(block) in self._there
