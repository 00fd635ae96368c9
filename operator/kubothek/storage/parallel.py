"""Parallel work over many items: in threads of this process, or, with :mod:`kubothek.spark.sweep`, in tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

from kubothek.storage.base import Store

_THREADS: Final = 8

T = TypeVar("T")
R = TypeVar("R")
ReportProgress = Callable[[int, int], None]
"""Progress callback with the number of items done, and of all items."""


class Spread(Protocol):
    """Function that applies work to each item and returns the results in order.

    Work, items and results can be pickled. The work may run on another machine, with a store opened there, and several
    times for one item, even at the same time. The first error is raised; work on some items may then still run.
    """

    def __call__(self, work: Callable[[Store, T], R], items: Sequence[T], title: str) -> list[R]: ...


def spread_here(store: Store, threads: int = _THREADS, report: ReportProgress = lambda done, total: None) -> Spread:
    """Return a Spread over a few threads, which mostly wait for the store; pass a thread per core for CPU work."""

    def run(work: Callable[[Store, T], R], items: Sequence[T], title: str) -> list[R]:
        done: list[R] = []
        if min(len(items), threads) < 2:
            for item in items:
                done.append(work(store, item))
                report(len(done), len(items))
            return done
        with ThreadPoolExecutor(min(threads, len(items)), thread_name_prefix=title) as pool:
            try:
                for result in pool.map(lambda item: work(store, item), items):
                    done.append(result)
                    report(len(done), len(items))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return done

    return run
