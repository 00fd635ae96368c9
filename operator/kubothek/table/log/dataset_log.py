"""The log of one dataset: every change of a table goes through it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeVar
from uuid import uuid4

from kubothek.errors import (
    CommitError,
    Conflict,
    DatasetNotFound,
    ForeignOverwrite,
    LakeError,
    NotAdopted,
    OwnedByAnother,
    VersionIncomplete,
)
from kubothek.storage import Store
from kubothek.table.indexes.model import Dialect
from kubothek.table.indexes.report import IndexReport, report
from kubothek.table.log.actions import convert, tombstone
from kubothek.table.log.exports import export_commit
from kubothek.table.log.granted import Author, GrantedTarget
from kubothek.table.log.history.changed_files import ChangedFiles, changed_files
from kubothek.table.log.history.rebuild import rebuild
from kubothek.table.log.history.snapshot import Snapshot, snapshot_of
from kubothek.table.log.history.tags import retag, versions_of
from kubothek.table.log.history.versions import History, Version
from kubothek.table.log.interop.recover import accept_overwritten, versions_in
from kubothek.table.log.interop.unconditional import OneWriterStore
from kubothek.table.log.journal import Draft, Journal, Observed, system_clock
from kubothek.table.log.legacy_heads import one_table
from kubothek.table.log.metadata_commit import noted
from kubothek.table.log.model import keys
from kubothek.table.log.model.changes import Operation
from kubothek.table.log.model.head import Head, IcebergSetting
from kubothek.table.log.model.record import Record, Totals
from kubothek.table.log.multi.cube_head_target import way_of
from kubothek.table.log.ownership import Claim, ensure_claim, owner_of, require_unowned
from kubothek.table.log.settle import CommitBackoff, Way, read_head, require_sound_ledger, settle_thoroughly, unadopted
from kubothek.table.log.transaction import AlreadyApplied, Request, Transaction, applied, require_alive

_T = TypeVar("_T")
PATIENCE: Final = timedelta(minutes=5)
"""How long a commit retries when other writers swap the head first."""


@dataclass(frozen=True, slots=True)
class DatasetState:
    """The observed state of a dataset; ``version`` is None if there is none.

    ``totals``   None if unknown: a foreign head that was not adopted yet
    ``problem``  ``Reason: text`` of what keeps the log's claim from writing the dataset, or of damage
    ``indices``  empty for a foreign head, and for a deleted dataset
    ``tags``     versions by name
    ``partition_on``  the partition columns; None if there is no table
    ``writers``  names of the writers that the owner admits
    """

    uuid: str
    version: int | None = None
    etag: str | None = None
    totals: Totals | None = None
    time: datetime | None = None
    owner: str | None = None
    deleted: bool = False
    problem: str | None = None
    indices: tuple[IndexReport, ...] = ()
    dialect: Dialect = Dialect.KARTOTHEK
    tags: Mapping[str, int] = field(default_factory=dict)
    partition_on: tuple[str, ...] | None = None
    writers: tuple[str, ...] = ()


class DatasetLog:
    """The commits of one dataset in one store. Cheap to create: only its methods send requests.

    ``claim``               the writer's claim, checked before every write. None: a user with the store's credentials,
                            who needs no claim
    ``unowned_only``        without a claim: refuse datasets that have an owner, unless it admits the author
                            (:meth:`writing_as`)
    ``conditional_writes``  whether the store has them, as its probe found. Without them only the owner may write, one
                            commit at a time, which the caller must ensure
    ``iceberg``             what commits set the export of Iceberg metadata to; None: they keep it
    """

    def __init__(
        self,
        store: Store,
        uuid: str,
        *,
        claim: Claim | None = None,
        unowned_only: bool = False,
        clock: Callable[[], datetime] = system_clock,
        rng: random.Random | None = None,
        patience: timedelta = PATIENCE,
        conditional_writes: bool = True,
        iceberg: IcebergSetting | None = None,
    ) -> None:
        if not conditional_writes:
            store = OneWriterStore(store)
        self.uuid = uuid
        self._store = store
        self._claim = claim
        self._unowned_only = unowned_only
        self._patience = patience
        self._conditional_writes = conditional_writes
        open_journal = partial(Journal, store, clock=clock, rng=rng or random.SystemRandom())
        self._journal = open_journal(uuid, iceberg=iceberg)
        self._way: Way = way_of(self._journal, open_journal)
        self._granted: GrantedTarget | None = None

    def writing_as(self, author: Author) -> DatasetLog:
        """Return a log for the commits of this author, which the owner of the dataset may admit; for one operation.

        A dataset without an owner is written as without an author. Shares the cache of the head with this log.
        """
        log = copy(self)
        log._granted = log._way = GrantedTarget(self._way, author)
        return log

    def by_hand(self) -> DatasetLog:
        """Return a log for a user's decision about a dataset that a manifest owns, as ``kubothek heal`` makes it."""
        if not self._unowned_only:
            return self
        return DatasetLog(
            self._store,
            self.uuid,
            clock=self._journal.clock,
            patience=self._patience,
            conditional_writes=self._conditional_writes,
        )

    @property
    def journal(self) -> Journal:
        """The steps of the protocol, for maintenance, which needs more than versions."""
        return self._journal

    # --- writing ---

    def begin(
        self, commit_id: str, digest: str, *, adopts: bool = True, revives: bool = False
    ) -> Transaction | AlreadyApplied:
        """Start a commit, or return what it did if it was applied before.

        ``commit_id``  unique within the dataset for ever
        ``digest``     of everything that defines what the commit does
        ``adopts``     False: a foreign head is adopted only when the transaction commits, so that a refused change
                       leaves it as it is
        ``revives``    a deleted dataset is no error: without a claim, the commit begins a new one on its tombstone

        Settles what crashes and foreign writers left. Raises OwnedByAnother, DatasetDeleted, IdReused,
        ForeignOverwrite, HeadMissing, HeadUnreadable, NotAdopted, NeedsConversion.
        """
        request = Request(keys.check_id(commit_id), digest, self._claim)
        # Head before marker: in the reverse order, a commit in between would be missed.
        seen = self._settled(adopts=adopts, revives=revives)
        marker = applied(self._journal, request, seen)
        if seen is not None and seen.marker is None and (marker or (seen.base and seen.base.id == commit_id)):
            seen = self._settled(revives=revives)  # the foreign head may have overwritten this commit
            marker = applied(self._journal, request, seen)
        if marker is not None:
            if seen is not None:
                export_commit(self._store, self, seen.head, retries=True)
            return AlreadyApplied(marker.version, marker.record, marker.time, marker.totals, marker.added)
        return Transaction(self._way, request, seen, self._patience, self._export)

    def begin_new(self, what: str, digest: str = "", *, adopts: bool = True) -> Transaction:
        """Start a commit under a new unique id, ``what`` with a UUID, which nothing can repeat.

        One request fewer than :meth:`begin`; raises the same errors except those about the id.
        """
        request = Request(f"{what}:{uuid4()}", digest, self._claim)
        return Transaction(self._way, request, self._settled(adopts=adopts), self._patience, self._export)

    def _settled(self, *, adopts: bool = True, revives: bool = False) -> Observed | None:
        seen = self.settled(adopts=adopts)
        if not revives or self._claim is not None:
            require_alive(seen, self._claim)
        return seen

    def settle(self) -> DatasetState:
        """Settle what foreign writers and crashes left, and return the state of the dataset afterwards."""
        self._require_claim()
        settle_thoroughly(self._journal, self._new_patience())
        self._way.settled(self._new_patience())
        return self.inspect()

    def observed(self) -> Observed | None:
        """Return the head, a foreign one as its adoption would make it; None if there is no dataset. Writes nothing.

        Raises OwnedByAnother, HeadMissing, HeadUnreadable, NeedsConversion.
        """
        if self._claim:
            self._require_owner(owner_of(self._store, self.uuid))
        elif self._unowned_only:
            require_unowned(self._store, self.uuid)
        seen = read_head(self._journal)
        return unadopted(self._journal, seen) if seen and seen.marker is None else seen

    def settled(self, *, adopts: bool = True) -> Observed | None:
        """Return the head with nothing left to settle; None if there is no dataset. Commits what it settles."""

        def read() -> Observed | None:
            if (granted := self._granted) is None:
                return self._store.together(self._require_claim, self._journal.observe)[1]
            owner, seen = self._store.together(partial(owner_of, self._store, self.uuid), self._journal.observe)
            self._require_conditional_writes()
            granted.require(owner, lambda: seen)
            return seen

        return self._way.settled(self._new_patience(), read, adopts=adopts)

    def convert(self, table: str | None = None) -> list[str]:
        """Convert a dataset of another library for writing; see :mod:`kubothek.table.log.actions.convert`.

        ``table`` names the table that stays, if there are several. Returns the uuids that the others became.
        """
        self._require_claim()

        def begin_other(uuid: str) -> convert.Begin:
            log = DatasetLog(self._store, uuid, patience=self._patience, conditional_writes=self._conditional_writes)
            return log.begin

        return convert.convert(self._journal, self._new_patience(), table, begin_other)

    def delete(self, version: int | None = None, *, by: str = "") -> int | None:
        """Replace the head by a tombstone and return its version. The data stays for the grace period.

        ``version``  delete this version only
        ``by``       without a claim: who deletes it, for history

        Return None if there is nothing to delete: no dataset, or one that a later incarnation created. Idempotent.
        Raises Conflict if the dataset has another version, OwnedByAnother.
        """
        incarnation = self._claim.incarnation if self._claim else ""
        self._require_claim()

        def done(seen: Observed) -> bool:
            # Without a claim there are no incarnations: the dataset that is there now is meant.
            if seen.head.tombstone is not None or (self._claim is not None and incarnation in seen.head.fenced):
                return True
            if version not in (None, seen.version):
                raise Conflict(
                    f"dataset {self.uuid!r} has version {seen.version} now, not {version}: another commit came first. "
                    "It was not deleted; run it again"
                )
            return False

        seen = self._until_swapped(
            lambda seen: tombstone.drop(self._journal, seen, incarnation=incarnation, by=by or self._by), done=done
        )
        return seen.version if seen and seen.head.tombstone else None

    def restore(self, *, by: str = "") -> int:
        """Undo a deletion and return the version. Do nothing to a dataset that is not deleted.

        ``by``  without a claim: who restores it, for history

        Raises RestoreExpired, VersionIncomplete, DatasetNotFound.
        """
        self._require_claim()
        seen = self._until_swapped(
            lambda seen: tombstone.restore(self._journal, seen, by=by or self._by),
            done=lambda seen: seen.head.tombstone is None,
            check=partial(tombstone.require_within_grace, self._journal),
        )
        if seen is None:
            raise self._not_found()
        return seen.version

    def set_tags(self, wanted: Mapping[str, int]) -> int:
        """Set the tags to exactly these versions by name. Return the version of the dataset afterwards.

        Expiry spares a tagged version: it stays complete and readable until its last tag is gone. Idempotent.
        Raises InputError for a name, VersionNotFound or VersionIncomplete for a version that cannot be tagged; and
        DatasetNotFound, DatasetDeleted, OwnedByAnother.
        """
        return self._retag(lambda _: wanted)

    def tag(self, name: str, version: int | None = None) -> int:
        """Tag a version (None: the current one) and return its number. A tag of that name moves.

        Raises what :meth:`set_tags` raises.
        """
        chosen = version

        def wanted(seen: Observed) -> Mapping[str, int]:
            nonlocal chosen
            chosen = seen.version if chosen is None else chosen
            return {**versions_of(seen.head), name: chosen}

        self._retag(wanted)
        assert chosen is not None, "there is a dataset"
        return chosen

    def untag(self, name: str) -> None:
        """Remove a tag, if it exists. Raises what :meth:`set_tags` raises."""
        self._retag(lambda seen: {k: v for k, v in versions_of(seen.head).items() if k != name})

    def _retag(self, wanted: Callable[[Observed], Mapping[str, int]]) -> int:
        self._require_claim()

        def done(seen: Observed) -> bool:
            require_alive(seen, self._claim)
            if seen.head.tombstone:
                raise self._not_found(seen)
            return versions_of(seen.head) == dict(wanted(seen))

        seen = self._until_swapped(
            lambda seen: retag(self._journal, seen, wanted(seen), by=self._by),
            done=done,
        )
        if seen is None:
            raise self._not_found()
        return seen.version

    def set_iceberg(self, setting: IcebergSetting) -> int:
        """Set how commits also write Iceberg metadata. Return the version of the dataset afterwards. Idempotent.

        Raises DatasetNotFound, DatasetDeleted, OwnedByAnother.
        """
        self._require_claim()

        def decide(seen: Observed) -> Draft:
            wanted = {**seen.head.metadata, **setting.metadata}
            metadata = {key: value for key, value in wanted.items() if value is not None}
            return noted(self._journal, seen, metadata, what="export", operation=Operation.LAYOUT, by=self._by)

        def done(seen: Observed) -> bool:
            require_alive(seen, self._claim)
            return seen.head.iceberg_setting == setting

        seen = self._until_swapped(decide, done=done)
        if seen is None:
            raise self._not_found()
        return seen.version

    def accept_overwritten(self) -> None:
        """Remove the note of overwritten commits once a user has seen it, and let their ids be used again."""
        self._require_claim()

        def accept(seen: Observed) -> Draft:
            for key in seen.head.overwritten:
                if (record := keys.parse_record(self.uuid, key)) is not None:
                    self._journal.markers.revoke(record.marker)
            return accept_overwritten(self._journal, seen)

        self._until_swapped(accept, done=lambda seen: not seen.head.overwritten)

    def _until_swapped(
        self,
        decide: Callable[[Observed], Draft],
        *,
        done: Callable[[Observed], bool],
        check: Callable[[Observed, Record], None] | None = None,
    ) -> Observed | None:
        """Commit what ``decide`` returns for the current head until ``done``; None if there is no dataset."""
        patience = self._new_patience()
        is_retry = True
        while True:
            seen = self._way.settled(patience)
            if seen is None:
                return None
            if done(seen):
                if is_retry:
                    export_commit(self._store, self, seen.head, retries=True)
                return seen
            before_swap = partial(check, seen) if check else None
            published = self._way.publish(decide(seen), seen, before_swap=before_swap)
            if published is None:
                patience.pause()
            else:
                self._export(published.head)
                is_retry = False

    # --- reading ---

    def snapshot(self, version: Version | None = None, *, table: str | None = None, raw: bool = False) -> Snapshot:
        """Return the current version, or the one of a number, a time or a tag. Writes nothing.

        ``table``  needed only where another library put several tables into one dataset
        ``raw``    for a member of a cube: its own head, not the version that the head of the cube names

        Raises DatasetNotFound, HeadMissing, VersionNotFound, VersionIncomplete; InputError if the table does not
        exist, or has to be named.
        """
        if version is None and not raw and (shown := self._way.shown()) is not None:
            return self._member(shown[0])
        seen = self._existing_head()
        if version is None:
            return snapshot_of(self._journal, seen, table)
        history = History(self._journal, seen)
        record = history.find(version)
        head = rebuild(self._journal, record)
        history.require_files(head, record.version)
        head = one_table(head, table) if table else head
        schema = self._journal.schemas.get(head.schema_hash)
        return Snapshot(head, schema, record.version, None, record.totals, record.time)

    def record_in_cube(self) -> str | None:
        """Return the key of the record of a member's version in the head of the cube; None if there is no cube.

        One request for each cube that the name can be of. Raises DatasetNotFound if it is not a member now.
        """
        return None if (named := self._way.named()) is None else self._member(named[0])

    def _member(self, found: _T | None) -> _T:
        """Return what was found of a member. Raises DatasetNotFound if its cube does not name it."""
        if found is None:
            raise DatasetNotFound(f"dataset {self.uuid!r} in {self._store.url} does not belong to its cube now")
        return found

    def tags(self) -> dict[str, int]:
        """Return the tagged versions by name. Raises DatasetNotFound, HeadMissing."""
        return versions_of(self._existing_head().head)

    def history(self) -> Iterator[Record]:
        """Return all commits, newest first, read lazily. Raises DatasetNotFound, HeadMissing."""
        return History(self._journal, self._existing_head()).records()

    def changed_files(self, before: Version, after: Version | None = None) -> ChangedFiles:
        """Return the files that each commit after ``before`` changed, up to ``after``; None = the current version.

        A change of another program that was not adopted yet belongs to the version that will adopt it. Raises
        DatasetNotFound, HeadMissing, and the errors of :func:`~.history.changed_files.changed_files`.
        """
        if after is None and (shown := self._way.shown()) is not None:
            after = self._member(shown[0]).version
        return changed_files(History(self._journal, self._existing_head()), before, after)

    def inspect(self) -> DatasetState:
        """Return the state of the dataset. Writes nothing, and raises only for failures of the store itself."""
        owner, seen = None, None
        try:
            owner = owner_of(self._store, self.uuid)
            seen = read_head(self._journal)
            self._require_owner(owner)
            if owner is None:
                self._require_adoptable(seen)
            self._require_nothing_overwritten(seen)
            require_sound_ledger(self._journal, seen)
            problem = None
        except (CommitError, VersionIncomplete) as error:
            problem = f"{error.reason}: {error}"
        if seen is None or ((stone := seen.head.tombstone) is not None and stone.of_nothing):
            return DatasetState(self.uuid, owner=owner, problem=problem)
        return DatasetState(
            uuid=self.uuid,
            version=seen.version,
            etag=seen.etag,
            totals=seen.totals,
            time=seen.marker.time if seen.marker else seen.modified,
            owner=owner,
            deleted=seen.head.tombstone is not None,
            problem=problem,
            indices=report(self._store, seen.head.index_state) if seen.marker and not seen.head.tombstone else (),
            dialect=seen.head.index_state.dialect,
            tags=versions_of(seen.head),
            partition_on=seen.head.partition_keys if not seen.head.tombstone else None,
            writers=tuple(grant.writers) if (grant := seen.head.grant) and not seen.head.tombstone else (),
        )

    def _require_owner(self, owner: str | None) -> None:
        if self._claim and owner not in (None, self._claim.owner):
            raise OwnedByAnother(f"dataset {self.uuid!r} belongs to {owner}; {self._claim.owner} may only read it")

    def _require_adoptable(self, seen: Observed | None) -> None:
        """Raise NotAdopted before a claim takes another library's dataset by accident; one with our commits passes."""
        if self._claim and not self._claim.adopts and seen and not seen.version and not self._journal.was_committed():
            raise NotAdopted(
                f"dataset {self.uuid!r} in {self._store.url} was made by another program: set spec.adopt to true to "
                "adopt it, or choose another spec.uuid"
            )

    def _require_nothing_overwritten(self, seen: Observed | None) -> None:
        if seen and (overwritten := seen.head.overwritten):
            raise ForeignOverwrite(
                f"another program overwrote {versions_in(overwritten, self.uuid)}; commit again what is missing"
            )

    # --- helpers ---

    @property
    def _by(self) -> str:
        return self._claim.owner if self._claim else ""

    def _export(self, head: Head) -> None:
        export_commit(self._store, self, head)

    def _existing_head(self) -> Observed:
        seen = read_head(self._journal)
        if seen is None or seen.head.tombstone:
            raise self._not_found(seen)
        return seen

    def _not_found(self, seen: Observed | None = None) -> LakeError:
        if seen is not None and (stone := seen.head.tombstone) and not stone.of_nothing:
            return DatasetNotFound(f"dataset {self.uuid!r} was deleted at {stone.time.isoformat()}")
        return DatasetNotFound(f"there is no dataset {self.uuid!r} in {self._store.url}")

    def _require_claim(self) -> None:
        if self._claim:
            ensure_claim(
                self._store,
                self.uuid,
                self._claim,
                before_first=lambda: self._require_adoptable(self._journal.observe()),
            )
            return
        if self._granted is not None:
            self._granted.require(owner_of(self._store, self.uuid), self._journal.observe)
        elif self._unowned_only:
            require_unowned(self._store, self.uuid)
        self._require_conditional_writes()

    def _require_conditional_writes(self) -> None:
        if not self._conditional_writes:
            raise OwnedByAnother(
                f"{self._store.url} has no conditional writes: only the owner of {self.uuid!r} may write it"
            )

    def _new_patience(self) -> CommitBackoff:
        return CommitBackoff(self._journal, self._patience)
