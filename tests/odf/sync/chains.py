"""Chains that no honest program writes."""

from __future__ import annotations

from dataclasses import replace

from kubothek.odf import Block, Layout, read_chain
from kubothek.odf.spec.events import AddData
from kubothek.storage import Store


def forged(store: Store, layout: Layout) -> None:
    """Give the chain of a store a last block that claims other offsets than may follow."""
    last = read_chain(store, layout)[-1].decode()
    event = last.content.event
    assert isinstance(event, AddData)
    assert event.new_data is not None
    again = replace(last.content, sequence_number=last.content.sequence_number + 1, prev_block_hash=last.hash)
    block = Block.encode(again)
    store.put(layout.block(block.hash), block.data)
    store.put(layout.head, str(block.hash).encode())
