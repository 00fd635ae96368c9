"""Delete: removes files whose rows all match; with ``row_level``, copies the others without the matching rows."""

from __future__ import annotations

from kubothek.storage import Store
from kubothek.table.expressions import Predicate
from kubothek.table.indexes import IndexChange
from kubothek.table.layout import Layout
from kubothek.table.log import Change, Operation, Snapshot
from kubothek.table.log.history.tags import require_untagged
from kubothek.table.log.records import parallel
from kubothek.table.operations import filters
from kubothek.table.operations.rewrite import Rewrite, Rewriter, Rewritten, count_matches
from kubothek.table.scan.plan import PlannedFile, plan
from kubothek.table.skipping.model import SkippingChange


def delete(
    store: Store,
    snapshot: Snapshot,
    where: Predicate,
    *,
    rewriter: Rewriter | None = None,
    layout: Layout | None = None,
    purge: bool = False,
    by: str = "",
) -> Change:
    """Return the change that removes the rows for which ``where`` is TRUE; an empty one if there are none.

    ``rewriter``  copies files that hold other rows as well; None = whole files only
    ``layout``    of the copies; None = the table's
    ``purge``     expire all versions before it, so that a collector may delete the removed rows

    Raises FilterInvalid for unknown columns; RowLevelNeeded if whole files do not suffice; FilterMatchesAll for a
    filter other than ``TRUE`` that selects everything; VersionTagged for a purge if versions have tags;
    DatasetNotFound.
    """
    if purge:
        require_untagged(snapshot.head, snapshot.version + 1)
    bound = filters.bind(where, snapshot)
    if rewriter is None:
        filters.require_findable(bound, snapshot.head)
    files = plan(store, snapshot, bound).files
    selected = tuple(file.label for file in files if file.all_rows)
    rest = [file for file in files if not file.all_rows]
    total = len(snapshot.head.partitions)
    filters.require_not_everything(bound, len(selected), total)
    done = Rewritten()
    if rest:
        rewrite = Rewrite.of(store, snapshot, layout, where=bound, values=None)
        done = _entire_files(rewrite, store, rest) if rewriter is None else rewriter(rewrite, rest)
        filters.require_not_everything(bound, len(selected) + (len(done.removed) if done.kept == 0 else 0), total)
    return Change(
        operation=Operation.DELETE,
        added=done.added,
        removed=(*selected, *done.removed),
        reads=filters.reads(bound, snapshot),
        schema=snapshot.schema if done.added else None,
        index=IndexChange(collected=done.gathered.index),
        skipping=SkippingChange(written=done.gathered.skipping),
        purges=purge,
        by=by,
    )


def _entire_files(rewrite: Rewrite, store: Store, files: list[PlannedFile]) -> Rewritten:
    """Remove files that an index named, if every row matches. Raises RowLevelNeeded if only some rows of one match."""
    counts = parallel(lambda file: count_matches(rewrite, store, file), files)
    filters.require_entire_files(
        rewrite.where, [f for f, (hits, rows) in zip(files, counts, strict=True) if 0 < hits < rows]
    )
    emptied = tuple(file.label for file, (hits, _) in zip(files, counts, strict=True) if hits)
    return Rewritten(emptied, matched=sum(hits for hits, _ in counts))
