"""Indices in a commit: from the current head and a change to the indices of the next head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import pyarrow as pa

from kubothek.table.indexes.kartothek import dialect_of
from kubothek.table.indexes.maintain import Files, adopt, maintain
from kubothek.table.indexes.model import NO_CHANGE, Dialect, IndexChange, IndexState
from kubothek.table.log.journal import Journal
from kubothek.table.log.model.head import DIALECT, INDEX, PENDING, Head


def indices_after(
    journal: Journal,
    head: Head,
    *,
    added: Mapping[str, str],
    removed: Mapping[str, str],
    schema: pa.Schema | None,
    partition_keys: Sequence[str],
    change: IndexChange = NO_CHANGE,
    lenient: bool = False,
) -> IndexState:
    """Return the indices after these files (key by label) were added and removed; stores what is new.

    ``lenient``: drop an index that cannot be kept exact. Else raises IndexStale; also IndexInvalid.
    """
    before = _without_lost_columns(head.index_state, journal.schemas.get(head.schema_hash), schema)
    if not before.wanted() and not change.wanted:
        return before if change.dialect is None else replace(before, dialect=change.dialect)
    files = _files(head, added, removed, schema, partition_keys)
    return maintain(journal.store, before, files, journal.clock(), change, lenient=lenient)


def indices_of_foreign(
    journal: Journal,
    before: Head,
    foreign: Head,
    *,
    added: Mapping[str, str],
    removed: Mapping[str, str],
    schema: pa.Schema,
) -> IndexState:
    """Return the indices of a foreign head that changed these files of ``before``, made exact.

    A table that Kubothek meets for the first time keeps its dialect, so that the program that made it can continue.
    Its indices are taken as complete: a file without an entry holds nothing but nulls.
    """
    state = before.index_state
    if not state.wanted() and not foreign.indices:
        return state
    files = _files(before, added, removed, schema, foreign.partition_keys)
    if not before.version:
        state = replace(state, dialect=dialect_of(journal.store, foreign.indices, schema))
        files = replace(files, added=frozenset())
    return adopt(journal.store, state, foreign.indices, files, journal.clock())


def index_metadata(state: IndexState) -> dict[str, Any]:
    """Return the head's metadata for these indices; None removes a key."""
    return {
        INDEX: dict(state.native) or None,
        PENDING: {column: str(kind) for column, kind in state.pending.items()} or None,
        DIALECT: None if state.dialect is Dialect.KARTOTHEK else str(state.dialect),
    }


def index_delta(before: Head, state: IndexState) -> dict[str, Any]:
    """Return the change of the head's ``indices``: new ones by column, None for a removed one."""
    old, new = before.indices, state.kartothek
    return {column: new.get(column) for column in {**old, **new} if old.get(column) != new.get(column)}


def _without_lost_columns(state: IndexState, before: pa.Schema | None, after: pa.Schema | None) -> IndexState:
    """Drop indices that wait for the type of a column which the change removes.

    One on a column that never existed stays, so that it is refused as a mistake.
    """
    lost = set() if before is None or after is None else set(before.names) - set(after.names)
    pending = {column: kind for column, kind in state.pending.items() if column not in lost}
    return replace(state, pending=pending) if len(pending) < len(state.pending) else state


class _FilesAfter(Mapping[str, str]):
    """Key by label after a change of files: a view, as a commit that adds a few files looks up only those."""

    def __init__(self, before: Head, added: Mapping[str, str], dropped: Set[str]) -> None:
        self._before = before
        self._added = added
        self._dropped = dropped

    def __getitem__(self, label: str) -> str:
        if label in self._added:
            return self._added[label]
        if label in self._dropped:
            raise KeyError(label)
        return self._before.file(label)

    def __contains__(self, label: object) -> bool:
        return label in self._added or (label in self._before.partitions and label not in self._dropped)

    def __iter__(self) -> Iterator[str]:
        for label in self._before.partitions:
            if label not in self._dropped and label not in self._added:
                yield label
        yield from self._added

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _files(
    before: Head,
    added: Mapping[str, str],
    removed: Mapping[str, str],
    schema: pa.Schema | None,
    partition_keys: Sequence[str],
) -> Files:
    """Return the files for the indices. A file that only changes its position is in both, and changes no index."""
    moved = {label for label, key in added.items() if removed.get(label) == key}
    dropped = removed.keys() - moved
    return Files(
        files=_FilesAfter(before, added, dropped),
        added=added.keys() - moved,
        removed=dropped,
        schema=schema,
        partition_keys=partition_keys,
    )
