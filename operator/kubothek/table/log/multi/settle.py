"""Settle the head of a cube: carry out intents or take them back, check and adopt foreign changes.

Every writer of a cube or of a member starts here, so there is no recovery process that could be down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from shlex import quote
from typing import Final

from kubothek.errors import CubeBroken, CubeInvalid, HeadMissing
from kubothek.table.log.history.snapshot import snapshot_of
from kubothek.table.log.interop.foreign import FOREIGN
from kubothek.table.log.journal import Observed
from kubothek.table.log.multi.head import CubeHead, CubeRecord, Intent, MemberVersion
from kubothek.table.log.multi.journal import CubeJournal, SeenCube
from kubothek.table.log.multi.member_commit import Outcome, Ready, carry_out, take_back
from kubothek.table.log.multi.members import Member
from kubothek.table.log.multi.rules import check
from kubothek.table.log.multi.snapshots import at_version
from kubothek.table.log.multi.spec import CubeSpec
from kubothek.table.log.records import parallel
from kubothek.table.log.settle import CommitBackoff, settled

EXTERNAL: Final = "External"
UNDONE: Final = "Undone"


def settled_cube(cube: CubeJournal, patience: CommitBackoff) -> SeenCube | None:
    """Return the head without an intent, its commit marked; None if there is none. Usually one request.

    Raises HeadUnreadable, Contended, and what settling the members of an intent raises.
    """
    while (seen := cube.observe()) is not None:
        if seen.head.intent is None:
            cube.mark(seen)
            return seen
        if (done := end(cube, seen, seen.head.intent, patience)) is not None:
            return done
        patience.pause()
    return None


def end(
    cube: CubeJournal,
    seen: SeenCube,
    intent: Intent,
    patience: CommitBackoff,
    ready: Mapping[str, Ready] | None = None,
) -> SeenCube | None:
    """Carry out an intent, or take it back if a member cannot follow; None if another process was faster: read again.

    ``ready``  the members' commits, if they were planned just now
    """
    known = ready or {}

    def carry(name: str) -> Outcome:
        return carry_out(cube.member(name), intent.members[name], patience, known.get(name))

    names = list(intent.members)
    if not intent.taken_back:
        outcomes = dict(zip(names, parallel(carry, names), strict=True))
        if all(outcome.done for outcome in outcomes.values()) and _is_complete(cube, intent, outcomes):
            return _ended(cube, seen, intent, outcomes)
        # Decide before anything is undone: a process that saw all members done can then no longer end the intent.
        decided = cube.swap(replace(seen.head, intent=replace(intent, taken_back=True)), seen)
        if decided is None:
            return None
        seen = decided

    def undo(name: str) -> Outcome:
        return take_back(cube.member(name), intent.members[name], intent.transaction, patience)

    return _undone(cube, seen, intent, dict(zip(names, parallel(undo, names), strict=True)))


def adopted(
    cube: CubeJournal, seen: SeenCube, names: Iterable[str], patience: CommitBackoff, *, adopts: bool = True
) -> tuple[SeenCube, dict[str, Observed | None]] | None:
    """Adopt what other programs did to these members. Return the cube and the members' heads; None: read again.

    ``names``   members, and datasets that another program may have added
    ``adopts``  False: what another program did is left as it is, and shown in a cube without an ETag

    Raises CubeBroken if what another program did breaks the cube's rules, HeadMissing if it deleted a member, and what
    settling a member does.
    """
    wanted = sorted({*names})
    look = partial(_settled, cube, patience=patience, adopts=adopts)
    heads = dict(zip(wanted, parallel(look, wanted), strict=True))
    members = dict(seen.head.members)
    for name, head in heads.items():
        if head is None or head.head.tombstone:
            members.pop(name, None)
        elif (at := version_of(head)) != members.get(name):
            members[name] = at
    if members == seen.head.members:
        return seen, heads
    _require_complete(cube, seen.head.spec, members, heads)
    if not adopts:
        return SeenCube(replace(seen.head, members=members), None), heads
    now = record_of(cube, seen.head, members, operation=EXTERNAL, commit_id=cube.own_id("external"), by=FOREIGN)
    cube.put_record(now)
    swapped = cube.swap(at_record(seen.head, now), seen)
    return None if swapped is None else (swapped, heads)


def record_of(
    cube: CubeJournal,
    head: CubeHead,
    members: Mapping[str, MemberVersion],
    *,
    operation: str,
    commit_id: str,
    by: str,
    digest: str = "",
) -> CubeRecord:
    """Return the record of the version after ``head``."""
    version = head.version + 1
    return CubeRecord(
        key=cube.new_key(version, commit_id),
        version=version,
        id=commit_id,
        digest=digest,
        operation=operation,
        time=cube.now(),
        by=by,
        parent=head.record,
        spec=head.spec,
        members=members,
    )


def at_record(head: CubeHead, record: CubeRecord) -> CubeHead:
    """Return the head of a record's version. Without members the cube is gone: a later one is a new incarnation."""
    since = head.since if record.members else record.version
    return CubeHead(record.spec, record.version, record.key, record.members, since, record.time)


