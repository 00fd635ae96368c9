"""Healing: rebuild what is derived from a table's data where it is missing or lags behind; report lost data.

The schema object and its copy for other libraries, markers, checkpoints, secondary indices, skipping metadata and the
Iceberg metadata that commits export are derived. Each is rebuilt from data, or from an object that a hash verifies, so
a repair is right or does not happen. Data files are derived from nothing: see
:mod:`~kubothek.table.maintenance.lost_files`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Final

from kubothek.errors import DatasetNotFound, IndexStale, ObjectNotFound, PreconditionFailed, VersionIncomplete
from kubothek.storage import Store
from kubothek.table.iceberg.state import damaged_files, iceberg_state, is_complete
from kubothek.table.indexes.integrity import check_object
from kubothek.table.indexes.model import IndexKind, digest_in
from kubothek.table.indexes.native import read_manifest
from kubothek.table.indexes.object_cache import OpenedFile
from kubothek.table.indexes.report import IndexHealth, report
from kubothek.table.log import DatasetLog, Head, Record, Snapshot
from kubothek.table.log.exports import export_commit
from kubothek.table.log.history.rebuild import rebuild
from kubothek.table.log.history.versions import absent
from kubothek.table.log.journal import Journal, Observed
from kubothek.table.log.model import keys
from kubothek.table.log.model.head import IcebergSetting
from kubothek.table.log.model.markers import Marker
from kubothek.table.log.model.record import Distance
from kubothek.table.log.records import chain
from kubothek.table.log.update_indexes import reindex
from kubothek.table.log.update_skipping import reskip, resume_xskipper, undescribed
from kubothek.table.maintenance.lost_files import find_lost_files
from kubothek.table.maintenance.sizes import intact_records
from kubothek.words import count

_EXPORT: Final = "the Iceberg export"
_SAMPLE: Final = 4
"""Files of a native index that an inspection reads."""


@dataclass(frozen=True, slots=True)
class Healed:
    """The result of a healing.

    ``repaired``  what was rebuilt, each as a few words
    ``corrupt``   which data files are lost, of which versions, and which version is complete; None if none is lost
    """

    repaired: tuple[str, ...] = ()
    corrupt: str | None = None


def heal(store: Store, log: DatasetLog, *, by: str = "") -> Healed:
    """Check all that a dataset names, and rebuild what can be rebuilt. Idempotent.

    Lists the data files. Only indices, skipping metadata and the export's setting change by a commit. Raises
    DatasetNotFound; VersionIncomplete if the schema is lost; and what settling a head raises: HeadMissing,
    OwnedByAnother, NeedsConversion, Contended.
    """
    repaired: list[str] = []
    journal = log.journal
    seen = journal.observe()
    if seen is not None and not seen.head.tombstone:
        if restore_schema(journal, seen.head):
            repaired.append("the schema")
        if seen.marker is not None and not seen.marked:
            repaired.append(f"the marker of version {seen.version}")
    seen = log.settled()
    if seen is None:
        raise DatasetNotFound(f"there is no dataset {log.uuid!r} in {store.url}: nothing to heal")
    if seen.head.tombstone:
        return Healed(tuple(repaired))
    if journal.heal_common_metadata(seen.head):
        repaired.append("_common_metadata")
    log.settle()
    seen = log.settled()
    assert seen is not None, "it was there"
    repaired += _heal_history(log, seen)
    damage = find_lost_files(store, log, log.snapshot())
    if damage is not None:
        return Healed(tuple(repaired), str(damage))
    repaired += _heal_indices(store, log, seen.head, by)
    repaired += _heal_skipping(store, log, by)
    return Healed((*repaired, *_heal_iceberg(store, log)))


def ailments(store: Store, log: DatasetLog, snapshot: Snapshot) -> tuple[str, ...]:
    """Return what :func:`heal` would rebuild, as far as a cheap check of the current version shows. Writes nothing.

    Costs two small requests for each index, one for each part of the skipping metadata, a random sample of native index
    files, a listing of the newest checkpoints, and four requests and a listing for an Iceberg export. What settling a
    head repairs (markers, ``_common_metadata``) is left out.
    """
    if not snapshot.exists:
        return ()
    found = [f"the index on {column!r}" for column in sorted(_unusable(store, snapshot.head, sample=_SAMPLE))]
    if lacking := undescribed(store, snapshot):
        found.append(f"the skipping metadata of {count(lacking, 'file')}")
    if _lacks_checkpoint(log.journal):
        found.append("the last checkpoint")
    exported = iceberg_state(store, log, snapshot)
    lacks = exported is not None and (exported.lag or not is_complete(store, log, exported))
    if lacks or _differs(log, snapshot.head):
        found.append(_EXPORT)
    return tuple(found)


def settle(log: DatasetLog) -> None:
    """Settle as :meth:`DatasetLog.settle` does; rebuild the schema object first if that is what is missing."""
    try:
        log.settle()
    except VersionIncomplete:
        seen = log.journal.observe()
        if seen is None or not restore_schema(log.journal, seen.head):
            raise
        log.settle()


def restore_schema(journal: Journal, head: Head) -> bool:
    """Rebuild the schema object from ``_common_metadata``, if it is gone; return whether it was.

    Both have the same bytes, and the object's name is their hash. Raises VersionIncomplete if the copy is gone as well
    or has another schema.
    """
    if head.schema_hash is None or not absent(journal.store, "", [keys.schema(journal.uuid, head.schema_hash)]):
        return False
    copy = keys.common_metadata(journal.uuid, head.table)
    try:
        data = journal.store.get(copy)
    except ObjectNotFound:
        data = b""
    if sha256(data).hexdigest() != head.schema_hash:
        raise VersionIncomplete(
            f"{keys.schema(journal.uuid, head.schema_hash)}: the schema of version {head.version} no longer exists, "
            f"and {copy} is no copy of it; restore either from a backup"
        )
    journal.store.put(keys.schema(journal.uuid, head.schema_hash), data)
    return True


# --- history ---------------------------------------------------------------------------------------------------------


def _heal_history(log: DatasetLog, seen: Observed) -> Iterator[str]:
    """Restore markers and checkpoints of the versions that readers can request. Memory: two keys a version."""
    journal = log.journal
    markers: dict[str, str] = {}
    checkpoints: dict[str, str] = {}
    for record in intact_records(log):
        if record.version <= seen.head.since:
            break
        markers.setdefault(keys.marker(journal.uuid, record.id), record.key)
        if record.since_checkpoint == Distance():
            checkpoints[keys.checkpoint(journal.uuid, record.version)] = record.key
    for key in absent(journal.store, keys.markers(journal.uuid), markers):
        record = journal.record(markers[key])
        if _mark_again(journal.store, key, record):
            yield f"the marker of version {record.version}"
    for tag in seen.head.tags.values():
        if tag.version < seen.head.horizon:
            checkpoints[keys.checkpoint(journal.uuid, tag.version)] = tag.record
    for key in absent(journal.store, keys.checkpoints(journal.uuid), checkpoints):
        with suppress(VersionIncomplete):  # its content cannot be derived any longer
            head = rebuild(journal, journal.record(checkpoints[key]))
            journal.put_checkpoint(head.version, head.render())
            yield f"the checkpoint of version {head.version}"
    if _cannot_be_rebuilt(journal, seen):
        # Older versions are unreadable for good; this one and later ones must stay readable.
        journal.put_checkpoint(seen.head.version, seen.head.render())
        yield f"the checkpoint of version {seen.version}"


def _mark_again(store: Store, key: str, record: Record) -> bool:
    """Write the marker of a commit on the chain, unless there is one by now; return whether it was written."""
    try:
        store.put_if_absent(key, Marker.of(record).render())
    except PreconditionFailed:
        return False
    return True


def _cannot_be_rebuilt(journal: Journal, seen: Observed) -> bool:
    """Return whether the current version needs a checkpoint to stay readable once it is an old one."""
    assert seen.marker is not None, "a settled head is ours"
    try:
        record = journal.record(seen.marker.record)
    except VersionIncomplete:
        return False  # a checkpoint is useless without it
    try:
        rebuild(journal, record)
    except VersionIncomplete:
        return True
    return False


def _lacks_checkpoint(journal: Journal) -> bool:
    """Return whether the current version cannot be rebuilt, or only from an older checkpoint than it should have."""
    seen = journal.observe()
    if seen is None or seen.marker is None:
        return False
    commits = seen.marker.since_checkpoint.commits
    due = seen.version - commits
    if due < 1 or _newest_checkpoint(journal, after=due - 1):
        return False
    # Version numbers can be missing, and a collector deletes checkpoints below one that it writes.
    newest = _newest_checkpoint(journal)
    try:
        for record in islice(chain(journal, journal.record(seen.marker.record)), commits + 1):
            if record.version <= newest or record.since_checkpoint == Distance():
                return record.version > newest
    except VersionIncomplete:
        return True
    return False


def _newest_checkpoint(journal: Journal, *, after: int = 0) -> int:
    """Return the version of the newest checkpoint above ``after``; 0 if there is none. One in a hundred has one."""
    listed = journal.store.list(keys.checkpoints(journal.uuid), keys.checkpoint(journal.uuid, after))
    return max((keys.checkpoint_version(info.key) or 0 for info in listed), default=0)


# --- indices ---------------------------------------------------------------------------------------------------------


def _heal_indices(store: Store, log: DatasetLog, head: Head, by: str) -> tuple[str, ...]:
    broken = _unusable(store, head)
    partial = [each for each in report(store, head.index_state) if each.health is IndexHealth.PARTIAL]
    if not broken and not partial:
        return ()
    done = reindex(store, log, broken=broken, by=by)
    return tuple(f"the index on {column!r}" for column in sorted((*done.built, *done.tidied)))


def _heal_skipping(store: Store, log: DatasetLog, by: str) -> tuple[str, ...]:
    """Describe files without an entry: of foreign writers, or added while the definition changed."""
    done = reskip(store, log, by=by)
    if done.version is None:
        resume_xskipper(store, log)
    return (f"the skipping metadata of {count(done.described, 'file')}",) if done.described else ()


def _heal_iceberg(store: Store, log: DatasetLog) -> tuple[str, ...]:
    """Set the export as the owner of the dataset wants it, and export again what lags or is damaged."""
    snapshot = log.snapshot()
    changes = _differs(log, snapshot.head)
    if changes is not None:
        log.set_iceberg(changes)
        snapshot = log.snapshot()
    exported = iceberg_state(store, log, snapshot)
    if exported is None:
        return (_EXPORT,) if changes else ()
    damaged = damaged_files(store, log.uuid)
    if not damaged and not exported.lag and is_complete(store, log, exported):
        return (_EXPORT,) if changes else ()
    done = export_commit(store, log, snapshot.head, heals=True, rebuild=bool(damaged))
    if done and damaged:  # what is still damaged is a leftover, which the rebuilt metadata does not name
        store.delete(damaged_files(store, log.uuid))
    return (_EXPORT,) if done else ()


def _differs(log: DatasetLog, head: Head) -> IcebergSetting | None:
    """Return what the owner of the dataset sets the export to, if the head has another setting."""
    return log.journal.iceberg if log.journal.iceberg != head.iceberg_setting else None


def _unusable(store: Store, head: Head, *, sample: int | None = None) -> set[str]:
    """Return the columns whose index is gone, damaged or unreadable; ``sample``: how many of its files to check."""
    state = head.index_state
    found = {each.column for each in report(store, state) if each.health is IndexHealth.STALE}
    for column, kind in state.kinds().items():
        if column not in found and _is_damaged(store, head, column, kind, sample):
            found.add(column)
    return found


def _is_damaged(store: Store, head: Head, column: str, kind: IndexKind, sample: int | None) -> bool:
    """Return whether an object of an index is gone, or is not the committed one; cached copies would hide that.

    Without a ``sample`` every object is read completely. A Kartothek index of another program that names none of the
    table's files counts as damaged: whether they hold only NULL is unknown.
    """
    state = head.index_state
    try:
        if kind is IndexKind.KARTOTHEK:
            listed = state.kartothek[column]
            if not isinstance(listed, str):
                return False
            opened = OpenedFile(store, listed)
            if sample is None:
                check_object(store, listed)
            return digest_in(listed) is None and not opened.rows and bool(head.partitions)
        files = read_manifest(store, state.native[column]).files
        for file in files if sample is None or len(files) <= sample else random.sample(files, sample):
            OpenedFile(store, file.key, file)
            if sample is None:
                check_object(store, file.key)
    except IndexStale:
        return True
    return False
