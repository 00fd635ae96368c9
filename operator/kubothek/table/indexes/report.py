"""Report of the indices of a table, for users and for the operator."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kubothek.errors import IndexStale
from kubothek.storage import Store
from kubothek.table.indexes.compact import needs_compaction
from kubothek.table.indexes.model import IndexKind, IndexState
from kubothek.table.indexes.object_cache import opened


class IndexHealth(StrEnum):
    """Whether an index needs work. Query results are correct in every state."""

    READY = "Ready"
    PARTIAL = "Partial"
    """Lookups are slow: it lacks some files, or has many files of its own."""
    WAITING = "Waiting"
    """Its column has no type yet; the first values create it."""
    STALE = "Stale"
    """It cannot be read: commits and lookups fail until it is rebuilt."""


@dataclass(frozen=True, slots=True)
class IndexReport:
    """One index. ``rows``: the values of a Kartothek index; the pairs of value and file of a native one."""

    column: str
    kind: IndexKind
    health: IndexHealth
    rows: int


def report(store: Store, state: IndexState) -> tuple[IndexReport, ...]:
    """Return all indices of a head, by column; two small requests for each. Writes nothing."""
    waiting = {column: IndexReport(column, kind, IndexHealth.WAITING, 0) for column, kind in state.pending.items()}
    there = {column: _report(store, state, column, kind) for column, kind in state.kinds().items()}
    return tuple(each for _, each in sorted((waiting | there).items()))


def _report(store: Store, state: IndexState, column: str, kind: IndexKind) -> IndexReport:
    try:
        if kind is IndexKind.NATIVE:
            manifest = opened(store).manifest(state.native[column])
            health = IndexHealth.PARTIAL if needs_compaction(manifest) else IndexHealth.READY
            return IndexReport(column, kind, health, manifest.rows)
        listed = state.kartothek[column]
        rows = opened(store).file(listed).rows if isinstance(listed, str) else len(listed)
        return IndexReport(column, kind, IndexHealth.READY, rows)
    except IndexStale:
        return IndexReport(column, kind, IndexHealth.STALE, 0)
