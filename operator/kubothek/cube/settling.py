"""Settling of a cube before a write: claims, adoption, and reverts of other programs' changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from kubothek.cube.discovery import discover, member_names
from kubothek.errors import DatasetNotFound, NotAdopted, OwnedByAnother
from kubothek.storage import Store
from kubothek.table.log import Claim
from kubothek.table.log.journal import Observed
from kubothek.table.log.multi.head import CubeHead, MemberVersion
from kubothek.table.log.multi.journal import CubeJournal, SeenCube
from kubothek.table.log.multi.member_commit import bring_to
from kubothek.table.log.multi.members import in_order
from kubothek.table.log.multi.settle import adopted, at_record, record_of, settled_cube, version_of
from kubothek.table.log.multi.spec import SEPARATOR, CubeSpec
from kubothek.table.log.ownership import ensure_claim, require_unowned
from kubothek.table.log.records import parallel
from kubothek.table.log.settle import CommitBackoff, settled

ClaimOf = Callable[[str], Claim | None]
"""Returns the claim for writes to a member; None: the writer is a user with the store's credentials."""
Heads = Mapping[str, Observed | None]
"""The heads, by name, of members and of datasets that may become members."""


@dataclass(frozen=True, slots=True)
class Settling:
    """Start of every commit of a cube; the fields are those of :class:`~kubothek.cube.log.CubeLog`."""

    store: Store
    journal: CubeJournal
    by: str
    claim_of: ClaimOf
    unowned_only: bool
    patience: timedelta
    conditional_writes: bool

    def settled(self, patience: CommitBackoff, *, adopts: bool = True) -> tuple[SeenCube | None, Heads]:
        """The cube and the heads of its members, with nothing left to settle; None if there is none.

        ``adopts``  False: what another program made or changed is left as it is, and shown in a cube without an ETag
                    as its adoption would make it
        """
        while True:
            seen = settled_cube(self.journal, patience)
            if seen is None or not seen.head.members:
                found = self._adopted(seen, patience, adopts=adopts)
            else:
                found = adopted(self.journal, seen, self.names(seen), patience, adopts=adopts)
            if found is not None:
                return found
            patience.pause()

    def _adopted(
        self, seen: SeenCube | None, patience: CommitBackoff, *, adopts: bool
    ) -> tuple[SeenCube | None, Heads] | None:
        """The first version of a cube that another program made; nothing of it changes but that it has a head."""
        names = member_names(self.store, self.journal.prefix)
        spec = self._found()
        if spec is not None:
            self.require_claims(names)
        look = partial(settled, patience=patience, adopts=adopts)
        heads = dict(zip(names, parallel(lambda name: look(self.journal.member(name)), names), strict=True))
        there = {name: head for name, head in heads.items() if head is not None and not head.head.tombstone}
        if spec is None or not there:
            return seen, heads
        base = replace(seen.head, spec=spec) if seen else CubeHead(spec)
        members = {name: version_of(there[name]) for name in in_order(spec, there)}
        if not adopts:
            return SeenCube(replace(base, members=members), None), heads
        record = record_of(
            self.journal, base, members, operation="Adopt", commit_id=self.journal.own_id("adopt"), by=self.by
        )
        self.journal.put_record(record)
        swapped = self.journal.swap(at_record(base, record), seen)
        return None if swapped is None else (swapped, heads)

    def _found(self) -> CubeSpec | None:
        """Return the specification of the existing datasets, after checks; None if there are none."""
        try:
            return discover(self.store, self.journal.prefix).spec
        except DatasetNotFound:
            return None

    def names(self, seen: SeenCube) -> list[str]:
        """Return the names of members, and of datasets that another program may have added."""
        return sorted({*seen.head.members, *member_names(self.store, self.journal.prefix)})

    def new_patience(self) -> CommitBackoff:
        """Return the backoff for one commit."""
        return CommitBackoff(self.journal.member("x"), self.patience)

    def require_claims(self, names: Collection[str]) -> None:
        """Check, before the first byte, that these members may be written. Raises OwnedByAnother, NotAdopted."""
        if not self.conditional_writes and any(self.claim_of(name) is None for name in names):
            raise OwnedByAnother(
                f"{self.store.url} has no conditional writes: only the owner of {self.journal.prefix!r} may write it"
            )
        parallel(self._require_claim, list(names))

    def _require_claim(self, name: str) -> None:
        uuid, claim = f"{self.journal.prefix}{SEPARATOR}{name}", self.claim_of(name)
        if claim is not None:
            ensure_claim(self.store, uuid, claim, before_first=partial(self._require_adoptable, name, claim))
        elif self.unowned_only:
            require_unowned(self.store, uuid)

    def _require_adoptable(self, name: str, claim: Claim) -> None:
        """Raise NotAdopted for another library's dataset, unless the claim adopts it."""
        journal = self.journal.member(name)
        seen = None if claim.adopts else journal.observe()
        if seen is not None and not seen.version and not journal.was_committed():
            raise NotAdopted(
                f"dataset {journal.uuid!r} in {self.store.url} was made by another program: set spec.adopt to true to "
                "adopt it, or choose another prefix"
            )

    def discard(self, name: str, target: MemberVersion | None, patience: CommitBackoff) -> None:
        """Commit to a member its state at this version; None: delete the member."""
        journal = self.journal.member(name)
        while True:
            head = settled(journal, patience)
            if head is None or (target is None and head.head.tombstone) or version_of(head) == target:
                return
            if journal.publish(bring_to(journal, head, target, "discard"), head) is not None:
                return
            patience.pause()
