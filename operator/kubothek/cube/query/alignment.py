"""Physical partitions of the seed, and the alignment of other datasets' files with them.

A partition is a combination of values of the cube's partition columns. This is arithmetic on arrays with one number per
file or partition; there is no object per partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import PartitionInvalid
from kubothek.table.log.multi.members import Member
from kubothek.table.scan.pruner import PathColumn, Pruner

Codes = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Partitions:
    """The seed's partitions, sorted by the partition columns in their order.

    ``values``         one row per partition, one column per partition column
    ``ranks``          the same as ranks of the values, shape (partition columns, partitions)
    ``sorted_values``  the value of each rank, per partition column
    ``of_file``        the partition number of each file of the seed
    """

    values: pa.Table
    ranks: Codes
    sorted_values: tuple[pa.Array[Any], ...]
    of_file: Codes

    def __len__(self) -> int:
        return int(self.ranks.shape[1])


def partitions(member: Member, seed: Pruner, columns: Sequence[str]) -> Partitions:
    """Return the seed's partitions. Raises PartitionInvalid if a file's path does not contain its partition."""
    count = len(seed)
    if not count:
        empty = pa.schema([f for f in seed.schema if f.name in columns]).empty_table()
        return Partitions(empty, np.zeros((len(columns), 0), np.int32), (), np.zeros(0, np.int32))
    ranked = []
    for name in columns:
        column = seed.paths.get(name)
        if column is None or (column.codes < 0).any():
            raise PartitionInvalid(
                f"cube {member.spec.uuid_prefix!r}: a file of the seed {member.name!r} does not tell the "
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
    """Alignment of a dataset's files with the seed's partitions, by the partition columns that both have.

    A combination is one set of values of these shared columns.

    ``of_file``       the combination number of each file; -1 if the seed does not have the combination
    ``of_partition``  the combination number of each partition of the seed
    ``count``         number of combinations
    """

    of_file: Codes
    of_partition: Codes
    count: int


def aligned(member: Member, files: Pruner, beside: Partitions, columns: Sequence[str]) -> Alignment:
    """Return the alignment of a dataset other than the seed; ``columns`` are the cube's partition columns."""
    shared = [n for n, name in enumerate(columns) if name in member.partition_on]
    if not len(files) or not len(beside):
        return Alignment(np.full(len(files), -1, np.int32), np.zeros(len(beside), np.int32), 1)
    if not shared:
        return Alignment(np.zeros(len(files), np.int32), np.zeros(len(beside), np.int32), 1)
    values = [beside.sorted_values[n] for n in shared]
    known, of_partition = np.unique(_numbers([beside.ranks[n] for n in shared], values), return_inverse=True)
    theirs = [_translated(files.paths.get(columns[n]), ordered) for n, ordered in zip(shared, values, strict=True)]
    if any(each is None for each in theirs):
        return Alignment(np.full(len(files), -1, np.int32), of_partition.astype(np.int32), len(known))
    codes = [each for each in theirs if each is not None]
    numbers = np.where(np.stack(codes).min(axis=0) < 0, -1, _numbers(codes, values))
    place = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    of_file = np.where(known[place] == numbers, place, -1)
    return Alignment(of_file.astype(np.int32), of_partition.astype(np.int32), len(known))


def of_seed(beside: Partitions) -> Alignment:
    """Return the alignment of the seed with itself."""
    return Alignment(beside.of_file, np.arange(len(beside), dtype=np.int32), len(beside))


def _ranked(column: PathColumn) -> tuple[Codes, pa.Array[Any]]:
    """Return the rank of each file's value, and the sorted values."""
    order = pc.sort_indices(column.values)
    ordered = column.values.take(order)
    rank = np.empty(len(ordered), np.int32)
    rank[order.to_numpy()] = np.arange(len(ordered), dtype=np.int32)
    # Different texts in paths can be the same value: 1 and 01.
    distinct = ordered.dictionary_encode()
    rank = distinct.indices.to_numpy().astype(np.int32)[rank]
    return rank[column.codes], distinct.dictionary


def _numbers(ranks: Sequence[Codes], values: Sequence[pa.Array[Any]]) -> npt.NDArray[np.int64]:
    """Return one number per combination of ranks, in the order of the combinations."""
    found = np.zeros(len(ranks[0]), np.int64)
    for rank, each in zip(ranks, values, strict=True):
        found = found * len(each) + rank
    return found


def _translated(column: PathColumn | None, ordered: pa.Array[Any]) -> Codes | None:
    """Return the seed's rank for the value of each file, -1 if it has none; None if paths lack the column."""
    if column is None:
        return None
    found: Any = pc.index_in(column.values.cast(ordered.type), ordered)
    ranks: Codes = np.append(found.fill_null(-1).to_numpy(), -1).astype(np.int32)[column.codes]
    return ranks
