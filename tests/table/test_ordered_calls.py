"""Calls in threads, with results in the order of the calls."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from kubothek.table.ordered_calls import OrderedCalls

LARGE = 1 << 20


@pytest.fixture(params=[1, 3])
def calls(request: pytest.FixtureRequest) -> OrderedCalls[int]:
    return OrderedCalls(request.param, "ordered")


def test_results_come_in_order_of_calls_and_free_their_bytes(calls: OrderedCalls[int]) -> None:
    for number in range(20):
        calls.add(partial(int, number), LARGE if number % 2 else 1)
    assert (len(calls), calls.size) == (20, 10 * LARGE + 10)
    assert [calls.take() for _ in range(20)] == list(range(20))
    assert (len(calls), calls.size, calls.is_next_done) == (0, 0, False)
    calls.stop()


def test_later_call_that_ends_first_is_taken_second() -> None:
    calls: OrderedCalls[str] = OrderedCalls(2, "ordered")
    second_done, first_may_end = threading.Event(), threading.Event()

    def first() -> str:
        assert first_may_end.wait(30)
        return "first"

    def second() -> str:
        second_done.set()
        return "second"

    calls.add(first, LARGE)
    calls.add(second, LARGE)
    assert second_done.wait(30)
    assert not calls.is_next_done
    first_may_end.set()
    assert [calls.take(), calls.take()] == ["first", "second"]
    calls.stop()


def test_exception_of_call_is_raised_when_its_result_is_taken(calls: OrderedCalls[int]) -> None:
    calls.add(lambda: 1, LARGE)
    calls.add(lambda: 1 // 0, LARGE)
    calls.add(lambda: 1 // 0, 1)
    assert calls.take() == 1
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            calls.take()
    assert calls.size == 0
    calls.stop()


def test_stop_cancels_waiting_calls_and_ends_threads() -> None:
    before = set(threading.enumerate())
    calls: OrderedCalls[None] = OrderedCalls(2, "ordered")
    begun, may_end = threading.Barrier(3), threading.Event()
    run: list[int] = []

    def block() -> None:
        begun.wait(30)
        assert may_end.wait(30)

    calls.add(block, LARGE)
    calls.add(block, LARGE)
    begun.wait(30)
    for number in range(10):
        calls.add(partial(run.append, number), LARGE)
    calls._calls[-1][0].add_done_callback(lambda future: may_end.set())  # once it is cancelled
    calls.stop()
    assert run == []
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("ordered")]


def test_one_thread_or_a_small_call_starts_no_thread() -> None:
    here = threading.get_ident()
    for threads, size in ((1, LARGE), (4, 1)):
        calls: OrderedCalls[int] = OrderedCalls(threads, "ordered")
        calls.add(threading.get_ident, size)
        assert calls.is_next_done
        assert calls.take() == here
        calls.stop()
