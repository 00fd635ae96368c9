"""Create, drop, rebuild and compact indices, in one commit that changes no row.

The files are read before the commit, and only their indexed columns. The swap adds to the indices what others commit
meanwhile, as for any other commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import pyarrow as pa

from kubothek.errors import DatasetNotFound
from kubothek.storage import Store
from kubothek.table.indexes import Collected, Dialect, IndexChange, IndexKind, check_indexable
from kubothek.table.indexes.compact import compacted, needs_compaction
from kubothek.table.indexes.model import Merged
from kubothek.table.indexes.native import Manifest, read_manifest
from kubothek.table.indexes.reading import collect_from_files
from kubothek.table.indexes.report import IndexHealth, report
from kubothek.table.log.dataset_log import DatasetLog
from kubothek.table.log.history.snapshot import Snapshot
from kubothek.table.log.model.changes import Change, Operation
from kubothek.table.log.transaction import Transaction

ReportProgress = Callable[[int, int], None]
"""Progress callback: the number of files read, and of all files."""


@dataclass(frozen=True, slots=True)
class Reindexed:
    """The result: columns whose index was built, dropped, compacted.

    ``version``  of the commit; None if there was nothing to do
    ``pending``  columns that get their index with their first value
    """

    version: int | None
    built: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    tidied: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()


def reindex(
    store: Store,
    log: DatasetLog,
    wanted: Mapping[str, IndexKind] | None = None,
    *,
    dialect: Dialect | None = None,
    rebuild: bool = False,
    broken: Collection[str] = (),
    by: str = "",
    progress: ReportProgress = lambda _done, _total: None,
) -> Reindexed:
    """Give the table exactly the ``wanted`` indices (None: its present ones), and repair them.

    ``rebuild``  build all of them again from the files
    ``broken``   columns whose index is known to be unusable: always built again
    ``dialect``  of string indices; None = unchanged

    A column with only NULL so far gets its index with its first other value. Raises IndexInvalid for a column that
    cannot be indexed, DatasetNotFound, and what :meth:`DatasetLog.begin` and commits raise. Idempotent.
    """
    started = log.begin_new("index")
    snapshot = started.snapshot
    if not snapshot.exists:
        raise DatasetNotFound(f"there is no dataset {log.uuid!r} in {store.url}: nothing to index")
    unusable = snapshot.head.index_state.wanted() if rebuild else broken
    return _Reindexing(store, started, snapshot, progress).run(wanted, dialect, by, frozenset(unusable))


class _Reindexing:
    """One call of :func:`reindex`."""

    def __init__(self, store: Store, started: Transaction, snapshot: Snapshot, progress: ReportProgress) -> None:
        self._store = store
        self._started = started
        self._head = snapshot.head
        self._schema = pa.schema([]) if snapshot.schema is None else snapshot.schema
        self._files = snapshot.head.files()
        self._progress = progress

    def run(
        self, wanted: Mapping[str, IndexKind] | None, dialect: Dialect | None, by: str, broken: frozenset[str]
    ) -> Reindexed:
        state = self._head.index_state
        present = state.wanted()
        target = present if wanted is None else dict(wanted)
        if len(self._schema):
            check_indexable(self._schema, self._head.partition_keys, target.items())
        pending = {column: kind for column, kind in target.items() if self._is_untyped(column)}
        target = {column: kind for column, kind in target.items() if column not in pending}
        stale = broken.union(each.column for each in report(self._store, state) if each.health is IndexHealth.STALE)
        there = state.kinds()
        built = tuple(c for c, kind in target.items() if c in stale or there.get(c) is not kind)
        dropped = tuple(column for column in present if column not in target and column not in pending)
        promised = {column: kind for column, kind in pending.items() if present.get(column) is not kind}
        merged = {c: m for c in target if c not in built and c in state.native and (m := self._tidied(c)) is not None}
        redialected = dialect not in (None, state.dialect)
        if not (built or dropped or merged or redialected or promised):
            return Reindexed(None, pending=tuple(pending))
        change = IndexChange(
            collected=self._built({column: target[column] for column in built}),
            wanted={**{column: target[column] for column in built}, **dict.fromkeys(dropped), **promised},
            fresh=frozenset(built),
            merged=merged,
            dialect=dialect,
        )
        committed = self._started.commit(Change(operation=Operation.INDEX, index=change, by=by))
        return Reindexed(committed.version, built, dropped, tuple(merged), tuple(pending))

    def _is_untyped(self, column: str) -> bool:
        return column not in self._schema.names or pa.types.is_null(self._schema.field(column).type)

    def _built(self, kinds: Mapping[str, IndexKind]) -> Collected:
        """Return the entries of all files for these columns; for native indices in files that do not overlap."""
        if not kinds:
            return Collected()
        types = {column: self._schema.field(column).type for column in kinds}
        collected = self._collect(types, self._files)
        files = dict(collected.files)
        for column, kind in kinds.items():
            if kind is IndexKind.NATIVE:
                manifest = Manifest(column, types[column], files[column])
                files[column] = compacted(self._store, self._head.uuid, manifest, self._files).files
        return Collected(collected.labels, files)

    def _tidied(self, column: str) -> Merged | None:
        """Compact a native index, and add the data files that it does not cover; None if there is nothing to do."""
        manifest = read_manifest(self._store, self._head.index_state.native[column])
        if not needs_compaction(manifest):
            return None
        stored = self._schema.field(column).type
        uncovered = {label: key for label, key in self._files.items() if label in manifest.uncovered}
        read = self._collect({column: stored}, uncovered)
        merged = Manifest(column, stored, manifest.files + read.files[column])
        files = compacted(self._store, self._head.uuid, merged, self._files).files
        return Merged(files, frozenset(file.key for file in manifest.files), frozenset(uncovered))

    def _collect(self, types: Mapping[str, pa.DataType], files: Mapping[str, str]) -> Collected:
        collected = collect_from_files(self._store, self._head.uuid, types, files, self._progress)
        for each in collected.files.values():
            for file in each[:1]:
                self._started.note_written(file.key)
        return collected
