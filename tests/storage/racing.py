"""What racing processes run; a module of its own, so that a fork server loads it once for all of them."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier as BarrierType

from kubothek.errors import PreconditionFailed
from kubothek.storage import StoreConfig, open_store

RACERS = 16

_barrier: BarrierType


@contextmanager
def racers() -> Iterator[ProcessPoolExecutor]:
    """A pool of ``RACERS`` processes that all wait at one start line."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(RACERS, context, _take_barrier, (context.Barrier(RACERS),)) as pool:
        yield pool


def increment(config: StoreConfig, key: str, times: int) -> int:
    """Count up the number in an object ``times`` times; how many swaps were lost on the way."""
    store = open_store(config)
    _barrier.wait(60)
    lost = 0
    for _ in range(times):
        while True:
            data, info = store.get_with_info(key)
            try:
                store.put_if_match(key, b"%d" % (int(data) + 1), info.etag)
                break
            except PreconditionFailed:
                lost += 1
    return lost


def create(config: StoreConfig, keys: list[str], name: str) -> list[str]:
    """Try to create each key with this content; the keys that were won."""
    store = open_store(config)
    won = []
    _barrier.wait(60)
    for key in keys:
        try:
            store.put_if_absent(key, name.encode())
            won.append(key)
        except PreconditionFailed:
            pass
    return won


def die_at(call: str, act: Callable[[StoreConfig], object], config: StoreConfig) -> int | None:
    """Run ``act(config)`` in a process that is killed at this call of the ``os`` module; its exit code."""
    process = multiprocessing.get_context("forkserver").Process(target=_act_and_die, args=(call, act, config))
    process.start()
    process.join(60)
    return process.exitcode


def _take_barrier(barrier: BarrierType) -> None:
    global _barrier
    _barrier = barrier


def _act_and_die(call: str, act: Callable[[StoreConfig], object], config: StoreConfig) -> None:
    setattr(os, call, lambda *_args, **_kwargs: os.kill(os.getpid(), signal.SIGKILL))
    act(config)
