"""Retries of requests that the server did not answer completely: a few, with growing backoff, in bounded time.

A failure after that is reported to the caller: jobs are retried minutes later.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from time import sleep
from typing import Final, TypeVar

from kubothek.errors import SourceUnavailable

PAUSES: Final = (1.0, 2.0, 4.0)
"""Approximate seconds before each retry."""
LONGEST_PAUSE: Final = 30.0
"""If the server asks for a longer pause, there is no retry."""

T = TypeVar("T")


def tried(act: Callable[[], T]) -> T:
    """Return the result of ``act``, retried while it raises SourceUnavailable. Raises the last error."""
    for pause in PAUSES:
        try:
            return act()
        except SourceUnavailable as error:
            asked = error.after or 0.0
            if asked > LONGEST_PAUSE:
                raise
        sleep(max(asked, pause * random.uniform(0.5, 1.0)))  # so that clients do not retry in step
    return act()
