"""One collection of one dataset: mark, plan, expire, sweep (commit-protocol, "What a collector may delete").

The order makes it safe beside all other programs:

1. Take the store's time, then read the head, then list records and everything else. Objects younger than the grace
   period stay.
2. Expire versions that no policy retains, by a commit, which swaps the head. A concurrent swap fails by that, and its
   writer, on retry, finds its files too old.
3. Remove from the plan what commits between 1 and 2 added; if they did more, start again at 1.
4. Only then delete, and each object before those that it names.

This module handles records itself, as they tell what else stays. Threads or machines share the rest: they list ranges
of keys, then delete parts of the plan.

A crash at any point leaves garbage, and the next run collects it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from uuid import uuid4

import orjson

from kubothek.errors import (
    Contended,
    DatasetDeleted,
    DatasetNotFound,
    InputError,
    StoreError,
    StoreUnavailable,
    TooManyDeletes,
    VersionIncomplete,
    VersionTagged,
)
from kubothek.gc import references
from kubothek.gc.areas import Kind, Turn, areas
from kubothek.gc.iceberg import mark_iceberg
from kubothek.gc.leftovers import has_objects
from kubothek.gc.listing import GarbageSearch, add, write_kept
from kubothek.gc.mark import Kept, Moment, References, YoungFiles, mark_versions, mark_young_records
from kubothek.gc.plan import NO_OBJECTS, Count, Counts, Found, Spool, Sweep, added, to_json
from kubothek.gc.retention import Retention, pinned
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.storage.parallel import Spread, spread_here
from kubothek.table.log import Change, DatasetLog, Head, Operation, Record, read_settings
from kubothek.table.log.actions.tombstone import drop
from kubothek.table.log.history.rebuild import has_checkpoint, rebuild
from kubothek.table.log.journal import Observed
from kubothek.table.log.model import keys
from kubothek.table.log.model.head import digest
from kubothek.table.log.model.record import utc
from kubothek.table.maintenance.lost_files import Lost, find_lost_files
from kubothek.words import duration

MAX_DELETES: Final = 1_000_000
"""Default limit on the objects that one collection deletes."""
_TRIES: Final = 5
_FORMAT: Final = 1


class Mode(StrEnum):
    """Whether a collection deletes anything."""

    DRY_RUN = "DryRun"
    ENFORCE = "Enforce"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """The result of a collection.

    ``plan``      key of the plan in the store; None for a dry run without one
    ``oldest``    the oldest version that is kept, apart from tagged ones
    ``versions``  number of kept versions; 0: no head, because the first commit never happened
    ``found``     garbage by kind; ``deleted``: the deleted part of it
    ``young``     unreferenced objects that are kept, because they are younger than the grace period
    ``unknown``   objects that cannot be attributed to the dataset, and are kept
    ``version``   of the commit with which this collection began its deletions; None if there was nothing to do
    """

    uuid: str
    mode: Mode
    plan: str | None
    oldest: int
    versions: int
    found: Counts
    young: Count = NO_OBJECTS
    deleted: Counts = field(default_factory=dict)
    unknown: Count = NO_OBJECTS
    version: int | None = None


def collect(
    store: Store,
    log: DatasetLog,
    policies: Sequence[Retention],
    *,
    mode: Mode = Mode.DRY_RUN,
    max_deletes: int = MAX_DELETES,
    grace: timedelta | None = None,
    by: str = "",
    spread: Spread | None = None,
    keeps_plan: bool = False,
) -> Collection:
    """Delete what nothing references any longer, or report it. A dry run writes nothing to the store by default.

    ``policies``     a version stays if any of them keeps it; ``Retention()`` keeps every version. At least one
    ``max_deletes``  if more objects than these are garbage, delete none
    ``grace``        not shorter than the store's own; None = that
    ``spread``       runs the tasks that list and delete; None = threads of this process
    ``keeps_plan``   a dry run stores its plan in the store; with a ``spread`` it always does, for the tasks to read

    Works beside all other writers and readers, and may be run again after any failure. Of a dataset whose first commit
    never happened all objects are garbage. Raises TooManyDeletes,
    InputError, DatasetNotFound, VersionIncomplete if the present version has lost files, and what settles a head:
    NeedsConversion, HeadMissing, OwnedByAnother, Contended.
    """
    if not policies:
        raise InputError("no policy says which versions to keep, so nothing is collected")
    for _ in range(_TRIES):
        with TemporaryDirectory(prefix="kubothek-gc-") as directory:
            try:
                run = _Run(
                    store,
                    log,
                    policies,
                    grace,
                    by,
                    spread or spread_here(store),
                    Path(directory),
                    enforces=mode is Mode.ENFORCE,
                    scratch=None if mode is Mode.ENFORCE or keeps_plan or spread else _scratch(Path(directory)),
                )
                return run.enforce(max_deletes) if mode is Mode.ENFORCE else run.found(mode)
            except _MovedError:
                continue
    raise Contended(
        f"dataset {log.uuid!r} in {store.url}: changes of its head restarted the collection {_TRIES} times; "
        "try again when other programs write less"
    )


def _scratch(directory: Path) -> Store:
    """Return a store in a local directory for the plan of a dry run."""
    root = directory / "plan"
    root.mkdir()
    return open_store(StoreConfig(root.as_uri()))


class _MovedError(Exception):
    """The head changed so that the plan no longer holds."""


class _Run:
    """One attempt at a collection. Creating it makes the plan."""

    def __init__(
        self,
        store: Store,
        log: DatasetLog,
        policies: Sequence[Retention],
        grace: timedelta | None,
        by: str,
        spread: Spread,
        directory: Path,
        *,
        enforces: bool,
        scratch: Store | None,
    ) -> None:
        """Make the plan; ``scratch`` is the store for it, None = the dataset's store."""
        self._store = store
        self._enforces = enforces
        self._scratch = scratch
        self._log = log
        self._by = by
        self._spread = spread
        self._name = f"{keys.collections(log.uuid)}{uuid4().hex}"
        self._policies = policies
        self._present()  # raises before anything is written where there is no dataset
        self._settings = read_settings(store)
        self._moment = self._take_time(self._settings.grace if grace is None else grace)
        seen = self._present()
        self._exists = seen is not None
        self._seen = seen or Observed(Head(log.uuid), etag=None, modified=self._moment.now, marker=None)
        self._areas = areas(log.uuid, self._seen.head.table)
        self._marked = References(store, self._areas, directory)
        self._kept = self._mark()
        self._iceberg = self._mark_iceberg()
        self._found = self._find_garbage(directory / "kept.parquet")
        self._lost = self._find_loss()

    def found(self, mode: Mode) -> Collection:
        """Return the result that the plan describes."""
        return self._with_log(Collection(**self._facts(mode)))

    def enforce(self, max_deletes: int) -> Collection:
        """Carry out the plan."""
        found = self.found(Mode.ENFORCE)
        if self._found.objects > max_deletes:
            raise TooManyDeletes(
                f"dataset {self._log.uuid!r}: {self._found.objects} objects are garbage, more than the {max_deletes} "
                f"that may be deleted at once; nothing was deleted. See {self._name}-*.parquet in "
                f"{self._store.url}, and raise the limit if all of them may be deleted"
            )
        aborted = self._abort_uploads()
        if not self._found.objects:
            return replace(found, deleted=aborted)
        if self._lost is not None:
            raise VersionIncomplete(
                f"dataset {self._log.uuid!r}: {self._lost}. Nothing was deleted: an older version may be what is left"
            )
        self._anchor()
        version, spared = None, frozenset[str]()
        if not self._exists:
            version = self._fence()
        elif not self._seen.head.tombstone:
            version, spared = self._expire()
        deleted = added([self._sweep(spared), aborted])
        return self._with_log(Collection(**self._facts(Mode.ENFORCE), deleted=deleted, version=version))

    # --- planning ---

    def _take_time(self, grace: timedelta) -> Moment:
        if grace < self._settings.grace:
            raise InputError(
                f"grace period {duration(grace)} is shorter than the {duration(self._settings.grace)} that writers to "
                f"{self._store.url} rely on; shorten the store's first: kubothek grace {duration(grace)}"
            )
        if self._scratch is not None:
            return Moment(utc(self._log.journal.clock()), grace)
        self._store.put(f"{self._name}.json", orjson.dumps({"format": _FORMAT, "state": "Looking"}))
        return Moment(self._store.stat(f"{self._name}.json").modified, grace)

    def _present(self) -> Observed | None:
        """The head; a dry run leaves a foreign one as it is. None if there never was one, but writers left objects."""
        seen = self._log.settled() if self._enforces else self._log.observed()
        if seen is None and not has_objects(self._store, Head(self._log.uuid)):
            raise DatasetNotFound(f"there is no dataset {self._log.uuid!r} in {self._store.url}")
        return seen

    def _mark(self) -> Kept:
        try:
            needed = pinned(self._store, self._log.uuid, self._policies, self._moment.now)
            return mark_versions(self._log.journal, self._seen, self._policies, self._moment, self._marked, needed)
        except VersionIncomplete as error:
            present = self._present()
            if present is None or present.etag != self._seen.etag:
                raise _MovedError from error  # another collector was at work
            raise

    def _mark_iceberg(self) -> datetime | None:
        """Mark Iceberg metadata that stays; see :func:`~.iceberg.mark_iceberg`. Without versions, none of it stays."""
        if not self._exists or (self._seen.head.tombstone and self._kept.versions == 1):
            return self._moment.now
        return mark_iceberg(self._store, self._log.uuid, self._seen.version, self._moment, self._marked)

    def _find_garbage(self, path: Path) -> Found:
        """Find the garbage, and store the plan; ``path`` holds the referenced keys before their upload to the store."""
        uuid, table = self._log.uuid, self._seen.head.table
        records, *others = self._areas
        plans = self._scratch or self._store
        spool = Spool(plans, self._name)
        listing = self._store.list(records.prefix)
        young = YoungFiles()
        for info in mark_young_records(self._log.journal, listing, records, self._moment, self._marked, young):
            add(spool, records, info, keys.common_metadata(uuid, table))
        found = replace(spool.finish(), young=young.count)
        self._marked.resolve()
        ranges = [*write_kept(path, [self._marked.of(area) for area in others], first=1)]
        kept = f"{self._name}-kept.parquet"
        with path.open("rb") as file:
            plans.upload(kept, file)
        scratch = None if self._scratch is None else self._scratch.config
        search = GarbageSearch(uuid, table, self._moment, self._kept.oldest, kept, self._name, scratch, self._iceberg)
        return Found.joined([found, *self._spread(search, ranges, "look for garbage")])

    def _find_loss(self) -> Lost | None:
        """Return what the current version has lost, if any file that stays is missing; inspections then report it."""
        if self._scratch is not None or not self._found.missing or self._seen.head.tombstone:
            return None
        return find_lost_files(self._store, self._log, self._log.snapshot())

    # --- changing ---

    def _anchor(self) -> None:
        """Write checkpoints, so that the remaining versions need no record that is deleted."""
        journal = self._log.journal
        try:
            for record in self._kept.anchors:
                if not has_checkpoint(journal, record):
                    journal.put_checkpoint(record.version, self._state(record))
        except VersionIncomplete as error:
            raise _MovedError from error  # another collector changed the dataset

    def _state(self, record: Record) -> bytes:
        """Return the head that this commit made: the current one if its digest is the record's, else rebuilt."""
        if self._seen.marker is not None and record.key == self._seen.marker.record:
            present = self._seen.head.render()
            if digest(present) == record.head_digest:
                return present
        return rebuild(self._log.journal, record).render()

    def _fence(self) -> int:
        """Put a tombstone where the first head would be: a first swap that is under way, for however long, fails by it.

        A writer may begin on top of it. Returns its version.
        """
        fence = self._log.journal.publish(drop(self._log.journal, self._seen, incarnation="", by=self._by), None)
        if fence is None:
            raise _MovedError
        return fence.version

    def _expire(self) -> tuple[int, frozenset[str]]:
        """Commit the expiry. Return its version, and the keys that became referenced between the plan and it."""
        try:
            committed = self._log.begin_new("expire").commit(
                Change(operation=Operation.EXPIRE, horizon=self._kept.oldest, spares=self._kept.tagged, by=self._by)
            )
        except (DatasetDeleted, VersionTagged) as error:
            raise _MovedError from error
        return committed.version, self._needed_since(committed.record_key)

    def _needed_since(self, expiry: str) -> frozenset[str]:
        """Return the keys that commits after the plan's head and before the expiry added."""
        assert self._seen.marker is not None, "a settled head is ours"
        needed: set[str] = set()
        key: str | None = expiry
        while key is not None:
            record = self._log.journal.record(key)
            if record.version <= self._seen.version or record.restores is not None:
                break
            needed.update((key, *references.of_record(record), *record.replaced))
            if record.parent == self._seen.marker.record:
                return frozenset(needed)
            key = record.parent
        raise _MovedError

    def _sweep(self, spared: frozenset[str]) -> Counts:
        """Delete what the plan lists, turn by turn."""
        seen = self._log.journal.observe()
        if seen is None or seen.marker is None or seen.etag is None:
            raise _MovedError
        final = self._seen.head.tombstone is not None
        etag = self._seen.etag if final else seen.etag
        assert etag is not None, "a settled head is ours"
        sweep = Sweep(self._log.uuid, etag, final, self._settings, spared)
        deleted = []
        for turn in Turn:
            parts = [part for part in self._found.parts if part.turn is turn]
            swept = self._spread(sweep, parts, "delete garbage")
            if any(each.moved for each in swept):
                raise _MovedError
            deleted += [each.deleted for each in swept]
        return added(deleted)

    def _abort_uploads(self) -> Counts:
        """Abort multipart uploads older than the grace period: their objects would be too old to be committed.

        Where that is forbidden or unsupported, lifecycle rules of the bucket have to do it.
        """
        uuid, due = self._log.uuid, self._moment.now - self._moment.grace
        try:
            aborted = sum(
                self._store.abort_uploads(prefix, due)
                for prefix in (keys.data_prefix(uuid, self._seen.head.table), keys.side(uuid))
            )
        except StoreUnavailable:
            raise
        except StoreError:
            return {}
        return {Kind.UPLOADS: Count(aborted)} if aborted else {}

    # --- reporting ---

    def _facts(self, mode: Mode) -> dict[str, Any]:
        return {
            "uuid": self._log.uuid,
            "mode": mode,
            "plan": f"{self._name}.json" if self._scratch is None else None,
            "oldest": self._kept.oldest,
            "versions": self._kept.versions if self._exists else 0,
            "found": self._found.counts,
            "young": self._found.young,
            "unknown": self._found.unknown,
        }

    def _with_log(self, done: Collection) -> Collection:
        """Store the result beside the plan."""
        if done.plan is None:
            return done
        document = {
            "format": _FORMAT,
            "state": "Planned" if done.version is None and not done.deleted else "Swept",
            "mode": done.mode,
            "time": self._moment.now.isoformat(),
            "grace_seconds": self._moment.grace.total_seconds(),
            "head": self._seen.head.commit,
            "oldest_version": done.oldest,
            "versions": done.versions,
            "found": to_json(done.found),
            "deleted": to_json(done.deleted),
            "young": to_json({Kind.DATA: done.young})["data"],
            "unknown": to_json({Kind.DATA: done.unknown})["data"],
            "expiry_version": done.version,
        }
        self._store.put(done.plan, orjson.dumps(document))
        return done
