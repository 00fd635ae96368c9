"""Batching: one thread handles as one batch all items that arrived while the previous batch was handled."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Condition
from types import TracebackType
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class Gathering(Generic[T]):
    """A context manager: on exit all items have been handled, and the first error is raised.

    ``act``   handles a batch, in the order of arrival; after an error it still gets the next batch
    ``most``  largest number of waiting items, besides the batch being handled
    """

    def __init__(self, act: Callable[[list[T]], None], most: int, name: str) -> None:
        self._act = act
        self._most = most
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._taken = Condition()
        self._waiting: list[T] = []
        self._failed: list[BaseException] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()
        if error is None:
            self._require_done()

    def give(self, item: T) -> None:
        """Add an item; block while too many wait. Raises the error of an earlier batch, without adding the item."""
        self._require_done()
        with self._taken:
            self._taken.wait_for(lambda: len(self._waiting) < self._most)
            self._waiting.append(item)
            first = len(self._waiting) == 1
        if first:
            self._pool.submit(self._act_on_all).add_done_callback(self._acted)

    def _act_on_all(self) -> None:
        with self._taken:
            items, self._waiting = self._waiting, []
            self._taken.notify_all()
        self._act(items)

    def _acted(self, done: Future[None]) -> None:
        if (error := done.exception()) is not None:
            self._failed.append(error)

    def _require_done(self) -> None:
        if self._failed:
            raise self._failed[0]
