"""Snapshots of members: the versions in the head of the cube, and foreign changes since."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kubothek.errors import CommitError, CubeInvalid
from kubothek.table.log.history.rebuild import rebuild
from kubothek.table.log.history.snapshot import Snapshot, snapshot_of
from kubothek.table.log.history.versions import History
from kubothek.table.log.journal import Journal, Observed
from kubothek.table.log.model import keys
from kubothek.table.log.multi.head import MemberVersion
from kubothek.table.log.multi.journal import CubeJournal, SeenCube
from kubothek.table.log.multi.members import Member
from kubothek.table.log.multi.rules import check
from kubothek.table.log.multi.spec import SEPARATOR
from kubothek.table.log.records import parallel
from kubothek.table.log.settle import unadopted


def at_version(journal: Journal, wanted: MemberVersion) -> Snapshot:
    """Return a version of a member; two small requests, or one if the member's head has it. Writes nothing.

    Raises VersionIncomplete if records or files of it are gone.
    """
    return _at_version(journal, wanted, journal.observe())


def is_at(seen: Observed | None, wanted: MemberVersion) -> bool:
    """Return whether a member's head has the version that the head of its cube names."""
    return seen is not None and seen.marker is not None and seen.marker.record == wanted.record


def present(cube: CubeJournal, seen: SeenCube) -> Mapping[str, Snapshot] | None:
    """Return the members as readers see them; None if the head of the cube moved: read it again. Writes nothing.

    A foreign change since that head is shown as its adoption would make it. Conditions: no transaction has begun, the
    change overwrote no commit, and the cube still keeps its rules. Otherwise readers see the versions in the head.
    Raises VersionIncomplete if records or files of them are gone.
    """
    members = seen.head.members
    names = list(members)
    heads = dict(zip(names, parallel(lambda name: cube.member(name).observe(), names), strict=True))
    shown = dict(
        zip(
            names,
            parallel(lambda name: _at_version(cube.member(name), members[name], heads[name]), names),
            strict=True,
        )
    )
    if seen.head.intent is not None:
        return shown
    changed = {
        name: snapshot
        for name, head in heads.items()
        if head is not None and (snapshot := _changed(cube.member(name), members[name], head)) is not None
    }
    if not changed:
        return shown
    # A transaction of ours writes its intent to the head of the cube before it changes a member.
    now = cube.observe()
    if now is None or now.etag != seen.etag:
        return None
    both = shown | changed
    spec = seen.head.spec
    try:
        # An added dataset is shown once it is adopted, but it breaks the cube at once if it breaks a rule.
        found = both | {name: snapshot_of(cube.member(name), head) for name, head in _added(cube, members).items()}
        check(spec, {name: Member(name, spec, snapshot) for name, snapshot in found.items()})
    except (CommitError, CubeInvalid):
        return shown
    return both


def _added(cube: CubeJournal, members: Collection[str]) -> dict[str, Observed]:
    """Return the heads of datasets with a member's name that are no members; one listing of the store's root."""
    start, end = f"{cube.prefix}{SEPARATOR}", keys.head("")
    heads = (key for key in cube.store.list_names("") if key.startswith(start) and key.endswith(end))
    names = [key.removeprefix(start).removesuffix(end) for key in heads]
    others = [name for name in names if name and SEPARATOR not in name and name not in members]
    found = ((name, cube.member(name).observe()) for name in others)
    return {name: head for name, head in found if head is not None and not head.head.tombstone}


def _changed(journal: Journal, wanted: MemberVersion, seen: Observed) -> Snapshot | None:
    """Return a member with its foreign change; None if there is none, or it cannot be shown."""
    if is_at(seen, wanted) or seen.head.tombstone:
        return None
    try:
        known = unadopted(journal, seen) if seen.marker is None else seen
    except CommitError:  # it cannot be adopted
        return None
    return None if known.head.lost or known.version < wanted.version else snapshot_of(journal, known)


def _at_version(journal: Journal, wanted: MemberVersion, seen: Observed | None) -> Snapshot:
    if is_at(seen, wanted):
        return snapshot_of(journal, seen)
    record = journal.record(wanted.record)
    head = rebuild(journal, record)
    if seen is not None:
        History(journal, seen).require_files(head, record.version)
    return Snapshot(head, journal.schemas.get(head.schema_hash), record.version, None, record.totals, record.time)
