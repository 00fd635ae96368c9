"""The planner: select files by partition keys and buckets, secondary indices, skipping metadata, then statistics.

Each step examines only the files that the previous one left. All share one meaning of predicates (NULL never matches).
A step may keep a file too many but never drops one with a match: the rows are the same with and without an index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import compress
from operator import and_, or_
from typing import Final, NamedTuple, overload

import numpy as np
import pyarrow as pa

from kubothek.storage import Store
from kubothek.table.expressions import TRUE, Predicate, Term
from kubothek.table.log.history.snapshot import Snapshot
from kubothek.table.log.model.head import Head
from kubothek.table.scan.pruner import Mask, Pruner, satisfiable
from kubothek.table.skipping.prune.aggregate import Skipped

_FOOTERS: Final = range(2, 10_001)
"""The file counts for which footers are worth a request or two each. A single file's footer is read anyway, and a read
of more files must not wait for all footers."""


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """One file to read. ``all_rows``: all of its rows match, as far as its path and footer show."""

    label: str
    key: str
    all_rows: bool


SKIPPING_STEP: Final = "skipping metadata"


class Step(NamedTuple):
    """The number of files after a step of planning; a step without information keeps all files."""

    name: str
    files_left: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The files that may hold matching rows, in head order, and the steps that selected them."""

    files: Sequence[PlannedFile]
    steps: tuple[Step, ...]


def plan(store: Store, snapshot: Snapshot, where: Predicate | None = None) -> Plan:
    """Return the files of the snapshot that may hold rows for which ``where`` is TRUE; None = all rows.

    Reads index objects, skipping metadata and, for a moderate number of files, footers; lists nothing. Raises
    FilterInvalid for a predicate that does not fit the schema, PartitionInvalid for a path that does not, IndexStale
    for a damaged index.
    """
    head, schema = snapshot.head, pa.schema([]) if snapshot.schema is None else snapshot.schema
    bound = TRUE if where is None else where.bind(schema)
    pruner = Pruner.of(store, head, schema, bound.columns)
    steps = [Step("table", len(pruner))]
    candidates = _by_path(pruner, bound)
    steps.append(Step("partition keys", candidates.count))
    candidates = candidates.pruned(pruner.by_index)
    steps.append(Step("secondary indices", candidates.count))
    skipping = pruner.skipping(term for branch in candidates.branches for term in branch.rest)
    candidates = candidates.pruned(skipping.may)
    steps.append(Step(SKIPPING_STEP, candidates.count))
    files: Sequence[PlannedFile] = _Files(head, candidates)
    if candidates.undecided in _FOOTERS:
        files = _by_statistics(pruner, bound, candidates, files)
    steps.append(Step("file statistics", len(files)))
    return Plan(files, tuple(steps))


# --- partition keys and indices: vectors over all files ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Branch:
    """One conjunction. ``may``: files that may hold rows for which it is TRUE; ``rest``: terms not decided by paths."""

    rest: tuple[Term, ...]
    may: Mask


@dataclass(frozen=True, slots=True)
class _Candidates:
    """``all_rows``: files of which every row matches."""

    branches: tuple[_Branch, ...]
    all_rows: Mask

    def pruned(self, step: Callable[[Sequence[Term], Mask], Mask]) -> _Candidates:
        branches = tuple(_Branch(each.rest, step(each.rest, each.may)) for each in self.branches)
        return _Candidates(branches, self.all_rows)

    @property
    def may(self) -> Mask:
        return reduce(or_, (branch.may for branch in self.branches), self.all_rows)

    @property
    def count(self) -> int:
        return int(np.count_nonzero(self.may))

    @property
    def undecided(self) -> int:
        """The number of files whose footers could decide more."""
        open_ones = [branch.may & ~self.all_rows for branch in self.branches if branch.rest]
        return int(np.count_nonzero(reduce(or_, open_ones))) if open_ones else 0


def _by_path(pruner: Pruner, bound: Predicate) -> _Candidates:
    everywhere, all_rows = np.ones(len(pruner), np.bool_), np.zeros(len(pruner), np.bool_)
    branches = []
    for terms in filter(satisfiable, bound.conjunctions):
        rest = pruner.beside_paths(terms)
        if not rest:
            sure = (pruner.paths[term.column].where(term, unknown=False) for term in terms)
            all_rows = all_rows | reduce(and_, sure, everywhere)
        branches.append(_Branch(rest, pruner.by_path(terms, everywhere)))
    return _Candidates(tuple(branches), all_rows)


class _Files(Sequence[PlannedFile]):
    """The candidates; each is created on access."""

    def __init__(self, head: Head, candidates: _Candidates) -> None:
        may = candidates.may
        self._head = head
        self._labels = list(compress(head.partitions, may.tobytes()))
        self._all_rows = candidates.all_rows[may]

    def __repr__(self) -> str:
        return f"<{len(self):,} files>"

    def __len__(self) -> int:
        return len(self._labels)

    @overload
    def __getitem__(self, at: int) -> PlannedFile: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[PlannedFile]: ...

    def __getitem__(self, at: int | slice) -> PlannedFile | Sequence[PlannedFile]:
        if isinstance(at, slice):
            return [self[position] for position in range(*at.indices(len(self)))]
        label = self._labels[at]
        return PlannedFile(label, self._head.file(label), bool(self._all_rows[at]))

    def __iter__(self) -> Iterator[PlannedFile]:
        for label, all_rows in zip(self._labels, self._all_rows.tolist(), strict=True):
            yield PlannedFile(label, self._head.file(label), all_rows)


# --- statistics: file by file ----------------------------------------------------------------------------------


def _by_statistics(
    pruner: Pruner, bound: Predicate, candidates: _Candidates, files: Sequence[PlannedFile]
) -> Sequence[PlannedFile]:
    found = iter(pruner.verdicts(bound, candidates.may & ~candidates.all_rows))
    kept = []
    for file in files:
        verdict = True if file.all_rows else next(found)
        if verdict is not False:
            kept.append(PlannedFile(file.label, file.key, verdict is True))
    return tuple(kept)


# The savings of a query plan, in the terms of Xskipper's API: skipped data files and their bytes.


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
