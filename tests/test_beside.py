"""Files of tests that run beside each other: nothing that fails in a thread is lost."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import cast

import pytest

from tests.e2e import beside


def item(file: str, test: Callable[..., None]) -> pytest.Function:
    return cast("pytest.Function", SimpleNamespace(path=Path(file), obj=test, stash=pytest.Stash()))


def test_files_run_beside_each_other_and_each_in_its_order_to_the_end() -> None:
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
