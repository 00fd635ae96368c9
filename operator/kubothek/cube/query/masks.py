"""Which files of one dataset may hold cells that a conjunction of conditions selects.

In a cube the last row of a cell counts, in the order of the head's files. So conditions differ in what they may do, if
they ask about the newest row only:

- on dimensions and partition columns they hold for all rows of a cell or for none, and any file that cannot hold
  matching cells goes;
- on payload they may hold for an old row of a cell and not for the last one. A file without matching rows goes only
  if it is older than all that may have some: then its rows do not count, or do not match.

If conditions choose rows first, as kartothek has it, all of them are of the first kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kubothek.storage import Store
from kubothek.table.expressions import Interval, Predicate, Range, Term, intervals
from kubothek.table.indexes import lookup_interval
from kubothek.table.log.model.paths import parse_path, partition_path
from kubothek.table.log.multi.members import Member
from kubothek.table.path_columns import Mask, PathColumns, path_columns
from kubothek.table.scan import statistics
from kubothek.table.scan.bucket_pruning import by_bucket
from kubothek.table.skipping.prune.plan import Skipping

MOST_FOOTERS: Final = 256
"""Of one dataset and conjunction: reading sees the footers anyway, and these come before it can start."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Branch:
    """One conjunction, as far as it concerns the dataset, and the files that may matter to it.

    ``cells``  terms that tell of each row whether it counts; ``may``: files that may hold rows that do
    ``rows``   terms on payload that ask about the newest row; ``match``: those of ``may`` that may hold rows they leave
    """

    cells: tuple[Term, ...]
    rows: tuple[Term, ...]
    may: Mask
    match: Mask


@dataclass(slots=True)
class Files:
    """The files of a dataset in the order of its head, and what is known of them."""

    store: Store
    member: Member
    paths: PathColumns
    _held: dict[tuple[str, str], Mask | None] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Store, member: Member, needed: Iterable[str]) -> Files:
        """Raises PartitionInvalid for a path that does not fit the schema."""
        head = member.snapshot.head
        return cls(store, member, path_columns(head, member.schema, {*needed}))

    def __len__(self) -> int:
        return len(self.member.snapshot.head.partitions)

    # --- one step each; all make a branch's masks smaller ---

    def by_path(self, branch: Branch) -> Branch:
        """By partition keys and buckets."""
        may = branch.may & self._in_paths(branch.cells)
        match = may & branch.match & self._in_paths(branch.rows)
        head, schema = self.member.snapshot.head, self.member.schema
        cells = self._beside_paths(branch.cells)
        may = by_bucket(may, head, schema, cells)
        return Branch(
            branch.cells,
            branch.rows,
            may,
            by_bucket(match & may, head, schema, cells + self._beside_paths(branch.rows)),
        )

    def by_index(self, branch: Branch) -> Branch:
        """By secondary indices. One file left is faster read than looked up."""
        may = branch.may
        for column, interval in intervals(self._beside_paths(branch.cells)).items():
            if np.count_nonzero(may) > 1:
                may = may & self._in_index(column, interval)
        match = branch.match & may
        for column, interval in intervals(self._beside_paths(branch.rows)).items():
            if np.count_nonzero(match) > 1:
                match = match & self._in_index(column, interval)
        return Branch(branch.cells, branch.rows, may, match)

    def by_skipping(self, branch: Branch) -> Branch:
        """By skipping metadata. A file that it does not tell of stays."""
        cells, rows = self._beside_paths(branch.cells), self._beside_paths(branch.rows)
        skipping = Skipping(self.store, self.member.snapshot.head, {term.column for term in (*cells, *rows)})
        may = skipping.may(cells, branch.may)
        match = skipping.may(rows, branch.match & may)
        return Branch(branch.cells, branch.rows, may, match)

    def by_statistics(self, branch: Branch) -> Branch:
        """By the ranges in footers, if there are few files left."""
        may = self._in_footers(branch.may, self._beside_paths(branch.cells))
        rows = self._beside_paths(branch.rows)
        match = self._in_footers(branch.match & may, self._beside_paths(branch.cells) + rows) if rows else may
        return Branch(branch.cells, branch.rows, may, match & branch.match)

    # --- parts ---

    def _in_paths(self, terms: tuple[Term, ...]) -> Mask:
        everywhere = np.ones(len(self), np.bool_)
        if any(term.never for term in terms) or any(each.empty for each in intervals(terms).values()):
            return ~everywhere
        here = (self.paths[term.column].where(term, unknown=True) for term in terms if term.column in self.paths)
        return reduce(and_, here, everywhere)

    def _beside_paths(self, terms: tuple[Term, ...]) -> tuple[Term, ...]:
        return tuple(term for term in terms if term.column not in self.paths)

    def _in_index(self, column: str, interval: Interval) -> Mask | np.bool_:
        name = (column, repr(interval))
        if name not in self._held:
            head = self.member.snapshot.head
            labels = lookup_interval(self.store, head, self.member.schema, column, interval)
            self._held[name] = (
                None if labels is None else np.fromiter(map(labels.__contains__, head.partitions), np.bool_, len(self))
            )
        held = self._held[name]
        return np.True_ if held is None else held

    def _in_footers(self, mask: Mask, terms: tuple[Term, ...]) -> Mask:
        left = np.flatnonzero(mask)
        if not terms or not 1 < len(left) <= MOST_FOOTERS:
            return mask
        head, schema = self.member.snapshot.head, _of_terms(self.member.schema, terms)
        files = list(head.files().values())
        known: list[tuple[str, Mapping[str, Range]]] = [
            (files[n], _known(files[n], self.member.schema)) for n in left.tolist()
        ]
        verdicts = statistics.verdicts(self.store, Predicate((terms,)), schema, known)
        kept = np.zeros_like(mask)
        kept[left] = [verdict is not False for verdict in verdicts]
        return kept


def _of_terms(schema: pa.Schema, terms: tuple[Term, ...]) -> pa.Schema:
    """The schema in the types of the terms: another dataset may know the type of a column that is all NULL here."""
    types = {term.column: term.type for term in terms}
    return pa.schema([f.with_type(types.get(f.name) or f.type) for f in schema])


def _known(key: str, schema: pa.Schema) -> dict[str, Range]:
    return {name: Range.of(value) for name, value in parse_path(partition_path(key), schema).items()}


def closed(branch: Branch, aligned: npt.NDArray[np.int32], count: int) -> Mask:
    """The files that must be read for the branch: in each alignment, from the first one on that may hold a match.

    ``aligned``  for each file the number of the partitions that it stands beside, below ``count``; -1 for none
    """
    position = np.arange(len(aligned))
    first = np.full(count + 1, len(aligned))
    matching = branch.match & (aligned >= 0)
    np.minimum.at(first, aligned[matching], position[matching])
    result: Mask = branch.may & (aligned >= 0) & (position >= first[aligned])
    return result
