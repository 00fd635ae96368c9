"""What a client pushed, as a repository: its blocks in hand, and its objects where it has put them in our store."""

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
    """To commit a push is to pull from this: what was uploaded is found, hashed, and needs no copying."""

    url = "the push"

    def __init__(self, blocks: Sequence[Stored], store: Store, layout: Layout) -> None:
        """Raises ChainCorrupt for no blocks."""
        if not blocks:
            raise ChainCorrupt("a push brings at least one block")
        self._head = blocks[-1].hash
        self._blocks = {block.hash: block.data for block in blocks}
        self._store = store
        self._layout = layout

    def head(self) -> Multihash:
        """The last block that came."""
        return self._head

    def block(self, block: Multihash) -> bytes:
        """One of those that came."""
        try:
            return self._blocks[block]
        except KeyError:
            raise ObjectNotFound(str(block), self.url) from None

    @contextmanager
    def stream(self, named: Named, start: int) -> Iterator[Stream]:
        """Never anything: who asks has not found the right bytes. What else lies there makes room for them."""
        key = named.key(self._layout)
        with hashed(self._store, key) as found:
            wrong = found.digest != named.hash.digest  # not: another size than the block says
        if wrong:
            self._store.delete([key])
        raise ObjectNotFound(key, self.url)
        yield
