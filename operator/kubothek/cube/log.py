"""The commit log of one cube: the only way to change several of its datasets atomically."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from kubothek.cube.discovery import discover
from kubothek.cube.settling import ClaimOf, Settling
from kubothek.cube.state import CubeSnapshot, Member
from kubothek.cube.transaction import CubeAlreadyApplied, CubeCommitted, CubeTransaction, export_members
from kubothek.errors import DatasetNotFound, InputError, LakeError, VersionIncomplete, VersionNotFound
from kubothek.storage import Store
from kubothek.table.log.dataset_log import PATIENCE, DatasetLog
from kubothek.table.log.history.snapshot import Snapshot
from kubothek.table.log.interop.unconditional import OneWriterStore
from kubothek.table.log.journal import Journal, system_clock
from kubothek.table.log.model.head import IcebergSetting
from kubothek.table.log.model.keys import check_id
from kubothek.table.log.model.record import utc
from kubothek.table.log.multi.head import CubeHead, CubeRecord, MemberVersion
from kubothek.table.log.multi.journal import CubeJournal
from kubothek.table.log.multi.members import in_order
from kubothek.table.log.multi.settle import adopted, settled_cube
from kubothek.table.log.multi.snapshots import at_version, present
from kubothek.table.log.multi.spec import SEPARATOR, CubeSpec
from kubothek.table.log.records import parallel

__all__ = ["ClaimOf", "CubeAlreadyApplied", "CubeCommitted", "CubeLog", "CubeState", "CubeTransaction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CubeState:
    """The observed state of a cube; ``snapshot`` None = there is no cube, or it cannot be read.

    ``problem``  ``Reason: text`` if the cube cannot be written
    ``pending``  the id of the transaction in progress
    """

    prefix: str
    snapshot: CubeSnapshot | None = None
    pending: str | None = None
    problem: str | None = None


class CubeLog:
    """The commits of one cube in one store; the constructor does no I/O.

    ``claim_of``            returns the claim for writes to a member, which is checked before every write
    ``iceberg_of``          returns what commits set the export of a member to; None: they keep it
    ``unowned_only``        refuse to write members that a Dataset resource has claimed
    ``conditional_writes``  result of the store's probe; without them only the owner of all members may write
    ``before_writing``      called before every write; raises if writes are forbidden
    """

    def __init__(
        self,
        store: Store,
        prefix: str,
        *,
        claim_of: ClaimOf = lambda _: None,
        iceberg_of: Callable[[str], IcebergSetting | None] = lambda _: None,
        unowned_only: bool = False,
        by: str = "",
        clock: Callable[[], datetime] = system_clock,
        rng: random.Random | None = None,
        patience: timedelta = PATIENCE,
        conditional_writes: bool = True,
        before_writing: Callable[[], None] = lambda: None,
    ) -> None:
        self._given = store
        if not conditional_writes:
            store = OneWriterStore(store)
        self.store = store
        self.prefix = prefix
        self.by = by
        self.claim_of = claim_of
        self.unowned_only = unowned_only
        self._clock = clock
        self._conditional_writes = conditional_writes
        self._before_writing = before_writing
        self._iceberg_of = iceberg_of
        rng = rng or random.SystemRandom()

        def open_member(uuid: str) -> Journal:
            name = uuid.removeprefix(f"{prefix}{SEPARATOR}")
            return Journal(store, uuid, clock=clock, rng=rng, iceberg=iceberg_of(name))

        self.journal = CubeJournal(store, prefix, open_member)
        self._settling = Settling(store, self.journal, by, claim_of, unowned_only, patience, conditional_writes)

    # --- reading ---

    def snapshot(self, as_of: int | datetime | None = None) -> CubeSnapshot:
        """Return the current version of the cube, or that of a number or a time. Writes nothing.

        The current version includes later changes of another program, if the cube is still valid (:func:`present`). A
        cube that Kubothek never wrote is discovered. Raises DatasetNotFound, VersionNotFound, VersionIncomplete,
        CubeInvalid.
        """
        while True:
            seen = self.journal.observe()
            if as_of is not None or seen is None or not seen.head.members:
                break
            if (found := present(self.journal, seen)) is not None:
                return self._cube(seen.head.spec, seen.head.version, found, seen.head.time)
        if as_of is None and (seen is None or not seen.head.intent):
            return discover(self.store, self.prefix)
        if seen is None:
            raise VersionNotFound(f"cube {self.prefix!r} has no version {as_of}: Kubothek never wrote to it")
        if as_of is None:
            raise DatasetNotFound(
                f"there is no cube {self.prefix!r} in {self.store.url} yet: its first commit is in progress"
            )
        record = self._at(seen.head, as_of)
        try:
            return self._snapshot(record.spec, record.version, record.members, record.time)
        except VersionIncomplete as error:
            raise VersionNotFound(f"version {record.version} of cube {self.prefix!r} has expired: {error}") from error

    def history(self) -> Iterator[CubeRecord]:
        """Return the versions, newest first, read lazily; none if Kubothek never wrote the cube."""
        seen = self.journal.observe()
        return iter(()) if seen is None else self.journal.records(seen.head)

    def inspect(self) -> CubeState:
        """Return the observed state of the cube; an error is its ``problem``. Writes nothing."""
        try:
            seen = self.journal.observe()
            intent = seen.head.intent if seen else None
            snapshot = self.snapshot()
        except LakeError as error:
            return CubeState(prefix=self.prefix, problem=f"{error.reason}: {error}")
        return CubeState(prefix=self.prefix, snapshot=snapshot, pending=intent.transaction if intent else None)

    def member(self, name: str) -> DatasetLog:
        """Return the log of one dataset, which commits through the cube."""
        return DatasetLog(
            self._given,
            f"{self.prefix}{SEPARATOR}{name}",
            claim=self.claim_of(name),
            unowned_only=self.unowned_only,
            clock=self._clock,
            conditional_writes=self._conditional_writes,
            iceberg=self._iceberg_of(name),
        )

    # --- writing ---

    def begin(self, commit_id: str | None, digest: str) -> CubeTransaction | CubeAlreadyApplied:
        """Start a commit, or return that it was applied before; ``commit_id`` None generates a new id.

        Settles what crashes left. What another program made or changed is adopted only when the transaction commits,
        so that a change that is refused leaves it as it is. Raises IdReused, CubeBroken, HeadMissing, and what settling
        a member does.
        """
        self._before_writing()
        seen, heads = self._settling.settled(self._settling.new_patience(), adopts=False)
        if commit_id is None:
            title = f"{self.by or 'cube'}:{self.journal.nonce()}{self.journal.nonce()}"
        else:
            title = check_id(commit_id)
            record = self.journal.applied(title, digest, seen.head if seen else None)
            if record is not None:
                done = CubeCommitted.of(record)
                members = {name: seen.head for name, seen in heads.items() if seen and name in done.members}
                export_members(self.store, self.prefix, members, retries=True)
                return CubeAlreadyApplied(
                    version=done.version,
                    record_key=done.record_key,
                    time=done.time,
                    members=done.members,
                    added=done.added,
                )
        return CubeTransaction(self._settling, title, digest, seen, heads)

    def settle(self) -> None:
        """Settle changes of other programs and interrupted commits. Raises as :meth:`begin`, except IdReused."""
        self._before_writing()
        self._settling.settled(self._settling.new_patience())

    def discard_foreign(self) -> CubeSnapshot:
        """Revert what other programs did to the members since the cube's current version; only a user decides this.

        A dataset that they added is deleted, and can be restored during the grace period. Raises OwnedByAnother.
        """
        self._before_writing()
        patience = self._settling.new_patience()
        while True:
            seen = settled_cube(self.journal, patience)
            if seen is None:
                raise InputError(f"cube {self.prefix!r} was never written by Kubothek: there is nothing to go back to")
            self._settling.require_claims(self._settling.names(seen))
            for name in self._settling.names(seen):
                self._settling.discard(name, seen.head.members.get(name), patience)
            now = adopted(self.journal, seen, self._settling.names(seen), patience)
            if now is not None:
                return self.snapshot()
            patience.pause()

    def _snapshot(
        self, spec: CubeSpec, version: int, members: Mapping[str, MemberVersion], time: datetime | None
    ) -> CubeSnapshot:
        names = list(members)
        found = parallel(lambda name: at_version(self.journal.member(name), members[name]), names)
        return self._cube(spec, version, dict(zip(names, found, strict=True)), time)

    def _cube(self, spec: CubeSpec, version: int, found: Mapping[str, Snapshot], time: datetime | None) -> CubeSnapshot:
        return CubeSnapshot(
            spec, version, {name: Member(name, spec, found[name]) for name in in_order(spec, found)}, time
        )

    def _at(self, head: CubeHead, as_of: int | datetime) -> CubeRecord:
        moment = utc(as_of) if isinstance(as_of, datetime) else None
        for record in self.journal.records(head):
            if record.version <= head.since:
                break
            if (record.time <= moment) if moment is not None else (record.version == as_of):
                return record
        raise VersionNotFound(
            f"cube {self.prefix!r} has no version {as_of}; its versions are from {head.since + 1} to {head.version}"
        )
