"""From a requested change to a commit on the current head: checks, conflicts, schema, totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import orjson
import pyarrow as pa

from kubothek.errors import Conflict, Drift, InputError, LedgerOnly, PartitionInvalid, VersionNotFound
from kubothek.table.log.file_sizes import size_of_removed
from kubothek.table.log.history.snapshot import live_head
from kubothek.table.log.history.tags import require_untagged, versions_of
from kubothek.table.log.journal import Draft, Journal, Observed
from kubothek.table.log.model.changes import ROW_OPERATIONS, Change, Nothing, Operation, ReadPredicate, depends_on
from kubothek.table.log.model.deltas import metadata_delta
from kubothek.table.log.model.head import (
    DRIFT,
    HORIZON,
    INTAKE,
    LAYOUT,
    LEDGER,
    OWN_PREFIX,
    TABLE,
    WRITERS,
    Head,
)
from kubothek.table.log.model.keys import DEFAULT_TABLE
from kubothek.table.log.model.paths import partition_path, recount
from kubothek.table.log.model.record import Delta, Totals, after, size_of
from kubothek.table.log.prepare.indexing import index_delta, index_metadata, indices_after
from kubothek.table.log.prepare.skipping import skipping_after, skipping_metadata
from kubothek.table.schema import carried_over, merge
from kubothek.table.time_zones import ZONES, zones_after, zones_of

_CREATED = "creation_time"


def draft(
    journal: Journal,
    change: Change,
    *,
    commit_id: str,
    spec_digest: str,
    base: Head,
    on: Observed | None,
    made_for: pa.Schema | None = None,
) -> Draft:
    """Return the commit of a change that was made for ``base``, on top of the head ``on``.

    ``made_for``  the schema of ``base``; None: it is read

    Raises Conflict, SchemaMismatch, PartitionInvalid, IndexStale, IndexInvalid, VersionNotFound, VersionTagged,
    LedgerOnly, Drift, or InputError for a change that is invalid on any head.
    """
    ground = on.head if on else Head(journal.uuid)
    live = live_head(journal, on)
    current = journal.schemas.get(live.schema_hash)
    made_for = made_for or journal.schemas.get(base.schema_hash)
    merged = require_valid(change, base=base, made_for=made_for, on=on, live=live, current=current)
    removed = {label: base.file(label) for label in change.removed}
    schema_hash = journal.schemas.put(merged, live.schema_hash) if change.schema and merged else live.schema_hash
    horizon = _horizon(change, on)
    partition_keys = live.partition_keys if change.partition_keys is None else change.partition_keys
    added = {file.label: file.key for file in change.added}
    schema = journal.schemas.get(schema_hash)
    indices = indices_after(
        journal,
        live,
        added=added,
        removed=removed,
        schema=schema,
        partition_keys=partition_keys,
        change=change.index,
    )
    skipping = skipping_after(
        journal,
        live,
        added=added,
        removed=removed,
        schema=schema,
        partition_keys=partition_keys,
        change=change.skipping,
    )
    derived = index_metadata(indices) | skipping_metadata(skipping)
    metadata = _metadata(journal, change, live, derived | _zones(change, live, current), horizon)
    to_set, dropped = metadata_delta(ground.metadata, metadata)
    totals = (on and on.totals) or Totals()
    return Draft(
        id=commit_id,
        digest=spec_digest,
        operation=change.operation,
        by=change.by,
        base=ground,
        delta=Delta(
            added=change.added,
            positions=change.positions,
            removed=tuple(removed.items()),
            indices=index_delta(ground, indices),
            metadata=to_set,
            dropped=dropped,
            partition_keys=None if partition_keys == ground.partition_keys else partition_keys,
            schema=None if schema_hash == live.schema_hash else schema_hash,
        ),
        totals=after(
            totals,
            size_of(change.added),
            _size_of_removed(journal, change, removed, live, totals),
            partitions=len(recount(live.directories, removed=removed.values(), added=added.values())),
        ),
        reads=change.reads,
        ledger=change.ledger.move if change.ledger else None,
    )


def require_valid(
    change: Change,
    *,
    base: Head,
    made_for: pa.Schema | None,
    on: Observed | None,
    live: Head,
    current: pa.Schema | None,
) -> pa.Schema | None:
    """Raise what :func:`draft` raises for an invalid change. Return the schema after it; write nothing.

    ``live``                   the head ``on`` as changes build on it
    ``made_for``, ``current``  the schemas of ``base`` and of ``live``
    """
    _check(change, base)
    _require_ledger(change, live)
    _require_no_conflict(change, base, live, {label: base.file(label) for label in change.removed})
    _require_unexpired(change, live)
    require_untagged(live, _horizon(change, on), change.spares)
    schema = _schema(change, live, made_for, current)
    _zones(change, live, current)
    _require_partition_keys(change, live, fresh=on is None or on.head.tombstone is not None)
    return schema


def require_rows_open(head: Head) -> None:
    """Raise LedgerOnly if the rows of this head belong to a chain."""
    if head.chain is not None:
        raise LedgerOnly(
            f"dataset {head.uuid!r} is a ledger: its rows change through its sources, and what is wrong is corrected "
            "by them; push the rows to it, or poll it"
        )


def require_no_drift(head: Head) -> None:
    """Raise Drift if another program changed the table of a ledger."""
    if head.drift is not None:
        raise Drift(
            f"dataset {head.uuid!r} is a ledger, and another program has changed its table, after {head.drift}. "
            f"Inspect the change, then rebuild the table from the chain: kubothek heal {head.uuid} --restore-view"
        )


def _require_ledger(change: Change, live: Head) -> None:
    """Check that rows of a ledger change with its chain only, and that a chain begins with its dataset."""
    if change.ledger is None:
        if change.operation in ROW_OPERATIONS:
            require_rows_open(live)
    elif live.chain is None and (live.partitions or live.schema_hash):
        raise InputError(f"dataset {live.uuid!r} has a table without a chain; make the ledger under another name")
    elif not change.ledger.rebuilds:
        require_no_drift(live)


def _size_of_removed(
    journal: Journal, change: Change, removed: Mapping[str, str], live: Head, totals: Totals
) -> Totals:
    if change.freed is None:
        return size_of_removed(journal.store, tuple(removed.items()), live, totals)
    return Totals(rows=change.freed.rows, files=len(removed), bytes=change.freed.bytes)


def _check(change: Change, base: Head) -> None:
    if twice := [label for label, n in Counter(file.label for file in change.added).items() if n > 1]:
        raise InputError(f"the label {twice[0]!r} is given to two files")
    if twice := [label for label, n in Counter(change.removed).items() if n > 1]:
        raise InputError(f"the label {twice[0]!r} is removed twice")
    if unknown := [label for label in change.removed if label not in base.partitions]:
        raise InputError(f"the label {unknown[0]!r} is to be removed, but is not in the table")
    if own := [key for key in change.metadata if key.startswith(OWN_PREFIX)]:
        raise InputError(f"metadata key {own[0]!r}: {OWN_PREFIX}* is Kubothek's own; choose another name")
    try:
        orjson.dumps(dict(change.metadata))
    except TypeError as error:
        raise InputError(f"metadata {sorted(change.metadata)}: a value is not JSON: {error}") from error


def _require_no_conflict(change: Change, base: Head, live: Head, removed: Mapping[str, str]) -> None:
    found = conflicts(
        base,
        live,
        removed=removed,
        reads=change.reads,
    )
    found += tuple(
        f"the source {source!r} has taken other files"
        for source in change.intake
        if base.intake(source) != live.intake(source)
    )
    if change.ledger is not None and change.ledger.move.base != (live.chain and live.chain.head):
        found += ("its chain has got blocks",)
    if not found:
        duplicates = [f.label for f in change.added if f.label in live.partitions and f.label not in removed]
        found = tuple(f"the label {label!r} is in the table already" for label in duplicates)
    if found:
        raise Conflict(
            f"dataset {live.uuid!r} changed while this {change.operation} ran: {summary(found)}. "
            "Nothing was committed; run it again on the present table"
        )


def _require_unexpired(change: Change, live: Head) -> None:
    """Check the version again: since it was looked up, the head may have moved, and expired it."""
    if change.restores is None or change.restores in versions_of(live).values():
        return
    if change.restores < live.horizon:
        raise VersionNotFound(
            f"version {change.restores} of {live.uuid!r} has expired; the oldest that is kept is {live.horizon}"
        )


def _next_version(on: Observed | None) -> int:
    """Return the version of a commit on this head, as :meth:`Journal.publish` numbers it."""
    return (on.version if on else 0) + 1


def _horizon(change: Change, on: Observed | None) -> int:
    return max(change.horizon, _next_version(on) if change.purges else 0)


def _schema(change: Change, live: Head, made_for: pa.Schema | None, current: pa.Schema | None) -> pa.Schema | None:
    if change.schema is None:
        if change.added and current is None:
            raise InputError(f"dataset {live.uuid!r} has no schema yet: its first files must come with one")
        return current
    if current is None or change.replaces_schema:
        return change.schema
    schema = carried_over(change.schema, made_for, current) if made_for else change.schema
    return merge(current, schema, evolve=change.evolves)


def _zones(change: Change, live: Head, current: pa.Schema | None) -> dict[str, Any]:
    """The zones of the table's columns. Raises SchemaMismatch if a faster commit gave one another kind."""
    anew = change.replaces_schema and change.operation is Operation.OVERWRITE
    if not change.zones and not anew:
        return {}
    before = None if change.replaces_schema else current
    return {ZONES: zones_after(before, zones_of(live.metadata), change.zones) or None}


