"""Commits to several members of a cube at once: all of them happen, or none does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from kubothek.table.log.history.snapshot import Snapshot
from kubothek.table.log.journal import Draft, Observed, Prepared
from kubothek.table.log.model.changes import Operation
from kubothek.table.log.model.head import OWN_PREFIX
from kubothek.table.log.model.record import Record
from kubothek.table.log.multi.head import CubeHead, CubeRecord, Intent, MemberVersion, Planned
from kubothek.table.log.multi.journal import CubeJournal, SeenCube
from kubothek.table.log.multi.member_commit import Ready
from kubothek.table.log.multi.members import Member
from kubothek.table.log.multi.rules import check
from kubothek.table.log.multi.settle import end, record_of
from kubothek.table.log.multi.snapshots import at_version
from kubothek.table.log.multi.spec import CubeSpec
from kubothek.table.log.records import parallel
from kubothek.table.log.settle import CommitBackoff

_IN_AND_OUT = (Operation.DROP, Operation.RESTORE)


@dataclass(frozen=True, slots=True)
class Step:
    """The commit of one member, decided for the head that was read."""

    draft: Draft
    on: Observed | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Title:
    """The entry of a cube's commit in the history; ``id`` and ``digest`` are the commit's."""

    id: str
    digest: str
    operation: str
    by: str


def publish(
    cube: CubeJournal,
    on: SeenCube,
    steps: Mapping[str, Step],
    title: Title,
    patience: CommitBackoff,
    *,
    spec: CubeSpec | None = None,
    before_swap: Callable[[str, Record], None] | None = None,
) -> tuple[CubeRecord, Mapping[str, Prepared]] | None:
    """Commit these steps as the next version of a settled cube. None if that failed: read the cube again.

    ``on``           the cube as it was read; without an ETag it is a new cube
    ``spec``         of the cube afterwards; None = unchanged
    ``before_swap``  gets each member's stored record, and may raise to abort

    Raises CubeInvalid if the members would not form a cube afterwards; nothing has happened then.
    """
    if any(_record_of(step.on) != _base(on.head, name, step) for name, step in steps.items()):
        return None
    names = list(steps)
    prepared = dict(
        zip(
            names,
            parallel(lambda name: cube.member(name).prepare(steps[name].draft, steps[name].on), names),
            strict=True,
        )
    )
    ready = {name: Ready(each, steps[name].on) for name, each in prepared.items() if each is not None}
    if len(ready) < len(steps):
        return None
    for name, each in ready.items():
        if before_swap:
            before_swap(name, each.prepared.record)
    members = _members_after(on.head.members, ready)
    if len(steps) > 1 or any(_can_break(step.draft) for step in steps.values()):
        _require_complete(cube, spec or on.head.spec, members, ready)
    record = replace(
        record_of(
            cube, on.head, members, operation=title.operation, commit_id=title.id, by=title.by, digest=title.digest
        ),
        spec=spec or on.head.spec,
        added={name: each.prepared.record.added for name, each in ready.items()},
    )
    cube.put_record(record)
    planned = {name: Planned(each.prepared.record.key, _record_of(each.on)) for name, each in ready.items()}
    intent = Intent(cube.nonce(), record.key, planned)
    seen = cube.swap(replace(on.head, intent=intent), on)
    if seen is None:
        return None
    ended = end(cube, seen, intent, patience, ready)
    if ended is None or ended.head.record is None:
        return None
    if ended.head.record != record.key and (record := cube.record(ended.head.record)).id != title.id:
        return None
    return record, {name: each.prepared for name, each in ready.items()}


def _base(head: CubeHead, name: str, step: Step) -> str | None:
    """Return the record that a member's head must have: the one in the cube's head, or a tombstone's, or none."""
    if (member := head.members.get(name)) is not None:
        return member.record
    return _record_of(step.on) if step.on is None or step.on.head.tombstone else None


def _record_of(seen: Observed | None) -> str | None:
    return seen.marker.record if seen and seen.marker else None


def _members_after(members: Mapping[str, MemberVersion], ready: Mapping[str, Ready]) -> dict[str, MemberVersion]:
    after = dict(members)
    for name, each in ready.items():
        if each.prepared.head.tombstone:
            after.pop(name, None)
        else:
            after[name] = MemberVersion(each.prepared.record.version, each.prepared.record.key)
    return after


def _can_break(draft: Draft) -> bool:
    """Return whether a change of one member alone can break a rule: changed rows cannot."""
    delta = draft.delta
    user = [key for key in (*delta.metadata, *delta.dropped) if not key.startswith(OWN_PREFIX)]
    return bool(
        draft.operation in _IN_AND_OUT
        or user
        or delta.schema is not None
        or delta.partition_keys is not None
        or any(key is None for key in delta.indices.values())
    )


def _require_complete(
    cube: CubeJournal, spec: CubeSpec, members: Mapping[str, MemberVersion], ready: Mapping[str, Ready]
) -> None:
    if not members:
        return  # the cube is deleted

    def member_of(name: str) -> Member:
        journal, planned = cube.member(name), ready.get(name)
        if planned is None:
            return Member(name, spec, at_version(journal, members[name]))
        record, after = planned.prepared.record, planned.prepared.head
        schema = journal.schemas.get(after.schema_hash)
        return Member(name, spec, Snapshot(after, schema, record.version, None, record.totals, record.time))

    names = list(members)
    check(spec, dict(zip(names, parallel(member_of, names), strict=True)))
