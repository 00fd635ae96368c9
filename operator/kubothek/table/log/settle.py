"""The head, with nothing left to settle: foreign writes adopted, lost commits merged again, crashes finished.

Every writer starts from here, so whatever a crash or a foreign writer left is put right by whoever comes next.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from kubothek.errors import Contended, HeadMissing
from kubothek.table.log.interop.foreign import adopt, preview, understood
from kubothek.table.log.interop.recover import note_lost, recover
from kubothek.table.log.journal import Journal, Observed
from kubothek.table.log.legacy_heads import require_writable
from kubothek.table.log.model import keys
from kubothek.words import duration

_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.6


class CommitBackoff:
    """How long to go on trying to swap a head that others swap too: bounded by time, not by tries."""

    def __init__(self, journal: Journal, limit: timedelta) -> None:
        self._journal = journal
        self._limit = limit
        self._deadline = time.monotonic() + limit.total_seconds()
        self.tries = 0

    def pause(self) -> None:
        """Wait a random time that grows with the tries. Raises Contended when it has been too long."""
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
    first_look: Callable[[], Observed | None] | None = None,
    *,
    adopts: bool = True,
) -> Observed | None:
    """The head as Kubothek wrote it, its commit marked; None if there is no dataset. Two requests when all is well.

    ``first_look``  observes the head the first time, with something else beside it
    ``adopts``      False: a foreign head that lists its files and overwrote nothing is left, see :func:`unadopted`

    Raises HeadMissing if there was a head, HeadUnreadable, NeedsConversion, Contended.
    """
    seen = look(journal, first_look)
    while seen is not None:
        # An implicit head takes in whatever files lie there by the time of its adoption, those of this writer as well.
        if seen.marker is None and not adopts and not seen.head.implicit:
            known = unadopted(journal, seen)
            if not known.head.lost:
                return known
        step = _step(journal, seen)
        if step is seen:
            return seen
        if step is None:
            patience.pause()
            step = look(journal)
        seen = step
    return None


def unadopted(journal: Journal, foreign: Observed) -> Observed:
    """A foreign head as its adoption would make it; writes nothing. Raises NeedsConversion as the adoption does."""
    known = understood(journal, foreign)
    require_writable(foreign.head, known.head)
    return preview(journal, known)


def settle_thoroughly(journal: Journal, patience: CommitBackoff) -> Observed | None:
    """As :func:`settled`, and also looks for what a writer does not: costs a listing and three more reads.

    An old copy of the head that somebody put back, a ``_common_metadata`` that is not the head's, and a packed head.
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
    """One thing put right; ``seen`` itself if nothing is left, None if the head moved meanwhile."""
    if seen.marker is None:
        foreign = understood(journal, seen)
        require_writable(seen.head, foreign.head)
        return journal.publish(adopt(journal, foreign), foreign)
    if not seen.marked:
        return journal.complete(seen)
    if seen.head.lost:
        return journal.publish(recover(journal, seen), seen)
    return seen


def look(journal: Journal, observe: Callable[[], Observed | None] | None = None) -> Observed | None:
    """The head as it is, with its marker; None if there never was a head. Raises HeadMissing if there was."""
    if _is_head(seen := (observe or journal.observe)()) or not journal.was_committed():
        return seen
    if _is_head(seen := journal.observe()):
        return seen  # it came into being while we listed
    raise HeadMissing(
        f"dataset {journal.uuid!r} in {journal.store.url} has commits, but its head {keys.head(journal.uuid)!r} is "
        "gone; it is not created anew. Restore the head from a backup, or use another uuid"
    )


def _is_head(seen: Observed | None) -> bool:
    """Whether it is the JSON head. A packed one counts only as long as the dataset never had another."""
    return seen is not None and seen.etag is not None
