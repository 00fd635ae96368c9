"""Reading a chain out of a store: every block is checked against its hash, and none is read twice from the store.

A block names the one before it, so the way back is a walk. Where it is long, all blocks are listed and fetched in
parallel first, and the walk costs no round trip; or, where somebody knows the names of blocks in about their order,
as commits do, those that come next are fetched ahead.
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
"""So many blocks are fetched one after the other."""
_WALKED_BACK: Final = 512
"""As many where the way is only back to a known block, as it is short as a rule."""


_SINGLY: Final = 2
"""So many are fetched one after the other, although names of blocks are known: most look at the last few only."""
_FIRST_WINDOW: Final = 16
_LARGEST_WINDOW: Final = 1024

_REMEMBERED: Final = 1024
_SMALL: Final = 4096
"""Blocks of so many bytes or fewer, nearly all, are decoded once, if they are asked again soon."""

ADVICE: Final = "put it back from a copy: whatever has the bytes that the hash names is it"
"""What to do about an object that is missing or damaged."""


class BrokenChain(ChainCorrupt):
    """The chain cannot be followed to its seed: a block or the reference is missing, damaged or another one."""

    reason = "Corrupt"

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


_decoded = lru_cache(_REMEMBERED)(Block.decode)


@dataclass(frozen=True, slots=True)
class Stored:
    """A block's bytes and their hash, which is checked."""

    hash: Multihash
    data: bytes

    def decode(self) -> Block:
        """What it says. Raises FormatInvalid, UnsupportedVersion."""
        try:
            return _decoded(self.data) if len(self.data) <= _SMALL else Block.decode(self.data)
        except UnsupportedVersion as error:
            raise UnsupportedVersion(f"block {self.hash}: {error}") from None


def read_head(store: Store, layout: Layout) -> Multihash:
    """The last block's hash. Raises BrokenChain if there is no readable reference."""
    try:
        return parse_head(store.get(layout.head))
    except ObjectNotFound:
        raise BrokenChain(Problem("RefMissing", "CH-03", f"there is no {layout.head}")) from None
    except FormatInvalid as error:
        raise BrokenChain(Problem("RefText", "CH-03", str(error))) from None


def read_chain(
    store: Store, layout: Layout, head: Multihash | None = None, until: Multihash | None = None
) -> list[Stored]:
    """The chain's blocks, oldest first, from the seed, or from after ``until``, to ``head`` (None: that of the store).

    Raises BrokenChain, also if ``until`` is no block of this chain (Diverged). Memory: the blocks' own bytes.
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
    """The chain's blocks, newest first, down to the seed; no more of them are fetched than are asked for, or a few.

    ``known``  names of blocks, newest first, of which those of this chain are fetched ahead, ever more at a time; it is
               asked only when somebody goes on, and may have others among them, leave some out, or end too early

    Raises BrokenChain. Memory: the blocks that were fetched ahead.
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
    """The block and the names after it; none if it is not among them, and they are at their end then."""
    return [str(name) for name in islice(dropwhile(lambda name: name != block, names), size)]


@dataclass(frozen=True, slots=True)
class Place:
    """A block that something points to, and its sequence number, where the block after it is known."""

    block: Multihash
    number: int | None

    def before(self, data: bytes) -> Place | None:
        """The block before the one with these bytes; None before the seed. Raises BrokenChain as :func:`checked`."""
        number, before = checked(data, self)
        return None if before is None else Place(before, number - 1)

    def broken(self, code: str, rule: str, message: str) -> BrokenChain:
        """The error for what is wrong here."""
        return BrokenChain(Problem(code, rule, message, block=self.block, number=self.number))


def _fetch(store: Store, layout: Layout, place: Place) -> bytes:
    try:
        return store.get(layout.block(place.block))
    except ObjectNotFound:
        raise place.broken("BlockMissing", "CH-02", f"there is no {layout.block(place.block)}; {ADVICE}") from None


def checked(data: bytes, place: Place) -> tuple[int, Multihash | None]:
    """The sequence number of what is said to be this block, and the block before it.

    Raises BrokenChain for other bytes than the hash names, another number than the place has, and what is no block.
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
    """The blocks of these names, empty where there is none, many at a time."""

    def fetch(name: str) -> tuple[str, bytes]:
        try:
            return name, store.get(f"{layout.blocks}{name}")
        except ObjectNotFound:
            return name, b""

    if not names:
        return {}
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="blocks") as pool:
        return dict(pool.map(fetch, names))
