"""What Iceberg metadata costs: an export after one commit, beside that commit, and an export of the whole table.

The table has one file a partition. Only some of these files exist (:data:`~benchmarks.systems.table.READABLE`), so an
export of the whole table reads as many footers; one after a commit reads the footer of the new file.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.harness import Case, Table, compare
from benchmarks.places import Place
from benchmarks.systems.ours import commit_partitions
from benchmarks.systems.table import NAME, ROWS, rows

_COMMITS = 20
"""On top of the first one, whose record names all files: history is read some commits ahead."""


def run(place: Place, partitions: int, *, rounds: int, seconds: float) -> Iterator[Table]:
    """The table of one size; afterwards the export must be of the newest version."""
    root = place.root("iceberg")
    commit_partitions(root.lake().store, NAME, partitions)
    dataset = root.lake().dataset(NAME)
    for _ in range(_COMMITS):
        dataset.append(rows(0))
    cases = [
        Case(f"commit of {ROWS:,} rows", lambda: dataset.append(rows(0))),
        Case("export after a commit", dataset.export_iceberg, prepare=lambda: dataset.append(rows(0))),
        Case("export of everything", lambda: dataset.export_iceberg(rebuild=True)),
    ]
    title = f"Iceberg metadata at {partitions:,} partitions, {place.name}"
    yield compare(title, cases, rounds=rounds, seconds=seconds)
    if (exported := dataset.export_iceberg()).version != dataset.version:
        raise RuntimeError(f"exported version {exported.version} instead of {dataset.version}")
