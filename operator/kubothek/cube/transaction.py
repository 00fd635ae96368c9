"""One transaction of a cube: the state that it starts from, and the loop that swaps the cube's head."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import TracebackType
from typing import Self

from kubothek.cube.discovery import another_cube_of
from kubothek.cube.settling import Heads, Settling
from kubothek.errors import CommitError, Conflict, CubeInvalid, StoreError
from kubothek.storage import Store
from kubothek.table.log import Change, DatasetLog, Snapshot
from kubothek.table.log.actions.tombstone import drop
from kubothek.table.log.deadline import Pace
from kubothek.table.log.exports import export_commit
from kubothek.table.log.history.snapshot import live_head, snapshot_of
from kubothek.table.log.model.head import Head
from kubothek.table.log.model.record import Record, Totals
from kubothek.table.log.multi.head import CubeHead, CubeRecord
from kubothek.table.log.multi.journal import SeenCube
from kubothek.table.log.multi.members import Member, in_order
from kubothek.table.log.multi.publish import Step, Title, publish
from kubothek.table.log.multi.rules import check_columns
from kubothek.table.log.multi.spec import SEPARATOR, CubeSpec
from kubothek.table.log.prepare.draft import draft, require_valid
from kubothek.table.log.records import parallel
from kubothek.table.log.transaction import require_alive


@dataclass(frozen=True, slots=True, kw_only=True)
class CubeCommitted:
    """A successful commit of the cube.

    ``members``  version of each member after the commit
    ``added``    size of the added files, for each member that the commit changed
    """

    version: int
    record_key: str = field(repr=False)
    time: datetime
    members: Mapping[str, int]
    added: Mapping[str, Totals]

    @classmethod
    def of(cls, record: CubeRecord) -> CubeCommitted:
        """Return the commit of a commit record."""
        members = {name: member.version for name, member in record.members.items()}
        return cls(version=record.version, record_key=record.key, time=record.time, members=members, added=record.added)


class CubeAlreadyApplied(CubeCommitted):
    """A commit that was applied before, with its result."""


def export_members(store: Store, prefix: str, heads: Mapping[str, Head], *, retries: bool = False) -> None:
    """Export the datasets that a commit of a cube changed, given their heads; see :func:`export_commit`."""
    for name, head in heads.items():
        export_commit(store, DatasetLog(store, f"{prefix}{SEPARATOR}{name}"), head, retries=retries)


class CubeTransaction:
    """One commit, from the members' base versions to the swap of the cube's head. Use it once."""

    def __init__(
        self,
        log: Settling,
        commit_id: str,
        digest: str,
        seen: SeenCube | None,
        heads: Heads,
    ) -> None:
        self._log = log
        self._id = commit_id
        self._digest = digest
        self._seen = seen
        self._heads = heads
        self._paces: dict[str, Pace] = {}
        self._bases: dict[str, Snapshot] = {}
        self._written: list[str] = []
        self._swaps = False

    @property
    def store(self) -> Store:
        """The store of the cube."""
        return self._log.store

    @property
    def prefix(self) -> str:
        """The prefix of the cube."""
        return self._log.journal.prefix

    @property
    def by(self) -> str:
        """The author of the commit, for the history."""
        return self._log.by

    @property
    def exists(self) -> bool:
        """Whether there is a cube."""
        return self._seen is not None and bool(self._seen.head.members)

    @property
    def spec(self) -> CubeSpec:
        """The specification of the existing cube."""
        assert self._seen is not None, "asked only if there is one"
        return self._seen.head.spec

    def members(self) -> dict[str, Member]:
        """Return the current members, the seed first; none if there is no cube."""
        if not self.exists:
            return {}
        assert self._seen is not None, "it exists"
        names = in_order(self.spec, self._seen.head.members)
        return {name: Member(name, self.spec, self.base(name)) for name in names}

    def base(self, name: str) -> Snapshot:
        """Return the snapshot that a change of this member starts from; an empty one if the member does not exist."""
        if name not in self._bases:
            self._bases[name] = snapshot_of(self._log.journal.member(name), self._heads.get(name))
            self._paces[name] = Pace(self._log.journal.member(name))
        return self._bases[name]

    def require_claims(self, names: Collection[str]) -> None:
        """Check, before the first byte, that these members may be written.

        Raises OwnedByAnother, NotAdopted, DatasetDeleted; CubeInvalid if a member belongs to another cube.
        """
        self._log.require_claims(names)
        for name in names:
            if (other := another_cube_of(self.store, self.prefix, name)) is not None:
                raise CubeInvalid(
                    f"dataset name {name!r}: {self.prefix}{SEPARATOR}{name} is a dataset of cube {other!r} "
                    "already; choose another name"
                )
            if (claim := self._log.claim_of(name)) is not None:
                require_alive(self._heads.get(name), claim)

    def note_written(self, name: str, *keys: str) -> None:
        """Register objects written for a member; the first one is the oldest, whose age TooSlow depends on."""
        for key in keys:
            self._paces[name].note_written(key)
        self._written += keys

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """After an error, delete the registered objects, unless a swap was tried, as for a commit of one dataset."""
        if kind is not None and not self._swaps:
            with suppress(StoreError):
                self.store.delete(self._written)

    def commit(
        self,
        operation: str,
        changes: Mapping[str, Change],
        *,
        dropped: Collection[str] = (),
        spec: CubeSpec | None = None,
        require: Callable[[CubeSpec | None, Collection[str]], None] = lambda _spec, _names: None,
    ) -> CubeCommitted:
        """Commit these changes by member, and the deletion of members in ``dropped``, atomically.

        ``changes``  each made for :meth:`base`
        ``spec``     specification of a new cube
        ``require``  takes spec and members of the cube that the commit builds on; raises if the commit is not allowed

        Raises Conflict, CubeInvalid, SchemaMismatch, IndexInvalid, TooSlow, Contended and leaves the cube unchanged.
        After StoreUnavailable the commit may have been applied: run it again, and ``begin`` returns the result.
        """
        log, journal = self._log, self._log.journal
        patience = log.new_patience()
        seen, heads = self._seen, self._heads
        if seen is not None and seen.etag is None:
            require(seen.head.spec, seen.head.members)
            self._require_valid(spec or seen.head.spec, changes, dropped)
            seen, heads = log.settled(patience)
            if (record := journal.applied(self._id, self._digest, seen.head if seen else None)) is not None:
                return CubeCommitted.of(record)
        title = Title(id=self._id, digest=self._digest, operation=operation, by=log.by)
        while True:
            on = seen or SeenCube(CubeHead(self._new(spec)), None)
            if self.exists and on.head.members and on.head.spec != self.spec:
                raise Conflict(
                    f"cube {self.prefix!r} was rebuilt with other columns while this {operation} ran. "
                    "Nothing was committed; run it again on the present cube"
                )
            require(on.head.spec if on.head.members else None, on.head.members)
            steps = self._steps(changes, dropped, heads)
            done = publish(journal, on, steps, title, patience, spec=spec, before_swap=self._require_timely)
            if done is not None:
                export_members(self.store, self.prefix, {name: each.head for name, each in done[1].items()})
                return CubeCommitted.of(done[0])
            patience.pause()
            seen, heads = log.settled(patience)
            record = journal.applied(self._id, self._digest, seen.head if seen else None)
            if record is not None:
                return CubeCommitted.of(record)

    def _require_valid(self, spec: CubeSpec, changes: Mapping[str, Change], dropped: Collection[str]) -> None:
        """Raise what forbids the changes, before the cube of another program is adopted for them."""
        members = {name: replace(member, spec=spec) for name, member in self.members().items() if name not in dropped}
        for name, change in changes.items():
            base, on = self.base(name), self._heads.get(name)
            live = live_head(self._log.journal.member(name), on)
            schema = require_valid(change, base=base.head, made_for=base.schema, on=on, live=live, current=base.schema)
            members[name] = Member(name, spec, replace(base, schema=schema))
        check_columns(members)

    def _steps(self, changes: Mapping[str, Change], dropped: Collection[str], heads: Heads) -> dict[str, Step]:
        """Return the step of each member on its current head."""
        attempt = self._log.journal.own_id("cube")

        def decide(name: str) -> Step:
            journal, on = self._log.journal.member(name), heads.get(name)
            if name in dropped:
                assert on is not None, "a member has a head"
                claim = self._log.claim_of(name)
                deleted = drop(journal, on, incarnation=claim.incarnation if claim else "", by=self._log.by)
                return Step(replace(deleted, id=attempt), on)
            base = self.base(name).head
            return Step(
                draft(journal, changes[name], commit_id=attempt, spec_digest=self._digest, base=base, on=on), on
            )

        names = [*changes, *dropped]
        return dict(zip(names, parallel(decide, names), strict=True))

    def _require_timely(self, name: str, record: Record) -> None:
        self._swaps = True
        if (pace := self._paces.get(name)) is not None:
            pace.require_timely(record)

    def _new(self, spec: CubeSpec | None) -> CubeSpec:
        if spec is None:
            raise CommitError(f"there is no cube {self._log.journal.prefix!r}, and it has no definition")
        return spec
