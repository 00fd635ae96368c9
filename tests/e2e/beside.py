"""Files of tests that run beside each other: nearly all that they do is wait, each for what is its own.

Each file is a thread, in which its tests run in their order. pytest then judges one test after the other, as ever: what
its thread made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from inspect import signature
from itertools import groupby
from typing import Any, TypeVar

import pytest

T = TypeVar("T", bound=Callable[..., None])
BEGUN = pytest.StashKey[Future[None]]()
"""What becomes of a test that has been begun."""
_LAST: set[Callable[..., None]] = set()


def when_others_are_done(test: T) -> T:
    """A test that takes from all others what they need: it waits for their ends. Of such tests there is one file."""
    _LAST.add(test)
    return test


def begin(pool: ThreadPoolExecutor, items: Sequence[pytest.Function], fixture: Callable[[str], Any]) -> None:
    """Begin tests, file by file; ``fixture`` has those of the package by their names: they may take no others."""
    for item in items:
        item.stash[BEGUN] = Future()
    others = [item.stash[BEGUN] for item in items if not _is_last(item)]
    for _, group in groupby(items, lambda item: item.path):
        file: list[tuple[Callable[[], None], Future[None]]] = []
        for item in group:
            arguments = {name: fixture(name) for name in signature(item.obj).parameters}
            awaited = others if _is_last(item) else []
            file.append((_bound(item.obj, arguments, awaited), item.stash[BEGUN]))
        pool.submit(_run, file)


def give_up(items: Sequence[pytest.Function]) -> None:
    """Nothing more is begun, and nobody waits for it."""
    for item in items:
        begun = item.stash[BEGUN]
        if begun.cancel():
            begun.set_running_or_notify_cancel()


def judge(item: pytest.Function) -> bool:
    """Wait for a test that was begun, and raise what it raised. False: it was not."""
    begun = item.stash.get(BEGUN, None)
    if begun is None:
        return False
    begun.result()
    return True


def _is_last(item: pytest.Function) -> bool:
    return item.obj in _LAST


def _bound(test: Callable[..., None], arguments: dict[str, Any], awaited: Sequence[Future[None]]) -> Callable[[], None]:
    def run() -> None:
        wait(awaited)
        if not any(each.cancelled() for each in awaited):
            test(**arguments)

    return run


def _run(file: Sequence[tuple[Callable[[], None], Future[None]]]) -> None:
    for test, told in file:
        if told.cancelled() or not told.set_running_or_notify_cancel():
            continue
        try:
            test()
        except BaseException as error:  # noqa: BLE001 - whoever judges it raises it again
            told.set_exception(error)
        else:
            told.set_result(None)
