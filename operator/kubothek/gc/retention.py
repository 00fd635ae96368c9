"""Which versions are kept: by number, and by how long ago they stopped being current. Pure.

A version's age counts from when its successor took its place: one that was current for a year and was replaced a
minute ago is a minute old. What any rule of any policy keeps is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kubothek.errors import InputError


@dataclass(frozen=True, slots=True)
class Retention:
    """What one policy keeps.

    ``versions``  so many of the newest, the present one included
    ``time``      those that were current within this time

    With both, what either keeps; with neither, every version.
    """

    versions: int | None = None
    time: timedelta | None = None

    def __post_init__(self) -> None:
        if self.versions is not None and self.versions < 1:
            raise InputError(f"{self.versions} versions to keep: the present one always stays, so at least 1")
        if self.time is not None and self.time < timedelta(0):
            raise InputError(f"versions to keep for {self.time}: a time cannot be negative")

    def keeps(self, *, newer: int, stopped: datetime | None, now: datetime) -> bool:
        """Whether it keeps a version.

        ``newer``    how many versions are newer
        ``stopped``  when the version stopped being current; None if it is
        """
        if stopped is None or (self.versions is None and self.time is None):
            return True
        by_number = self.versions is not None and newer < self.versions
        by_time = self.time is not None and now - stopped <= self.time
        return by_number or by_time


def is_retained(policies: Sequence[Retention], *, newer: int, stopped: datetime | None, now: datetime) -> bool:
    """Whether any policy keeps the version; if so, all newer ones are kept as well."""
    return any(policy.keeps(newer=newer, stopped=stopped, now=now) for policy in policies)


def may_be_read(*, replaced: datetime | None, now: datetime, grace: timedelta) -> bool:
    """Whether readers or foreign writers may still be at work on a version, whatever policies say.

    ``replaced``  when the record of its successor was written; None if it is the present version

    The swap comes after the record, by half a grace period at most (commit-protocol, "What a collector may delete").
    """
    return replaced is None or now - (replaced + grace / 2) <= grace
