"""Which files of a table are worth writing once more, and which of them together; pure.

A file below half of the target size is small. Small files of one partition and bucket become files of the target size;
all others are well laid out and are not touched. What is left over of a group is one small file, so a table that was
compacted has, per group, at most one file more than half as large as the target would allow, and a second run finds
nothing to do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.table.bucketing import Bucketing
from kubothek.table.clustering import Clustering
from kubothek.table.log import PartitionFile, partition_path
from kubothek.table.partitioning import Group

BUNDLE_TARGETS: Final = 4
"""A bundle holds so many times the target size: large partitions are rewritten piece by piece, side by side."""
RUN_TARGETS: Final = 16
"""The same for a bundle that is put in order, as far as files are not larger themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """When a partition is rewritten.

    ``target_bytes``     the size that files shall have
    ``min_files``        files to rewrite that a group must have, at least 2: small ones, or those that are not in order
    ``min_small_share``  of all files of a group, the share that they must be: 0 to 1
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


def bundles(
    files: Sequence[PartitionFile],
    bucketing: Bucketing | None,
    thresholds: Thresholds,
    clustering: Clustering | None = None,
) -> tuple[Bundle, ...]:
    """What to rewrite of these files, in head order; ``bucketing`` is the table's present one."""
    found = []
    runs = _runs(files, clustering)
    for group, members in _groups(files, bucketing).items():
        due = [file for file in members if thresholds.is_small(file)]
        if clustering is not None:
            due = [file for file in members if runs[file.label] is None]
        least = max(thresholds.min_files, _least(group.bucket, bucketing))
        if len(due) < least or len(due) < thresholds.min_small_share * len(members):
            continue
        if clustering is None:
            limit = BUNDLE_TARGETS * thresholds.target_bytes
            found += [Bundle(group, piece) for piece in _pieces(due, limit) if len(piece) > 1]
        else:
            *whole, last = _pieces(due, RUN_TARGETS * thresholds.target_bytes)
            found += [Bundle(group, piece) for piece in whole]
            found.append(Bundle(group, _joined(last, members, runs, RUN_TARGETS * thresholds.target_bytes)))
    return tuple(found)


def _runs(files: Sequence[PartitionFile], clustering: Clustering | None) -> dict[str, str | None]:
    """The run of each file, by its label."""
    labels = [file.label for file in files]
    if clustering is None:
        return {}
    return dict(zip(labels, clustering.read(pa.array(labels, pa.string())).to_pylist(), strict=True))


def _joined(
    piece: tuple[PartitionFile, ...],
    members: Sequence[PartitionFile],
    runs: Mapping[str, str | None],
    limit: int,
) -> tuple[PartitionFile, ...]:
    """The files, and those runs of their group that are worth it, the smallest first, as far as there is room."""
    by_run: dict[str, list[PartitionFile]] = defaultdict(list)
    for file in members:
        if (name := runs[file.label]) is not None:
            by_run[name].append(file)
    joined = set(piece)
    size = _size(piece)
    for run in sorted(by_run.values(), key=_size):
        if _size(run) > 2 * size or size + _size(run) > limit:
            break
        joined.update(run)
        size += _size(run)
    return tuple(file for file in members if file in joined)


def _size(files: Sequence[PartitionFile]) -> int:
    return sum(file.bytes for file in files)


def most_small(labels: pa.StringArray, places: pa.Array[Any], small: pa.Array[Any], bucketing: Bucketing | None) -> int:
    """The most small files that one partition, or one bucket of it, has and that can become fewer; 0 if none can.

    Of each file its label, what tells its partition, and whether it is small; in columns, as there may be many. Files
    that are not in the order of a clustering are counted in the same way.
    """
    buckets: pa.Array[Any] = pa.nulls(len(labels), pa.int32()) if bucketing is None else bucketing.read(labels)
    mixed = pc.is_in(places, value_set=pc.unique(places.filter(pc.is_null(buckets))))
    groups = pa.table({"place": places, "bucket": pc.if_else(mixed, None, buckets)}).filter(small)
    counts = groups.group_by(["place", "bucket"]).aggregate([([], "count_all")])
    least = pc.if_else(pc.is_null(counts.column("bucket")), _least(None, bucketing), _least(0, bucketing))
    enough = counts.column("count_all").filter(pc.greater_equal(counts.column("count_all"), least))
    return pc.max(enough).as_py() or 0


def _least(bucket: int | None, bucketing: Bucketing | None) -> int:
    """How many files of no bucket, or of one, must be rewritten to become fewer: without one, as many as buckets."""
    return 2 if bucketing is None or bucket is not None else max(2, bucketing.count + 1)


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
