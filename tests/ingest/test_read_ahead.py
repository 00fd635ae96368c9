"""Reading in threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from contextvars import ContextVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubothek.ingest.read_ahead import read_ahead


def one(item: int) -> int:
    return 1


@given(st.lists(st.lists(st.integers(0, 5), max_size=6), max_size=6), st.integers(0, 12), st.integers(1, 4))
def test_items_come_in_their_order(parts: list[list[int]], most_bytes: int, threads: int) -> None:
    found = list(read_ahead(parts, lambda item: item, most_bytes, threads))
    assert found == [item for part in parts for item in part]


@pytest.mark.parametrize("threads", [1, 3])
def test_error_of_reading_comes_after_items_before_it(threads: int) -> None:
    def part(*items: int, error: str = "") -> Iterator[int]:
        yield from items
        if error:
            raise ValueError(error)

    found: list[int] = []
    parts = [part(1), part(2, error="row 3"), part(4, error="row 4"), part(5)]
    with pytest.raises(ValueError, match="row 3"):
        found.extend(read_ahead(parts, one, 10, threads))
    assert found == [1, 2]


def test_at_most_the_allowed_bytes_wait() -> None:
    read: list[int] = []
    three = threading.Event()

    def items() -> Iterator[int]:
        for number in range(100):
            read.append(number)
            if number == 3:
                three.set()
            yield number

    with closing(read_ahead([items()], one, 2)) as ahead:
        assert next(ahead) == 0
        assert three.wait(30), "one is used, two wait, and one is read"
        assert next(ahead) == 1
        assert len(read) <= 5
    assert len(read) <= 5


def test_many_small_parts_share_the_allowed_bytes() -> None:
    read: list[int] = []
    reading = threading.Semaphore(0)

    def part(number: int) -> Iterator[int]:
        read.append(number)
        reading.release()
        yield number

    with closing(read_ahead([part(number) for number in range(100)], one, 3, 2)) as ahead:
        assert next(ahead) == 0
        for _ in range(6):
            assert reading.acquire(timeout=30), "one is used, three wait, and each thread reads one"
        assert len(read) == 6


def test_each_thread_reads_another_part() -> None:
    both = threading.Barrier(2)

    def part(number: int) -> Iterator[int]:
        both.wait(30)
        yield number

    assert list(read_ahead([part(0), part(1)], one, 1, 2)) == [0, 1]


def test_part_is_read_while_later_parts_fill_the_allowed_bytes() -> None:
    is_full = threading.Event()

    def slow() -> Iterator[int]:
        assert is_full.wait(30)
        yield from range(10)

    def fast() -> Iterator[int]:
        yield 10
        is_full.set()
        yield 11

    assert list(read_ahead([slow(), fast()], one, 1, 2)) == list(range(12))


@pytest.mark.parametrize("threads", [1, 2])
def test_close_ends_threads_before_end_of_items(threads: int) -> None:
    before = set(threading.enumerate())
    ended = [threading.Event() for _ in range(threads)]

    def items(number: int) -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            ended[number].set()

    with closing(read_ahead([items(number) for number in range(threads)], one, 1, threads)) as ahead:
        assert next(ahead) == 1
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "read-ahead"]
    del ahead
    assert all(each.wait(30) for each in ended)


def test_reading_has_context_of_caller() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="none")
    variable.set("of the caller")

    def items() -> Iterator[str]:
        yield variable.get()

    assert list(read_ahead([items(), items()], len, 1, 2)) == ["of the caller"] * 2
