"""The difference between two versions: files, rows by partition, columns and indices (commit-protocol, "History")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from kubothek.storage import Store
from kubothek.table.log.dataset_log import DatasetLog
from kubothek.table.log.file_sizes import measure
from kubothek.table.log.history.snapshot import Snapshot
from kubothek.table.log.model.head import Head
from kubothek.table.log.model.paths import partition_path
from kubothek.table.schema import type_name

MOST_FOOTERS: Final = 1000
"""Largest number of footers to read for row counts that no commit record has."""


@dataclass(slots=True)
class PartitionChange:
    """Files and rows that one partition gained and lost. Rows are None if counting them takes too many requests."""

    path: str
    files_added: int = 0
    files_removed: int = 0
    rows_added: int | None = 0
    rows_removed: int | None = 0


@dataclass(frozen=True, slots=True)
class Difference:
    """A named item that differs: ``before`` None: it is new; ``after`` None: it was removed."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The difference from one version to another, which may be the older one.

    ``partitions``  those whose files differ, by path; ``""`` for a table without partitions
    ``columns``     whose type differs, as types are named in manifests
    ``indices``     whose kind differs: ``Kartothek``, ``Native``
    ``rows``        of the two versions; None for a foreign head that was not adopted yet
    """

    uuid: str
    before: int
    after: int
    rows: tuple[int | None, int | None]
    partitions: tuple[PartitionChange, ...] = ()
    columns: tuple[Difference, ...] = ()
    indices: tuple[Difference, ...] = ()
    partition_keys: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    @property
    def empty(self) -> bool:
        """Whether the two versions are equal."""
        return not (self.partitions or self.columns or self.indices)


def compare(store: Store, log: DatasetLog, before: Snapshot, after: Snapshot) -> Comparison:
    """Return the changes that turn ``before`` into ``after``.

    Reads the records of the commits between them, and footers of files that are older than both versions.
    """
    old, new = before.head.files(), after.head.files()
    added = {label: key for label, key in new.items() if old.get(label) != key}
    removed = {label: key for label, key in old.items() if new.get(label) != key}
    rows = _rows(store, log, {*added.items(), *removed.items()}, before.version, after.version)
    return Comparison(
        uuid=before.head.uuid,
        before=before.version,
        after=after.version,
        rows=(_total(before), _total(after)),
        partitions=_by_partition(added, removed, rows),
        columns=_differences(_columns(before.schema), _columns(after.schema)),
        indices=_differences(_indices(before.head), _indices(after.head)),
        partition_keys=(before.head.partition_keys, after.head.partition_keys),
    )


def _total(snapshot: Snapshot) -> int | None:
    return snapshot.totals.rows if snapshot.totals is not None else None


def _rows(
    store: Store, log: DatasetLog, files: set[tuple[str, str]], before: int, after: int
) -> dict[tuple[str, str], int]:
    """Return the rows of each (label, key), from records and from at most MOST_FOOTERS footers."""
    if not files:
        return {}
    known: dict[tuple[str, str], int] = {}
    low, high = sorted((before, after))
    for record in log.history():
        if record.version <= low or known.keys() >= files:
            break
        if record.version <= high:
            known |= {(f.label, f.key): f.rows for f in record.delta.added if (f.label, f.key) in files}
    unknown = sorted(files - known.keys())
    if len(unknown) <= MOST_FOOTERS:
        known |= {(file.label, file.key): file.rows for file in measure(store, unknown)}
    return known


def _by_partition(
    added: Mapping[str, str], removed: Mapping[str, str], rows: Mapping[tuple[str, str], int]
) -> tuple[PartitionChange, ...]:
    found: dict[str, PartitionChange] = {}
    for file in added.items():
        change = found.setdefault(path := partition_path(file[1]), PartitionChange(path))
        change.files_added += 1
        change.rows_added = _plus(change.rows_added, rows.get(file))
    for file in removed.items():
        change = found.setdefault(path := partition_path(file[1]), PartitionChange(path))
        change.files_removed += 1
        change.rows_removed = _plus(change.rows_removed, rows.get(file))
    return tuple(found[path] for path in sorted(found))


def _plus(total: int | None, more: int | None) -> int | None:
    return None if total is None or more is None else total + more


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Difference, ...]:
    names = dict.fromkeys((*before, *after))
    return tuple(
        Difference(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)
    )


def _columns(schema: pa.Schema | None) -> dict[str, str]:
    return {} if schema is None else {column.name: type_name(column.type) for column in schema}


def _indices(head: Head) -> dict[str, str]:
    state = head.index_state
    return dict.fromkeys(state.kartothek, "Kartothek") | dict.fromkeys(state.native, "Native")
