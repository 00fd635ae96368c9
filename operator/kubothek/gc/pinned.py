"""Versions of a dataset that stay because a kept version of its cube contains them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from random import SystemRandom
from typing import Final

from kubothek.gc.retention import Retention, is_retained
from kubothek.storage import Store
from kubothek.table.log import Operation
from kubothek.table.log.journal import Journal, system_clock
from kubothek.table.log.multi.journal import CubeJournal
from kubothek.table.log.multi.spec import memberships

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
