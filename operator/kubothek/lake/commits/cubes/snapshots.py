"""Versions of members as the head of a cube names them."""

from __future__ import annotations

from kubothek.lake.commits.cubes.head import MemberVersion
from kubothek.lake.commits.journal import Journal
from kubothek.lake.commits.past.history import History
from kubothek.lake.commits.past.rebuild import rebuild
from kubothek.lake.commits.past.snapshot import Snapshot, snapshot_of


def at_version(journal: Journal, wanted: MemberVersion) -> Snapshot:
    """A version of a member; two small requests, or one, if it is that of its head. Writes nothing.

    Raises VersionIncomplete if records or files of it are gone.
    """
    seen = journal.observe()
    if seen is not None and seen.marker is not None and seen.marker.record == wanted.record:
        return snapshot_of(journal, seen)
    record = journal.record(wanted.record)
    head = rebuild(journal, record)
    if seen is not None:
        History(journal, seen).require_files(head, record.version)
    return Snapshot(head, journal.schemas.get(head.schema_hash), record.version, None, record.totals, record.time)
