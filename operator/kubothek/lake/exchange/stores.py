"""A directory or a bucket in the layout of the simple transfer protocol, as a repository."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, cast

from kubothek.lake.errors import ChainCorrupt, DatasetNotFound, FormatInvalid, ObjectNotFound
from kubothek.lake.exchange.repository import Stream
from kubothek.lake.ledger.layout import Layout, parse_head
from kubothek.lake.ledger.multihash import Multihash
from kubothek.lake.ledger.named import Named
from kubothek.lake.store import Store

_WHOLE: Final = Layout()


class StoreRepository:
    """Objects of a store."""

    def __init__(self, store: Store, layout: Layout = _WHOLE) -> None:
        self.store = store
        self.layout = layout

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
        return self.store.get(self.layout.block(block))

    @contextmanager
    def stream(self, named: Named, start: int) -> Iterator[Stream]:
        """The bytes of an object."""
        with self.store.open(named.key(self.layout)) as source:
            source.seek(start)
            yield cast("Stream", source)
