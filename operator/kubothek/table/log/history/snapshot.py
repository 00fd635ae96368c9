"""One version of a table, as readers and transactions see it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from kubothek.table.log.history.rebuild import rebuild
from kubothek.table.log.journal import Journal, Observed
from kubothek.table.log.legacy_heads import explicit, one_table, schema_of
from kubothek.table.log.model.head import INDEX, Head
from kubothek.table.log.model.record import Totals


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of a table.

    ``head``     its partitions, partition keys, indices, metadata
    ``schema``   the stored schema; None if the table has none yet
    ``version``  0 if there is no dataset yet. For a foreign head that was not adopted yet: the version below it
    ``etag``     of the head, if this is the current version
    ``totals``   None for a foreign head that was not adopted yet: its rows were not counted
    ``time``     of the commit
    """

    head: Head
    schema: pa.Schema | None
    version: int
    etag: str | None
    totals: Totals | None
    time: datetime | None

    @property
    def exists(self) -> bool:
        """Whether there is a dataset at all."""
        return self.version > 0 or self.etag is not None


def live_head(journal: Journal, seen: Observed | None) -> Head:
    """Return the head that a change builds on: an empty one if there is no dataset or it was deleted."""
    if seen is None:
        return Head(journal.uuid)
    return seen.head.anew() if seen.head.tombstone else seen.head


def snapshot_of(journal: Journal, seen: Observed | None, table: str | None = None) -> Snapshot:
    """Return the current version; an empty one if there is no dataset or it was deleted. Writes nothing.

    ``table``  selects one of several. Raises InputError if there are several and it names none of them.
    """
    if seen is None or seen.head.tombstone:
        return Snapshot(live_head(journal, seen), None, 0, None, Totals(), None)
    head = seen.head
    schema = journal.schemas.get(head.schema_hash)
    if seen.marker:
        head = one_table(head, table) if table else head
        return Snapshot(head, schema, seen.version, seen.etag, seen.totals, seen.marker.time)
    head = one_table(explicit(journal, head), table)

    def keeps_files() -> bool:
        before = rebuild(journal, seen.base) if seen.base else None
        return before is None or any(head.holds(label, key) for label, key in before.files().items())

    schema = schema_of(journal, head, schema, keeps_files=keeps_files)
    # Native indices do not cover what a foreign writer added, until its head is adopted.
    head = head.with_metadata({key: value for key, value in head.metadata.items() if key != INDEX})
    return Snapshot(head, schema, seen.version, seen.etag, None, seen.modified)
