"""The data files that each commit between two versions removed and added, read from commit records alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import pyarrow as pa

from kubothek.errors import InputError, VersionNotFound
from kubothek.table.log.history.rebuild import rebuild
from kubothek.table.log.history.versions import History, Version
from kubothek.table.log.model import keys
from kubothek.table.log.model.changes import Operation
from kubothek.table.log.model.head import Head
from kubothek.table.log.model.record import Record
from kubothek.table.log.records import chain, down_to

_SAME_ROWS: Final = frozenset({Operation.COMPACT, Operation.INDEX, Operation.EXPIRE, Operation.TAG, Operation.LAYOUT})
"""Operations that change no row, whatever files they rewrite."""


@dataclass(frozen=True, slots=True)
class CommittedFiles:
    """The keys of the files that one commit removed from the table and added to it; none is in both.

    ``time``   of the commit
    ``bytes``  of the added files
    """

    version: int
    time: datetime
    removed: tuple[str, ...]
    added: tuple[str, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """The commits after version ``before`` up to version ``after``, oldest first.

    ``head``     of version ``after``
    ``schema``   of version ``after``; None if the table has none yet
    ``earlier``  other stored schemas that the table had from ``before`` on, each with the last version that had it
    ``commits``  those that changed rows; one that only rewrote them, such as a compaction, is left out
    """

    before: int
    after: int
    head: Head
    schema: pa.Schema | None
    earlier: tuple[tuple[int, pa.Schema], ...]
    commits: tuple[CommittedFiles, ...]


def changed_files(history: History, before: Version, after: Version | None) -> ChangedFiles:
    """Return the files that the commits after version ``before`` changed, up to ``after`` (None = the newest).

    Version 0 is the empty table before the first commit. Reads the records of these commits, and the head of ``after``.

    Raises VersionNotFound for a version that does not exist or whose following commits have expired, VersionIncomplete
    for a missing record, InputError if ``before`` is newer than ``after``.
    """
    journal, seen = history.journal, history.seen
    newest = history.newest() if after is None else history.find(after)
    if newest is None:
        raise history.no_version(1)
    first = before if isinstance(before, int) else history.find(before).version
    if first > newest.version:
        raise InputError(
            f"changes of {journal.uuid!r} from version {first} to {newest.version}: the first is newer; swap them"
        )
    records = _records(history, first, newest)
    head = seen.head if seen.marker and seen.marker.record == newest.key else rebuild(journal, newest)
    commits = [_files(history, record) for record in records if record.operation not in _SAME_ROWS]
    return ChangedFiles(
        before=first,
        after=newest.version,
        head=head,
        schema=journal.schemas.get(head.schema_hash),
        earlier=_earlier(history, records, head),
        commits=tuple(each for each in commits if each.removed or each.added),
    )


def _records(history: History, first: int, newest: Record) -> list[Record]:
    """Return the records above version ``first`` up to the newest, oldest first. Raises VersionNotFound."""
    uuid, epoch, oldest = history.journal.uuid, history.seen.head.epoch, history.oldest
    is_start = first == epoch and oldest == epoch + 1
    if first < oldest and not is_start:
        raise _expired(history, first)
    if first == newest.version:
        return []
    link = down_to(uuid, first + 1)
    records = list(chain(history.journal, newest, link, window=max(1, newest.version - first - 1)))
    parent = keys.parse_record(uuid, records[-1].parent)
    if not is_start and (parent is None or parent.version != first):
        raise history.no_version(first)
    return records[::-1]


def _expired(history: History, version: int) -> VersionNotFound:
    uuid, oldest = history.journal.uuid, history.oldest
    tags = sorted(name for name, tag in history.seen.head.tags.items() if tag.version == version)
    kept = f"its tag {tags[0]!r} keeps the version, but not the commits after it; " if tags else ""
    return VersionNotFound(
        f"the changes of {uuid!r} since version {version} have expired: {kept}the oldest version to read changes from "
        f"is {oldest}; read version {oldest} as a whole, then the changes since"
    )


def _files(history: History, record: Record) -> CommittedFiles:
    delta = record.delta
    added = {file.key: file.bytes for file in delta.added}
    removed = dict.fromkeys(key for _, key in delta.removed)
    if record.restores is not None:  # the delta does not apply to the parent's table
        journal = history.journal
        parent = rebuild(journal, journal.record(record.parent)) if record.parent else Head(journal.uuid)
        removed = dict.fromkeys(parent.files().values())
        added = dict.fromkeys(rebuild(journal, record).files().values(), 0)
    # A file in both only got another label or another position.
    return CommittedFiles(
        version=record.version,
        time=record.time,
        removed=tuple(key for key in removed if key not in added),
        added=tuple(key for key in added if key not in removed),
        bytes=sum(size for key, size in added.items() if key not in removed),
    )


def _earlier(history: History, records: list[Record], head: Head) -> tuple[tuple[int, pa.Schema], ...]:
    """Return the schemas before the last one, by the last version that had each; reads nothing if there is only one."""
    journal = history.journal
    if not any(record.delta.schema is not None or record.restores for record in records):
        return ()
    found: dict[str, int] = {}
    if records[0].parent is not None:
        parent = rebuild(journal, journal.record(records[0].parent))
        if not parent.tombstone and parent.schema_hash is not None:
            found[parent.schema_hash] = parent.version
    current = next(iter(found), None)
    for record in records:
        current = record.delta.schema or current
        if current is not None:
            found[current] = record.version
    schemas = ((version, journal.schemas.get(name)) for name, version in found.items() if name != head.schema_hash)
    return tuple((version, schema) for version, schema in schemas if schema is not None)
