"""Plan a change feed: the files that differ, as work items that can be computed independently.

Each item has files of one commit. Without a key, a row is inserted or deleted in its own partition, so an item has the
files of one partition. With a key that lacks a partition column, an updated row can move to another partition, so an
item has all files of the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import pyarrow as pa

from kubothek.errors import InputError, SchemaMismatch
from kubothek.table.log import DatasetLog, Version
from kubothek.table.log.history.changed_files import ChangedFiles, CommittedFiles
from kubothek.table.log.model.paths import partition_path
from kubothek.table.schema import require_distinct, widened
from kubothek.table.time_zones import zoned, zones_of

CHANGE_TYPE: Final = "_change_type"
COMMIT_VERSION: Final = "_commit_version"
COMMIT_TIMESTAMP: Final = "_commit_timestamp"
_TYPES: Final[dict[str, pa.DataType]] = {
    CHANGE_TYPE: pa.string(),
    COMMIT_VERSION: pa.int64(),
    COMMIT_TIMESTAMP: pa.timestamp("us", "UTC"),
}
FEED_COLUMNS: Final = pa.schema(_TYPES)
"""The columns of a feed after those of the table, with the names of Delta Lake's change data feed."""
INSERT: Final = "insert"
DELETE: Final = "delete"
PREIMAGE: Final = "update_preimage"
POSTIMAGE: Final = "update_postimage"

_FILES_AT_ONCE: Final = 1024
"""Most files of an item that needs no comparison."""


@dataclass(frozen=True, slots=True)
class FileChanges:
    """A work item: keys of files that one commit removed and added. If it has both, their rows are compared.

    ``bytes``  about the size of the added files
    """

    version: int
    time: datetime
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    bytes: int = 0

    @property
    def compared(self) -> bool:
        """Whether rows of the removed files may be in the added ones as well."""
        return bool(self.removed and self.added)


@dataclass(frozen=True, slots=True)
class Changes:
    """The planned feed of the versions after ``before`` up to ``after``; it can be pickled.

    ``stored``  the stored schema of version ``after``, in which all rows are returned
    ``zones``   time zones of its columns (:mod:`kubothek.table.time_zones`)
    ``key``     columns that identify a row; none: an update is a delete and an insert
    ``items``   in order of versions
    """

    uuid: str
    before: int
    after: int
    stored: pa.Schema
    zones: dict[str, str] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    items: tuple[FileChanges, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The schema of the feed: the table's columns with their zones, then :data:`FEED_COLUMNS`."""
        return with_feed_columns(zoned(self.stored, self.zones))

    @property
    def files(self) -> int:
        """The number of files to open."""
        return len({key for item in self.items for key in (*item.removed, *item.added)})


def with_feed_columns(schema: pa.Schema) -> pa.Schema:
    """Return the schema with the columns of a feed at the end."""
    return pa.schema([*schema, *FEED_COLUMNS])


def plan_changes(log: DatasetLog, before: Version, after: Version | None = None, *, key: Sequence[str] = ()) -> Changes:
    """Return the changes of the commits after version ``before``, up to ``after``; None = the current version.

    Version 0 is the empty table before the first commit. Reads commit records; opens no data file.

    Raises VersionNotFound for a version that does not exist or has expired, VersionIncomplete for a lost record,
    InputError for a key that is not in the schema and for reversed versions, SchemaMismatch if an earlier version has a
    type that the columns of ``after`` cannot hold.
    """
    found = log.changed_files(before, after)
    stored = pa.schema([]) if found.schema is None else found.schema
    _require_free_names(log.uuid, stored)
    _require_key(key, stored)
    _require_readable(found, stored)
    partition_keys = found.head.partition_keys
    by_partition = set(partition_keys) <= set(key) if key else True
    items = (item for commit in found.commits for item in _items(commit, by_partition=by_partition))
    return Changes(
        uuid=log.uuid,
        before=found.before,
        after=found.after,
        stored=stored,
        zones=zones_of(found.head.metadata),
        key=tuple(key),
        items=tuple(items),
    )


def _items(commit: CommittedFiles, *, by_partition: bool) -> Iterator[FileChanges]:
    """Yield what is only removed or only added, then what is compared."""
    if not commit.removed or not commit.added:
        removed, added, groups = commit.removed, commit.added, {}
    else:
        groups = _groups(commit) if by_partition else {"": ([*commit.removed], [*commit.added])}
        removed = tuple(key for old, new in groups.values() if not new for key in old)
        added = tuple(key for old, new in groups.values() if not old for key in new)
    each = commit.bytes // max(1, len(commit.added))
    for keys in _slices(removed):
        yield FileChanges(commit.version, commit.time, removed=keys)
    for keys in _slices(added):
        yield FileChanges(commit.version, commit.time, added=keys, bytes=each * len(keys))
    for old, new in groups.values():
        if old and new:
            yield FileChanges(commit.version, commit.time, tuple(old), tuple(new), each * len(new))


def _slices(keys: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for start in range(0, len(keys), _FILES_AT_ONCE):
        yield keys[start : start + _FILES_AT_ONCE]


def _groups(commit: CommittedFiles) -> dict[str, tuple[list[str], list[str]]]:
    """Return the removed and the added files by partition path."""
    groups: dict[str, tuple[list[str], list[str]]] = {}
    for side, keys in enumerate((commit.removed, commit.added)):
        for key in keys:
            groups.setdefault(partition_path(key), ([], []))[side].append(key)
    return groups


def _require_free_names(uuid: str, stored: pa.Schema) -> None:
    reserved = set(FEED_COLUMNS.names)
    if taken := [name for name in stored.names if name.casefold() in reserved]:
        raise SchemaMismatch(
            f"column {taken[0]!r} of {uuid!r} has the name of a column of its changes; rename it, or compare two "
            "versions in SQL: FROM … AS OF VERSION 3"
        )


def _require_key(key: Iterable[str], stored: pa.Schema) -> None:
    key = tuple(key)
    require_distinct(key)
    if missing := [name for name in key if name not in stored.names]:
        raise InputError(f"key: there is no column {missing[0]!r}; the columns are {', '.join(stored.names)}")


def _require_readable(found: ChangedFiles, stored: pa.Schema) -> None:
    """Raise SchemaMismatch if a column had a type before that its present type does not extend."""
    for version, schema in found.earlier:
        for each in schema:
            if each.name in stored.names and widened(now := stored.field(each.name).type, each.type) != now:
                raise SchemaMismatch(
                    f"changes of {found.head.uuid!r} from version {found.before} to {found.after}: column "
                    f"{each.name!r} is {each.type} up to version {version}, and {now} in version {found.after}; read "
                    f"the changes up to version {version}, and those after it, separately"
                )
