"""Commits that a foreign writer overwrote: merge them again, or keep a note that they are gone.

The head lists what is still to be merged (``kubothek_lost``) and what cannot be (``kubothek_overwritten``), so a crash
in between loses neither. Each function here decides one commit; none publishes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kubothek.errors import SchemaMismatch, VersionIncomplete
from kubothek.table.log.file_sizes import size_of_removed
from kubothek.table.log.history.rebuild import rebuild
from kubothek.table.log.history.versions import missing_files
from kubothek.table.log.interop.foreign import FOREIGN, is_marked, without_noise
from kubothek.table.log.journal import Draft, Journal, Observed
from kubothek.table.log.metadata_commit import noted
from kubothek.table.log.model import keys
from kubothek.table.log.model.changes import Operation, PartitionFile
from kubothek.table.log.model.deltas import metadata_delta
from kubothek.table.log.model.head import (
    DIALECT,
    HORIZON,
    INDEX,
    INTAKE,
    LOST,
    OVERWRITTEN,
    PENDING,
    SKIPPING,
    TAGS,
    Head,
)
from kubothek.table.log.model.paths import recount
from kubothek.table.log.model.record import Delta, Record, Totals, after, size_of
from kubothek.table.log.prepare.draft import conflicts, summary
from kubothek.table.log.prepare.indexing import index_delta, index_metadata, indices_after
from kubothek.table.log.prepare.skipping import skipping_after, skipping_metadata
from kubothek.table.log.records import records_from
from kubothek.table.schema import merge
from kubothek.table.skipping.model import Part, SkippingChange


class _NotMergeableError(Exception):
    """The reason why a commit cannot be merged again."""


def recover(journal: Journal, seen: Observed) -> Draft:
    """Return the commit that merges the first lost commit again, or notes that it cannot be merged."""
    key, *rest = seen.head.lost
    try:
        return _merged_again(journal, seen, journal.record(key), rest)
    except (_NotMergeableError, VersionIncomplete) as why:
        return _note(journal, seen, {LOST: rest, OVERWRITTEN: {**seen.head.overwritten, key: str(why)}})


def note_lost(journal: Journal, seen: Observed) -> Draft | None:
    """Return the commit that notes what was committed above our own head, an old copy; None if nothing was."""
    assert seen.marker is not None, "a foreign head is adopted"
    known = {seen.marker.record, *seen.head.lost, *seen.head.overwritten}
    others = [other for other in records_from(journal, seen.marker.version) if other.key not in known]
    lost = [other.key for other in others if is_marked(journal, other)]
    if not lost:
        return None
    note = _note(journal, seen, {LOST: [*seen.head.lost, *lost]})
    return replace(note, floor=max(other.version for other in others))


def accept_overwritten(journal: Journal, seen: Observed) -> Draft:
    """Return the commit that removes the note of what was overwritten, once a user has seen it."""
    return _note(journal, seen, {OVERWRITTEN: {}})


def _merged_again(journal: Journal, seen: Observed, lost: Record, rest: Sequence[str]) -> Draft:
    head, totals = seen.head, _counted(seen)
    added, removed = _still_to_do(lost.delta, head)
    _require_mergeable(journal, head, lost, added, removed)
    schema_hash = _merged_schema(journal, head, lost.delta.schema)
    came, removed_keys = {file.label: file.key for file in added}, dict(removed)
    schema = journal.schemas.get(schema_hash or head.schema_hash)
    indices = indices_after(
        journal,
        head,
        added=came,
        removed=removed_keys,
        schema=schema,
        partition_keys=head.partition_keys,
        lenient=True,
    )
    skipping = skipping_after(
        journal,
        head,
        added=came,
        removed=removed_keys,
        schema=schema,
        partition_keys=head.partition_keys,
        change=SkippingChange(written=_described(journal.uuid, lost)),
    )
    target = {**head.metadata, **_user_metadata(lost.delta.metadata), **index_metadata(indices), LOST: list(rest)}
    target |= skipping_metadata(skipping)
    target |= {TAGS: _tags(journal, head, lost), HORIZON: _horizon(seen, lost)}
    dropped = set(lost.delta.dropped) - {LOST, OVERWRITTEN, TAGS} | {k for k, v in target.items() if v is None}
    to_set, to_drop = metadata_delta(
        head.metadata, without_noise({k: v for k, v in target.items() if k not in dropped})
    )
    return Draft(
        id=lost.id,
        digest=lost.digest,
        operation=Operation.RECOVERED,
        by=lost.by,
        base=head,
        delta=Delta(
            added=added,
            removed=removed,
            indices=index_delta(head, indices),
            metadata=to_set,
            dropped=to_drop,
            schema=schema_hash,
        ),
        totals=after(
            totals,
            size_of(added),
            size_of_removed(journal.store, removed, head, totals),
            partitions=len(
                recount(head.directories, removed=(key for _, key in removed), added=(file.key for file in added))
            ),
        ),
        reads=lost.reads,
        recovers=lost.key,
        ledger=lost.ledger,
    )


def _tags(journal: Journal, head: Head, lost: Record) -> dict[str, Any] | None:
    """Return the tags with what the lost commit changed, tag by tag: commits are merged again in another order."""
    present: Mapping[str, Any] = head.metadata.get(TAGS, {})
    if lost.parent is not None and (TAGS in lost.delta.metadata or TAGS in lost.delta.dropped):
        before = rebuild(journal, journal.record(lost.parent)).metadata.get(TAGS, {})
        after = lost.delta.metadata.get(TAGS, {})
        present = {name: tag for name, tag in present.items() if name in after or name not in before}
        present |= {name: tag for name, tag in after.items() if before.get(name) != tag}
    return dict(present) or None


def _horizon(seen: Observed, lost: Record) -> int | None:
    """Return the horizon, which only rises. A purge expires all below its new version, as the rows were back."""
    raised = lost.delta.metadata.get(HORIZON, 0)
    return max(seen.head.horizon, seen.version + 1 if raised == lost.version else raised) or None


def _described(uuid: str, lost: Record) -> tuple[Part, ...]:
    """Return the skipping metadata of the lost version, which includes that of its own files."""
    return Head(uuid, metadata=lost.delta.metadata).skipping.parts


def _still_to_do(delta: Delta, head: Head) -> tuple[tuple[PartitionFile, ...], tuple[tuple[str, str], ...]]:
    """Return what is still to be added and removed; nothing if the foreign head was built on the lost commit after all.

    Files that only changed their position stay where they are.
    """
    moved = set(delta.removed) & {(file.label, file.key) for file in delta.added}
    removed = tuple(item for item in delta.removed if item not in moved)
    added = tuple(
        file for file in delta.added if (file.label, file.key) not in moved and not head.holds(file.label, file.key)
    )
    if not added and not any(head.holds(label, key) for label, key in removed):
        return (), ()
    return added, removed


def _require_mergeable(
    journal: Journal,
    head: Head,
    lost: Record,
    added: Sequence[PartitionFile],
    removed: Sequence[tuple[str, str]],
) -> None:
    if lost.restores:
        raise _NotMergeableError("it undid a deletion that no longer exists")
    before = rebuild(journal, journal.record(lost.parent)) if lost.parent else Head(journal.uuid)
    found = conflicts(
        before,
        head,
        removed=dict(removed),
        reads=lost.reads,
    )
    if found:
        raise _NotMergeableError(summary(found))
    removed_labels = {label for label, _ in removed}
    if duplicates := [f.label for f in added if f.label in head.partitions and f.label not in removed_labels]:
        raise _NotMergeableError(f"the label {duplicates[0]!r} was given to another file")
    if lost.delta.partition_keys not in (None, head.partition_keys):
        raise _NotMergeableError("the table is partitioned in another way")
    if missing := missing_files(journal, head, [file.key for file in added]):
        raise _NotMergeableError(f"{missing[0]} is gone")
    if lost.ledger is not None and lost.ledger.base != (head.chain and head.chain.head):
        raise _NotMergeableError("its blocks do not continue the present chain")
    if behind := [source for source in _turned(lost.delta) if not _continues(source, before, head, lost.delta)]:
        raise _NotMergeableError(f"the source {behind[0]!r} had taken files that are not in the table now")


def _turned(delta: Delta) -> list[str]:
    """Return the standing sources whose ingested files the delta records."""
    return [key.removeprefix(INTAKE) for key in delta.metadata if key.startswith(INTAKE)]


def _continues(source: str, before: Head, head: Head, delta: Delta) -> bool:
    """Return whether the source's page follows the head's. A page includes the files of all pages before it: on top of
    another page, it would keep the files of a lost commit from ever being ingested again.
    """
    return head.intake(source) in (before.intake(source), delta.metadata[INTAKE + source])


def _merged_schema(journal: Journal, head: Head, schema: str | None) -> str | None:
    lost = journal.schemas.get(schema)
    if lost is None:
        return None
    current = journal.schemas.get(head.schema_hash)
    try:
        # What each of them added was allowed when it was committed.
        merged = merge(current, lost, evolve=True) if current else lost
    except SchemaMismatch as error:
        raise _NotMergeableError(str(error)) from error
    merged_hash = journal.schemas.put(merged, head.schema_hash)
    return merged_hash if merged_hash != head.schema_hash else None


def _note(journal: Journal, seen: Observed, notes: Mapping[str, Any]) -> Draft:
    """Return a commit that changes the notes in the head, and no data."""
    metadata = without_noise({**seen.head.metadata, **notes})
    return noted(journal, seen, metadata, what="note", operation=Operation.EXTERNAL, by=FOREIGN)


def _user_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in metadata.items() if k not in (LOST, OVERWRITTEN, INDEX, DIALECT, PENDING, SKIPPING)}


def _counted(seen: Observed) -> Totals:
    assert seen.totals is not None, "a foreign head is adopted before anything else is committed"
    return seen.totals


def versions_in(overwritten: Mapping[str, str], uuid: str) -> str:
    """Return the overwritten versions, each with the reason, for a message."""
    parsed = ((keys.parse_record(uuid, key), why) for key, why in overwritten.items())
    return "; ".join(f"version {record.version} ({why})" for record, why in parsed if record)
