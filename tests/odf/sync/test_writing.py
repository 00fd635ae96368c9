"""Blocks are written beside a walk: together while others come, not more than wait, and none of them unnoticed."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from kubothek.errors import StoreUnavailable
from kubothek.odf.chain import Stored
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.sync.pull import block_writer
from kubothek.storage import Store
from tests.odf.dataset.planes import LAYOUT

pytestmark = pytest.mark.slow

PATIENCE = 30.0


def block(number: int) -> Stored:
    data = b"block %d" % number
    return Stored(Multihash.sha3(data), data)


class Held:
    """Lets a store write only once it is told to, and counts what it is given at a time."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began = Event()
        self.may = Event()
        self.counts: list[int] = []
        put_many = store.put_many

        def held(objects: Sequence[tuple[str, bytes]]) -> None:
            self.counts.append(len(objects))
            self.began.set()
            assert self.may.wait(PATIENCE)
            put_many(objects)

        monkeypatch.setattr(store, "put_many", held)


def test_block_writer_batches_blocks_that_arrive_during_write(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    held, blocks = Held(store, monkeypatch), [block(number) for number in range(100)]
    with block_writer(store, LAYOUT) as writing:
        writing.give(blocks[0])
        assert held.began.wait(PATIENCE)
        for each in blocks[1:]:
            writing.give(each)
        held.may.set()
    assert held.counts == [1, 99]
    assert [store.get(LAYOUT.block(each.hash)) for each in blocks] == [each.data for each in blocks]


def test_block_writer_with_slow_store_blocks_caller(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(store, monkeypatch)

    def walk() -> None:
        for number in range(1, 1000):
            writing.give(block(number))

    with ThreadPoolExecutor(1) as walking, block_writer(store, LAYOUT) as writing:
        writing.give(block(0))
        assert held.began.wait(PATIENCE)
        walked = walking.submit(walk)
        with pytest.raises(TimeoutError):
            walked.result(0.3)
        held.may.set()
        walked.result(PATIENCE)
    assert sum(held.counts) == 1000
    assert max(held.counts) <= 256
    assert sum(1 for _ in store.list(LAYOUT.blocks)) == 1000


def test_block_writer_raises_store_error_on_next_block_or_at_end(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(objects: Sequence[tuple[str, bytes]]) -> None:
        raise StoreUnavailable("the disk is full")

    def walk(count: int, error: Exception | None = None) -> None:
        with block_writer(store, LAYOUT) as writing:
            for number in range(count):
                writing.give(block(number))
            if error is not None:
                raise error

    monkeypatch.setattr(store, "put_many", fail)
    for count in (1, 100_000):
        with pytest.raises(StoreUnavailable, match="full"):
            walk(count)
    with pytest.raises(ValueError, match="of the walk"):
        walk(1, ValueError("of the walk"))
