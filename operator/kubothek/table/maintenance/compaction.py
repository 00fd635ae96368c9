"""Compaction: small files of one partition become target-sized ones, in one commit that changes no row.

It blocks no other commit. It depends only on the files that it removes, so appends are rebased on top of it, or it on
top of them. If another commit removed one of these files first, compaction leaves out the bundle of that file, and
commits the rest. A change whose files it removed is made again for the new head (``Transaction.commit``).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa

from kubothek.errors import Conflict, FilterInvalid, VersionIncomplete
from kubothek.storage import Store
from kubothek.table.bucketing import Bucketing
from kubothek.table.clustering import Clustering
from kubothek.table.expressions import Predicate
from kubothek.table.indexes import Collected, IndexChange
from kubothek.table.layout import Layout
from kubothek.table.log import (
    AlreadyApplied,
    Change,
    DatasetLog,
    Freed,
    Head,
    Operation,
    PartitionFile,
    Snapshot,
    Totals,
    Transaction,
    partition_path,
)
from kubothek.table.log.model.record import size_of
from kubothek.table.log.update_skipping import tidied_with
from kubothek.table.maintenance.grouping import Bundle, Thresholds, bundles
from kubothek.table.maintenance.rewriting import Compacting, Compactor, Replaced, rewrite_here
from kubothek.table.maintenance.sizes import sizes
from kubothek.table.operations.filters import bind, require_table
from kubothek.table.scan.plan import plan
from kubothek.table.skipping.model import SkippingChange


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRequest:
    """The definition of a compaction.

    ``where``            filter on partition columns; None = all partitions
    ``layout``           of the new files; None = the table's
    ``target_bytes``     size of the new files; None = the layout's
    ``min_files``        minimum number of small files in a partition (or bucket)
    ``min_small_share``  minimum share of small files among its files
    ``clustering``       the order of rows; then files that are not in it count in place of small ones
    """

    where: Predicate | None = None
    layout: Layout | None = None
    target_bytes: int | None = None
    min_files: int = 2
    min_small_share: float = 0.0
    clustering: Clustering | None = None


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The plan of a compaction: of the ``files`` that it considered, it would rewrite ``bundles``."""

    files: Totals
    bundles: tuple[Bundle, ...]

    @property
    def rewritten(self) -> Totals:
        """The files that it would rewrite."""
        return size_of(file for bundle in self.bundles for file in bundle.files)


@dataclass(frozen=True, slots=True)
class Compaction:
    """The result of a compaction.

    ``version``     of its commit; None if there was nothing to do, or other commits left nothing to do
    ``removed``     the removed files, and ``added`` the new ones, with the same rows
    ``partitions``  number of partitions of these files
    ``skipped``     partition paths of bundles left out because other commits changed them meanwhile
    ``repeated``    whether it was applied before, under the same id. ``removed`` is then known as long as the record
                    below it exists
    """

    version: int | None
    removed: Totals = field(default_factory=Totals)
    added: Totals = field(default_factory=Totals)
    partitions: int = 0
    skipped: tuple[str, ...] = ()
    repeated: bool = False


def plan_compaction(store: Store, log: DatasetLog, snapshot: Snapshot, request: CompactionRequest) -> CompactionPlan:
    """Return what a compaction of this snapshot would do.

    Reads records, and footers for sizes that records lack. Raises FilterInvalid, DatasetNotFound, LayoutInvalid.
    """
    require_table(snapshot)
    layout = _layout(snapshot, request)
    schema = pa.schema([]) if snapshot.schema is None else snapshot.schema
    if request.clustering is not None:
        request.clustering.check(schema, layout.partition_on)
    files = sizes(store, log, _selected(store, snapshot, request.where))
    thresholds = Thresholds(
        target_bytes=layout.target_file_bytes, min_files=request.min_files, min_small_share=request.min_small_share
    )
    return CompactionPlan(size_of(files), bundles(files, Bucketing.of(layout, schema), thresholds, request.clustering))


