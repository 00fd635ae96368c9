"""Blocks into a store, beside whatever else is done meanwhile."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from threading import Condition
from types import TracebackType
from typing import Final, Self

from kubothek.lake.ledger.chain import Stored
from kubothek.lake.ledger.formats.layout import Layout
from kubothek.lake.store import Store

_WAITING: Final = 256
"""Blocks that came and are not given to the store yet."""


class BlockWriter:
    """A context manager: at its end all blocks are where they belong, and durable with the store's next flush.

    While some are written others come, and are written together then: one thread is enough, and is in nobody's way.
    """

    def __init__(self, store: Store, layout: Layout) -> None:
        self._store = store
        self._layout = layout
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="blocks")
        self._taken = Condition()
        self._waiting: list[Stored] = []
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
        """Begin to; waits while too many do. Raises what an earlier one could not be written for."""
        self._require_written()
        with self._taken:
            self._taken.wait_for(lambda: len(self._waiting) < _WAITING)  # a chain can be long, and its store slow
            self._waiting.append(block)
            first = len(self._waiting) == 1
        if first:
            self._pool.submit(self._put_waiting).add_done_callback(self._put)

    def _put_waiting(self) -> None:
        with self._taken:
            blocks, self._waiting = self._waiting, []
            self._taken.notify_all()
        self._store.put_many([(self._layout.block(each.hash), each.data) for each in blocks])

    def _put(self, done: Future[None]) -> None:
        if (error := done.exception()) is not None:
            self._failed.append(error)

    def _require_written(self) -> None:
        if self._failed:
            raise self._failed[0]
