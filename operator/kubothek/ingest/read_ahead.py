"""Reading in a thread of its own, while what was read before is written: in order, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextvars import copy_context
from threading import Condition, Thread
from typing import TypeVar

T = TypeVar("T")


def read_ahead(items: Iterable[T], size: Callable[[T], int], most_bytes: int) -> Generator[T, None, None]:
    """Yield the items, while a thread reads the next ones; raise what reading them raises, after the items before.

    ``size``        returns the bytes of an item
    ``most_bytes``  of items that wait; one may wait whatever its size, and another one is being read

    The thread ends when the generator does: close it if it is not read to its end.
    """
    waiting: deque[T] = deque()
    changed = Condition()
    ended: list[BaseException | None] = []
    is_closed = False

    def has_room() -> bool:
        return is_closed or not waiting or sum(map(size, waiting)) < most_bytes

    def read() -> None:
        error: BaseException | None = None
        try:
            for item in items:
                with changed:
                    changed.wait_for(has_room)
                    if is_closed:
                        break
                    waiting.append(item)
                    changed.notify_all()
        except BaseException as raised:  # noqa: BLE001 - raised again where the items are used
            error = raised
        with changed:
            ended.append(error)
            changed.notify_all()

    thread = Thread(target=copy_context().run, args=(read,), name="read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            with changed:
                changed.wait_for(lambda: waiting or ended)
                if not waiting:
                    break
                item = waiting.popleft()
                changed.notify_all()
            yield item
        if ended[0] is not None:
            raise ended[0]
    finally:
        with changed:
            is_closed = True
            changed.notify_all()
        thread.join()
