"""The protocol's steps on one dataset: read the head, and publish a commit on top of it.

Every commit goes through :meth:`Journal.publish`: record, swap, then what follows a swap. The callers decide what to
commit, and whether to retry.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Final

import zstandard

from kubothek.errors import AccessDenied, HeadUnreadable, ObjectNotFound, PreconditionFailed, VersionIncomplete
from kubothek.storage import Store
from kubothek.table.log.model import keys
from kubothek.table.log.model.changes import NOTHING, Operation, ReadPredicate
from kubothek.table.log.model.deltas import apply
from kubothek.table.log.model.head import Head, IcebergSetting, digest
from kubothek.table.log.model.ledgers import ChainMove
from kubothek.table.log.model.markers import Marker, Markers
from kubothek.table.log.model.record import Delta, Distance, Record, Totals, utc
from kubothek.table.log.model.refs import advance_ref, named_block, was_left
from kubothek.table.log.model.schemas import Schemas
from kubothek.table.log.model.swap import HeadSwap

CHECKPOINT_COMMITS: Final = 100
CHECKPOINT_ENTRIES: Final = 1000
"""With fewer entries, reading deltas costs no more than reading a head."""
_HEAD_READS: Final = 5
_HEAD_READ_PAUSE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Observed:
    """The head as it was read, and its origin.

    ``etag``      of the JSON head; None for a packed head, which a JSON head will shadow
    ``marker``    of the commit that made it; None if a foreign writer did
    ``marked``    whether that marker is in the store
    ``base``      the record that a foreign head names; None if it names none that exists
    """

    head: Head
    etag: str | None
    modified: datetime
    marker: Marker | None
    marked: bool = True
    base: Record | None = None

    @property
    def version(self) -> int:
        """The version of the commit that made the head, or that a foreign head builds on; 0 if there is none."""
        return self.marker.version if self.marker else self.base.version if self.base else 0

    @property
    def totals(self) -> Totals | None:
        """The size of the table; None for a foreign head, whose rows were not counted."""
        return self.marker.totals if self.marker else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A commit decided for one observed head: its record without what publishing determines.

    ``base``   the state that the delta applies to
    ``floor``  the highest known version outside the chain; the commit's version is higher
    ``replaced``  see :class:`Record`
    """

    id: str
    digest: str
    operation: Operation
    by: str
    base: Head
    delta: Delta
    totals: Totals
    reads: ReadPredicate = NOTHING
    restores: str | None = None
    recovers: str | None = None
    ledger: ChainMove | None = None
    floor: int = 0
    replaced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A commit whose record is stored: the head that it makes, and the bytes of that head."""

    record: Record
    head: Head
    data: bytes


class Journal:
    """One dataset's head, records and markers; ``clock`` returns aware times, ``rng`` serves names and jitter.

    ``iceberg``  what commits set the export to; None: they keep it
    """

    def __init__(
        self,
        store: Store,
        uuid: str,
        *,
        clock: Callable[[], datetime],
        rng: random.Random,
        iceberg: IcebergSetting | None = None,
    ) -> None:
        self.store = store
        self.iceberg = iceberg
        self.uuid = keys.check_uuid(uuid)
        self.clock = clock
        self.rng = rng
        self.markers = Markers(store, uuid, rng)
        self.schemas = Schemas(store, uuid)
        self._known: tuple[str, Observed] | None = None
        self._newest: Record | None = None
        self._swap = HeadSwap(store, keys.head(uuid))

    # --- reading ---

    def observe(self) -> Observed | None:
        """Return the head with its origin; None if there is none. One request if it is unchanged, else two.

        Raises HeadUnreadable if it still does not parse after a few reads: a foreign writer on a file system
        writes in place, so a read can meet half of a head.
        """
        for _ in range(_HEAD_READS - 1):
            try:
                return self._observe()
            except HeadUnreadable:
                time.sleep(_HEAD_READ_PAUSE)
        return self._observe()

    def _observe(self) -> Observed | None:
        key, known = keys.head(self.uuid), self._known
        try:
            found = self.store.get_if_changed(key, known[0]) if known else self.store.get_with_info(key)
        except ObjectNotFound:
            return self._observe_packed()
        if found is None:
            assert known, "nothing else can be unchanged"
            return known[1]
        data, info = found
        head = Head.parse(self.uuid, data)
        marker, marked, base = self._origin(head, digest(data))
        if marker is None:
            head.check_format()
        return self._remember(Observed(head, info.etag, info.modified, marker, marked, base))

    def _remember(self, seen: Observed) -> Observed:
        """Cache a head with nothing left to settle: while its ETag is unchanged, so is everything in here.

        An ETag does not come back (commit-protocol), and the marker of the current head is never voided.
        """
        if seen.etag is not None and seen.marker is not None and seen.marked:
            self._known = seen.etag, seen
        return seen

    def _observe_packed(self) -> Observed | None:
        try:
            data, info = self.store.get_with_info(keys.packed_head(self.uuid))
        except ObjectNotFound:
            return None
        head = Head.parse_packed(self.uuid, data).check_format()
        return Observed(head, None, info.modified, None, base=self._origin(head, "")[2])

    def _origin(self, head: Head, head_digest: str) -> tuple[Marker | None, bool, Record | None]:
        named = keys.parse_record(self.uuid, head.commit)
        if named is None:
            return None, True, None
        marker = self.markers.get(named.marker)
        if marker and marker.record == named.key and marker.head_digest == head_digest:
            return marker, True, None
        try:
            record = Record.parse(named.key, self.store.get(named.key))
        except ObjectNotFound:
            return None, True, None  # for example a head copied from another dataset
        if record.head_digest == head_digest:
            return Marker.of(record), False, None
        return None, True, record

    def published(self, key: str) -> tuple[Observed, Record] | None:
        """Return the head and the record of a commit, without a request; None unless it is the last one made here."""
        record, known = self._newest, self._known
        if record is None or record.key != key or known is None or known[1].head.commit != key:
            return None
        return known[1], record

    def record(self, key: str) -> Record:
        """Return the record at this key. Raises VersionIncomplete if it is gone."""
        try:
            return Record.parse(key, self.store.get(key))
        except ObjectNotFound as error:
            raise VersionIncomplete(f"{key}: the commit record no longer exists; its version cannot be read") from error

    def was_committed(self) -> bool:
        """Return whether its records and markers show that the dataset ever had a head. Lists: for a missing head only.

        A first record alone does not count: its writer may have died before the swap.
        """
        listed = self.store.list(keys.records(self.uuid))
        versions = (record.version for info in listed if (record := keys.parse_record(self.uuid, info.key)))
        return any(version > 1 for version in versions) or self.markers.any_applied()

    # --- publishing ---

    def publish(
        self,
        draft: Draft,
        on: Observed | None,
        *,
        before_swap: Callable[[Record], None] | None = None,
        after_swap: Callable[[str], None] | None = None,
    ) -> Observed | None:
        """Write the record and swap the head. None if the swap failed, or its answer was lost: read the head again.

        ``before_swap`` gets the stored record, and may raise to abort. ``after_swap`` gets the ETag of the new head,
        while the marker is written.
        """
        prepared = self.prepare(draft, on)
        if prepared is None:
            return None
        if before_swap:
            before_swap(prepared.record)
        return self.swap(prepared, on, after_swap=after_swap)

    def prepare(self, draft: Draft, on: Observed | None) -> Prepared | None:
        """Write the record of a commit, and all that precedes its swap. None if the key is taken: start over."""
        record, head = self._record(draft, on)
        data = head.render()
        record = replace(record, head_digest=digest(data))
        if on is None:
            self._put_common_metadata(head)
        try:
            self.store.put_if_absent(record.key, record.render())
        except PreconditionFailed:
            return None  # a retried request met its own first attempt, or the nonce is taken
        return Prepared(record, head, data)

    def swap(
        self, prepared: Prepared, on: Observed | None, *, after_swap: Callable[[str], None] | None = None
    ) -> Observed | None:
        """Replace the head that a commit was prepared for by the prepared head; see :meth:`publish`.

        Raises StoreUnavailable if the store has answered no swap for some time. The commit may have happened.
        """
        record, head, data = prepared.record, prepared.head, prepared.data
        if (etag := self._swap.compare_and_swap(data, None if on is None else on.etag)) is None:
            return None
        if on is not None and on.etag is None:
            self._drop_packed_head()
        published = Observed(head, etag, self.clock(), Marker.of(record), marked=False)
        # Reading a large record again costs little beside its commit; keeping it would cost memory.
        self._newest = record if record.delta.entries <= CHECKPOINT_ENTRIES else None
        # Also for a first head: another first commit may have put its own schema there, and lost the swap.
        if record.operation is Operation.EXTERNAL:
            self.heal_common_metadata(head)
        elif on is None or head.schema_hash != on.head.schema_hash:
            self._put_common_metadata(head)
        completed = self._complete(published, partial(after_swap, etag) if after_swap else None)
        if completed is not None and record.ledger is not None:
            advance_ref(self.store, self.uuid, record, self.below(record))
        return completed

    def complete(self, seen: Observed) -> Observed | None:
        """Finish what a crash left undone after a swap; None if the head moved meanwhile: read it again."""
        if seen.marked or seen.marker is None:
            return seen
        self._drop_packed_head()
        self.heal_common_metadata(seen.head)
        completed = self._complete(seen)
        if completed is not None and seen.head.chain is not None:
            self.heal_ref(seen)
        return completed

    def confirm_base(self, foreign: Observed) -> None:
        """Write the marker of the record that a foreign head builds on: it was the head once, marked or not.

        Does nothing if the head moved meanwhile: its base may be another one now, and the swap will fail.
        """
        if foreign.base:
            self.markers.confirm(
                Marker.of(foreign.base),
                still_there=lambda: (now := self.observe()) is not None and now.etag == foreign.etag,
            )

    def put_checkpoint(self, version: int, state: bytes) -> None:
        """Store the head of a version, as :meth:`Head.render` gives it, so that it needs no older record."""
        self.store.put(keys.checkpoint(self.uuid, version), zstandard.compress(state))

    def own_id(self, what: str) -> str:
        """Return a new id for a commit that Kubothek makes without a request."""
        return f"{keys.OWN_ID_PREFIX}{what}:{self.rng.getrandbits(64):016x}"

    def heal_common_metadata(self, head: Head) -> bool:
        """Make ``_common_metadata`` that of the head's schema; return whether it had to be written."""
        if head.schema_hash is None:
            return False
        try:
            current = self.store.get(keys.common_metadata(self.uuid, head.table))
        except ObjectNotFound:
            current = b""
        if current == self.schemas.data(head.schema_hash):
            return False
        self._put_common_metadata(head)
        return True

    def heal_packed_head(self) -> bool:
        """Delete a packed head that the JSON head shadows; return whether there was one."""
        try:
            self.store.stat(keys.packed_head(self.uuid))
        except ObjectNotFound:
            return False
        self._drop_packed_head()
        return True

    def _drop_packed_head(self) -> None:
        """Delete the packed head: if a program deleted the JSON head alone, the packed one would count again."""
        with suppress(AccessDenied):  # readers ignore it as well
            self.store.delete([keys.packed_head(self.uuid)])

    def heal_ref(self, seen: Observed) -> bool:
        """Move ``refs/head`` from an earlier block of ours to the last one; return whether it names the last one."""
        assert seen.marker is not None, "a settled head is ours"
        if seen.head.chain is None or named_block(self.store, self.uuid) == seen.head.chain.head:
            return True
        below = self.below(last := self.record(seen.marker.record))
        moved = last if last.ledger else next((record for record in below if record.ledger), None)
        return moved is not None and advance_ref(self.store, self.uuid, moved, below)

    def stray_ref(self, seen: Observed) -> str | None:
        """Return the block that ``refs/head`` names, if no commit left the chain there. Writes nothing."""
        assert seen.marker is not None, "a settled head is ours"
        named = named_block(self.store, self.uuid)
        if named is None or seen.head.chain is None or named == seen.head.chain.head:
            return None
        last = self.record(seen.marker.record)
        return None if was_left(named, chain((last,), self.below(last))) else named

    def below(self, record: Record) -> Iterator[Record]:
        """Yield the records below this one, read lazily, as far as they are kept."""
        with suppress(VersionIncomplete):
            while record.parent is not None:
                record = self.record(record.parent)
                yield record

    def _complete(self, seen: Observed, beside: Callable[[], None] | None = None) -> Observed | None:
        marker = seen.marker
        assert marker is not None, "only our own commits are completed"
        if marker.since_checkpoint == Distance():
            self.put_checkpoint(marker.version, seen.head.render())
        mark = partial(
            self.markers.mark,
            marker,
            epoch=seen.head.since,
            still_there=lambda: self._head_names(marker.record),
        )
        stands = self.store.together(mark, beside)[0] if beside else mark()
        return self._remember(replace(seen, marked=True)) if stands else None

    def _head_names(self, record: str) -> bool:
        seen = self.observe()
        return seen is not None and seen.head.commit == record

    def _put_common_metadata(self, head: Head) -> None:
        if head.schema_hash is not None:
            key = keys.common_metadata(self.uuid, head.table)
            self.store.put(key, self.schemas.data(head.schema_hash))

    def _record(self, draft: Draft, on: Observed | None) -> tuple[Record, Head]:
        parent = on.marker or (Marker.of(on.base) if on.base else None) if on else None
        version = max(parent.version if parent else 0, draft.floor) + 1
        key = keys.record(self.uuid, version, draft.id, f"{self.rng.getrandbits(48):012x}")
        head = apply(draft.base, draft.delta, version, key)
        now = utc(self.clock())
        record = Record(
            key=key,
            version=version,
            id=draft.id,
            digest=draft.digest,
            operation=draft.operation,
            time=max(now, parent.time) if parent else now,
            by=draft.by,
            parent=parent.record if parent else None,
            restores=draft.restores,
            recovers=draft.recovers,
            delta=draft.delta,
            reads=draft.reads,
            totals=draft.totals,
            since_checkpoint=_distance(parent, draft.delta, head),
            head_digest="",
            ledger=draft.ledger,
            replaced=draft.replaced,
        )
        return record, head


def _distance(parent: Marker | None, delta: Delta, head: Head) -> Distance:
    """Return zero if the version gets a checkpoint: every 100 commits, or when the deltas outgrow the head."""
    since = parent.since_checkpoint if parent else Distance()
    commits, entries = since.commits + 1, since.entries + delta.entries
    if commits >= CHECKPOINT_COMMITS or entries > max(len(head.partitions), CHECKPOINT_ENTRIES):
        return Distance()
    return Distance(commits, entries)


def system_clock() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)
