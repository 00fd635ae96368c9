"""The commit target of a dataset whose uuid may be a member's: the head of its cube, if there is one.

Every commit to a member settles the cube first, and the cube's head follows: compaction, indices, healing, tags and
expiry too. A dataset without ``++`` in its uuid costs no request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kubothek.errors import CubeBroken
from kubothek.table.log.history.snapshot import Snapshot, snapshot_of
from kubothek.table.log.journal import Draft, Journal, Observed
from kubothek.table.log.model.keys import OWN_ID_PREFIX
from kubothek.table.log.model.markers import Marker
from kubothek.table.log.model.record import Record
from kubothek.table.log.multi.journal import CubeJournal, Open, SeenCube
from kubothek.table.log.multi.publish import Step, Title, publish
from kubothek.table.log.multi.settle import adopted, settled_cube
from kubothek.table.log.multi.snapshots import is_at, present
from kubothek.table.log.multi.spec import memberships
from kubothek.table.log.settle import CommitBackoff, DatasetHeadTarget, ReadHead, Way, settled


def way_of(journal: Journal, open_member: Open) -> Way:
    """Return the commit target of this dataset."""
    return CubeHeadTarget(journal, open_member) if any(memberships(journal.uuid)) else DatasetHeadTarget(journal)


@dataclass(frozen=True, slots=True)
class _Place:
    """The cube of a dataset as it was read, and the name of the dataset in it."""

    cube: CubeJournal
    name: str
    seen: SeenCube


class CubeHeadTarget:
    """The commit target of a dataset that may be a member of a cube."""

    def __init__(self, journal: Journal, open_member: Open) -> None:
        self.journal = journal
        self._cubes = [
            (CubeJournal(journal.store, prefix, open_member), name) for prefix, name in memberships(journal.uuid)
        ]
        self._place: _Place | None = None
        self._patience: CommitBackoff | None = None

    def shown(self) -> tuple[Snapshot | None] | None:
        """Return what readers of the cube see; (None,) if not a member, None if there is no cube. Writes nothing."""
        while (place := self._find()) is not None:
            wanted = place.seen.head.members.get(place.name)
            if wanted is None:
                return (None,)
            seen = self.journal.observe()
            if is_at(seen, wanted):
                return (snapshot_of(self.journal, seen),)
            found = present(place.cube, place.seen)
            if found is not None:
                return (found[place.name],)
        return None

    def named(self) -> tuple[str | None] | None:
        """Return the key of the record that the head of the cube names; (None,) and None as :meth:`shown`."""
        if (place := self._find()) is None:
            return None
        member = place.seen.head.members.get(place.name)
        return (member.record if member is not None else None,)

    def settled(
        self, patience: CommitBackoff, first_read: ReadHead | None = None, *, adopts: bool = True
    ) -> Observed | None:
        """Return the head with nothing left to settle in the cube and here; see :func:`.settle.settled_cube`.

        A foreign head of a member is always adopted: the cube's rules must hold for what its writer did.
        """
        self._patience = patience
        if first_read is not None:
            first_read()
        while True:
            self._place = place = self._find()
            if place is None:
                return settled(self.journal, patience, adopts=adopts)
            seen = settled_cube(place.cube, patience)
            found = None if seen is None else adopted(place.cube, seen, [place.name], patience)
            if found is not None:
                self._place = _Place(place.cube, place.name, found[0])
                return found[1][place.name]
            patience.pause()

    def publish(
        self,
        draft: Draft,
        on: Observed | None,
        *,
        before_swap: Callable[[Record], None] | None = None,
        after_swap: Callable[[str], None] | None = None,
    ) -> Observed | None:
        """Publish as :meth:`Journal.publish` does, in a transaction of the cube that changes this member alone."""
        if (place := self._place) is None or (patience := self._patience) is None:
            return self.journal.publish(draft, on, before_swap=before_swap, after_swap=after_swap)
        title = Title(
            id=f"{OWN_ID_PREFIX}{place.name}:{draft.id}",
            digest=draft.digest,
            operation=str(draft.operation),
            by=draft.by,
        )
        done = publish(
            place.cube,
            place.seen,
            {place.name: Step(draft, on)},
            title,
            patience,
            before_swap=(lambda _, record: before_swap(record)) if before_swap else None,
        )
        if done is None:
            return None
        prepared = done[1][place.name]
        now = self.journal.observe()
        if now is None or now.etag is None or now.marker is None or now.marker.record != prepared.record.key:
            return Observed(prepared.head, None, self.journal.clock(), Marker.of(prepared.record))
        if after_swap is not None:
            after_swap(now.etag)
        return now

    def _find(self) -> _Place | None:
        """Return the cube that this dataset is a member of, or else one that it can become a member of."""
        found = [(cube, name, seen) for cube, name in self._cubes if (seen := cube.observe()) is not None]
        there = [_Place(*each) for each in found if each[2].head.members or each[2].head.intent]
        named = [place for place in there if _names(place)]
        if len(named) > 1:
            raise CubeBroken(
                f"dataset {self.journal.uuid!r} is a member of the cubes "
                f"{' and '.join(repr(place.cube.prefix) for place in named)}: a name can be in one of them only"
            )
        return next(iter(named or there), None)


def _names(place: _Place) -> bool:
    head = place.seen.head
    return place.name in head.members or (head.intent is not None and place.name in head.intent.members)
