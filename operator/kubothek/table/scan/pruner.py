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
from typing import Any, Final, Self, cast
from urllib.parse import unquote
from weakref import ref

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import LayoutInvalid, PartitionInvalid
from kubothek.storage import Store
from kubothek.table.bucketing import Bucketing
from kubothek.table.expressions import Interval, Op, Predicate, Range, Term, intervals
from kubothek.table.expressions.arrow import truth
from kubothek.table.indexes import lookup_interval
from kubothek.table.layout import Layout
from kubothek.table.log.model.head import Head, partition_keys_in
from kubothek.table.log.model.paths import NOT_A_VALUE, parse_path, partition_path, value_parser
from kubothek.table.scan import statistics
from kubothek.table.skipping.prune.plan import Skipping

Mask = npt.NDArray[np.bool_]
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


# The partition columns of all files of a head, as arrays. A column is held as the distinct values and one number per
# file: four bytes a file, plus the values. It lives as long as the head, whose strings take a hundred times as much.


_NOWHERE: Final = -1
"""The number of a value that the file's path does not contain."""


@dataclass(frozen=True, slots=True)
class PathColumn:
    """``codes``: for each file, in head order, the position of its value in ``values``, or -1 if it is unknown."""

    codes: npt.NDArray[np.int32]
    values: pa.Array[Any]

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return int(self.codes.nbytes) + self.values.nbytes

    def where(self, term: Term, *, unknown: bool) -> Mask:
        """Return the files for which the bound term is TRUE in all rows; ``unknown`` where paths lack the column."""
        found = pc.fill_null(truth(term, self.values), False).to_numpy(zero_copy_only=False)
        result: Mask = np.append(found, unknown)[self.codes]
        return result


PathColumns = Mapping[str, PathColumn]


def path_columns(head: Head, schema: pa.Schema, needed: Set[str]) -> PathColumns:
    """Return the columns that the paths of the head's files contain, by name; computed once for each head, if needed.

    Columns that only some of the paths contain, in tables of other writers, may be left out. Raises PartitionInvalid
    for a path with a column that is not in the schema, or a value that is not of its column's type.
    """
    first = next(iter(head.partitions), None)
    if first is None or needed.isdisjoint((*head.partition_keys, *partition_keys_in(head.file(first)))):
        return {}
    name = id(head)
    known = _KNOWN.get(name)
    if known is not None and known.head() is head and known.schema.equals(schema):
        return known.columns
    columns = read_columns(list(head.files().values()), schema)

    def forget(_: object) -> None:
        _KNOWN.pop(name, None)

    _KNOWN[name] = _Known(ref(head, forget), schema, columns)
    return columns


def read_columns(keys: list[str], schema: pa.Schema) -> PathColumns:
    """Return the columns for these keys. The cost in Python is per distinct directory name, not per key."""
    columns: dict[str, _Reading] = {}
    split: pa.Array[Any] = pc.split_pattern(pa.array(keys, pa.large_string()), "/")
    depths: npt.NDArray[np.int64] = pc.list_value_length(split).to_numpy()
    for depth in np.unique(depths).tolist():
        positions = np.flatnonzero(depths == depth)
        alike = split if len(positions) == len(split) else split.take(positions)
        for level in range(2, depth - 1):
            segments = pc.list_element(alike, level).dictionary_encode()
            _note(
                columns,
                cast("list[str]", segments.dictionary.to_pylist()),
                segments.indices.to_numpy(),
                positions,
                len(keys),
            )
    return {name: each.column(name, schema) for name, each in columns.items()}


class _Reading:
    """A column while the keys are parsed; ``texts`` numbers its values as they are written in paths."""

    def __init__(self, count: int) -> None:
        self.codes = np.full(count, _NOWHERE, np.int32)
        self.texts: dict[str, int] = {}

    def column(self, name: str, schema: pa.Schema) -> PathColumn:
        if name not in schema.names:
            raise PartitionInvalid(f"partition column {name!r} of a file's path is not a column of the table")
        data_type = schema.field(name).type
        try:
            values = pa.array(map(value_parser(data_type), self.texts), data_type)
        except NOT_A_VALUE:
            for text in self.texts:
                parse_path(f"{name}={text}", schema)  # raises the error that names the value
            raise
        return PathColumn(self.codes, values)


def _note(
    columns: dict[str, _Reading],
    segments: list[str],
    indices: npt.NDArray[np.int32],
    positions: npt.NDArray[np.int64],
    count: int,
) -> None:
    """Record the column values in these directory names, which are at ``indices`` in the keys at ``positions``.

    Names that are not ``<column>=<value>`` are ignored, as in kartothek.
    """
    found: dict[str, tuple[npt.NDArray[np.int32], _Reading]] = {}
    for number, segment in enumerate(segments):
        name, equals, text = segment.partition("=")
        if not equals or "=" in text:
            continue
        if name not in found:
            column = columns.setdefault(unquote(name), _Reading(count))
            found[name] = np.full(len(segments), _NOWHERE, np.int32), column
        codes, column = found[name]
        codes[number] = column.texts.setdefault(text, len(column.texts))
    for codes, column in found.values():
        here = codes[indices]
        is_known = here != _NOWHERE
        column.codes[positions[is_known]] = here[is_known]


@dataclass(frozen=True, slots=True)
class _Known:
    head: ref[Head]
    schema: pa.Schema
    columns: PathColumns


_KNOWN: Final[dict[int, _Known]] = {}
"""By the identity of the head, its cheapest key."""
