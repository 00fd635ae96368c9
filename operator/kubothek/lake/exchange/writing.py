"""Blocks into a store, beside whatever else is done meanwhile."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from threading import BoundedSemaphore
from types import TracebackType
from typing import Final, Self

from kubothek.lake.ledger.chain import Stored
from kubothek.lake.ledger.formats.layout import Layout
from kubothek.lake.store import Store

_WRITERS: Final = 16
_WAITING: Final = 256
"""Blocks that came and are not written yet."""


class BlockWriter:
    """A context manager: at its end all blocks are where they belong, and durable with the store's next flush."""

    def __init__(self, store: Store, layout: Layout) -> None:
        self._store = store
        self._layout = layout
        self._pool = ThreadPoolExecutor(_WRITERS, thread_name_prefix="blocks")
        self._room = BoundedSemaphore(_WAITING)
        self._failed: list[BaseException] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()
        if error is None:
            self._require_written()

    def write(self, block: Stored) -> None:
        """Begin to; waits while too many are under way. Raises what an earlier one could not be written for."""
        self._require_written()
        self._room.acquire()  # a chain can be long, and its store slow
        put = self._pool.submit(self._store.put_soon, self._layout.block(block.hash), block.data)
        put.add_done_callback(self._written)

    def _written(self, done: Future[None]) -> None:
        if (error := done.exception()) is not None:
            self._failed.append(error)
        self._room.release()

    def _require_written(self) -> None:
        if self._failed:
            raise self._failed[0]
