"""The time as the API server has it: that of every stamp on every object. Our own clock may be off, or be set."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

_TRUSTED: Final = timedelta(seconds=2)
"""What clocks may differ by, and the server's answers tell whole seconds only."""


class ServerClock:
    """Shows our own time until the API server tells another one; then runs on by a clock that nobody sets."""

    def __init__(
        self,
        own: Callable[[], datetime] = lambda: datetime.now(UTC),
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ticks = ticks
        self._shown, self._at = own(), ticks()

    def __call__(self) -> datetime:
        return self._time(self.ticks())

    def heard(self, date: str | None, sent: float) -> None:
        """The ``Date`` of an answer to a request that was sent at this tick; whatever is no date is passed over."""
        try:
            told = parsedate_to_datetime(date or "")
        except ValueError:
            return
        told, now = told if told.tzinfo else told.replace(tzinfo=UTC), self.ticks()
        if not self._time(sent) - _TRUSTED <= told <= self._time(now) + _TRUSTED:
            self._shown, self._at = told, now

    def _time(self, tick: float) -> datetime:
        return self._shown + timedelta(seconds=tick - self._at)
