"""Which versions are kept: by number, and by how long ago they stopped being current. Pure functions.

A version's age counts from its replacement by the next version: one that was current for a year and was replaced a
minute ago is a minute old. A version stays if any rule of any policy keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kubothek.errors import InputError


@dataclass(frozen=True, slots=True)
class Retention:
    """The rules of one policy.

    ``versions``  keep this number of the newest versions, the current one included
    ``time``      keep versions that were current within this time

    With both, a version stays if either keeps it; with neither, every version stays.
    """

    versions: int | None = None
    time: timedelta | None = None

    def __post_init__(self) -> None:
        if self.versions is not None and self.versions < 1:
            raise InputError(f"{self.versions} versions to keep: the present one always stays, so at least 1")
        if self.time is not None and self.time < timedelta(0):
            raise InputError(f"versions to keep for {self.time}: a time cannot be negative")

    def keeps(self, *, newer: int, stopped: datetime | None, now: datetime) -> bool:
        """Return whether the policy keeps a version.

        ``newer``    how many versions are newer
        ``stopped``  when the version stopped being current; None if it is current
        """
        if stopped is None or (self.versions is None and self.time is None):
            return True
        by_number = self.versions is not None and newer < self.versions
        by_time = self.time is not None and now - stopped <= self.time
        return by_number or by_time


def is_retained(policies: Sequence[Retention], *, newer: int, stopped: datetime | None, now: datetime) -> bool:
    """Return whether any policy keeps the version; if so, all newer ones are kept as well."""
    return any(policy.keeps(newer=newer, stopped=stopped, now=now) for policy in policies)


def may_be_read(*, replaced: datetime | None, now: datetime, grace: timedelta) -> bool:
    """Return whether readers or foreign writers may still use a version, whatever policies say.

    ``replaced``  when the record of its successor was written; None if it is the current version

    The swap follows the record within half a grace period (commit-protocol, "What a collector may delete").
    """
    return replaced is None or now - (replaced + grace / 2) <= grace
