"""The pruner of files: which files may hold rows that a conjunction of bound terms selects.

Tables, datasets of cubes and external locations prune with it. Each step takes the files that the previous step left
and drops some of them. It may keep a file without a match but never drops one with a match. NULL matches no comparison.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import reduce
from itertools import compress, product
from math import prod
from operator import and_
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import LayoutInvalid
from kubothek.storage import Store
from kubothek.table.bucketing import Bucketing
from kubothek.table.expressions import Interval, Op, Predicate, Range, Term, intervals
from kubothek.table.indexes import lookup_interval
from kubothek.table.layout import Layout
from kubothek.table.log.model.head import Head
from kubothek.table.log.model.paths import parse_path, partition_path
from kubothek.table.path_columns import Mask, PathColumns, path_columns
from kubothek.table.scan import statistics
from kubothek.table.skipping.prune.plan import Skipping

Terms = Sequence[Term]


def satisfiable(terms: Terms) -> bool:
    """Return whether any value can satisfy the bound terms together."""
    return not any(term.never for term in terms) and not any(each.empty for each in intervals(terms).values())


def by_partition(terms: Terms, columns: PathColumns, among: Mask) -> Mask:
    """Return the files of ``among`` whose partition values permit a match; ``columns`` are in the order of ``among``.

    A file whose path lacks a column stays.
    """
    if not satisfiable(terms):
        return np.zeros_like(among)
    here = (columns[term.column].where(term, unknown=True) for term in terms if term.column in columns)
    return reduce(and_, here, among)


@dataclass(slots=True)
class Pruner:
    """The files of a head in its order, and all that is known of them without a read of the data.

    ``paths``  the partition columns in the paths; only :meth:`by_path` evaluates terms on them
    """

    store: Store
    head: Head
    schema: pa.Schema
    paths: PathColumns
    _held: dict[tuple[str, str], Mask | None] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Store, head: Head, schema: pa.Schema, needed: Set[str]) -> Self:
        """Return the pruner for terms on these columns. Raises PartitionInvalid for a path that does not fit."""
        return cls(store, head, schema, path_columns(head, schema, needed))

    def __len__(self) -> int:
        return len(self.head.partitions)

    def beside_paths(self, terms: Iterable[Term]) -> tuple[Term, ...]:
        """Return the terms that paths do not decide."""
        return tuple(term for term in terms if term.column not in self.paths)

    def by_path(self, terms: Terms, among: Mask) -> Mask:
        """Prune by partition keys and buckets."""
        return by_bucket(by_partition(terms, self.paths, among), self.head, self.schema, self.beside_paths(terms))

    def by_index(self, terms: Terms, among: Mask, *, fewest: int = 1) -> Mask:
        """Prune by secondary indices while at least ``fewest`` files are left. Raises IndexStale."""
        for column, interval in intervals(self.beside_paths(terms)).items():
            if np.count_nonzero(among) < fewest:
                break
            held = self._in_index(column, interval)
            among = among if held is None else among & held
        return among

    def skipping(self, terms: Iterable[Term]) -> Skipping:
        """Return the skipping metadata about the columns of these terms, to prune by."""
        return Skipping(self.store, self.head, {term.column for term in self.beside_paths(terms)})

    def verdicts(self, where: Predicate, among: Mask) -> list[bool | None]:
        """Return the verdict of the bound predicate on each file of ``among``, by its path and footer."""
        # A column that is all NULL here may have a type elsewhere.
        types = {term.column: term.type for terms in where.conjunctions for term in terms}
        schema = pa.schema([each.with_type(types.get(each.name) or each.type) for each in self.schema])
        keys = [self.head.file(label) for label in compress(self.head.partitions, among.tobytes())]
        return statistics.verdicts(self.store, where, schema, [(key, self._known(key)) for key in keys])

    def _in_index(self, column: str, interval: Interval) -> Mask | None:
        name = (column, repr(interval))
        if name not in self._held:
            labels = lookup_interval(self.store, self.head, self.schema, column, interval)
            self._held[name] = (
                None
                if labels is None
                else np.fromiter(map(labels.__contains__, self.head.partitions), np.bool_, len(self))
            )
        return self._held[name]

    def _known(self, key: str) -> Mapping[str, Range]:
        return {name: Range.of(value) for name, value in parse_path(partition_path(key), self.schema).items()}


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
