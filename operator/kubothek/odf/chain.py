"""Reading of a chain from a store: every block is checked against its hash, and none is fetched twice.

A block names the one before it, so the chain is walked backwards. For a long chain, all blocks are listed and fetched
in parallel first, and the walk costs no round trip. If the caller knows the names of blocks in about their order, as
commits do, the next ones are prefetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import dropwhile, islice
from typing import Final

from kubothek.errors import ChainCorrupt, FormatInvalid, ObjectNotFound, UnsupportedVersion
from kubothek.odf.problems import Problem
from kubothek.odf.spec.blocks import LARGEST, Block, link_of
from kubothek.odf.spec.layout import Layout, parse_head
from kubothek.odf.spec.multihash import Multihash
from kubothek.storage import Store

_THREADS: Final = 16
_WALKED: Final = 32
"""Blocks that are fetched one by one, before all others are fetched in parallel."""
_WALKED_BACK: Final = 512
"""The same for a walk back to a known block, which is usually short."""


_SINGLY: Final = 2
"""Blocks that are fetched one by one although names are known: most callers need the last few only."""
_FIRST_WINDOW: Final = 16
_LARGEST_WINDOW: Final = 1024

_REMEMBERED: Final = 1024
_SMALL: Final = 4096
"""Blocks of at most this many bytes, nearly all, are cached once decoded."""

ADVICE: Final = "restore it from a copy: any object with the bytes that the hash names"
"""The remedy for a missing or damaged object."""


class BrokenChain(ChainCorrupt):
    """A chain that cannot be followed to its seed: a block or the reference is missing, damaged or another one."""

    reason = "Corrupt"

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


_decoded = lru_cache(_REMEMBERED)(Block.decode)


@dataclass(frozen=True, slots=True)
class Stored:
    """A block's bytes and their verified hash."""

    hash: Multihash
    data: bytes

    def decode(self) -> Block:
        """Decode the block. Raises FormatInvalid, UnsupportedVersion."""
        try:
            return _decoded(self.data) if len(self.data) <= _SMALL else Block.decode(self.data)
        except UnsupportedVersion as error:
            raise UnsupportedVersion(f"block {self.hash}: {error}") from None


def read_head(store: Store, layout: Layout) -> Multihash:
    """Return the hash of the last block. Raises BrokenChain if there is no readable reference."""
    try:
        return parse_head(store.get(layout.head))
    except ObjectNotFound:
        raise BrokenChain(Problem("RefMissing", "CH-03", f"there is no {layout.head}")) from None
    except FormatInvalid as error:
        raise BrokenChain(Problem("RefText", "CH-03", str(error))) from None


def read_chain(
    store: Store, layout: Layout, head: Multihash | None = None, until: Multihash | None = None
) -> list[Stored]:
    """Return the blocks, oldest first, from the seed, or after ``until``, to ``head`` (None: that of the store).

    Raises BrokenChain, also if ``until`` is not a block of this chain (Diverged). Memory: the blocks' own bytes.
    """
    fetched: dict[str, bytes] = {}
    found: list[Stored] = []
    place = Place(head or read_head(store, layout), None)
    if place.block == until:
        return []
    while True:
        if len(found) == (_WALKED if until is None else _WALKED_BACK):
            fetched = _fetch_all(store, layout, {str(block.hash) for block in found})
        data = fetched.pop(str(place.block), None) or _fetch(store, layout, place)
        before = place.before(data)
        found.append(Stored(place.block, data))
        if before is None:
            if until is None:
                return found[::-1]
            raise place.broken("Diverged", "SH-03", f"block {until} is not among those before {found[0].hash}")
        if before.block == until:
            return found[::-1]
        place = before


def read_back(store: Store, layout: Layout, head: Multihash, known: Iterable[Multihash] = ()) -> Iterator[Stored]:
    """Yield the chain's blocks, newest first, down to the seed; at most a few more are fetched than are consumed.

    ``known``  names of blocks, newest first, which are prefetched in growing windows. It is read only as the caller
               continues, and may have other blocks among them, have gaps, or end too early

    Raises BrokenChain. Memory: the prefetched blocks.
    """
    names, ahead, window, alone = iter(known), dict[str, bytes](), _FIRST_WINDOW, 0
    place: Place | None = Place(head, None)
    while place is not None:
        data = ahead.pop(str(place.block), b"")
        if not data and alone >= _SINGLY:
            ahead = _fetch_these(store, layout, _window(names, place.block, window))
            if not ahead and alone >= _WALKED:
                ahead, alone = _fetch_all(store, layout, set()), 0
            window = min(2 * window, _LARGEST_WINDOW)
            data = ahead.pop(str(place.block), b"")
        alone += not data
        data = data or _fetch(store, layout, place)
        before = place.before(data)
        yield Stored(place.block, data)
        place = before


def _window(names: Iterator[Multihash], block: Multihash, size: int) -> list[str]:
    """Return the block and the names after it; none if it is not among ``names``, which are then exhausted."""
    return [str(name) for name in islice(dropwhile(lambda name: name != block, names), size)]


@dataclass(frozen=True, slots=True)
class Place:
    """A block that something refers to, and its sequence number, if the block after it is known."""

    block: Multihash
    number: int | None

    def before(self, data: bytes) -> Place | None:
        """Return the block before the one with these bytes; None for a seed. Raises BrokenChain as :func:`checked`."""
        number, before = checked(data, self)
        return None if before is None else Place(before, number - 1)

    def broken(self, code: str, rule: str, message: str) -> BrokenChain:
        """Return the error for a problem with this block."""
        return BrokenChain(Problem(code, rule, message, block=self.block, number=self.number))


def _fetch(store: Store, layout: Layout, place: Place) -> bytes:
    try:
        return store.get(layout.block(place.block))
    except ObjectNotFound:
        raise place.broken("BlockMissing", "CH-02", f"there is no {layout.block(place.block)}; {ADVICE}") from None


def checked(data: bytes, place: Place) -> tuple[int, Multihash | None]:
    """Return the sequence number of a block, and the block before it.

    Raises BrokenChain for bytes with another hash, another number than that of the place, and an invalid block.
    """
    if Multihash.sha3(data) != place.block:
        message = f"the bytes of block {place.block} are not those that the hash names; {ADVICE}"
        raise place.broken("BlockHash", "CH-02", message)
    try:
        number, before = link_of(data)
    except FormatInvalid as error:
        raise place.broken("BlockForm", "MF-02", str(error)) from None
    if place.number is not None and number != place.number:
        message = f"its sequence number is {number}; the block after it has {place.number + 1}"
        raise place.broken("Sequence", "MB-02", message)
    return number, before


def _fetch_all(store: Store, layout: Layout, known: set[str]) -> dict[str, bytes]:
    infos = (info for info in store.list(layout.blocks) if info.size <= LARGEST)
    return _fetch_these(
        store, layout, [name for info in infos if (name := info.key.removeprefix(layout.blocks)) not in known]
    )


def _fetch_these(store: Store, layout: Layout, names: list[str]) -> dict[str, bytes]:
    """Fetch the blocks of these names in parallel; a missing one is empty."""

    def fetch(name: str) -> tuple[str, bytes]:
        try:
            return name, store.get(f"{layout.blocks}{name}")
        except ObjectNotFound:
            return name, b""

    if not names:
        return {}
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="blocks") as pool:
        return dict(pool.map(fetch, names))
