"""Files of tests that run beside each other: nearly all that they do is wait, each for what is its own.

Each file is a thread, in which its tests run in their order. pytest then judges one test after the other, as ever: what
its thread made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from inspect import signature
from itertools import groupby
from typing import Any

import pytest

BEGUN = pytest.StashKey[Future[None]]()
"""What becomes of a test that has been begun."""


def begin(pool: ThreadPoolExecutor, items: Sequence[pytest.Function], fixture: Callable[[str], Any]) -> None:
    """Begin tests, file by file; ``fixture`` has those of the session by their names: they may take no others."""
    for _, group in groupby(items, lambda item: item.path):
        file: list[tuple[Callable[[], None], Future[None]]] = []
        for item in group:
            arguments = {name: fixture(name) for name in signature(item.obj).parameters}
            item.stash[BEGUN] = Future()
            file.append((_bound(item.obj, arguments), item.stash[BEGUN]))
        pool.submit(_run, file)


def judge(item: pytest.Function) -> bool:
    """Wait for a test that was begun, and raise what it raised. False: it was not."""
    begun = item.stash.get(BEGUN, None)
    if begun is None:
        return False
    begun.result()
    return True


def _bound(test: Callable[..., None], arguments: dict[str, Any]) -> Callable[[], None]:
    return lambda: test(**arguments)


def _run(file: Sequence[tuple[Callable[[], None], Future[None]]]) -> None:
    for test, told in file:
        try:
            test()
        except BaseException as error:  # noqa: BLE001 - whoever judges it raises it again
            told.set_exception(error)
        else:
            told.set_result(None)
