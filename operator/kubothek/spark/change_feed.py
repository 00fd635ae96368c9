"""The change feed in Spark: the driver plans from commit records which files tasks compare, and tasks read rows.

``startingVersion`` and ``startingTimestamp`` include the first commit, as in Delta Lake and as in streams of added
rows: versions 4 to 5 are ``dataset.changes(3, 5)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from pyspark.sql.datasource import InputPartition

from kubothek.catalog import Dataset
from kubothek.errors import InputError
from kubothek.table.changes import Changes, FileChanges, plan_changes
from kubothek.table.log import Version
from kubothek.table.log.model.record import utc

MOST_TASKS: Final = 2000
_FILES: Final = 16
_BYTES: Final = 128 << 20
"""Most files, and bytes of added files, of a task, if that makes no more than MOST_TASKS and no item is larger."""


@dataclass(frozen=True)
class Items(InputPartition):
    """Input of one task: a feed reduced to the task's items."""

    changes: Changes


def version_before(dataset: Dataset, starting: int | datetime) -> int:
    """Return the version that the first commit from this version or time on builds on. Numbers can be missing.

    Raises InputError for a version that is later than the next one.
    """
    following = dataset.version + 1
    if isinstance(starting, int) and starting > following:
        raise InputError(
            f"startingVersion is {starting}, and the current version of {dataset.name!r} is {following - 1}; use "
            f"{following} at most, which has the commits to come"
        )
    oldest = following
    for record in dataset.history():
        if record.version < starting if isinstance(starting, int) else record.time < utc(starting):
            return record.version
        oldest = record.version
    return oldest - 1


def feed(dataset: Dataset, before: Version, after: Version | None, key: Sequence[str]) -> Changes:
    """Return the changes after version ``before``, with stored types: Spark has no columns with time zones.

    Raises the errors of :func:`~kubothek.table.changes.plan_changes`.
    """
    return replace(plan_changes(dataset._log(), before, after, key=key), zones={})


def all_rows(dataset: Dataset, version: int, key: Sequence[str]) -> Changes:
    """Return a feed that inserts all rows of a version: the first batch of a stream."""
    snapshot = dataset.snapshot(version)
    empty = feed(dataset, version, version, key)
    if snapshot.time is None:
        return empty
    return replace(empty, items=(FileChanges(version, snapshot.time, added=tuple(snapshot.head.files().values())),))


def tasks(changes: Changes) -> list[Items]:
    """Divide a feed among tasks: a comparison is never divided, and small items share a task."""
    pieces = [piece for item in changes.items for piece in _pieces(item)]
    most_files = max(_FILES, sum(map(_file_count, pieces)) // MOST_TASKS)
    most_bytes = max(_BYTES, sum(piece.bytes for piece in pieces) // MOST_TASKS)
    groups: list[list[FileChanges]] = []
    files = size = 0
    for piece in pieces:
        files, size = files + _file_count(piece), size + piece.bytes
        if not groups or files > most_files or size > most_bytes:
            groups.append([])
            files, size = _file_count(piece), piece.bytes
        groups[-1].append(piece)
    return [Items(replace(changes, items=tuple(group))) for group in groups]


def _pieces(item: FileChanges) -> Iterator[FileChanges]:
    """Yield an item for each file, if rows of it need no comparison."""
    if item.compared:
        yield item
        return
    each = item.bytes // max(1, len(item.added))
    yield from (replace(item, removed=(key,)) for key in item.removed)
    yield from (replace(item, added=(key,), bytes=each) for key in item.added)


def _file_count(item: FileChanges) -> int:
    return len(item.removed) + len(item.added)
