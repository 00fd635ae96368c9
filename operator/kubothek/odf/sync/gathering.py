"""One thread for what is cheaper for many than for each: while it acts on some, others come, and are its next."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Condition
from types import TracebackType
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class Gathering(Generic[T]):
    """A context manager: at its end all that was given has been acted on, and what that raised first is raised.

    ``act``   gets all that waits, in the order in which it came; whatever it raises, it gets what comes after
    ``most``  may wait, beside those that are acted on
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
        """Have it acted on; waits while too many do. Raises, without taking it, what an earlier one has failed with."""
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
