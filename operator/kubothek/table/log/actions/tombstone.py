"""Deletion and its undoing: what to commit (commit-protocol, "Ownership and deletion")."""

from __future__ import annotations

from kubothek.errors import DatasetNotFound, RestoreExpired, VersionIncomplete
from kubothek.table.log.history.rebuild import rebuild
from kubothek.table.log.history.versions import missing_files
from kubothek.table.log.interop.foreign import without_noise
from kubothek.table.log.journal import Draft, Journal, Observed
from kubothek.table.log.model.changes import Everything, Operation
from kubothek.table.log.model.deltas import metadata_delta
from kubothek.table.log.model.head import LOST, OVERWRITTEN, TOMBSTONE
from kubothek.table.log.model.record import Delta, Record, Totals, utc
from kubothek.table.log.settings import read_settings
from kubothek.words import duration


def drop(journal: Journal, seen: Observed, *, incarnation: str, by: str) -> Draft:
    """Return the commit that replaces a head by its tombstone, which fences the incarnation."""
    head = seen.head
    stone = {"incarnation": incarnation, "time": utc(journal.clock()).isoformat()}
    target = without_noise({**head.metadata, TOMBSTONE: stone, LOST: [], OVERWRITTEN: {}})
    to_set, dropped = metadata_delta(head.metadata, target)
    return Draft(
        id=journal.own_id("drop"),
        digest="",
        operation=Operation.DROP,
        by=by,
        base=head,
        delta=Delta(
            removed=tuple(head.files().items()),
            indices=dict.fromkeys(head.indices),
            metadata=to_set,
            dropped=dropped,
        ),
        totals=Totals(),
        reads=Everything(),
    )


def restore(journal: Journal, seen: Observed, *, by: str) -> Draft:
    """The commit that brings back what the tombstone replaced.

    Raises VersionIncomplete if files of it are gone, DatasetNotFound if it replaced nothing.
    """
    assert seen.marker is not None, "a tombstone is ours"
    stone = journal.record(seen.marker.record)
    if stone.parent is None:
        raise DatasetNotFound(f"dataset {journal.uuid!r} has no version to restore: its first commit never happened")
    deleted = journal.record(stone.parent)
    head = rebuild(journal, deleted)
    if missing := missing_files(journal, head, list(head.files().values())):
        raise VersionIncomplete(
            f"dataset {journal.uuid!r} cannot be restored: {len(missing)} of its files no longer exist, among them "
            f"{missing[0]}; restore them from a backup"
        )
    return Draft(
        id=journal.own_id("restore"),
        digest="",
        operation=Operation.RESTORE,
        by=by,
        base=head,
        delta=Delta(),
        totals=deleted.totals,
        reads=Everything(),
        restores=deleted.key,
    )


def require_within_grace(journal: Journal, seen: Observed, record: Record) -> None:
    """Raise RestoreExpired if the deletion is older than the grace period, by the store's clock.

    It compares times of records: the time of a head that this process wrote is by the local clock.
    """
    assert seen.marker is not None, "a tombstone is ours"
    grace = read_settings(journal.store).grace
    age = journal.store.stat(record.key).modified - journal.store.stat(seen.marker.record).modified
    if age > grace:
        raise RestoreExpired(
            f"dataset {journal.uuid!r} was deleted {duration(age)} ago; its grace period is {duration(grace)}, and "
            "its data may be swept already. Restore it from a backup"
        )
