"""Which files of a table are worth writing once more, and which of them together; pure.

A file below half of the target size is small. Small files of one partition and bucket become files of the target size;
all others are well laid out and are not touched. What is left over of a group is one small file, so a table that was
compacted has, per group, at most one file more than half as large as the target would allow, and a second run finds
nothing to do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from kubothek.lake.commits import PartitionFile, partition_path
from kubothek.lake.table.bucketing import Bucketing
from kubothek.lake.table.partitioning import Group

BUNDLE_TARGETS: Final = 4
"""A bundle holds so many times the target size: large partitions are rewritten piece by piece, side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """When a partition is rewritten.

    ``target_bytes``     the size that files shall have
    ``min_files``        small files that a group must have, at least 2
    ``min_small_share``  of all files of a group, the share that must be small: 0 to 1
    """

    target_bytes: int
    min_files: int = 2
    min_small_share: float = 0.0

    def is_small(self, file: PartitionFile) -> bool:
        """Whether the file is below half of the target."""
        return 2 * file.bytes < self.target_bytes


@dataclass(frozen=True, slots=True)
class Bundle:
    """Files of one partition that are rewritten together.

    ``group``  its partition path; and its bucket, or None for files of which some are of no bucket, or of another
               bucketing
    """

    group: Group
    files: tuple[PartitionFile, ...]

    @property
    def rows(self) -> int:
        """Rows in all."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """Bytes in all."""
        return sum(file.bytes for file in self.files)


def bundles(files: Sequence[PartitionFile], bucketing: Bucketing | None, thresholds: Thresholds) -> tuple[Bundle, ...]:
    """What to rewrite of these files, in head order; ``bucketing`` is the table's present one."""
    found = []
    for group, members in _groups(files, bucketing).items():
        small = [file for file in members if thresholds.is_small(file)]
        least = thresholds.min_files
        if bucketing is not None and group.bucket is None:
            least = max(least, bucketing.count + 1)  # they become as many files as there are buckets
        if len(small) >= max(2, least) and len(small) >= thresholds.min_small_share * len(members):
            limit = BUNDLE_TARGETS * thresholds.target_bytes
            found += [Bundle(group, piece) for piece in _pieces(small, limit) if len(piece) > 1]
    return tuple(found)


def tasks(given: Sequence[Bundle], *, most_bytes: int, at_least: int) -> list[tuple[Bundle, ...]]:
    """The bundles in tasks of ``most_bytes`` at most, or one bundle; in so many as ``at_least``, if possible.

    A file costs something beside its bytes, here as much as 64 KiB.
    """
    weights = [bundle.bytes + (len(bundle.files) << 16) for bundle in given]
    limit = min(most_bytes, -(-sum(weights) // max(1, at_least)))
    found: list[list[Bundle]] = []
    room = 0
    for bundle, weight in zip(given, weights, strict=True):
        if not found or weight > room:
            found.append([])
            room = limit
        found[-1].append(bundle)
        room -= weight
    return [tuple(task) for task in found]


def _groups(files: Sequence[PartitionFile], bucketing: Bucketing | None) -> dict[Group, list[PartitionFile]]:
    """The files by partition and bucket. A partition with files of no present bucket is one group."""
    by_path: dict[str, list[tuple[PartitionFile, int | None]]] = defaultdict(list)
    for file, bucket in zip(files, _buckets(files, bucketing), strict=True):
        by_path[partition_path(file.key)].append((file, bucket))
    groups: dict[Group, list[PartitionFile]] = {}
    for path, members in by_path.items():
        mixed = any(bucket is None for _, bucket in members)
        for file, bucket in members:
            groups.setdefault(Group(path, None if mixed else bucket), []).append(file)
    return groups


def _buckets(files: Sequence[PartitionFile], bucketing: Bucketing | None) -> list[Any]:
    if bucketing is None:
        return [None] * len(files)
    return bucketing.read(pa.array([file.label for file in files], pa.string())).to_pylist()


def _pieces(files: Sequence[PartitionFile], limit: int) -> Iterator[tuple[PartitionFile, ...]]:
    """The files in head order, in pieces of ``limit`` bytes at most."""
    piece: list[PartitionFile] = []
    size = 0
    for file in files:
        if piece and size + file.bytes > limit:
            yield tuple(piece)
            piece, size = [], 0
        piece.append(file)
        size += file.bytes
    if piece:
        yield tuple(piece)
