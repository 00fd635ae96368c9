"""The savings of a query plan, in the terms of Xskipper's API: skipped data files and their bytes."""

from __future__ import annotations

from kubothek.storage import Store
from kubothek.table.expressions import Predicate
from kubothek.table.log.history.snapshot import Snapshot
from kubothek.table.scan.plan import Plan
from kubothek.table.skipping.prune.aggregate import Skipped


def skipped(store: Store, snapshot: Snapshot, where: Predicate, planned: Plan) -> Skipped:
    """Return the savings of the plan for ``where``. Lists the dataset's files for their sizes.

    A missing file counts as zero bytes.
    """
    head = snapshot.head
    there = {info.key: info.size for info in store.list(f"{head.uuid}/")}
    asked = {column.lower() for column in where.columns}
    indexed = {column.lower() for each in head.skipping.indices for column in each.columns}
    sizes = {key: there.get(key, 0) for key in head.files().values()}
    return Skipped.of((file.key for file in planned.files), sizes, is_skippable=bool(asked & indexed))
