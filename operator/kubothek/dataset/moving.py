"""Copy, rename, deletion and restore of whole datasets."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from typing import Final
from uuid import uuid4

from kubothek.dataset.handle import CommitResult
from kubothek.errors import Conflict, DatasetExists, DatasetNotFound, IdReused, InputError, VersionTagged
from kubothek.storage import Store
from kubothek.table.log import AlreadyApplied, DatasetLog, Snapshot
from kubothek.table.log.history.tags import versions_of
from kubothek.table.operations.copies import created

CREATE_ID: Final = "python:create"
"""The same id for every creation of a dataset, so that one of two concurrent creations is rejected."""


def copy(
    source: Store, snapshot: Snapshot, target: Store, log: DatasetLog, digest: str | None = None, *, by: str
) -> CommitResult:
    """Create a dataset with the content of a snapshot, in one commit.

    ``log``     of the new dataset
    ``digest``  of what defines the copy: a repetition does nothing. None = every call makes a copy
    ``by``      the author, for the history

    Raises DatasetExists, OwnedByAnother; VersionIncomplete if a file of the snapshot is gone.
    """
    exists = DatasetExists(f"there is a dataset {log.uuid!r} in {target.url} already; choose another name, or drop it")
    try:
        started = log.begin(CREATE_ID, digest or uuid4().hex, revives=True)
        if isinstance(started, AlreadyApplied):
            return started
        if started.snapshot.exists:
            raise exists
        with started as now:
            return now.commit(now.note_added(created(source, snapshot, target, now.snapshot, by=by)))
    except IdReused as error:
        raise exists from error


def copy_digest(source: Store, name: str, as_of: object, commit_id: str | None) -> str | None:
    """Return the digest of a copy that can be repeated by its id; None without an id."""
    return None if commit_id is None else _digest("copy", commit_id, source.url, name, as_of)


def rename(store: Store, log: DatasetLog, target: DatasetLog, *, by: str) -> CommitResult:
    """Copy the current version of a dataset to the log ``target``, then delete the dataset.

    After a crash between both, a repetition continues: the copy is known by the version that it was made of. If another
    commit comes between, the copy is deleted again. ``by`` is the author, for the history. Raises what :func:`copy`
    raises; Conflict, DatasetNotFound, VersionTagged, InputError for a ledger.
    """
    seen = log.settled()
    if seen is None:
        raise DatasetNotFound(f"there is no dataset {log.uuid!r} in {store.url}")
    if seen.head.tombstone:
        return _renamed(log, target, seen.version - 1)
    snapshot = log.snapshot()
    if snapshot.head.chain is not None:
        raise InputError(f"dataset {log.uuid!r} is a ledger, whose chain cannot move; pull it under another name")
    if tags := versions_of(snapshot.head):
        raise VersionTagged(
            f"dataset {log.uuid!r} has tags ({', '.join(sorted(tags))}), and a rename keeps the current version only; "
            "remove them, or copy the dataset"
        )
    done = copy(store, snapshot, store, target, _rename_digest(log, snapshot.version), by=by)
    try:
        log.delete(snapshot.version, by=by)
    except Conflict:
        with suppress(Conflict):
            target.delete(done.version, by=by)
        raise
    return done


def _renamed(log: DatasetLog, target: DatasetLog, version: int) -> CommitResult:
    """Return the result of a rename that happened before. Raises DatasetNotFound if there was none."""
    with suppress(IdReused):
        started = target.begin(CREATE_ID, _rename_digest(log, version), revives=True)
        if isinstance(started, AlreadyApplied):
            return started
    log.snapshot()  # it raises when the dataset was deleted
    raise DatasetNotFound(f"dataset {log.uuid!r} was deleted")


def _rename_digest(log: DatasetLog, version: int) -> str:
    return _digest("rename", log.uuid, version)


def _digest(*parts: object) -> str:
    return sha256("\0".join(["kubothek python", *map(str, parts)]).encode()).hexdigest()
