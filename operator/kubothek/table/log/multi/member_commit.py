"""One member's part of a cube's transaction: carry it out, or take it back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kubothek.errors import VersionIncomplete
from kubothek.table.indexes.model import IndexChange, IndexKind
from kubothek.table.log.actions import tombstone
from kubothek.table.log.file_sizes import measure
from kubothek.table.log.history.rebuild import rebuild
from kubothek.table.log.history.versions import missing_files
from kubothek.table.log.journal import Draft, Journal, Observed, Prepared
from kubothek.table.log.model import keys
from kubothek.table.log.model.changes import Change, Everything, Operation
from kubothek.table.log.model.deltas import apply, difference
from kubothek.table.log.model.head import LAYOUT, OWN_PREFIX, Head, digest
from kubothek.table.log.model.markers import Marker
from kubothek.table.log.model.record import Record
from kubothek.table.log.multi.head import MemberVersion, Planned
from kubothek.table.log.prepare.draft import draft
from kubothek.table.log.settle import CommitBackoff, settled


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome for one member.

    ``done``     the plan was carried out
    ``version``  of the member afterwards; None if it includes a foreign change that was not checked yet
    ``there``    whether the dataset exists
    """

    done: bool
    version: MemberVersion | None = None
    there: bool = True


@dataclass(frozen=True, slots=True)
class Ready:
    """A planned commit, and the head that it goes on top of."""

    prepared: Prepared
    on: Observed | None


def carry_out(journal: Journal, plan: Planned, patience: CommitBackoff, ready: Ready | None = None) -> Outcome:
    """Commit what is planned, unless that has happened. Not done if the head is not the one it was planned for.

    ``ready``  the commit, if it was planned just now. Raises what settling a head raises.
    """
    if ready is not None and journal.swap(ready.prepared, ready.on) is not None:
        return _outcome(Marker.of(ready.prepared.record))
    while True:
        seen = settled(journal, patience)
        marker = _applied(journal, plan, seen)
        if marker is not None:
            return _outcome(marker)
        if _record_of(seen) != plan.base:
            return Outcome(done=False)
        prepared = _prepared(journal, plan, seen)
        if prepared is None:
            return Outcome(done=False)
        published = journal.swap(prepared, seen)
        if published is not None:
            return _outcome(Marker.of(prepared.record))
        patience.pause()


def take_back(journal: Journal, plan: Planned, transaction: str, patience: CommitBackoff) -> Outcome:
    """Commit the reverse of what was planned, exactly once; nothing if the plan was not carried out.

    Called only once the transaction is noted as taken back, and so after the plan was tried for each member. Where
    it failed, the head is not the one that was planned for, and no late process can carry it out.
    """
    commit_id = f"{keys.OWN_ID_PREFIX}cube-undo:{transaction}"
    while True:
        seen = settled(journal, patience)
        undone = journal.markers.get(keys.marker(journal.uuid, commit_id))
        if undone is not None:
            _forget(journal, plan, undone)
            alone = journal.record(undone.record).parent == plan.record
            version = MemberVersion(undone.version, undone.record) if alone else None
            return Outcome(done=False, version=version, there=not _is_deleted(seen))
        applied = _applied(journal, plan, seen)
        if applied is None or seen is None:
            return Outcome(done=False, there=not _is_deleted(seen))
        draft = replace(_reverse(journal, plan, seen, applied, commit_id), id=commit_id)
        if journal.publish(draft, seen) is None:
            patience.pause()


def _forget(journal: Journal, plan: Planned, undone: Marker) -> None:
    """Free the id of a planned commit, if it is a user's: its marker is no longer true."""
    planned, base = keys.parse_record(journal.uuid, plan.record), keys.parse_record(journal.uuid, plan.base)
    if planned is None:
        return
    marker = journal.markers.get(planned.marker)
    if marker is not None and (base.version if base else 0) < marker.version < undone.version:
        journal.markers.take_back(planned.marker, marker.record)


def bring_to(journal: Journal, seen: Observed, target: MemberVersion | None, what: str) -> Draft:
    """Return the commit that brings a member back to a version; None: to before it was a member, by deletion."""
    if target is None:
        return tombstone.drop(journal, seen, incarnation="", by="")
    head = rebuild(journal, journal.record(target.record))
    return _back_to(journal, seen, head, journal.own_id(what))


def _applied(journal: Journal, plan: Planned, seen: Observed | None) -> Marker | None:
    """Return the marker if the planned commit is in the dataset; of a later record if it was merged again."""
    if seen is None or seen.marker is None:
        return None
    planned, base = keys.parse_record(journal.uuid, plan.record), keys.parse_record(journal.uuid, plan.base)
    if planned is None:
        return None
    if seen.marker.record == planned.key:
        return seen.marker
    marker = journal.markers.get(planned.marker)
    if marker is None or marker.version <= (base.version if base else 0) or marker.record in seen.head.overwritten:
        return None
    return marker


