"""Answers of a server that are good for a few seconds: asked for once, however many wait for them."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """The last ``most`` answers. Belongs to one event loop.

    ``seconds``  for which an answer is good
    """

    def __init__(self, most: int, seconds: Callable[[V], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._answers: OrderedDict[K, tuple[V, float]] = OrderedDict()
        self._asked: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """The answer; what ``ask`` raises is raised to all who wait, and not remembered."""
        known = self._answers.get(key)
        if known is not None and self._clock() < known[1]:
            self._answers.move_to_end(key)
            return known[0]
        if (task := self._asked.get(key)) is None:
            task = self._asked[key] = asyncio.create_task(self._ask(key, ask))
            task.add_done_callback(_retrieved)
        return await asyncio.shield(task)  # one who goes away does not take the answer along

    async def _ask(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        try:
            asked = self._clock()
            answer = await ask()
            self._answers.pop(key, None)
            self._answers[key] = answer, asked + self._seconds(answer)
            if len(self._answers) > self._most:
                self._answers.popitem(last=False)
            return answer
        finally:
            del self._asked[key]


def _retrieved(task: asyncio.Task[V]) -> None:
    if not task.cancelled():
        task.exception()
