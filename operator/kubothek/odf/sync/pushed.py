"""A client's push as a repository: its blocks in memory, and its objects where it uploaded them in our store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kubothek.errors import ChainCorrupt, ObjectNotFound
from kubothek.odf.chain import Stored
from kubothek.odf.named import Named
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.sync.repository import Stream
from kubothek.storage import Store
from kubothek.storage.hashed import hashed


class PushedRepository:
    """Committing a push is a pull from this repository: uploaded objects are found and hashed, and need no copy."""

    url = "the push"

    def __init__(self, blocks: Sequence[Stored], store: Store, layout: Layout) -> None:
        """Raises ChainCorrupt without blocks."""
        if not blocks:
            raise ChainCorrupt("a push has at least one block")
        self._head = blocks[-1].hash
        self._blocks = {block.hash: block.data for block in blocks}
        self._store = store
        self._layout = layout

    def head(self) -> Multihash:
        """Return the last block received."""
        return self._head

    def block(self, block: Multihash) -> bytes:
        """Return one of the blocks received."""
        try:
            return self._blocks[block]
        except KeyError:
            raise ObjectNotFound(str(block), self.url) from None

    @contextmanager
    def stream(self, named: Named, start: int) -> Iterator[Stream]:
        """Raise ObjectNotFound: a pull asks only for objects that it did not find. Delete wrong bytes at the key."""
        key = named.key(self._layout)
        with hashed(self._store, key) as found:
            wrong = found.digest != named.hash.digest  # a size other than the block's is not wrong
        if wrong:
            self._store.delete([key])
        raise ObjectNotFound(key, self.url)
        yield
