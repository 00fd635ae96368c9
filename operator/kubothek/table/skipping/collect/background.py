"""Work in parallel with the encoding of Parquet files, which mostly runs without Python's interpreter lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

_SMALL: Final = 1 << 20
"""Below this many bytes, a call is cheaper in the calling thread."""
_WAITING: Final = 64 << 20
"""Maximum bytes that queued calls hold in memory: more than one row group."""


class Aside:
    """Executor of calls in order, large ones in a thread of its own. Their exceptions are raised later."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: deque[tuple[Future[None], int]] = deque()
        self._bytes = 0

    def run(self, call: Callable[[], None], size: int) -> None:
        """Run a call that reads this many bytes, now or soon."""
        if size < _SMALL and not self._waiting:
            call()
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="describe")
        self._waiting.append((self._pool.submit(call), size))
        self._bytes += size
        self._wait(_WAITING)

    def finish(self) -> None:
        """Wait until all calls have ended."""
        self._wait(0)
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _wait(self, goal: int) -> None:
        while self._waiting and (self._bytes > goal or self._waiting[0][0].done()):
            call, size = self._waiting.popleft()
            self._bytes -= size
            call.result()
