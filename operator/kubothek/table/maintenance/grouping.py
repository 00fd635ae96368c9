"""Which files of a table are worth rewriting, and which of them together. Pure functions.

A file below half of the target size is small. Small files of one partition and bucket become files of the target size;
all others are well laid out and stay. The remainder of a group is one small file. So a compacted table has, per group,
at most one file more than files of half the target size would make. A second run finds nothing to do.
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
"""Size of a bundle in target sizes: large partitions are rewritten in pieces, in parallel."""
RUN_TARGETS: Final = 16
"""The same for a bundle that is clustered, unless its files are larger themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The conditions under which a partition is rewritten.

    ``target_bytes``     target size of files
    ``min_files``        minimum number of files of a group to rewrite, at least 2: small ones, or unclustered ones
    ``min_small_share``  minimum share of these among all files of a group: 0 to 1
    """

    target_bytes: int
    min_files: int = 2
    min_small_share: float = 0.0

    def is_small(self, file: PartitionFile) -> bool:
        """Return whether the file is below half of the target."""
        return 2 * file.bytes < self.target_bytes


@dataclass(frozen=True, slots=True)
class Bundle:
    """Files of one partition that are rewritten together.

    ``group``  partition path and bucket; bucket None if some files have no bucket, or one of another bucketing
    """

    group: Group
    files: tuple[PartitionFile, ...]

    @property
    def rows(self) -> int:
        """The number of rows of all files."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """The size of all files in bytes."""
        return sum(file.bytes for file in self.files)


def bundles(
    files: Sequence[PartitionFile],
    bucketing: Bucketing | None,
    thresholds: Thresholds,
    clustering: Clustering | None = None,
) -> tuple[Bundle, ...]:
    """Return what to rewrite of these files, in head order; ``bucketing`` is the table's current one."""
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
            *full, last = _pieces(due, RUN_TARGETS * thresholds.target_bytes)
            found += [Bundle(group, piece) for piece in full]
            found.append(Bundle(group, _joined(last, members, runs, RUN_TARGETS * thresholds.target_bytes)))
    return tuple(found)


def _runs(files: Sequence[PartitionFile], clustering: Clustering | None) -> dict[str, str | None]:
    """Return the run of each file, by its label."""
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
    """Add to the files those runs of their group that are worth it, the smallest first, up to the limit in bytes."""
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


def most_small(
    labels: pa.StringArray, partitions: pa.Array[Any], small: pa.Array[Any], bucketing: Bucketing | None
) -> int:
    """Return the largest number of small files in one partition or bucket that can become fewer; 0 if none can.

    For each file: its label, a value that identifies its partition, and whether it is small; in columns, as there may
    be many. Files that are not in the order of a clustering are counted in the same way.
    """
    buckets: pa.Array[Any] = pa.nulls(len(labels), pa.int32()) if bucketing is None else bucketing.read(labels)
    mixed = pc.is_in(partitions, value_set=pc.unique(partitions.filter(pc.is_null(buckets))))
    groups = pa.table({"place": partitions, "bucket": pc.if_else(mixed, None, buckets)}).filter(small)
    counts = groups.group_by(["place", "bucket"]).aggregate([([], "count_all")])
    least = pc.if_else(pc.is_null(counts.column("bucket")), _least(None, bucketing), _least(0, bucketing))
    enough = counts.column("count_all").filter(pc.greater_equal(counts.column("count_all"), least))
    return pc.max(enough).as_py() or 0


def _least(bucket: int | None, bucketing: Bucketing | None) -> int:
    """Return how many files must be rewritten to become fewer: at least 2, and more than buckets for mixed files."""
    return 2 if bucketing is None or bucket is not None else max(2, bucketing.count + 1)


def tasks(given: Sequence[Bundle], *, most_bytes: int, at_least: int) -> list[tuple[Bundle, ...]]:
    """Return the bundles in tasks of at most ``most_bytes``, or of one bundle; ``at_least`` tasks if possible.

    A file counts 64 KiB in addition to its bytes, for its overhead.
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
    """Return the files by partition and bucket. A partition with files outside the current bucketing is one group."""
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
    """Yield the files in head order, in pieces of at most ``limit`` bytes."""
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
