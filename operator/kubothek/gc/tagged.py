"""Which versions stay because they have a tag, or have lost it so lately that somebody may still be reading them."""

from __future__ import annotations

from collections.abc import Callable

from kubothek.table.log import Head
from kubothek.table.log.model.head import TAGS, tags_in
from kubothek.table.log.records import Stored


class TaggedVersions:
    """The tagged versions of a head; it meets the kept commits, newest first, to learn of the others.

    ``present``  the records of the versions that have tags; those of a deleted dataset count as long as the deletion
                 can be taken back
    ``recent``   whether what a commit replaced may still be read
    ``pinned``   the records of versions that are needed as if they had tags
    """

    def __init__(self, head: Head, recent: Callable[[Stored], bool], pinned: frozenset[str] = frozenset()) -> None:
        self.present = frozenset(tag.record for tag in head.tags.values()) | pinned
        self._pinned = pinned
        self._head = head
        self._recent = recent
        self._newest = True
        self._met: set[str] = set()
        self._turns: list[Stored] = []

    def meet(self, found: Stored) -> None:
        """A kept commit."""
        record = found.record
        if self._newest and self._head.tombstone and not self._recent(found):
            self.present = self._pinned
        self._newest = False
        if record.key in self.present:
            self._met.add(record.key)
        if (TAGS in record.delta.metadata or TAGS in record.delta.dropped) and all(map(self._recent, self._turns[-1:])):
            self._turns.append(found)

    def apart(self) -> list[str]:
        """The records of tagged versions that are not among those met."""
        return sorted(self.present - self._met)

    def lost_lately(self, oldest: Head) -> list[str]:
        """The records of versions whose last tag is gone, but not for long.

        Which tags there were before a commit that changed them, tells the one below it that did so too, or the
        ``oldest`` kept version.
        """
        before = (*(turn.record.delta.metadata for turn in self._turns[1:]), oldest.metadata)
        lately = (there for turn, there in zip(self._turns, before, strict=False) if self._recent(turn))
        names = {tag.record for metadata in lately for tag in tags_in(self._head.uuid, metadata).values()}
        return sorted(names - self.present)
