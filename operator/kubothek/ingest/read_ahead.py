"""Reading in threads of their own, while what was read before is written: in order, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Generic, TypeVar

T = TypeVar("T")


def read_ahead(
    parts: Sequence[Iterable[T]], size: Callable[[T], int], most_bytes: int, threads: int = 1
) -> Generator[T, None, None]:
    """Yield the items of all parts in order, while each thread reads another part.

    ``size``        returns the bytes of an item
    ``most_bytes``  of items that wait; of the part that is yielded one may wait whatever its size, and each thread
                    reads another one

    Raises what reading an item raises, after the items before it. The threads end when the generator does: close it if
    it is not read to its end.
    """
    reads = _Reads(parts, size, most_bytes)
    running = [
        Thread(target=copy_context().run, args=(reads.read_parts,), name="read-ahead", daemon=True)
        for _ in range(min(threads, len(parts)))
    ]
    try:
        for thread in running:
            thread.start()
        for number in range(len(parts)):
            yield from reads.items_of(number)
    finally:
        reads.close()
        for thread in running:
            if thread.ident is not None:
                thread.join()


@dataclass(slots=True)
class _Part(Generic[T]):
    """Items that are read one after another; ``waiting`` are those that were read and not yielded yet."""

    items: Iterable[T]
    waiting: deque[tuple[T, int]] = field(default_factory=deque)
    is_read: bool = False
    error: BaseException | None = None


class _Reads(Generic[T]):
    """The parts, shared by the threads that read them and the one that uses their items."""

    def __init__(self, parts: Sequence[Iterable[T]], size: Callable[[T], int], most_bytes: int) -> None:
        self._parts = [_Part(items) for items in parts]
        self._size = size
        self._most_bytes = most_bytes
        self._changed = Condition()
        self._is_closed = False
        self._begun = 0
        """The number of parts that a thread reads or has read."""
        self._used = 0
        """The number of the part whose items are used: without room for it, no part would ever be read."""
        self._waiting_bytes = 0

    def read_parts(self) -> None:
        """Read one part after another that no other thread reads."""
        while (part := self._next_part()) is not None:
            error: BaseException | None = None
            try:
                self._read(*part)
            except BaseException as raised:  # noqa: BLE001 - raised again where the items are used
                error = raised
            with self._changed:
                part[1].is_read, part[1].error = True, error
                self._changed.notify_all()

    def items_of(self, number: int) -> Generator[T, None, None]:
        """Yield the items of a part, and raise what reading them raised; parts come in their order."""
        part = self._parts[number]
        with self._changed:
            self._used = number
            self._changed.notify_all()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: part.waiting or part.is_read)
                if not part.waiting:
                    break
                item, item_bytes = part.waiting.popleft()
                self._waiting_bytes -= item_bytes
                self._changed.notify_all()
            yield item
        if part.error is not None:
            raise part.error

    def close(self) -> None:
        """Let the threads end after the item that each reads."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _next_part(self) -> tuple[int, _Part[T]] | None:
        with self._changed:
            number = self._begun
            if self._is_closed or number == len(self._parts):
                return None
            self._begun += 1
            return number, self._parts[number]

    def _read(self, number: int, part: _Part[T]) -> None:
        def has_room() -> bool:
            is_needed = number == self._used and not part.waiting
            return self._is_closed or is_needed or self._waiting_bytes < self._most_bytes

        for item in part.items:
            item_bytes = self._size(item)
            with self._changed:
                self._changed.wait_for(has_room)
                if self._is_closed:
                    break
                part.waiting.append((item, item_bytes))
                self._waiting_bytes += item_bytes
                self._changed.notify_all()
