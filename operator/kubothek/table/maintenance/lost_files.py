"""Data files that a table names and that do not exist: they can be reported, never rebuilt.

The commit records, read backwards from the head, tell which versions are still complete: what a commit added did not
exist below it, what it removed did.

The result is noted beside the dataset, so that inspections, which check a few files only, report it until it is
repaired.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final

import orjson

from kubothek.errors import ObjectNotFound, VersionIncomplete
from kubothek.storage import Store
from kubothek.table.checked_types import checked
from kubothek.table.log import DatasetLog, Record, Snapshot
from kubothek.table.log.history.versions import absent
from kubothek.table.log.model import keys
from kubothek.table.log.records import chain
from kubothek.table.maintenance.inventory import runs

_SHOWN: Final = 3
_LEAST_SAMPLE: Final = 4
_LARGEST_SAMPLE: Final = 64
_SAMPLED: Final = 1000
"""An inspection checks one file in this number: some thousand inspections check all of them."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Data files of the current version that are gone.

    ``version``   the current one
    ``files``     their keys, in head order
    ``affected``  versions that lack a file, ascending: the current one, and older ones that readers can request
    ``whole``     the newest version that has all of its files; None if there is none
    """

    version: int
    files: tuple[str, ...]
    affected: tuple[int, ...]
    whole: int | None

    def __str__(self) -> str:
        names = ", ".join(self.files[:_SHOWN])
        if (more := len(self.files) - _SHOWN) > 0:
            names += f" and {more:,} more"
        what = f"{len(self.files):,} data file{'s are' if len(self.files) > 1 else ' is'} lost: {names}"
        where = f"missing in version{'s' if len(self.affected) > 1 else ''} {ranges(self.affected)}"
        if self.whole is None:
            return f"{what}; {where}; no version that is kept is whole: put the files back, or delete what they held"
        return (
            f"{what}; {where}; version {self.whole} is whole: put the files back, roll back to it, or delete what they "
            "held"
        )


def find_lost_files(store: Store, log: DatasetLog, snapshot: Snapshot) -> Lost | None:
    """Return which data files of this snapshot, the current one, are gone; None if none is. Updates the note.

    Costs one listing of the table; if a file is gone, also a check of the files that older versions need.
    """
    noted = _noted(store, log.uuid)
    found = _find(store, log, snapshot)
    if found is not None and found != noted:
        store.put(keys.lost(log.uuid), orjson.dumps(asdict(found)))
    elif found is None and noted is not None:
        store.delete([keys.lost(log.uuid)])
    return found


def sample_lost_files(store: Store, log: DatasetLog, snapshot: Snapshot) -> Lost | None:
    """Check as :func:`find_lost_files` does, but only a few random files as long as none of them is missing."""
    noted = _noted(store, log.uuid)
    if noted is not None:
        known = noted.files[:_LEAST_SAMPLE]
        same = noted.version == snapshot.version and len(absent(store, "", known)) == len(known)
        return noted if same else find_lost_files(store, log, snapshot)
    files = list(snapshot.head.files().values())
    size = min(len(files), max(_LEAST_SAMPLE, min(_LARGEST_SAMPLE, len(files) // _SAMPLED)))
    if not absent(store, "", random.sample(files, size)):
        return None
    return find_lost_files(store, log, snapshot)


def _noted(store: Store, uuid: str) -> Lost | None:
    """Return the noted result; None if there is none, or it cannot be read."""
    with suppress(ObjectNotFound, orjson.JSONDecodeError, KeyError, TypeError):
        found = orjson.loads(store.get(keys.lost(uuid)))
        return checked(Lost(found["version"], tuple(found["files"]), tuple(found["affected"]), found["whole"]))
    return None


def _find(store: Store, log: DatasetLog, snapshot: Snapshot) -> Lost | None:
    prefix = keys.data_prefix(snapshot.head.uuid, snapshot.head.table)
    missing = absent(store, prefix, snapshot.head.files().values())
    if not missing:
        return None
    # A listing takes time: files that other commits removed meanwhile may have been collected.
    snapshot = log.snapshot()
    head = snapshot.head
    named = set(head.files().values())
    files = [key for key in missing if key in named]
    if not files:
        return None
    records = list(_records(log, snapshot))
    removed = {key for record in records for _, key in record.delta.removed}
    absent_keys = {*files, *absent(store, prefix, removed - set(files))}
    lacking, affected, whole = set(files), list[int](), None
    for record in records:
        if lacking:
            affected.append(record.version)
        elif whole is None and _is_intact(log, record.version, absent_keys):
            whole = record.version
        lacking -= {file.key for file in record.delta.added}
        lacking |= {key for _, key in record.delta.removed if key in absent_keys}
    if whole is None:
        tagged = sorted({tag.version for tag in head.tags.values()}, reverse=True)
        whole = next((version for version in tagged if _is_intact(log, version, absent_keys)), None)
    return Lost(snapshot.version, tuple(files), tuple(reversed(affected or [snapshot.version])), whole)


def _records(log: DatasetLog, snapshot: Snapshot) -> Iterator[Record]:
    """Yield the commits that lead to the current state and whose versions readers can request, newest first."""
    journal, head = log.journal, snapshot.head
    newest = head.commit
    if newest is None:
        return
    oldest = max(head.horizon, head.epoch + 1)

    def link(record: Record) -> str | None:
        before = keys.parse_record(journal.uuid, record.content_parent)
        return before.key if before is not None and before.version >= oldest else None

    try:
        yield from chain(journal, journal.record(newest), link)
    except VersionIncomplete:
        return


def _is_intact(log: DatasetLog, version: int, absent_keys: set[str]) -> bool:
    """Return whether the version can be rebuilt with all of its files. Known missing files are not checked again."""
    try:
        return absent_keys.isdisjoint(log.snapshot(version).head.files().values())
    except VersionIncomplete:
        return False


def ranges(versions: tuple[int, ...]) -> str:
    """Return ascending numbers as text: 3, 5 to 9."""
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in runs(versions))
