"""The health of a table: its files, how many of them are small, and what only its history needs.

Computed from the head and the commit records, without listing the bucket. After a commit it costs what that commit
changed, because an inventory is kept (:mod:`~kubothek.table.maintenance.inventory`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import VersionIncomplete
from kubothek.storage import Store
from kubothek.table.bucketing import Bucketing
from kubothek.table.clustering import Clustering
from kubothek.table.layout import MIB, Layout
from kubothek.table.log import DatasetLog, Record, Snapshot, Totals
from kubothek.table.log.journal import Journal
from kubothek.table.log.model.record import size_of
from kubothek.table.log.records import parallel, records_from
from kubothek.table.maintenance.grouping import most_small
from kubothek.table.maintenance.inventory import Inventory, keep, take
from kubothek.table.operations.filters import require_table

BOUNDS: Final = (64 << 10, MIB, 8 * MIB, 32 * MIB, 128 * MIB, 512 * MIB, None)
"""Upper bounds of the histogram's steps, in bytes; None = unbounded."""
_NO_BOUND: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the histogram: files below ``below`` bytes that are not in the step before."""

    below: int | None
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The health of a table at one version.

    ``totals``         of its files
    ``small``          of the files below half of ``target_bytes``, the target size of its layout
    ``most_small``     the largest number of them in one partition or bucket, as far as they can become fewer; with a
                       clustering, of files that are not in its order
    ``histogram``      all files by size
    ``versions``       number of versions that readers can request
    ``history``        of files that these versions need and the current one does not: what expiry would free
    ``garbage``        estimate of files that no version needs; a collection deletes those that are old enough
    ``time``           of the last commit; None if a foreign head was not adopted yet
    """

    version: int
    totals: Totals
    target_bytes: int
    small: Totals
    most_small: int
    histogram: tuple[Step, ...]
    versions: int
    history: Totals
    garbage: Totals
    time: datetime | None

    @property
    def small_share(self) -> float:
        """The share of small files among all files: 0 to 1."""
        return self.small.files / self.totals.files if self.totals.files else 0.0


def health(
    store: Store,
    log: DatasetLog,
    snapshot: Snapshot,
    *,
    clustering: Clustering | None = None,
    estimates: bool = True,
    keeps: bool = False,
) -> Health:
    """Return the health of the table of this snapshot, the current one. Raises DatasetNotFound, LayoutInvalid.

    Reads the last inventory and the records since; without an inventory, all records down to the horizon, and footers
    of files whose size no record has. Files that only history needs are missed if their record expired before the
    first inventory.

    ``clustering``  the requested order of the table
    ``estimates``   estimate garbage, which lists the records and reads some; otherwise use the last estimate
    ``keeps``       store the inventory for the next call
    """
    require_table(snapshot)
    inventory = take(store, log, snapshot)
    garbage = estimate(log, inventory) if estimates else inventory.garbage
    if keeps:
        keep(store, log.uuid, replace(inventory, garbage=garbage), anyhow=garbage != inventory.garbage)
    live = snapshot.head.files()
    present, history = inventory.files.slice(0, len(live)), inventory.files.slice(len(live))
    layout = Layout.of(snapshot.head)
    sizes = present.column("bytes").combine_chunks()
    small = pc.less(pc.multiply(sizes, pa.scalar(2)), pa.scalar(layout.target_file_bytes))
    partitions = _partitions(present)
    bucketing = Bucketing.of(layout, pa.schema([]) if snapshot.schema is None else snapshot.schema)
    labels = pa.array(live, pa.string())
    due = small if clustering is None else pc.is_null(clustering.read(labels))
    return Health(
        version=snapshot.version,
        totals=_totals(present, partitions),
        target_bytes=layout.target_file_bytes,
        small=_totals(present.filter(small), partitions.filter(small)),
        most_small=most_small(labels, partitions, due, bucketing),
        histogram=tuple(_histogram(sizes)),
        versions=len(inventory.versions),
        history=_totals(history, _partitions(history)),
        garbage=garbage,
        time=snapshot.time,
    )


def _totals(files: pa.Table, partitions: pa.Array[Any]) -> Totals:
    return Totals(
        rows=pc.sum(files.column("rows")).as_py() or 0,
        files=files.num_rows,
        bytes=pc.sum(files.column("bytes")).as_py() or 0,
        partitions=len(partitions.unique()),
    )


def _partitions(files: pa.Table) -> pa.Array[Any]:
    """Return the directory of each file, which identifies its partition."""
    found: pa.Array[Any] = files.column("key").combine_chunks()
    return pc.list_element(pc.split_pattern(found, "/", max_splits=1, reverse=True), 0)


def _histogram(sizes: pa.Array[Any]) -> Iterator[Step]:
    low = 0
    for below in BOUNDS:
        high = pa.scalar(_NO_BOUND if below is None else below)
        here = sizes.filter(pc.and_(pc.greater_equal(sizes, pa.scalar(low)), pc.less(sizes, high)))
        yield Step(below, len(here), pc.sum(here).as_py() or 0)
        low = below or low


# Estimate of garbage: files that commit records name and no kept version needs.
#
# Commits that lost their swap or crashed leave such files, and so do expired versions. They count until a collection
# has deleted both files and records. The estimate misses index files and files that no record names, and includes files
# of commits in progress. Only the collector has exact figures, as it lists everything.


_LISTED: Final = 10_000
_READ: Final = 32


def estimate(log: DatasetLog, inventory: Inventory) -> Totals:
    """Return the size of files that records name and the inventory lacks; reads the records that may name such files.

    A record that is alone at its version names only files of the inventory. Of many others, a sample is read and
    extrapolated.
    """
    listed = list(islice(records_from(log.journal, 0), _LISTED))
    records_of, kept = Counter(record.version for record in listed), set(inventory.versions)
    doubtful = [record.key for record in listed if record.version not in kept or records_of[record.version] > 1]
    read = doubtful if len(doubtful) <= _READ else random.sample(doubtful, _READ)
    found = parallel(lambda key: _record(log.journal, key), read)
    named = {file.key: file for record in found if record is not None for file in record.delta.added}
    needed = pc.is_in(pa.array(named, pa.string()), value_set=inventory.files.column("key")).to_pylist()
    size = size_of(file for file, stays in zip(named.values(), needed, strict=True) if not stays)
    share = len(doubtful) / max(1, len(read))
    return Totals(rows=round(size.rows * share), files=round(size.files * share), bytes=round(size.bytes * share))


def _record(journal: Journal, key: str) -> Record | None:
    try:
        return journal.record(key)
    except VersionIncomplete:
        return None  # a collector has deleted it meanwhile
