"""Settle a head: adopt foreign writes, merge lost commits again, finish what crashes interrupted.

Every writer starts here, so the next writer repairs whatever a crash or a foreign writer left.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final, Protocol

from kubothek.errors import Contended, Diverged, HeadMissing
from kubothek.table.log.history.snapshot import Snapshot
from kubothek.table.log.interop.foreign import adopt, preview, understood
from kubothek.table.log.interop.recover import note_lost, recover
from kubothek.table.log.journal import Draft, Journal, Observed
from kubothek.table.log.legacy_heads import require_writable
from kubothek.table.log.model import keys
from kubothek.table.log.model.record import Record
from kubothek.table.log.prepare.draft import require_no_drift
from kubothek.words import duration

_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.6


class CommitBackoff:
    """Backoff between attempts to swap a contended head, limited by time and not by the number of attempts."""

    def __init__(self, journal: Journal, limit: timedelta) -> None:
        self._journal = journal
        self._limit = limit
        self._deadline = time.monotonic() + limit.total_seconds()
        self.tries = 0

    def pause(self) -> None:
        """Wait a random time that grows with the attempts. Raises Contended after the time limit."""
        if time.monotonic() > self._deadline:
            raise Contended(
                f"dataset {self._journal.uuid!r} in {self._journal.store.url}: other writers swapped the head "
                f"{self.tries} times ahead of this one within {duration(self._limit)}; try again when fewer write"
            )
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self.tries, 10))
        self.tries += 1
        time.sleep(self._journal.rng.uniform(0, longest))


def settled(
    journal: Journal,
    patience: CommitBackoff,
    first_read: Callable[[], Observed | None] | None = None,
    *,
    adopts: bool = True,
) -> Observed | None:
    """Return the head as Kubothek wrote it, its commit marked; None if there is no dataset. Usually two requests.

    ``first_read``  reads the head the first time, and may send another request with it
    ``adopts``      False: return a foreign head that lists its files and overwrote nothing as :func:`unadopted` does

    Raises HeadMissing if there was a head, HeadUnreadable, NeedsConversion, Contended.
    """
    seen = read_head(journal, first_read)
    while seen is not None:
        # Adopting an implicit head later would also list the files that this writer has written by then.
        if seen.marker is None and not adopts and not seen.head.implicit:
            known = unadopted(journal, seen)
            if not known.head.lost:
                return known
        step = _step(journal, seen)
        if step is seen:
            return seen
        if step is None:
            patience.pause()
            step = read_head(journal)
        seen = step
    return None


def unadopted(journal: Journal, foreign: Observed) -> Observed:
    """Return a foreign head as its adoption would make it. Writes nothing. Raises NeedsConversion as adoption does."""
    known = understood(journal, foreign)
    require_writable(foreign.head, known.head)
    return preview(journal, known)


def settle_thoroughly(journal: Journal, patience: CommitBackoff) -> Observed | None:
    """Settle as :func:`settled` does, and also what a writer skips; costs a listing and three more reads.

    These are: an old copy of the head that was put back, a wrong ``_common_metadata`` or ``refs/head``, a packed head.
    """
    while True:
        seen = settled(journal, patience)
        if seen is None or seen.head.tombstone:
            return seen
        draft = note_lost(journal, seen)
        if draft is None:
            journal.heal_common_metadata(seen.head)
            journal.heal_packed_head()
            journal.heal_ref(seen)
            return seen
        if journal.publish(draft, seen) is None:
            patience.pause()


def _step(journal: Journal, seen: Observed) -> Observed | None:
    """Settle one thing; return ``seen`` itself if nothing is left, None if the head moved meanwhile."""
    if seen.marker is None:
        foreign = understood(journal, seen)
        require_writable(seen.head, foreign.head)
        return journal.publish(adopt(journal, foreign), foreign)
    if not seen.marked:
        return journal.complete(seen)
    if seen.head.lost:
        return journal.publish(recover(journal, seen), seen)
    return seen


def read_head(journal: Journal, observe: Callable[[], Observed | None] | None = None) -> Observed | None:
    """Return the head with its marker; None if there never was a head. Raises HeadMissing if there was."""
    if _is_head(seen := (observe or journal.observe)()) or not journal.was_committed():
        return seen
    if _is_head(seen := journal.observe()):
        return seen  # it was created during the listing
    raise HeadMissing(
        f"dataset {journal.uuid!r} in {journal.store.url} has commits, but its head {keys.head(journal.uuid)!r} no "
        "longer exists; it is not created again. Restore the head from a backup, or use another uuid"
    )


def _is_head(seen: Observed | None) -> bool:
    """Return whether it is the JSON head. A packed one counts only while the dataset never had a JSON head."""
    return seen is not None and seen.etag is not None


# How commits reach the head of a dataset: directly here, or through the head of its cube
# (multi/cube_head_target.py).


ReadHead = Callable[[], Observed | None]


class Way(Protocol):
    """What a log and its transactions need of a commit target."""

    @property
    def journal(self) -> Journal:
        """The journal of the dataset."""

    def settled(
        self, patience: CommitBackoff, first_read: ReadHead | None = None, *, adopts: bool = True
    ) -> Observed | None:
        """Settle as :func:`kubothek.table.log.settle.settled` does."""

    def shown(self) -> tuple[Snapshot | None] | None:
        """Return the snapshot that readers of the cube see; (None,) if it is not a member, None if there is no cube."""

    def named(self) -> tuple[str | None] | None:
        """Return the key of the record that the head of the cube names; (None,) and None as :meth:`shown`."""

    def publish(
        self,
        draft: Draft,
        on: Observed | None,
        *,
        before_swap: Callable[[Record], None] | None = None,
        after_swap: Callable[[str], None] | None = None,
    ) -> Observed | None:
        """Publish as :meth:`Journal.publish` does."""


class DatasetHeadTarget:
    """The commit target of a dataset that belongs to no cube."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.publish = journal.publish

    def settled(
        self, patience: CommitBackoff, first_read: ReadHead | None = None, *, adopts: bool = True
    ) -> Observed | None:
        """Return the head with nothing left to settle."""
        return settled(self.journal, patience, first_read, adopts=adopts)

    def shown(self) -> None:
        """Return None: there is no cube."""

    named = shown


# Check that what other programs see of a ledger agrees with its head.


def require_sound_ledger(journal: Journal, seen: Observed | None) -> None:
    """Raise Drift if the table is not the view of the chain, Diverged if ``refs/head`` names another chain's block.

    A foreign head that was not adopted yet is not checked. Costs one request for a ledger, none for other datasets.
    """
    if seen is None or seen.marker is None or seen.head.chain is None or seen.head.tombstone:
        return
    require_no_drift(seen.head)
    if (named := journal.stray_ref(seen)) is not None:
        raise Diverged(
            f"refs/head of the ledger {journal.uuid!r} names block {named}, which no commit of this dataset left; the "
            "next commit adopts it if it continues the chain; otherwise the commit fails and reports why"
        )
