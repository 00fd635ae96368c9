"""One collection of one dataset: mark, plan, expire, sweep (commit-protocol, "What a collector may delete").

The order is what makes it safe beside everybody else:

1. the store's time is taken, then the head is read, then records and all else are listed. What is younger than the
   grace period stays;
2. versions that nobody retains expire by a commit, which swaps the head. A swap that was under way fails by that, and
   its writer, trying again, finds its files too old;
3. what commits that came between 1 and 2 brought in is taken out of the plan; if they did more, 1 starts anew;
4. only then is anything deleted: what names others goes before these.

A crash at any point leaves garbage, and a run that finds it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from uuid import uuid4

import orjson
import zstandard

from kubothek.lake.collector import references
from kubothek.lake.collector.areas import Area, Kind, areas
from kubothek.lake.collector.mark import Kept, Moment, References, mark_versions, mark_young_records
from kubothek.lake.collector.plan import NO_OBJECTS, Count, Spool, to_json
from kubothek.lake.collector.retention import Retention
from kubothek.lake.collector.sorted_keys import unreferenced
from kubothek.lake.commits import Change, DatasetLog, Operation, keys, read_settings
from kubothek.lake.commits.journal import Observed
from kubothek.lake.commits.rebuild import has_checkpoint
from kubothek.lake.errors import (
    Contended,
    DatasetDeleted,
    DatasetNotFound,
    InputError,
    TooManyDeletes,
    VersionIncomplete,
)
from kubothek.lake.store import ObjectInfo, Store

MAX_DELETES: Final = 1_000_000
"""What a collection deletes at most, unless it is told otherwise."""
_BATCH: Final = 4000
"""Keys between two looks at the head: as many as the store deletes at once."""
_TRIES: Final = 5
_FORMAT: Final = 1


class Mode(StrEnum):
    """Whether anything is deleted."""

    DRY_RUN = "DryRun"
    ENFORCE = "Enforce"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """What a collection found and did.

    ``plan``      key of the plan in the store
    ``oldest``    the oldest version that stays
    ``versions``  how many stay
    ``found``     garbage by kind; ``deleted``: what of it is gone
    ``unknown``   objects that cannot be attributed to the dataset, and are left alone
    ``version``   of the commit that this collection began its deletions with; None if there was nothing to do
    """

    uuid: str
    mode: Mode
    plan: str
    oldest: int
    versions: int
    found: Mapping[Kind, Count]
    deleted: Mapping[Kind, Count] = field(default_factory=dict)
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
) -> Collection:
    """Delete what nothing refers to any more, or say what that would be.

    ``policies``     what any of them keeps is kept; ``Retention()`` keeps every version. At least one
    ``max_deletes``  with more objects than these to delete, none is
    ``grace``        longer than the store's own; None = that

    Works beside all other writers and readers, and may be run again after any failure. Raises TooManyDeletes,
    InputError, DatasetNotFound, and what settles a head: NeedsConversion, HeadMissing, OwnedByAnother, Contended.
    """
    if not policies:
        raise InputError("no policy says which versions to keep, so nothing is collected")
    for _ in range(_TRIES):
        with TemporaryDirectory(prefix="kubothek-gc-") as directory:
            try:
                run = _Run(store, log, policies, grace, by, Path(directory))
                return run.enforce(max_deletes) if mode is Mode.ENFORCE else run.found(mode)
            except _MovedError:
                continue
    raise Contended(
        f"dataset {log.uuid!r} in {store.url}: its head was changed {_TRIES} times in a way that starts the "
        "collection anew; try again when other programs write less"
    )


class _MovedError(Exception):
    """The head is not one on which the plan still holds."""


class _Run:
    """One try: its plan, once it is made."""

    def __init__(
        self,
        store: Store,
        log: DatasetLog,
        policies: Sequence[Retention],
        grace: timedelta | None,
        by: str,
        directory: Path,
    ) -> None:
        self._store = store
        self._log = log
        self._by = by
        self._name = f"{keys.collections(log.uuid)}{uuid4().hex}"
        self._policies = policies
        self._settled()  # nothing is written where no dataset is
        self._settings = read_settings(store)
        self._moment = self._take_time(self._settings.grace if grace is None else grace)
        self._seen = self._settled()
        self._areas = areas(log.uuid, self._seen.head.table)
        self._marked = References(store, self._areas, directory)
        self._spool = Spool(directory)
        self._unknown = NO_OBJECTS
        self._kept = self._plan()

    def found(self, mode: Mode) -> Collection:
        """What the plan says, which is put into the store."""
        self._spool.upload(self._store, self._name)
        return self._tell(Collection(**self._facts(mode)))

    def enforce(self, max_deletes: int) -> Collection:
        """Do what the plan says."""
        found = self.found(Mode.ENFORCE)
        if self._spool.objects > max_deletes:
            raise TooManyDeletes(
                f"dataset {self._log.uuid!r}: {self._spool.objects} objects are garbage, more than the {max_deletes} "
                f"that may be deleted at once; nothing was deleted. See {self._name}-*.parquet in "
                f"{self._store.url}, and raise the limit if they are what is meant to go"
            )
        if not self._spool.objects:
            return found
        self._anchor()
        version, spared = (None, frozenset[str]()) if self._seen.head.tombstone else self._expire()
        deleted = self._sweep(spared)
        return self._tell(Collection(**self._facts(Mode.ENFORCE), deleted=deleted, version=version))

    # --- looking ---

    def _take_time(self, grace: timedelta) -> Moment:
        if grace < self._settings.grace:
            raise InputError(
                f"a grace period of {grace} is shorter than the {self._settings.grace} that writers to "
                f"{self._store.url} count on: change {keys.SETTINGS} first"
            )
        self._store.put(f"{self._name}.json", orjson.dumps({"format": _FORMAT, "state": "Looking"}))
        return Moment(self._store.stat(f"{self._name}.json").modified, grace)

    def _settled(self) -> Observed:
        seen = self._log.settled()
        if seen is None:
            raise DatasetNotFound(f"there is no dataset {self._log.uuid!r} in {self._store.url}")
        return seen

    def _plan(self) -> Kept:
        try:
            kept = mark_versions(self._log.journal, self._seen, self._policies, self._moment, self._marked)
        except VersionIncomplete as error:
            if self._settled().etag != self._seen.etag:
                raise _MovedError from error  # another collector was at work
            raise
        records, *others = self._areas
        with self._spool:
            listing = self._store.list(records.prefix)
            for info in mark_young_records(self._log.journal, listing, records, self._moment, self._marked):
                self._add(records, info)
            self._marked.resolve()
            for area in others:
                for info in unreferenced(self._store.list(area.prefix), self._marked.of(area)):
                    if self._is_garbage(area, info, kept.oldest):
                        self._add(area, info)
        return kept

    def _add(self, area: Area, info: ObjectInfo) -> None:
        if area.owns(info.key):
            self._spool.add(info, area.kind)
        elif info.key != keys.common_metadata(self._log.uuid, self._seen.head.table):
            self._unknown = self._unknown.plus(info.size)

    def _is_garbage(self, area: Area, info: ObjectInfo, oldest: int) -> bool:
        """Of what is not referenced. A checkpoint is only ever written of a version that was committed: if that has
        expired, the checkpoint goes with it, however young it is.
        """
        version = keys.checkpoint_version(info.key) if area.kind is Kind.CHECKPOINTS else None
        return not self._moment.is_young(info.modified) if version is None else version < oldest

    # --- changing ---

    def _anchor(self) -> None:
        """Make sure that the versions which stay need no record of one that goes."""
        for record, head in self._kept.anchors:
            if not has_checkpoint(self._log.journal, record):
                self._store.put(keys.checkpoint(self._log.uuid, record.version), zstandard.compress(head.render()))

    def _expire(self) -> tuple[int, frozenset[str]]:
        """The commit after which nobody can ask for what goes; its version, and what became needed before it."""
        try:
            committed = self._log.begin_new("expire").commit(
                Change(operation=Operation.EXPIRE, horizon=self._kept.oldest, by=self._by)
            )
        except DatasetDeleted as error:
            raise _MovedError from error
        return committed.version, self._needed_since(committed.record_key)

    def _needed_since(self, expiry: str) -> frozenset[str]:
        """What commits brought in that came after the plan's head and before the expiry."""
        assert self._seen.marker is not None, "a settled head is ours"
        needed: set[str] = set()
        key: str | None = expiry
        while key is not None:
            record = self._log.journal.record(key)
            if record.version <= self._seen.version or record.restores is not None:
                break
            needed.update((key, *references.of_record(record)))
            if record.parent == self._seen.marker.record:
                return frozenset(needed)
            key = record.parent
        raise _MovedError

    def _sweep(self, spared: frozenset[str]) -> dict[Kind, Count]:
        deleted: dict[Kind, Count] = defaultdict(Count)
        for batch in self._spool.batches(_BATCH):
            self._require_unmoved()
            doomed = [each for each in batch if each.key not in spared]
            self._store.delete([each.key for each in doomed])
            for each in doomed:
                deleted[each.kind] = deleted[each.kind].plus(each.size)
        return deleted

    def _require_unmoved(self) -> None:
        """A foreign head may be built on what we do not know; a longer grace period protects what we took for old."""
        seen = self._log.journal.observe()
        if seen is None or seen.marker is None or read_settings(self._store) != self._settings:
            raise _MovedError
        if self._seen.head.tombstone and seen.etag != self._seen.etag:
            raise _MovedError

    # --- telling ---

    def _facts(self, mode: Mode) -> dict[str, Any]:
        return {
            "uuid": self._log.uuid,
            "mode": mode,
            "plan": f"{self._name}.json",
            "oldest": self._kept.oldest,
            "versions": self._kept.versions,
            "found": dict(self._spool.counts),
            "unknown": self._unknown,
        }

    def _tell(self, done: Collection) -> Collection:
        """Put it into the store, where its keys were put before."""
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
            "unknown": to_json({Kind.DATA: done.unknown})["data"],
            "expiry_version": done.version,
        }
        self._store.put(done.plan, orjson.dumps(document))
        return done