def _require_partition_keys(change: Change, live: Head, *, fresh: bool) -> None:
    if change.partition_keys is None:
        return
    if not fresh and not change.replaces_schema and change.partition_keys != live.partition_keys:
        raise PartitionInvalid(
            f"dataset {live.uuid!r} is partitioned on {list(live.partition_keys)}, not on "
            f"{list(change.partition_keys)}; that cannot be changed"
        )


def _metadata(journal: Journal, change: Change, live: Head, derived: Mapping[str, Any], horizon: int) -> dict[str, Any]:
    created = journal.clock().replace(tzinfo=None).isoformat()
    layout = {} if change.layout is None else {LAYOUT: dict(change.layout)}
    table = {} if change.table in (None, DEFAULT_TABLE) else {TABLE: change.table}
    intake = {INTAKE + source: page for source, page in change.intake.items()}
    ledger: dict[str, Any] = {} if change.ledger is None else {LEDGER: change.ledger.note.to_json()}
    if change.ledger is not None and change.ledger.rebuilds:
        ledger[DRIFT] = None
    raised = {HORIZON: horizon} if horizon > live.horizon else {}
    export = {} if journal.iceberg is None else journal.iceberg.metadata
    writers = {} if change.grant is None else {WRITERS: change.grant.to_json()}
    own = {**layout, **table, **intake, **ledger, **raised, **export, **writers, **derived}
    merged = {_CREATED: created, **live.metadata, **change.metadata, **own}
    return {key: value for key, value in merged.items() if value is not None}


