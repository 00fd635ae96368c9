"""Streams over versions: which data files the commits after one version added, up to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kubothek.catalog import Dataset
from kubothek.errors import InputError, VersionIncomplete, VersionNotFound
from kubothek.table.log import Operation, PartitionFile, Record
from kubothek.table.log.history.versions import missing_files
from kubothek.table.log.model import keys

_RESTART = "start a new query with a new checkpoint"


def latest_version(dataset: Dataset, read: int) -> int:
    """Return the current version. Raises VersionNotFound if it is before the last version that a stream has read."""
    version = dataset.version
    if version < read:
        raise VersionNotFound(
            f"the stream has read version {read} of {dataset.name!r}, and the current version is {version}: the "
            f"dataset was deleted and made again; {_RESTART}"
        )
    return version


def new_files(dataset: Dataset, after: int, to: int) -> list[PartitionFile]:
    """Return the files that commits above version ``after`` added, up to version ``to``, in their order.

    Compactions add no rows and are skipped. Raises InputError for a commit that removed rows, since a stream has no
    form for them; VersionNotFound if a commit in between has expired.
    """
    return [file for record in reversed(list(_records(dataset, after, to))) for file in _added(dataset, record)]


def require_no_loss(dataset: Dataset, files: Sequence[PartitionFile]) -> None:
    """Raise VersionIncomplete if one of these files was replaced, for example by a compaction, and then collected."""
    head = dataset.snapshot().head
    replaced = [file.key for file in files if not head.holds(file.label, file.key)]
    if gone := missing_files(dataset._log().journal, head, replaced):
        raise VersionIncomplete(
            f"{len(gone)} files that commits added to {dataset.name!r} no longer exist, among them {gone[0]}; "
            f"{_RESTART}, and retain versions for longer than a stream can be behind"
        )


def _records(dataset: Dataset, after: int, to: int) -> Iterator[Record]:
    """Yield the commits above ``after`` up to ``to``, newest first. Raises VersionNotFound if one of them expired."""
    oldest = None
    for record in dataset.history():
        if record.version <= after:
            return
        oldest = record
        if record.version <= to:
            yield record
    below = keys.parse_record(dataset.name, oldest.parent) if oldest and oldest.parent else None
    if oldest is None or (below is not None and below.version > after):
        raise VersionNotFound(
            f"commits of {dataset.name!r} after version {after} have expired, which the stream has not read; "
            f"{_RESTART}, and retain versions for longer than a stream can be behind"
        )


def _added(dataset: Dataset, record: Record) -> tuple[PartitionFile, ...]:
    if record.operation is Operation.COMPACT:
        return ()
    if record.delta.removed or record.operation in (Operation.DROP, Operation.RESTORE):
        raise InputError(
            f"version {record.version} of {dataset.name!r} ({record.operation}) removed rows, and a stream has rows "
            f"that were added only; {_RESTART}, which begins with all rows, or with the option startingVersion "
            f"{record.version + 1}"
        )
    return record.delta.added
