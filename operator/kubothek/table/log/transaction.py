"""One commit: the snapshot that it starts from, and the loop that swaps the head."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from kubothek.errors import (
    Conflict,
    DatasetDeleted,
    ForeignOverwrite,
    IdReused,
    ObjectNotFound,
    StoreError,
    VersionIncomplete,
)
from kubothek.table.log.deadline import Pace
from kubothek.table.log.history.snapshot import Snapshot, live_head, snapshot_of
from kubothek.table.log.journal import Journal, Observed
from kubothek.table.log.model import keys
from kubothek.table.log.model.changes import Change, Operation
from kubothek.table.log.model.head import Head
from kubothek.table.log.model.markers import Marker
from kubothek.table.log.model.record import Record, Totals
from kubothek.table.log.ownership import Claim
from kubothek.table.log.prepare.draft import draft, require_valid, touches
from kubothek.table.log.records import chain
from kubothek.table.log.settle import CommitBackoff, Way
from kubothek.tracing import span


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit that succeeded.

    ``head_etag``  of the head after it; None if other commits lie on top
    ``totals``     of the dataset after it; ``added`` of what it added
    ``rebased``    number of swaps that other writers won
    """

    version: int
    record_key: str = field(repr=False)
    head_etag: str | None = field(repr=False)
    totals: Totals
    added: Totals
    rebased: int = 0


@dataclass(frozen=True, slots=True)
class AlreadyApplied:
    """A commit that was applied before, with its first result.

    ``totals``  of the dataset after it; ``added`` of what it added
    """

    version: int
    record_key: str
    time: datetime
    totals: Totals
    added: Totals


@dataclass(frozen=True, slots=True)
class Request:
    """A requested commit: its id within the dataset, the digest of its definition, and the claim."""

    id: str
    digest: str
    claim: Claim | None


def applied(journal: Journal, request: Request, seen: Observed | None) -> Marker | None:
    """Return the marker of this commit if it was applied in this incarnation of the dataset.

    Raises IdReused if the id was another commit's, ForeignOverwrite if it happened but was lost for good.
    """
    marker = journal.markers.get(keys.marker(journal.uuid, request.id))
    if marker is None or (seen is not None and marker.version <= seen.head.epoch):
        return None
    if marker.id != request.id or marker.digest != request.digest:
        raise IdReused(
            f"commit id {request.id!r} of dataset {journal.uuid!r} was used for another change (version "
            f"{marker.version}, {marker.time.isoformat()}); give this one an id of its own"
        )
    if seen is not None and marker.record in seen.head.overwritten:
        raise ForeignOverwrite(
            f"commit {request.id!r} was version {marker.version} of {journal.uuid!r}, until another program overwrote "
            f"it: {seen.head.overwritten[marker.record]}. Commit it again under a new id"
        )
    return marker


def require_alive(seen: Observed | None, claim: Claim | None) -> None:
    """Raise DatasetDeleted if the dataset, or the incarnation that the claim names, was deleted."""
    if seen is None:
        return
    head, tombstone = seen.head, seen.head.tombstone
    deleted = set(head.fenced)
    if tombstone:
        deleted.add(tombstone.incarnation)
    if claim.incarnation in deleted if claim else tombstone is not None and not tombstone.of_nothing:
        when = f" at {tombstone.time.isoformat()}" if tombstone else ""
        raise DatasetDeleted(
            f"dataset {head.uuid!r} was deleted{when}; restore it, or write to it as a new Dataset resource"
        )