# Conflicts: whether a change that was made for one head may go on top of another. The heads are compared, not the
# commits between them: two commits that cancel each other out are no conflict, and foreign changes take part like
# any other (commit-protocol, "Conflict").


_SHOWN = 10


def conflicts(base: Head, now: Head, *, removed: Mapping[str, str], reads: ReadPredicate) -> tuple[str, ...]:
    """Return what prevents the change on top of ``now``, as messages; empty if nothing does.

    ``removed`` maps label to key. The rules:

    a. every removed label is still there, with the same file;
    b. since ``base``, no file that matches the read predicate was added or removed.

    Indices never conflict: every commit brings those of the head below it up to date (:mod:`kubothek.table.indexes`).
    """
    if base is now:
        return ()
    found = [f"file {key} is no longer in the table" for label, key in removed.items() if not now.holds(label, key)]
    if not isinstance(reads, Nothing):
        changed = _changed_paths(base, now)
        found += [_describe(path) for path in sorted(changed) if depends_on(reads, path)]
    return tuple(dict.fromkeys(found))


def touches(delta: Delta, removed: Mapping[str, str], reads: ReadPredicate) -> bool:
    """Return whether one commit removed a file that a change removes, or changed files that match what it reads."""
    if any(removed.get(label) == key for label, key in delta.removed):
        return True
    paths = {partition_path(key) for _, key in delta.files}
    return any(depends_on(reads, path) for path in paths)


def summary(found: Collection[str]) -> str:
    """Return the first few of a list of conflicts, and how many more there are."""
    shown = "; ".join(list(found)[:_SHOWN])
    return shown if len(found) <= _SHOWN else f"{shown}; and {len(found) - _SHOWN} more"


def _changed_paths(base: Head, now: Head) -> set[str]:
    """Return the partition paths in which files were added or removed."""
    if base.partitions is now.partitions:
        return set()
    paths = {partition_path(base.file(k)) for k, v in base.partitions.items() if now.partitions.get(k) != v}
    return paths | {partition_path(now.file(k)) for k, v in now.partitions.items() if base.partitions.get(k) != v}


def _describe(path: str) -> str:
    return f"partition {path} changed" if path else "the table changed"
