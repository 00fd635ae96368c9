"""The time limit of a commit: garbage collection may delete files that are written too long before their commit."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Final

from kubothek.errors import ObjectNotFound, TooSlow
from kubothek.table.log.journal import Journal
from kubothek.table.log.model.record import Record
from kubothek.table.log.settings import read_settings
from kubothek.words import duration

_NEVER_TOO_SLOW: Final = timedelta(seconds=20)
"""Below half of the shortest grace period, so that usual commits need not ask the store for the time."""


class Pace:
    """The time that one commit takes, from the creation of this object."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._began = journal.clock(), time.monotonic()
        self._first_written: str | None = None

    def note_written(self, key: str) -> None:
        """Note an object that was written for the commit; the first one is the oldest."""
        self._first_written = self._first_written or key

    def require_timely(self, record: Record) -> None:
        """Raise TooSlow if the collector may own what was written: half the grace period, by the store's clock.

        Local clocks only decide whether to ask the store. There are two: the monotonic one stops in a suspended
        machine, the wall clock can be set.
        """
        began, ticks = self._began
        elapsed = max(self._journal.clock() - began, timedelta(seconds=time.monotonic() - ticks))
        if elapsed < _NEVER_TOO_SLOW:
            return
        limit = read_settings(self._journal.store).grace / 2
        age = self._age_at(record) if self._first_written else elapsed
        if age is None or age > limit:
            raise TooSlow(
                f"commit {record.id!r} of {self._journal.uuid!r}: its oldest file is "
                f"{'gone' if age is None else f'{duration(age)} old'}; garbage collection may delete it after "
                f"{duration(limit)}. Nothing was committed; give the job more resources, commit in smaller parts, or "
                "raise the store's grace period"
            )

    def _age_at(self, record: Record) -> timedelta | None:
        store = self._journal.store
        assert self._first_written is not None, "asked only if something was noted"
        try:
            return store.stat(record.key).modified - store.stat(self._first_written).modified
        except ObjectNotFound:
            return None
