"""Another try where a server did not answer, or not to the end: a few of them, with pauses that grow, in bounded time.

What still fails is for whoever asked: jobs are run again, minutes later.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from time import sleep
from typing import Final, TypeVar

from kubothek.errors import SourceUnavailable

PAUSES: Final = (1.0, 2.0, 4.0)
"""Seconds before each other try, about."""
LONGEST_PAUSE: Final = 30.0
"""A server that wants to be left alone for longer is."""

T = TypeVar("T")


def tried(act: Callable[[], T]) -> T:
    """Return what ``act`` gives, which is run again while it raises SourceUnavailable. Raises the last one."""
    for pause in PAUSES:
        try:
            return act()
        except SourceUnavailable as error:
            asked = error.after or 0.0
            if asked > LONGEST_PAUSE:
                raise
        sleep(max(asked, pause * random.uniform(0.5, 1.0)))  # not all come back at once
    return act()
