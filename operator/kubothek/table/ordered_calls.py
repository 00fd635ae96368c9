"""Calls in threads of their own, with results in the order of the calls, whatever the number of threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Generic, TypeVar

_SMALL: Final = 1 << 17
"""Below this many bytes, a call costs less in the calling thread."""

T = TypeVar("T")


class OrderedCalls(Generic[T]):
    """Queue of calls that mostly run without Python's interpreter lock. One thread adds calls and takes results.

    ``size``  bytes that the waiting, running and untaken calls hold
    """

    def __init__(self, threads: int, name: str) -> None:
        """``threads``  1: each call runs at once, in the calling thread. Others start when they are needed."""
        self.size = 0
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name) if threads > 1 else None
        self._calls: deque[tuple[Future[T], int]] = deque()

    def __len__(self) -> int:
        """Return the number of calls whose result is not taken."""
        return len(self._calls)

    def add(self, call: Callable[[], T], size: int) -> None:
        """Run a call that holds this many bytes, now or soon."""
        self.size += size
        if self._pool is None or size < _SMALL:
            self._calls.append((_run(call), size))
        else:
            self._calls.append((self._pool.submit(call), size))

    @property
    def is_next_done(self) -> bool:
        """Whether :meth:`take` would not wait."""
        return bool(self._calls) and self._calls[0][0].done()

    def take(self) -> T:
        """Wait for the first call and return its result, or raise its exception."""
        result, size = self._calls.popleft()
        self.size -= size
        return result.result()

    def stop(self) -> None:
        """Cancel the calls that have not begun, and wait for the others."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _run(call: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()
    try:
        future.set_result(call())
    except Exception as error:  # noqa: BLE001 - `take` raises it, in the order of the calls
        future.set_exception(error)
    return future
