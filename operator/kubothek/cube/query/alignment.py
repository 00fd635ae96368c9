"""Physical partitions: the combinations of the cube's partition columns that the seed has, and who stands beside them.

All of it is arithmetic on arrays with one number a file or a partition; no partition is an object of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.cube.query.masks import Files
from kubothek.errors import PartitionInvalid
from kubothek.table.path_columns import PathColumn

Codes = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Partitions:
    """The seed's partitions, sorted by the partition columns in their order.

    ``values``  a row a partition, a column a partition column
    ``ranks``   the same as numbers in the order of the values: a row a partition column, a column a partition
    ``sorted_values``  what the numbers stand for, by column
    ``of_file`` for each file of the seed the number of its partition
    """

    values: pa.Table
    ranks: Codes
    sorted_values: tuple[pa.Array[Any], ...]
    of_file: Codes

    def __len__(self) -> int:
        return int(self.ranks.shape[1])


def partitions(seed: Files, columns: Sequence[str]) -> Partitions:
    """Raises PartitionInvalid if the path of a file of the seed does not tell its partition."""
    count = len(seed)
    schema = seed.member.schema
    if not count:
        empty = pa.schema([f for f in schema if f.name in columns]).empty_table()
        return Partitions(empty, np.zeros((len(columns), 0), np.int32), (), np.zeros(0, np.int32))
    ranked = []
    for name in columns:
        column = seed.paths.get(name)
        if column is None or (column.codes < 0).any():
            raise PartitionInvalid(
                f"cube {seed.member.spec.uuid_prefix!r}: a file of the seed {seed.member.name!r} does not tell the "
                f"partition column {name!r} in its path; the seed must be partitioned by {', '.join(columns)}"
            )
        ranked.append(_ranked(column))
    ordered = tuple(values for _, values in ranked)
    numbers = _numbers([rank for rank, _ in ranked], ordered)
    _, first, of_file = np.unique(numbers, return_index=True, return_inverse=True)
    ranks = np.stack([rank[first] for rank, _ in ranked])
    table = pa.table([values.take(pa.array(rank)) for values, rank in zip(ordered, ranks, strict=True)], list(columns))
    return Partitions(table, ranks, ordered, of_file.astype(np.int32))


@dataclass(frozen=True, slots=True)
class Alignment:
    """How the files of a dataset stand beside the seed's partitions: by the cube's partition columns that it has too.

    ``of_file``       for each file the number of the combination that it has of these; -1 if the seed has no such one
    ``of_partition``  for each partition of the seed the number of its combination
    ``count``         of combinations
    """

    of_file: Codes
    of_partition: Codes
    count: int


def aligned(files: Files, beside: Partitions, columns: Sequence[str]) -> Alignment:
    """The alignment of a dataset other than the seed; ``columns`` are the cube's partition columns."""
    shared = [n for n, name in enumerate(columns) if name in files.member.partition_on]
    if not len(files) or not len(beside):
        return Alignment(np.full(len(files), -1, np.int32), np.zeros(len(beside), np.int32), 1)
    if not shared:
        return Alignment(np.zeros(len(files), np.int32), np.zeros(len(beside), np.int32), 1)
    values = [beside.sorted_values[n] for n in shared]
    known, of_partition = np.unique(_numbers([beside.ranks[n] for n in shared], values), return_inverse=True)
    theirs = [_translated(files.paths.get(columns[n]), ordered) for n, ordered in zip(shared, values, strict=True)]
    if any(each is None for each in theirs):
        return Alignment(np.full(len(files), -1, np.int32), of_partition.astype(np.int32), len(known))
    told = [each for each in theirs if each is not None]
    numbers = np.where(np.stack(told).min(axis=0) < 0, -1, _numbers(told, values))
    place = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    of_file = np.where(known[place] == numbers, place, -1)
    return Alignment(of_file.astype(np.int32), of_partition.astype(np.int32), len(known))


def of_seed(beside: Partitions) -> Alignment:
    """The seed stands beside itself."""
    return Alignment(beside.of_file, np.arange(len(beside), dtype=np.int32), len(beside))


def _ranked(column: PathColumn) -> tuple[Codes, pa.Array[Any]]:
    """The column's values as numbers in their order, and the values in order."""
    order = pc.sort_indices(column.values)
    ordered = column.values.take(order)
    rank = np.empty(len(ordered), np.int32)
    rank[order.to_numpy()] = np.arange(len(ordered), dtype=np.int32)
    # Different texts of a path can be the same value: 1 and 01.
    distinct = ordered.dictionary_encode()
    rank = distinct.indices.to_numpy().astype(np.int32)[rank]
    return rank[column.codes], distinct.dictionary


def _numbers(ranks: Sequence[Codes], values: Sequence[pa.Array[Any]]) -> npt.NDArray[np.int64]:
    """One number a combination of ranks, in the order of the combinations."""
    found = np.zeros(len(ranks[0]), np.int64)
    for rank, each in zip(ranks, values, strict=True):
        found = found * len(each) + rank
    return found


def _translated(column: PathColumn | None, ordered: pa.Array[Any]) -> Codes | None:
    """For each file the rank that the seed has for its value, -1 if it has none; None if no path tells the column."""
    if column is None:
        return None
    found: Any = pc.index_in(column.values.cast(ordered.type), ordered)
    ranks: Codes = np.append(found.fill_null(-1).to_numpy(), -1).astype(np.int32)[column.codes]
    return ranks
