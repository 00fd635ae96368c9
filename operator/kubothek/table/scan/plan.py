"""The planner: select files by partition keys and buckets, secondary indices, skipping metadata, then statistics.

Each step examines only the files that the previous one left. All share one meaning of predicates (NULL never matches).
A step may keep a file too many but never drops one with a match: the rows are the same with and without an index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import compress, product
from math import prod
from operator import and_, or_
from typing import Any, Final, NamedTuple, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import LayoutInvalid
from kubothek.storage import Store
from kubothek.table.bucketing import Bucketing
from kubothek.table.expressions import TRUE, Op, Predicate, Range, Term, intervals
from kubothek.table.indexes import lookup_interval
from kubothek.table.layout import Layout
from kubothek.table.log.history.snapshot import Snapshot
from kubothek.table.log.model.head import Head
from kubothek.table.log.model.paths import parse_path, partition_path
from kubothek.table.path_columns import Mask, PathColumns, path_columns
from kubothek.table.scan import statistics
from kubothek.table.skipping.prune.aggregate import Skipped
from kubothek.table.skipping.prune.plan import Skipping

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
    steps = [Step("table", len(head.partitions))]
    candidates = _by_path(bound, path_columns(head, schema, bound.columns), len(head.partitions))
    candidates = _by_bucket(candidates, head, schema)
    steps.append(Step("partition keys", candidates.count))
    candidates = _by_index(candidates, store, head, schema)
    steps.append(Step("secondary indices", candidates.count))
    candidates = _by_skipping(candidates, store, head)
    steps.append(Step(SKIPPING_STEP, candidates.count))
    files: Sequence[PlannedFile] = _Files(head, candidates)
    if candidates.undecided in _FOOTERS:
        files = _by_statistics(store, bound, schema, files)
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


def _by_path(bound: Predicate, columns: PathColumns, count: int) -> _Candidates:
    branches, all_rows = [], np.zeros(count, np.bool_)
    for terms in bound.conjunctions:
        if any(term.never for term in terms) or any(each.empty for each in intervals(terms).values()):
            continue
        here = [term for term in terms if term.column in columns]
        everywhere = np.ones(count, np.bool_)
        may = reduce(and_, (columns[term.column].where(term, unknown=True) for term in here), everywhere)
        if len(here) == len(terms):
            sure = (columns[term.column].where(term, unknown=False) for term in here)
            all_rows = all_rows | reduce(and_, sure, everywhere)
        branches.append(_Branch(tuple(term for term in terms if term.column not in columns), may))
    return _Candidates(tuple(branches), all_rows)


def _by_bucket(candidates: _Candidates, head: Head, schema: pa.Schema) -> _Candidates:
    branches = (_Branch(each.rest, by_bucket(each.may, head, schema, each.rest)) for each in candidates.branches)
    return _Candidates(tuple(branches), candidates.all_rows)


def _by_index(candidates: _Candidates, store: Store, head: Head, schema: pa.Schema) -> _Candidates:
    branches = tuple(_indexed(branch, store, head, schema) for branch in candidates.branches)
    return _Candidates(branches, candidates.all_rows)


def _indexed(branch: _Branch, store: Store, head: Head, schema: pa.Schema) -> _Branch:
    may = branch.may
    for column, interval in intervals(branch.rest).items():
        if not may.any():
            break
        labels = lookup_interval(store, head, schema, column, interval)
        if labels is not None:
            held = np.fromiter(map(labels.__contains__, head.partitions), np.bool_, len(may))
            may = may & held
    return _Branch(branch.rest, may)


def _by_skipping(candidates: _Candidates, store: Store, head: Head) -> _Candidates:
    columns = {term.column for branch in candidates.branches for term in branch.rest}
    skipping = Skipping(store, head, columns)
    branches = tuple(_Branch(each.rest, skipping.may(each.rest, each.may)) for each in candidates.branches)
    return _Candidates(branches, candidates.all_rows)


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
    store: Store, bound: Predicate, schema: pa.Schema, files: Sequence[PlannedFile]
) -> Sequence[PlannedFile]:
    undecided = [(file.key, _known(file.key, schema)) for file in files if not file.all_rows]
    found = iter(statistics.verdicts(store, bound, schema, undecided))
    kept = []
    for file in files:
        verdict = True if file.all_rows else next(found)
        if verdict is not False:
            kept.append(PlannedFile(file.label, file.key, verdict is True))
    return tuple(kept)


def _known(key: str, schema: pa.Schema) -> Mapping[str, Range]:
    return {name: Range.of(value) for name, value in parse_path(partition_path(key), schema).items()}


# Pruning by bucket: files of the table's current bucketing whose bucket a filter excludes are dropped.


_MOST_COMBINATIONS: Final = 256
"""Maximum number of combinations of column values that are hashed for one filter."""


def by_bucket(may: Mask, head: Head, schema: pa.Schema, terms: Sequence[Term]) -> Mask:
    """Return the files of ``may`` (one flag a file, in head order) that may hold rows for which all terms are TRUE.

    The terms are bound. Files without a bucket, or of an older layout, stay.
    """
    try:
        bucketing = Bucketing.of(Layout.of(head), schema)
    except LayoutInvalid:  # writers report it; reading is still possible
        return may
    if bucketing is None or (wanted := _wanted(bucketing, terms)) is None:
        return may
    found = bucketing.read(pa.array(compress(head.partitions, may.tobytes()), pa.string()))
    keep = pc.or_(found.is_null(), pc.is_in(found, value_set=pa.array(sorted(wanted), pa.int32())))
    left = may.copy()
    left[may] = np.asarray(keep)
    return left


def _wanted(bucketing: Bucketing, terms: Sequence[Term]) -> set[int] | None:
    """Return the possible buckets, if the terms fix the values of all bucket columns and these are few; else None."""
    values = [_values(name, terms) for name, _ in bucketing.columns]
    if any(each is None for each in values) or prod(len(each or ()) for each in values) > _MOST_COMBINATIONS:
        return None
    names = [name for name, _ in bucketing.columns]
    rows = product(*(each or () for each in values))
    return {bucketing.bucket_of(dict(zip(names, row, strict=True))) for row in rows}


def _values(column: str, terms: Sequence[Term]) -> tuple[Any, ...] | None:
    for term in terms:
        if term.column == column and term.op is Op.IN:
            return tuple(term.value)
        if term.column == column and term.op in (Op.EQ, Op.IS_NULL):
            return (term.value,)
    return None


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