def version_of(seen: Observed) -> MemberVersion:
    """What a cube's head says of a member; of one that is not adopted, no record."""
    return MemberVersion(seen.version, seen.marker.record if seen.marker else "")


def _ended(cube: CubeJournal, seen: SeenCube, intent: Intent, outcomes: Mapping[str, Outcome]) -> SeenCube | None:
    record = cube.record(intent.record)
    members = _after(record.members, outcomes)
    if members != record.members:  # a member's commit had to be merged again
        record = replace(record, key=cube.new_key(record.version, record.id), members=members)
        cube.put_record(record)
    swapped = cube.swap(at_record(seen.head, record), seen)
    if swapped is not None:
        cube.mark(swapped)
    return swapped


def _undone(cube: CubeJournal, seen: SeenCube, intent: Intent, outcomes: Mapping[str, Outcome]) -> SeenCube | None:
    """Return the head without the intent. It lacks foreign changes: they are checked and adopted next."""
    was = cube.record(intent.record)
    members = dict(seen.head.members)
    for name in members.keys() & outcomes.keys():
        if not outcomes[name].there:
            del members[name]
        elif (version := outcomes[name].version) is not None:
            members[name] = version
    record = record_of(cube, seen.head, members, operation=UNDONE, commit_id=cube.own_id("undone"), by=was.by)
    cube.put_record(record)
    return cube.swap(at_record(seen.head, record), seen)


def _is_complete(cube: CubeJournal, intent: Intent, outcomes: Mapping[str, Outcome]) -> bool:
    """Return whether the members form a cube: as planned they do, but a commit merged again has others below it."""
    record = cube.record(intent.record)
    members = _after(record.members, outcomes)
    if members == record.members or not members:
        return True
    try:
        _check(cube, record.spec, members, {})
    except CubeInvalid:
        return False
    return True


def _after(members: Mapping[str, MemberVersion], outcomes: Mapping[str, Outcome]) -> dict[str, MemberVersion]:
    after = dict(members)
    for name, outcome in outcomes.items():
        if outcome.there and outcome.version is not None:
            after[name] = outcome.version
        else:
            after.pop(name, None)
    return after


def _settled(cube: CubeJournal, name: str, *, patience: CommitBackoff, adopts: bool) -> Observed | None:
    try:
        return settled(cube.member(name), patience, adopts=adopts)
    except HeadMissing as error:
        raise HeadMissing(f"{error}. It is a dataset of cube {cube.prefix!r}, which readers see as it was") from error


def _require_complete(
    cube: CubeJournal,
    spec: CubeSpec,
    members: Mapping[str, MemberVersion],
    heads: Mapping[str, Observed | None],
) -> None:
    """Raise CubeBroken if a foreign change breaks the rules."""
    try:
        _check(cube, spec, members, heads)
    except CubeInvalid as error:
        raise CubeBroken(
            f"cube {cube.prefix!r} is no longer valid after a change of another program: {error}. Readers see it as it "
            "was before; repair it with that program, or take its changes back: kubothek cube discard "
            f"{quote(cube.prefix)}"
        ) from error


def _check(
    cube: CubeJournal,
    spec: CubeSpec,
    members: Mapping[str, MemberVersion],
    heads: Mapping[str, Observed | None],
) -> None:
    """Check the rules; ``heads`` are those of members that were read just now."""

    def look(name: str) -> Member:
        known = heads.get(name)
        journal = cube.member(name)
        return Member(name, spec, snapshot_of(journal, known) if known else at_version(journal, members[name]))

    names = list(members)
    check(spec, dict(zip(names, parallel(look, names), strict=True)))
