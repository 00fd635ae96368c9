"""Which versions of a dataset stay because a version of its cube that stays is made of them."""

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
"""As for datasets: commits that make no versions of their own."""


def pinned(store: Store, uuid: str, policies: Sequence[Retention], now: datetime) -> frozenset[str]:
    """The records of the versions that the heads of cubes name, and the versions of cubes that policies keep.

    So a version of a cube that stays is read whole, also if one of its datasets was deleted since. A cube that was
    deleted itself needs none. Nothing is asked for a dataset whose uuid has no ``++``.
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
