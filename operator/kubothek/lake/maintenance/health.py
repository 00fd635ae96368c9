"""How a table is: its files, how many of them are small, and what only its history holds.

Worked out from the head and the commit records; the bucket is not listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kubothek.lake.commits import DatasetLog, PartitionFile, Snapshot, Totals
from kubothek.lake.commits.record import size_of
from kubothek.lake.maintenance.grouping import Thresholds
from kubothek.lake.maintenance.sizes import sizes, whole_records
from kubothek.lake.operations.filters import require_table
from kubothek.lake.store import Store
from kubothek.lake.table.layout import MIB, Layout

BOUNDS: Final = (64 << 10, MIB, 8 * MIB, 32 * MIB, 128 * MIB, 512 * MIB, None)
"""The upper ends of the histogram's steps, in bytes; None = none."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the histogram: files below ``below`` bytes and not in the step before it."""

    below: int | None
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A table at one version.

    ``totals``         of its files
    ``small``          of the files below half of ``target_bytes``, the size that its layout wants
    ``histogram``      all files by size
    ``versions``       that can be asked for
    ``history``        of files that these versions need and the present one does not: what expiry would free
    ``time``           of the last commit; None if a foreign writer's head is still to be adopted
    """

    version: int
    totals: Totals
    target_bytes: int
    small: Totals
    histogram: tuple[Step, ...]
    versions: int
    history: Totals
    time: datetime | None

    @property
    def small_share(self) -> float:
        """Of all files, the share that is small: 0 to 1."""
        return self.small.files / self.totals.files if self.totals.files else 0.0


def health(store: Store, log: DatasetLog, snapshot: Snapshot) -> Health:
    """How the table of this snapshot, the present one, is. Raises DatasetNotFound, LayoutInvalid.

    Reads all records down to the horizon, and footers of files that no record tells the size of. Files that history
    holds, and whose record has expired, are not counted.
    """
    require_table(snapshot)
    files = sizes(store, log, snapshot.head)
    thresholds = Thresholds(target_bytes=Layout.of(snapshot.head).target_file_bytes)
    versions, history = _history(log, snapshot)
    return Health(
        version=snapshot.version,
        totals=size_of(files),
        target_bytes=thresholds.target_bytes,
        small=size_of(filter(thresholds.is_small, files)),
        histogram=tuple(_histogram(files)),
        versions=versions,
        history=size_of(history),
        time=snapshot.time,
    )


def _history(log: DatasetLog, snapshot: Snapshot) -> tuple[int, Sequence[PartitionFile]]:
    """The number of versions, and the files that only those before the present one need."""
    live = set(snapshot.head.files().values())
    oldest = max(snapshot.head.horizon, snapshot.head.epoch + 1)
    held: dict[str, PartitionFile] = {}
    versions = 0
    for record in whole_records(log):
        if record.version < oldest:
            break
        versions += 1
        held |= {file.key: file for file in record.delta.added if file.key not in live}
    return versions, list(held.values())


def _histogram(files: Iterable[PartitionFile]) -> list[Step]:
    found = sorted(file.bytes for file in files)
    steps, low = [], 0
    for below in BOUNDS:
        here = [size for size in found if size >= low and (below is None or size < below)]
        steps.append(Step(below, len(here), sum(here)))
        low = below or low
    return steps
