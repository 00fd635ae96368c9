"""A directory or a bucket in the layout of the simple transfer protocol, as a repository and as a target of pushes.

Unlike a web server, a store can be listed: if many blocks are requested, all remaining ones are fetched in parallel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, cast

from kubothek.errors import ChainCorrupt, DatasetNotFound, FormatInvalid, ObjectNotFound
from kubothek.odf.chain import BrokenChain, Stored, read_chain
from kubothek.odf.named import Named, named_by
from kubothek.odf.spec.layout import Layout, head_bytes, parse_head
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.sync.repository import Stream
from kubothek.odf.sync.transfer import Brought, Told, bring_objects
from kubothek.storage import Store
from kubothek.table.log.records import parallel

_WHOLE: Final = Layout()
_WALKED: Final = 512
"""Number of blocks fetched one by one first: a walk usually reaches a known block within them."""


class StoreRepository:
    """Repository in a store."""

    def __init__(self, store: Store, layout: Layout = _WHOLE) -> None:
        self.store = store
        self.layout = layout
        self._asked = 0
        self._ahead: dict[Multihash, bytes] = {}

    @property
    def url(self) -> str:
        """Return the URL for messages."""
        return f"{self.store.url}/{self.layout.root}".rstrip("/")

    def head(self) -> Multihash:
        """Return the last block."""
        try:
            return parse_head(self.store.get(self.layout.head))
        except ObjectNotFound as error:
            raise DatasetNotFound(f"there is no dataset at {self.url}: it has no refs/head") from error
        except FormatInvalid as error:
            raise ChainCorrupt(f"{self.url}: {error}") from error

    def block(self, block: Multihash) -> bytes:
        """Return the unverified bytes of this block."""
        self._asked += 1
        if self._asked == _WALKED:
            with suppress(BrokenChain):  # the walk reports the break when it gets there
                self._ahead = {each.hash: each.data for each in read_chain(self.store, self.layout, block)}
        return self._ahead.pop(block, None) or self.store.get(self.layout.block(block))

    def size(self, link: Multihash) -> int:
        """Return the size of the data object of this hash."""
        return self.store.stat(self.layout.data(link)).size

    @contextmanager
    def stream(self, named: Named, start: int) -> Iterator[Stream]:
        """Stream the bytes of an object from a position on."""
        with self.store.open(named.key(self.layout)) as source:
            source.seek(start)
            yield cast("Stream", source)


def push_store(
    target: Store,
    store: Store,
    layout: Layout,
    blocks: Sequence[Stored],
    linked: Iterable[Sequence[Multihash]] = (),
    *,
    at_once: int,
    told: Told,
) -> Brought:
    """Write blocks of our chain, and all that they name or link to, to a repository.

    Named objects come first and ``refs/head`` last, so a concurrent reader sees the old chain or the new one (SH-01,
    SH-02). Objects of an earlier attempt are not sent again.

    Raises ChainCorrupt for an object of ours that is gone or has another hash.
    """
    sent = bring_objects(
        StoreRepository(store, layout),
        named_by(blocks),
        target,
        _WHOLE,
        linked,
        at_once=at_once,
        blocks=len(blocks),
        told=told,
    )
    there = _there(target, blocks)
    parallel(
        lambda each: target.put(_WHOLE.block(each.hash), each.data), [each for each in blocks if each not in there]
    )
    target.put(_WHOLE.head, head_bytes(blocks[-1].hash))
    return sent


def complete_store(
    target: Store, store: Store, layout: Layout, linked: Iterable[Sequence[Multihash]], *, at_once: int, told: Told
) -> Brought:
    """Write the objects that our chain links to and that a repository with the same chain lacks.

    Raises ChainCorrupt for an object of ours that has another hash.
    """
    there = {info.key for info in target.list(_WHOLE.slices)}
    lacked = ([link for link in links if _WHOLE.data(link) not in there] for links in linked)
    return bring_objects(StoreRepository(store, layout), (), target, _WHOLE, lacked, at_once=at_once, told=told)


def _there(target: Store, blocks: Sequence[Stored]) -> set[Stored]:
    """Return the blocks that an earlier push stored."""
    if len(blocks) <= _WALKED:
        return {
            each for each, there in zip(blocks, parallel(partial(_is_there, target), [*blocks]), strict=True) if there
        }
    sizes = {info.key.removeprefix(_WHOLE.blocks): info.size for info in target.list(_WHOLE.blocks)}
    return {each for each in blocks if sizes.get(str(each.hash)) == len(each.data)}


def _is_there(target: Store, block: Stored) -> bool:
    try:
        return target.stat(_WHOLE.block(block.hash)).size == len(block.data)
    except ObjectNotFound:
        return False