class Transaction:
    """One commit, from the snapshot it starts from to the swap. Use it once, from one thread.

    ``after`` gets the head once the commit has happened.

    As a context manager it deletes the objects that were written for a failed commit.
    """

    def __init__(
        self,
        way: Way,
        request: Request,
        seen: Observed | None,
        patience: timedelta,
        after: Callable[[Head], None],
    ) -> None:
        self._after = after
        self._way = way
        self._journal = journal = way.journal
        self._request = request
        self._seen = seen
        self._patience = patience
        self._pace = Pace(journal)
        self._unchanged = False
        self._written: list[str] = []
        self._swaps = False
        self.snapshot = snapshot_of(journal, seen)

    def note_written(self, *keys: str) -> None:
        """Note objects that were written for this commit; the first is the oldest, which limits the commit's time."""
        for key in keys:
            self._pace.note_written(key)
        self._written += keys

    def note_added(self, change: Change) -> Change:
        """Note the new files of a change as :meth:`note_written` does, and return the change."""
        if change.restores is None:
            indices = (file.key for each in change.index.collected.files.values() for file in each)
            self.note_written(*(file.key for file in change.added), *indices)
        return change

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete after an error what was noted, as far as the store permits.

        After a swap was tried, delete nothing: a record names the objects, and the commit may have happened.
        """
        if kind is not None and not self._swaps:
            with suppress(StoreError):
                self._journal.store.delete(dict.fromkeys(self._written))

    def _before_swap(self, record: Record) -> None:
        self._pace.require_timely(record)
        self._swaps = True

    def commit(
        self,
        change: Change,
        *,
        on_conflict: Callable[[Snapshot], Change] | None = None,
        on_compaction: Callable[[Snapshot], Change] | None = None,
    ) -> Committed:
        """Commit the change on top of the head at that time; a foreign head is adopted first.

        ``on_conflict``    makes the change for a newer snapshot; without it a conflict is an error
        ``on_compaction``  does so if only compactions conflict: the rows are the same in other files, and maintenance
                           must not make a user's commit fail

        Raises Conflict, SchemaMismatch, PartitionInvalid, IndexStale, InputError, TooSlow, DatasetDeleted, Contended
        with the head as it was. After StoreUnavailable the commit may have happened: ``begin`` of the next run tells.
        """
        seen, base, schema = self._seen, self.snapshot.head, self.snapshot.schema
        patience = CommitBackoff(self._journal, self._patience)
        conflicts = 0
        if seen is not None and seen.marker is None:
            live = live_head(self._journal, seen)
            require_valid(change, base=base, made_for=schema, on=seen, live=live, current=schema)
            seen = self._way.settled(patience)
            if (marker := applied(self._journal, self._request, seen)) is not None:
                return self._committed(marker, seen, 0)
            self._require_same_epoch(seen)
        while True:
            with span("swap", attempt=patience.tries + 1, conflicts=conflicts) as swap:
                try:
                    decided = draft(
                        self._journal,
                        change,
                        commit_id=self._request.id,
                        spec_digest=self._request.digest,
                        base=base,
                        on=seen,
                        made_for=schema,
                    )
                except Conflict:
                    again = on_conflict or (on_compaction if self._only_compacted(change, base, seen) else None)
                    if again is None:
                        raise
                    swap.set(outcome="conflict")
                    conflicts += 1
                    snapshot = snapshot_of(self._journal, seen)
                    change, base, schema = again(snapshot), snapshot.head, snapshot.schema
                    continue
                published = self._way.publish(
                    decided, seen, before_swap=self._before_swap, after_swap=self._check_unchanged
                )
                swap.set(outcome="lost" if published is None else "won")
            if published is not None:
                return self._confirmed(published, patience)
            patience.pause()
            seen = self._way.settled(patience)
            if (marker := applied(self._journal, self._request, seen)) is not None:
                return self._committed(marker, seen, patience.tries)
            self._require_same_epoch(seen)

    def records_between(self, before: Snapshot, after: Snapshot) -> Iterator[Record]:
        """Yield the records of the commits on top of one snapshot of this transaction up to another, newest first.

        Raises VersionIncomplete if the history of the later one does not contain the earlier one.
        """
        if after.head.commit == before.head.commit:
            return
        for record in chain(self._journal, self._journal.record(str(after.head.commit))):
            if record.key == before.head.commit:
                return
            if record.version <= before.version:
                break
            yield record
        raise VersionIncomplete(f"version {before.version} of {self._journal.uuid!r} is not in the history any more")

    def _only_compacted(self, change: Change, base: Head, seen: Observed | None) -> bool:
        """Return whether, since ``base``, only compactions touched what the change depends on."""
        if seen is None or seen.marker is None:
            return False
        removed = {label: base.file(label) for label in change.removed}
        for record in chain(self._journal, self._journal.record(seen.marker.record)):
            if record.version <= base.version:
                return record.key == base.commit
            if record.operation is not Operation.COMPACT and touches(record.delta, removed, change.reads):
                return False
        return False

    def _check_unchanged(self, etag: str) -> None:
        """Note whether the head is still ours: a foreign writer may have overwritten it meanwhile."""
        self._unchanged = False
        with suppress(ObjectNotFound):
            self._unchanged = self._journal.store.get_if_changed(keys.head(self._journal.uuid), etag) is None

    def _confirmed(self, published: Observed, patience: CommitBackoff) -> Committed:
        """Return what to report; if the head is no longer ours, settle first, so that the commit has survived."""
        marker, lost = published.marker, patience.tries
        assert marker is not None, "this commit made the head"
        if self._unchanged:
            return self._committed(marker, published, lost)
        seen = self._way.settled(patience)
        return self._committed(applied(self._journal, self._request, seen) or marker, seen, lost)

    def _committed(self, marker: Marker, seen: Observed | None, rebased: int) -> Committed:
        """Call ``after``, and return what to report."""
        if seen is not None:
            self._after(seen.head)
        on_top = seen is None or seen.marker is None or seen.marker.record != marker.record
        return Committed(
            version=marker.version,
            record_key=marker.record,
            head_etag=None if on_top or seen is None else seen.etag,
            totals=marker.totals,
            added=marker.added,
            rebased=rebased,
        )

    def _require_same_epoch(self, seen: Observed | None) -> None:
        require_alive(seen, self._request.claim)
        before, now = live_head(self._journal, self._seen), live_head(self._journal, seen)
        if self._seen is not None and before.epoch != now.epoch:
            raise DatasetDeleted(
                f"dataset {self._journal.uuid!r} was deleted or restored while this commit ran; run it "
                "again if you still need it"
            )
