"""Periodic checks of a Spark context, in a thread beside the one that waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError


@contextmanager
def beside(name: str, seconds: float, check: Callable[[], bool]) -> Iterator[None]:
    """Call ``check`` every ``seconds`` while the body runs, until it returns True.

    ``name``  name of the thread
    """
    over = threading.Event()

    def run() -> None:
        with suppress(Py4JError, OSError):  # the waiting thread reports that the JVM is gone
            while not over.wait(seconds) and not check():
                pass

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
