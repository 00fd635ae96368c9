"""A directory or a bucket in the layout of the simple transfer protocol, as a repository, and to push to.

Unlike a web server, a store can be listed: where many blocks are asked for, all that are left are fetched in parallel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, cast

from kubothek.errors import ChainCorrupt, DatasetNotFound, FormatInvalid, ObjectNotFound
from kubothek.odf.chain import BrokenChain, Stored, read_chain
from kubothek.odf.named import Named, named_by
from kubothek.odf.spec.layout import Layout, head_bytes, parse_head
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.sync.repository import Stream
from kubothek.odf.sync.transfer import Told, bring_objects
from kubothek.storage import Store
from kubothek.table.log.records import parallel

_WHOLE: Final = Layout()
_WALKED: Final = 512
"""So many blocks are fetched one by one first: the way back to a chain that is known is shorter as a rule."""


class StoreRepository:
    """Objects of a store."""

    def __init__(self, store: Store, layout: Layout = _WHOLE) -> None:
        self.store = store
        self.layout = layout
        self._asked = 0
        self._ahead: dict[Multihash, bytes] = {}

    @property
    def url(self) -> str:
        """For messages."""
        return f"{self.store.url}/{self.layout.root}".rstrip("/")

    def head(self) -> Multihash:
        """The last block."""
        try:
            return parse_head(self.store.get(self.layout.head))
        except ObjectNotFound as error:
            raise DatasetNotFound(f"there is no dataset at {self.url}: it has no refs/head") from error
        except FormatInvalid as error:
            raise ChainCorrupt(f"{self.url}: {error}") from error

    def block(self, block: Multihash) -> bytes:
        """What is said to be this block."""
        self._asked += 1
        if self._asked == _WALKED:
            with suppress(BrokenChain):  # whoever walks to the place will see it
                self._ahead = {each.hash: each.data for each in read_chain(self.store, self.layout, block)}
        return self._ahead.pop(block, None) or self.store.get(self.layout.block(block))

    @contextmanager
    def stream(self, named: Named, start: int) -> Iterator[Stream]:
        """The bytes of an object."""
        with self.store.open(named.key(self.layout)) as source:
            source.seek(start)
            yield cast("Stream", source)


def push_store(
    target: Store, store: Store, layout: Layout, blocks: Sequence[Stored], *, at_once: int, told: Told
) -> tuple[int, int]:
    """Write blocks of a chain of ours, and all that they name, where a repository has them; how many objects were sent,
    of how many bytes.

    What they name comes first and ``refs/head`` last: whoever reads meanwhile sees the old chain, or the new one
    (SH-01, SH-02). What arrived before is not sent again.

    Raises ChainCorrupt for an object of ours that is gone, or is another one.
    """
    brought = bring_objects(
        StoreRepository(store, layout),
        named_by(blocks),
        target,
        _WHOLE,
        at_once=at_once,
        blocks=len(blocks),
        told=told,
    )
    there = _there(target, blocks)
    parallel(
        lambda each: target.put(_WHOLE.block(each.hash), each.data), [each for each in blocks if each not in there]
    )
    target.put(_WHOLE.head, head_bytes(blocks[-1].hash))
    return brought.fetched_objects, brought.fetched_bytes


def _there(target: Store, blocks: Sequence[Stored]) -> set[Stored]:
    """Those that an earlier push left there."""
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