def compact(
    store: Store,
    log: DatasetLog,
    request: CompactionRequest,
    *,
    commit_id: str,
    digest: str,
    compactor: Compactor | None = None,
    by: str = "",
) -> Compaction:
    """Compact a dataset. Idempotent under the same id.

    Raises what :func:`plan_compaction`, :func:`~.rewriting.rewrite_bundles` and :meth:`DatasetLog.begin` raise; never
    Conflict.
    """
    started = log.begin(commit_id, digest)
    if isinstance(started, AlreadyApplied):
        return _repeated(log, started)
    snapshot = started.snapshot
    planned = plan_compaction(store, log, snapshot, request)
    if not planned.bundles:
        return Compaction(None)
    compacting = Compacting.of(store, snapshot, _new_files(snapshot, request), clustering=request.clustering)
    done = (compactor or rewrite_here(store))(compacting, planned.bundles)
    with started as now:
        now.note_written(*(file.key for file in _added(done.replaced)))
        skipping = tidied_with(store, snapshot, done.gathered.skipping)
        return _committed(now, done.replaced, done.gathered.index, skipping, by)


def _repeated(log: DatasetLog, done: AlreadyApplied) -> Compaction:
    """Return the result of a compaction that was applied before: what it added, and how much the table shrank."""
    added, removed, partitions = done.added, Totals(), 0
    with suppress(VersionIncomplete):  # its version has expired
        record = log.journal.record(done.record_key)
        partitions = len({partition_path(file.key) for file in record.delta.added})
        assert record.parent is not None, "a compaction is no table's first commit"
        before = log.journal.record(record.parent).totals
        removed = Totals(
            rows=added.rows,
            files=before.files + added.files - done.totals.files,
            bytes=before.bytes + added.bytes - done.totals.bytes,
        )
    return Compaction(done.version, removed, added, partitions, repeated=True)


class _NothingLeft(Exception):
    """Other commits took files of every bundle."""


def _committed(
    started: Transaction, replaced: Sequence[Replaced], collected: Collected, skipping: SkippingChange, by: str
) -> Compaction:
    left = list(replaced)

    def make_way(snapshot: Snapshot) -> Change:
        intact = [each for each in left if all(snapshot.head.holds(file.label, file.key) for file in each.removed)]
        if not intact:
            raise _NothingLeft
        if len(intact) == len(left):
            raise Conflict(f"compaction of {snapshot.head.uuid!r} does not apply to the present table; run it again")
        left[:] = intact
        return _change(left, collected, skipping, by)

    try:
        version = started.commit(_change(left, collected, skipping, by), on_conflict=make_way).version
    except _NothingLeft:
        version, left = None, []
    kept = {id(each) for each in left}
    return Compaction(
        version,
        size_of(_removed(left)),
        size_of(_added(left)),
        len({each.path for each in left}),
        tuple(dict.fromkeys(each.path for each in replaced if id(each) not in kept)),
    )


def _change(replaced: Sequence[Replaced], collected: Collected, skipping: SkippingChange, by: str) -> Change:
    """Return the change. ``collected`` and ``skipping`` may cover files that are left out: those are ignored."""
    removed = _removed(replaced)
    return Change(
        operation=Operation.COMPACT,
        added=tuple(_added(replaced)),
        removed=tuple(file.label for file in removed),
        freed=Freed(sum(file.rows for file in removed), sum(file.bytes for file in removed)),
        index=IndexChange(collected=collected),
        skipping=skipping,
        by=by,
    )


def _removed(replaced: Sequence[Replaced]) -> list[PartitionFile]:
    return [file for each in replaced for file in each.removed]


def _added(replaced: Sequence[Replaced]) -> list[PartitionFile]:
    return [file for each in replaced for file in each.added]


def _layout(snapshot: Snapshot, request: CompactionRequest) -> Layout:
    layout = Layout.of(snapshot.head, request.layout)
    if snapshot.schema is not None:
        layout.check(snapshot.schema)
    return layout if request.target_bytes is None else replace(layout, target_file_bytes=request.target_bytes)


def _new_files(snapshot: Snapshot, request: CompactionRequest) -> Layout:
    """Return the layout of the new files, sorted by the columns of the clustering, if it has any."""
    layout, order = _layout(snapshot, request), request.clustering
    return layout if order is None else replace(layout, sort_by=() if order.curve else order.by)


def _selected(store: Store, snapshot: Snapshot, where: Predicate | None) -> Head:
    """Return the head with the files of the selected partitions only."""
    head = snapshot.head
    if where is None:
        return head
    bound = bind(where, snapshot)
    if others := sorted(bound.columns - set(head.partition_keys)):
        raise FilterInvalid(
            f"where names {', '.join(map(repr, others))}: a compaction takes whole partitions, so filter on partition "
            f"columns only ({', '.join(map(repr, head.partition_keys)) or 'this table has none'})"
        )
    labels = [file.label for file in plan(store, snapshot, bound).files]
    return replace(head, partitions={label: head.partitions[label] for label in labels})
