"""Conversion of another library's dataset into one that Kubothek writes: only at a user's request.

Data files stay under their keys; only heads are written. What conversion removes from a dataset is left to the
collector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Final

import orjson

from kubothek.errors import DatasetExists, DatasetNotFound
from kubothek.table.log.file_sizes import measure
from kubothek.table.log.interop.foreign import FOREIGN, adopt, understood
from kubothek.table.log.journal import Journal
from kubothek.table.log.legacy_heads import one_table, schema_of
from kubothek.table.log.model import keys
from kubothek.table.log.model.changes import Change, Everything, Operation
from kubothek.table.log.model.head import OWN_PREFIX, Head
from kubothek.table.log.settle import CommitBackoff
from kubothek.table.log.transaction import AlreadyApplied, Transaction

_ID: Final = "convert:"
Begin = Callable[[str, str], Transaction | AlreadyApplied]


def convert(
    journal: Journal, patience: CommitBackoff, keep: str | None, begin_other: Callable[[str], Begin]
) -> list[str]:
    """Convert the dataset for writing; return the uuids of the datasets that its other tables became.

    ``keep``         the table that stays, if there are several; the others become datasets ``<uuid>-<table>`` first,
                     so that every table can be read at any moment
    ``begin_other``  :meth:`DatasetLog.begin` of the dataset of that uuid

    One External commit makes the partitions explicit and the head JSON; a head that Kubothek wrote stays unchanged.
    Idempotent. Raises DatasetNotFound, DatasetExists, InputError.
    """
    while True:
        seen = journal.observe()
        if seen is None:
            raise DatasetNotFound(f"there is no dataset {journal.uuid!r} in {journal.store.url}")
        if seen.marker:
            return []
        foreign = understood(journal, seen)
        kept = one_table(foreign.head, keep)
        others = {name: f"{journal.uuid}-{name}" for name in foreign.head.tables if name != kept.table}
        for table, uuid in others.items():
            _split_off(journal, foreign.head.of_table(table), uuid, begin_other(uuid))
        adopted = adopt(journal, replace(foreign, head=_own_indices(journal, kept)), foreign.head)
        if journal.publish(adopted, foreign):
            return list(others.values())
        patience.pause()


def _own_indices(journal: Journal, head: Head) -> Head:
    """Return the head without indices on columns that only other tables have."""
    schema = schema_of(journal, head, None, keeps_files=lambda: True)
    names = schema.names if schema is not None else ()
    return replace(head, indices={column: index for column, index in head.indices.items() if column in names})


def _split_off(journal: Journal, head: Head, uuid: str, begin: Begin) -> None:
    """Make the dataset ``uuid`` show exactly this table, from its files where they are.

    Its indices are left out: their files are the first dataset's to collect.
    """
    files = head.files()
    state = sha256(orjson.dumps(files)).hexdigest()
    started = begin(f"{_ID}{journal.uuid}:{state[:16]}", state)
    if isinstance(started, AlreadyApplied):
        return
    before = started.snapshot.head
    if started.snapshot.exists and not _is_of(before, keys.data_prefix(journal.uuid, head.table)):
        raise DatasetExists(
            f"table {head.table!r} of {journal.uuid!r} would become the dataset {uuid!r}, which is in "
            f"{journal.store.url} already; delete that one, or split the tables with kartothek"
        )
    started.commit(
        Change(
            operation=Operation.OVERWRITE,
            added=measure(
                journal.store, [(label, key) for label, key in files.items() if not before.holds(label, key)]
            ),
            removed=tuple(label for label, key in before.files().items() if not head.holds(label, key)),
            reads=Everything(),
            schema=schema_of(journal, head, None, keeps_files=lambda: True),
            replaces_schema=True,
            partition_keys=head.partition_keys,
            metadata={key: value for key, value in head.metadata.items() if not key.startswith(OWN_PREFIX)},
            by=FOREIGN,
        )
    )


def _is_of(head: Head, prefix: str) -> bool:
    """Return whether an earlier conversion made this dataset: all its files are below this prefix."""
    return bool(head.partitions) and all(key.startswith(prefix) for key in head.files().values())
