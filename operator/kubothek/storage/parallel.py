"""Doing the same to many things at once: in threads of this process, or, with :mod:`kubothek.spark.sweep`, in tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

from kubothek.storage.base import Store

_THREADS: Final = 8

T = TypeVar("T")
R = TypeVar("R")
Told = Callable[[int, int], None]
"""Hears of items done, and of all items."""


class Spread(Protocol):
    """Does work to each item, and gives back what came of each, in order.

    Work and items are plain data that can be pickled, as is what comes of it: all may happen on another machine, with
    a store of its own that is opened there, and for one item more than once, also at the same time. The first error
    is raised, after which some items may still be worked on.
    """

    def __call__(self, work: Callable[[Store, T], R], items: Sequence[T], title: str) -> list[R]: ...


def spread_here(store: Store, threads: int = _THREADS, told: Told = lambda done, total: None) -> Spread:
    """With a few threads: what they wait for is mostly the store, unless there is one for each core."""

    def run(work: Callable[[Store, T], R], items: Sequence[T], title: str) -> list[R]:
        done: list[R] = []
        if min(len(items), threads) < 2:
            for item in items:
                done.append(work(store, item))
                told(len(done), len(items))
            return done
        with ThreadPoolExecutor(min(threads, len(items)), thread_name_prefix=title) as pool:
            try:
                for result in pool.map(lambda item: work(store, item), items):
                    done.append(result)
                    told(len(done), len(items))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return done

    return run
