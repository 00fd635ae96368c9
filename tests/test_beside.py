"""Files of tests that run beside each other: nothing that fails in a thread is lost."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event
from types import SimpleNamespace
from typing import cast

import pytest

from tests.e2e import beside


def item(file: str, test: Callable[..., None]) -> pytest.Function:
    return cast("pytest.Function", SimpleNamespace(path=Path(file), obj=test, stash=pytest.Stash()))


def test_test_files_run_concurrently_and_each_in_order() -> None:
    both, done = Barrier(2), list[str]()

    def meets(word: str) -> None:
        both.wait(60)
        done.append(word)

    def fails(word: str) -> None:
        raise AssertionError(f"{word} is wrong")

    def skips() -> None:
        pytest.skip("not today")

    def ends() -> None:
        done.append("the end")

    items = [item("a", meets), item("a", fails), item("a", skips), item("a", ends), item("b", meets)]
    with ThreadPoolExecutor(2) as pool:
        beside.begin(pool, items, {"word": "it"}.__getitem__)
        assert beside.judge(items[0])
        with pytest.raises(AssertionError, match="it is wrong"):
            beside.judge(items[1])
        with pytest.raises(pytest.skip.Exception, match="not today"):
            beside.judge(items[2])
        assert beside.judge(items[3])
        assert beside.judge(items[4])
    assert done.index("the end") > done.index("it")
    assert not beside.judge(item("c", ends)), "it was not begun"


def test_exclusive_test_waits_for_end_of_others() -> None:
    done = list[str]()
    last_asked = Event()

    @beside.when_others_are_done
    def disturbs() -> None:
        done.append("disturbed")

    def before() -> None:
        last_asked.set()

    def slow() -> None:
        assert last_asked.wait(60)
        done.append("slow")

    items = [item("a", before), item("a", disturbs), item("b", slow), item("c", slow)]
    with ThreadPoolExecutor(2) as pool:
        beside.begin(pool, items, str)
        assert all(beside.judge(each) for each in items)
    assert done == ["slow", "slow", "disturbed"]


def test_cancelled_run_starts_no_more_tests() -> None:
    begun, ended, done = Event(), Event(), list[str]()

    def first() -> None:
        begun.set()
        assert ended.wait(60)

    @beside.when_others_are_done
    def disturbs() -> None:
        done.append("disturbed")

    items = [item("a", first), item("a", lambda: done.append("second")), item("b", disturbs)]
    with ThreadPoolExecutor(2) as pool:
        beside.begin(pool, items, str)
        assert begun.wait(60)
        beside.give_up(items)
        ended.set()
    assert done == []