def _prepared(journal: Journal, plan: Planned, seen: Observed | None) -> Prepared | None:
    """Return the planned commit, ready for the swap; None if it no longer gives the head of its record."""
    try:
        record = journal.record(plan.record)
        on = seen.head if seen else Head(journal.uuid)
        base = rebuild(journal, journal.record(record.restores)) if record.restores else on
        head = apply(base, record.delta, record.version, record.key)
    except (VersionIncomplete, KeyError):
        return None
    data = head.render()
    return Prepared(record, head, data) if digest(data) == record.head_digest else None


def _outcome(marker: Marker) -> Outcome:
    there = marker.operation is not Operation.DROP
    return Outcome(done=True, version=MemberVersion(marker.version, marker.record), there=there)


def _record_of(seen: Observed | None) -> str | None:
    return seen.marker.record if seen and seen.marker else None


def _is_deleted(seen: Observed | None) -> bool:
    return seen is None or seen.head.tombstone is not None


def _reverse(journal: Journal, plan: Planned, seen: Observed, applied: Marker, commit_id: str) -> Draft:
    record = journal.record(applied.record)
    if record.operation is Operation.DROP:
        return tombstone.restore(journal, seen, by="")
    base = None if plan.base is None else journal.record(plan.base)
    if base is None or base.operation is Operation.DROP:
        return tombstone.drop(journal, seen, incarnation="", by="")
    before = rebuild(journal, base)
    if seen.marker is not None and seen.marker.record == applied.record == plan.record:
        return _back_to(journal, seen, before, commit_id)
    return _without(journal, seen, before, record, commit_id)


def _back_to(journal: Journal, seen: Observed, base: Head, commit_id: str) -> Draft:
    """Return the commit that restores the table at ``base``: rows, columns, layout, indices, metadata."""
    live, schema = seen.head, journal.schemas.get(base.schema_hash)
    columns, before = ((head.schema_hash, head.partition_keys) for head in (live, base))
    changed = schema is not None and columns != before
    layout = base.metadata.get(LAYOUT)
    user = _user(base)
    dropped = {key: None for key in _user(live) if key not in user}
    change = replace(
        _moved(journal, live, base),
        schema=schema if changed else None,
        replaces_schema=changed,
        partition_keys=base.partition_keys if changed else None,
        layout=layout if layout is not None and layout != live.metadata.get(LAYOUT) else None,
        metadata=dropped | {key: value for key, value in user.items() if live.metadata.get(key) != value},
        index=IndexChange(wanted=_indices(live, base)),
    )
    return draft(journal, change, commit_id=commit_id, spec_digest="", base=live, on=seen)


def _without(journal: Journal, seen: Observed, base: Head, record: Record, commit_id: str) -> Draft:
    """Return the commit that removes one commit from those below, some of which another program made."""
    live = seen.head
    added = {(file.label, file.key) for file in record.delta.added}
    kept = {k: v for k, v in live.partitions.items() if (k, live.file(k)) not in added}
    again = {k for k, key in record.delta.removed if k not in kept and base.holds(k, key)}
    old = {k: v for k, v in base.partitions.items() if k in again or kept.get(k) == v}
    target = replace(live, partitions=old | {k: v for k, v in kept.items() if k not in old})
    user = _user(base)
    touched = {*record.delta.metadata, *record.delta.dropped}
    metadata = {key: user.get(key) for key in touched if key in _user(live) or key in user}
    change = replace(_moved(journal, live, target), metadata=metadata)
    return draft(journal, change, commit_id=commit_id, spec_digest="", base=live, on=seen)


def _moved(journal: Journal, live: Head, target: Head) -> Change:
    """Return the change that gives a head the files of another. Raises VersionIncomplete if one of them is gone."""
    labels, positions, removed = difference(live, target)
    back = [(label, target.file(label)) for label in labels]
    if missing := missing_files(journal, target, [key for _, key in back]):
        raise VersionIncomplete(
            f"dataset {journal.uuid!r}: the planned commit of its cube cannot be undone, as {len(missing)} files "
            f"are gone, among them {missing[0]}; restore them from a backup"
        )
    return Change(
        operation=Operation.ROLLBACK,
        added=measure(journal.store, back),
        positions=positions,
        removed=tuple(label for label, _ in removed),
        reads=Everything(),
    )


def _user(head: Head) -> Mapping[str, Any]:
    return {key: value for key, value in head.metadata.items() if not key.startswith(OWN_PREFIX)}


def _indices(live: Head, base: Head) -> dict[str, IndexKind | None]:
    now, before = live.index_state.wanted(), base.index_state.wanted()
    dropped: dict[str, IndexKind | None] = {column: None for column in now if column not in before}
    return dropped | {column: kind for column, kind in before.items() if now.get(column) is not kind}
