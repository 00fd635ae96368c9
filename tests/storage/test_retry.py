"""The retry loop by itself, on a clock that the test turns, and the range reader against a plain file."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubothek.errors import StoreError, StoreUnavailable
from kubothek.storage.ranges import RangeReader
from kubothek.storage.retry import RetryPolicy, Verdict, with_retries


class Clock:
    """Time passes by sleeping."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def __call__(self) -> float:
        return self.now


class Flaky:
    """Fails so many times, then answers."""

    def __init__(self, failures: int) -> None:
        self.left = failures

    def __call__(self) -> str:
        if self.left:
            self.left -= 1
            raise OSError("flaky")
        return "answer"


def run(call: Flaky, clock: Clock, budget: float, patience: RetryPolicy) -> str:
    error = StoreUnavailable("down")
    return with_retries(call, lambda _raised: Verdict(error, budget), patience, sleep=clock.sleep, clock=clock)


def test_retry_pauses_double_up_to_cap_with_jitter() -> None:
    clock = Clock()
    assert run(Flaky(8), clock, 1000, RetryPolicy(first_pause=1, longest_pause=16)) == "answer"
    for pause, longest in zip(clock.pauses, [1, 2, 4, 8, 16, 16, 16, 16], strict=True):
        assert longest / 2 <= pause <= longest
    assert len({pause / longest for pause, longest in zip(clock.pauses, [1, 2, 4, 8, 16, 16, 16, 16], strict=True)}) > 1


def test_retry_stops_before_budget_is_exceeded_and_keeps_cause() -> None:
    clock = Clock()
    with pytest.raises(StoreUnavailable) as raised:
        run(Flaky(10**9), clock, 10, RetryPolicy(first_pause=1, longest_pause=2))
    assert 7 <= sum(clock.pauses) < 10
    assert isinstance(raised.value.__cause__, OSError)


def test_retry_without_budget_tries_once() -> None:
    clock = Clock()
    with pytest.raises(StoreError):
        run(Flaky(1), clock, 0, RetryPolicy())
    assert clock.pauses == []


def test_retry_passes_unclassified_errors_unchanged() -> None:
    with pytest.raises(OSError, match="flaky"):
        with_retries(Flaky(1), lambda _raised: None, RetryPolicy())


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("seek"), st.integers(0, 300)),
        st.tuples(st.just("back"), st.integers(0, 200)),
        st.tuples(st.just("read"), st.integers(0, 300)),
    ),
    max_size=12,
)


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=256), tail=st.integers(0, 300), buffer=st.integers(1, 64), steps=STEPS)
def test_range_reader_behaves_like_file(data: bytes, tail: int, buffer: int, steps: list[tuple[str, int]]) -> None:
    raw = RangeReader(len(data), data[max(0, len(data) - tail) :], lambda start, stop: data[start:stop])
    reader, file = io.BufferedReader(raw, buffer), io.BytesIO(data)
    for step, number in steps:
        if step == "read":
            assert reader.read(number) == file.read(number)
        elif step == "seek":
            assert reader.seek(number) == file.seek(number)
        else:
            assert reader.seek(-min(number, len(data)), io.SEEK_END) == file.seek(-min(number, len(data)), io.SEEK_END)
        assert reader.tell() == file.tell()


def test_range_reader_fetches_only_ranges_outside_its_tail() -> None:
    fetched = []

    def fetch(start: int, stop: int) -> bytes:
        fetched.append((start, stop))
        return bytes(stop - start)

    reader = io.BufferedReader(RangeReader(1000, bytes(100), fetch), 50)
    reader.seek(-100, io.SEEK_END)
    reader.read()
    assert fetched == []
    reader.seek(10)
    reader.read(5)
    assert fetched == [(10, 60)]
    fetched.clear()
    reader.seek(0)
    assert len(reader.read()) == 1000
    assert fetched == [(0, 1000)]
