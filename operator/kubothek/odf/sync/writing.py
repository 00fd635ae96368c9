"""Blocks into a store, beside whatever else is done meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubothek.odf.chain import Stored
from kubothek.odf.spec.layout import Layout
from kubothek.odf.sync.gathering import Gathering
from kubothek.storage import Store

_WAITING: Final = 256
"""Blocks that came and are not given to the store yet: a chain can be long, and its store slow."""


def block_writer(store: Store, layout: Layout) -> Gathering[Stored]:
    """At its end all blocks that it was given are where they belong, and durable with the store's next flush."""

    def put(blocks: Sequence[Stored]) -> None:
        store.put_many([(layout.block(each.hash), each.data) for each in blocks])

    return Gathering(put, _WAITING, "blocks")
