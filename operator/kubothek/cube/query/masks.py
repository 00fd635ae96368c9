"""Pruning of one dataset's files: which may hold cells that a conjunction of conditions selects.

The last row of a cell counts, in the order of the head's files. So, if conditions apply only to the newest row:

- conditions on dimensions and partition columns hold for all rows of a cell or for none: any file without matching
  cells is pruned;
- conditions on payload may hold for an old row of a cell and not for the last one. A file without matching rows is
  pruned only if it is older than all files that may have some: its rows do not count, or do not match.

If conditions first select rows, as in kartothek, all conditions are of the first kind.
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
from kubothek.table.scan.plan import by_bucket
from kubothek.table.skipping.prune.plan import Skipping

MOST_FOOTERS: Final = 256
"""Most footers read per dataset and conjunction: they delay the start of the scan, which reads footers anyway."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Branch:
    """The terms of one conjunction on the dataset, and the files that may matter for it.

    ``cells``  terms that decide whether a row counts; ``may``: files that may hold such rows
    ``rows``   terms on payload of the newest row; ``match``: files of ``may`` that may hold rows that satisfy them
    """

    cells: tuple[Term, ...]
    rows: tuple[Term, ...]
    may: Mask
    match: Mask


@dataclass(slots=True)
class Files:
    """The files of a dataset in the order of its head, with the values in their paths."""

    store: Store
    member: Member
    paths: PathColumns
    _held: dict[tuple[str, str], Mask | None] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Store, member: Member, needed: Iterable[str]) -> Files:
        """Return the files. Raises PartitionInvalid for a path that does not fit the schema."""
        head = member.snapshot.head
        return cls(store, member, path_columns(head, member.schema, {*needed}))

    def __len__(self) -> int:
        return len(self.member.snapshot.head.partitions)

    # --- pruning steps; each shrinks the masks of a branch ---

    def by_path(self, branch: Branch) -> Branch:
        """Prune by partition keys and buckets."""
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
        """Prune by secondary indices. A single remaining file is faster to read than to look up."""
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
        """Prune by skipping metadata. A file without an entry stays."""
        cells, rows = self._beside_paths(branch.cells), self._beside_paths(branch.rows)
        skipping = Skipping(self.store, self.member.snapshot.head, {term.column for term in (*cells, *rows)})
        may = skipping.may(cells, branch.may)
        match = skipping.may(rows, branch.match & may)
        return Branch(branch.cells, branch.rows, may, match)

    def by_statistics(self, branch: Branch) -> Branch:
        """Prune by the statistics in footers, if few files are left."""
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
    """Return the schema with the types of the terms: a column that is all NULL here may have a type elsewhere."""
    types = {term.column: term.type for term in terms}
    return pa.schema([f.with_type(types.get(f.name) or f.type) for f in schema])


def _known(key: str, schema: pa.Schema) -> dict[str, Range]:
    return {name: Range.of(value) for name, value in parse_path(partition_path(key), schema).items()}


def closed(branch: Branch, aligned: npt.NDArray[np.int32], count: int) -> Mask:
    """Return the files to read for the branch: in each combination, the first that may match, and all later ones.

    ``aligned``  the combination number of each file, below ``count``; -1 for none
    """
    position = np.arange(len(aligned))
    first = np.full(count + 1, len(aligned))
    matching = branch.match & (aligned >= 0)
    np.minimum.at(first, aligned[matching], position[matching])
    result: Mask = branch.may & (aligned >= 0) & (position >= first[aligned])
    return result
