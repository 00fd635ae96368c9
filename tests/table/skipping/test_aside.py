"""Work beside the encoding: in order, bounded in what waits, and never silently lost."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kubothek.table.skipping.collect import collectors
from kubothek.table.skipping.collect.collectors import Aside

LARGE = 1 << 21


def test_background_calls_run_in_submission_order() -> None:
    ran: list[tuple[int, str]] = []
    gate = threading.Event()
    work = Aside()

    def call(number: int, waits: bool = False) -> Callable[[], None]:
        def run() -> None:
            if waits:
                assert gate.wait(10)
            ran.append((number, threading.current_thread().name.partition("_")[0]))

        return run

    work.run(call(0), 1)
    assert ran == [(0, "MainThread")]
    work.run(call(1, waits=True), LARGE)
    work.run(call(2), 1)  # small, and yet after what waits
    assert len(ran) == 1
    gate.set()
    work.finish()
    assert ran[1:] == [(1, "describe"), (2, "describe")]
    work.run(call(3), 1)
    assert ran[-1] == (3, "MainThread")
    work.finish()


def test_background_call_that_fails_raises_in_caller() -> None:
    work = Aside()

    def fail() -> None:
        raise OverflowError("no such number")

    def run() -> None:  # it comes up at once, if the call has ended by then
        work.run(fail, LARGE)
        work.finish()

    with pytest.raises(OverflowError, match="no such number"):
        run()


def test_background_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectors, "_WAITING", 3 * LARGE)
    work, running, most = Aside(), [0], [0]
    lock = threading.Lock()

    def done() -> None:
        with lock:
            running[0] -= 1

    for _ in range(20):
        with lock:
            running[0] += 1
        work.run(done, LARGE)
        with lock:
            most[0] = max(most[0], running[0])
    work.finish()
    assert running == [0]
    assert most[0] <= 3
