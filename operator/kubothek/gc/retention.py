"""Which versions are kept: by number, and by how long ago they stopped being current.

A version's age counts from its replacement by the next version: one that was current for a year and was replaced a
minute ago is a minute old. A version stays if any rule of any policy keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from random import SystemRandom
from typing import Final

from kubothek.errors import InputError
from kubothek.storage import Store
from kubothek.table.log import Operation
from kubothek.table.log.journal import Journal, system_clock
from kubothek.table.log.multi.journal import CubeJournal
from kubothek.table.log.multi.spec import memberships


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


# Versions of a dataset that stay because a kept version of its cube contains them.


_NO_VERSIONS: Final = (str(Operation.EXPIRE), str(Operation.TAG))
"""As for datasets: commits that do not count as versions."""


def pinned(store: Store, uuid: str, policies: Sequence[Retention], now: datetime) -> frozenset[str]:
    """Return the records of the dataset's versions in the heads of its cubes, and in cube versions that policies keep.

    So a kept version of a cube stays complete, even if one of its datasets was deleted since. A deleted cube needs
    none. A dataset without ``++`` in its uuid costs no request.
    """
    found: set[str] = set()
    open_member = partial(Journal, store, clock=system_clock, rng=SystemRandom())
    for prefix, name in memberships(uuid):
        journal = CubeJournal(store, prefix, open_member)
        seen = journal.observe()
        if seen is None or not seen.head.members:
            continue
        newer, stopped = 0, None
        for record, written in journal.stored(seen.head):
            if not is_retained(policies, newer=newer, stopped=stopped, now=now):
                break
            if (member := record.members.get(name)) is not None:
                found.add(member.record)
            if record.operation not in _NO_VERSIONS:
                newer, stopped = newer + 1, written
    return frozenset(found)
