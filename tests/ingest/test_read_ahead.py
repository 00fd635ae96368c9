"""Reading in a thread of its own."""

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


@given(st.lists(st.integers(0, 5)), st.integers(0, 12))
def test_items_come_in_their_order(items: list[int], most_bytes: int) -> None:
    assert list(read_ahead(items, lambda item: item, most_bytes)) == items


def test_error_of_reading_comes_after_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("row 3 is damaged")

    found: list[int] = []
    with pytest.raises(ValueError, match="row 3"):
        found.extend(read_ahead(items(), one, 10))
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

    with closing(read_ahead(items(), one, 2)) as ahead:
        assert next(ahead) == 0
        assert three.wait(30), "one is used, two wait, and one is read"
        assert next(ahead) == 1
        assert len(read) <= 5
    assert len(read) <= 5


def test_close_ends_thread_before_end_of_items() -> None:
    before = set(threading.enumerate())
    ended = threading.Event()

    def items() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            ended.set()

    with closing(read_ahead(items(), one, 1)) as ahead:
        assert next(ahead) == 1
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "read-ahead"]
    del ahead
    assert ended.wait(30)


def test_reading_has_context_of_caller() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="none")
    variable.set("of the caller")

    def items() -> Iterator[str]:
        yield variable.get()

    assert list(read_ahead(items(), len, 1)) == ["of the caller"]
