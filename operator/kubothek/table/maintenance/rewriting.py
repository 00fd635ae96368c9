"""Rewrite of bundles of small files as larger ones, and the proof that they hold the same rows.

:mod:`kubothek.spark.compact` does the same on many machines, with :func:`rewrite_bundles` in each task.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import RowsChanged
from kubothek.storage import Store
from kubothek.table.bucketing import Bucketing
from kubothek.table.clustering import Clustering
from kubothek.table.files import PartitionedWriter
from kubothek.table.layout import MIB
from kubothek.table.log import PartitionFile
from kubothek.table.maintenance.content import Content
from kubothek.table.maintenance.grouping import Bundle, tasks
from kubothek.table.maintenance.reading import rows_of
from kubothek.table.operations.copying import Copying
from kubothek.table.operations.written import Gathered
from kubothek.table.partitioning import Group, split
from kubothek.table.sorting import SortedRuns

TASK_BYTES: Final = 256 * MIB
"""Maximum bytes that one task rewrites, unless a single bundle is larger."""
_TASKS_A_CORE: Final = 4


@dataclass(frozen=True, slots=True)
class Replaced:
    """One bundle after its rewrite: ``added``, not yet visible, replace ``removed``."""

    path: str
    removed: tuple[PartitionFile, ...]
    added: tuple[PartitionFile, ...]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The result for some bundles; ``gathered`` are the index entries and descriptions of the new files."""

    replaced: tuple[Replaced, ...] = ()
    gathered: Gathered = field(default_factory=Gathered)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the joined result of several tasks."""
        return cls(
            tuple(each for part in parts for each in part.replaced),
            Gathered.joined(part.gathered for part in parts),
        )


@dataclass(frozen=True, slots=True)
class Compacting(Copying):
    """How bundles are rewritten; sent to executors. ``clustering``: the order of rows; None = the layout's."""

    clustering: Clustering | None


Compactor = Callable[[Compacting, Sequence[Bundle]], Rewritten]
"""Rewrites bundles, in this process or with Spark."""


def rewrite_here(store: Store, report: Callable[[int, int], None] = lambda done, total: None) -> Compactor:
    """Return a compactor in this process, one thread a core; ``report`` gets the files done, and all files."""

    def run(compacting: Compacting, bundles: Sequence[Bundle]) -> Rewritten:
        cores = os.cpu_count() or 1
        parts = tasks(bundles, most_bytes=TASK_BYTES, at_least=_TASKS_A_CORE * cores)
        total = sum(len(bundle.files) for bundle in bundles)
        done: list[Rewritten] = []
        files = 0
        with ThreadPoolExecutor(cores, thread_name_prefix="compact") as pool:
            try:
                for part, result in zip(
                    parts, pool.map(lambda task: rewrite_bundles(compacting, store, task), parts), strict=True
                ):
                    done.append(result)
                    files += sum(len(bundle.files) for bundle in part)
                    report(files, total)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return Rewritten.joined(done)

    return run


def rewrite_bundles(compacting: Compacting, store: Store, bundles: Sequence[Bundle]) -> Rewritten:
    """Rewrite these bundles one by one, in bounded memory; then read back what was stored.

    Raises VersionIncomplete if a file is gone, what :class:`~kubothek.table.files.PartitionedWriter` raises, and
    RowsChanged unless the new files of each bundle hold exactly the rows of the old ones.
    """
    replaced, before = [], []
    gatherer = compacting.gatherer(store)
    with compacting.writer(store, gatherer, presorted=compacting.clustering is not None) as writer:
        for bundle in bundles:
            before.append(_copy(compacting, store, bundle, writer))
            replaced.append(Replaced(bundle.group.path, bundle.files, tuple(writer.flush())))
        writer.finish()
    for each, content in zip(replaced, before, strict=True):
        _prove(compacting, store, each, content)
    return Rewritten(tuple(replaced), gatherer.finish())


def _copy(compacting: Compacting, store: Store, bundle: Bundle, writer: PartitionedWriter) -> Content:
    """Write the rows of a bundle, and return their content."""
    found = Content()
    bucketing = Bucketing.of(compacting.layout, compacting.schema)

    def read(columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        return rows_of(compacting, store, bundle.files, columns)

    def read_all() -> Iterator[pa.RecordBatch]:
        nonlocal found
        for batch in read():
            found += _content(batch)
            yield batch

    mark, rows = "", read_all()
    if compacting.clustering is not None:
        mark = compacting.clustering.new_mark()
        rows = in_order(read_all, read, bundle.rows, compacting.clustering)
    for batch in rows:
        if bucketing is None or bundle.group.bucket is not None:
            writer.write_group(bundle.group._replace(mark=mark), batch)
            continue
        for group, part in split(batch, (), bucketing):
            writer.write_group(Group(bundle.group.path, group.bucket, mark), part)
    return found


def _prove(copying: Copying, store: Store, replaced: Replaced, before: Content) -> None:
    after = sum(map(_content, rows_of(copying, store, replaced.added)), Content())
    counted = sum(file.rows for file in replaced.added)
    if before != after or counted != after.rows:
        raise RowsChanged(
            f"partition {replaced.path!r} of {copying.table.uuid!r}: {len(replaced.removed)} files hold {before.rows} "
            f"rows of content {before.total:032x}, but the {len(replaced.added)} that were to take their place hold "
            f"{after.rows} of {after.total:032x}. Nothing was committed; please report this as a fault of Kubothek"
        )


def _content(batch: pa.RecordBatch) -> Content:
    return Content.of([batch])


# The rows of a bundle in the order of a clustering: sorted in pieces, which are kept on a local disk and merged.


PIECE_BYTES: Final = 64 * MIB
"""Bytes that are sorted at once, in memory."""
_BLOCK_BYTES: Final = MIB

All = Callable[[], Iterator[pa.RecordBatch]]
"""Reads the rows."""
Some = Callable[[Sequence[str]], Iterator[pa.RecordBatch]]
"""Reads some columns of the rows."""


def in_order(
    rows: All, columns: Some, count: int, clustering: Clustering, *, piece_bytes: int = PIECE_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the ``count`` rows in order; the sort is stable.

    Memory: one piece, and a block of each other piece. With several pieces, all rows are compressed on disk. Reads the
    columns of a curve twice.
    """
    if not clustering.curve:
        yield from _sorted(rows(), clustering.by, piece_bytes)
        return
    curve = Curve.through(columns(clustering.by), count, clustering.by)
    for batch in _sorted((_placed(batch, curve) for batch in rows()), None, piece_bytes):
        yield batch.select(batch.schema.names[:-1])


def _placed(batch: pa.RecordBatch, curve: Curve) -> pa.RecordBatch:
    """Return the rows with their positions on the curve as the last column."""
    columns: list[Any] = [*batch.columns, curve.positions(batch)]
    return pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, _place(batch.schema.names)])


def _place(names: Sequence[str]) -> str:
    """Return a name that no column has."""
    return max(names, key=len) + "_"


def _sorted(batches: Iterator[pa.RecordBatch], by: Sequence[str] | None, piece_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows sorted by these columns, or by the last one."""
    held: list[pa.RecordBatch] = []
    size = 0
    runs: SortedRuns | None = None
    names = tuple(by or ())
    with tempfile.TemporaryFile(prefix="kubothek-order-") as disk:
        for batch in batches:
            held.append(batch)
            size += batch.nbytes
            names = names or (batch.schema.names[-1],)
            if size >= piece_bytes:
                runs = runs or SortedRuns(names, _BLOCK_BYTES, disk)
                runs.add(held)
                held, size = [], 0
        runs = runs or SortedRuns(names, size)  # a single piece needs no merge
        if held:
            runs.add(held)
        while runs.rows:
            yield from runs.pop().combine_chunks().to_batches()


# The position of each row on a Z-curve: rows that are close in all of its columns get close positions.
#
# A column counts by the rank of its values in a sample, not by the values themselves. So columns of all sortable types
# combine, however their values are distributed. The bits of the ranks are interleaved, the first column's first. NULL
# sorts before all values, NaN after them.


_BITS: Final = 10
"""Maximum bits of each rank: a partition has far fewer files than so many columns can distinguish."""
_SAMPLE: Final = 1 << 17


@dataclass(frozen=True)
class Curve:
    """The curve through the values of some columns.

    ``cuts``  by column: ascending values; the rank of a value is the number of cuts that are not above it
    ``bits``  of each rank; those of all columns fit in 63
    """

    cuts: dict[str, pa.Array[Any]]
    bits: int

    @classmethod
    def through(cls, rows: Iterable[pa.RecordBatch], count: int, columns: Sequence[str]) -> Self:
        """Return the curve of ``count`` rows with these columns; keeps a sample of them, so memory is bounded."""
        step = -(-count // _SAMPLE) or 1
        seen, kept = 0, []
        for batch in rows:
            positions = np.arange(-seen % step, batch.num_rows, step)
            kept.append(batch.select(list(columns)).take(positions))
            seen += batch.num_rows
        bits = min(_BITS, 63 // len(columns))
        sample = {
            name: pa.concat_arrays([batch.column(name) for batch in kept]) if kept else pa.nulls(0) for name in columns
        }
        return cls({name: _cuts(values, (1 << bits) - 2) for name, values in sample.items()}, bits)

    def positions(self, batch: pa.RecordBatch) -> pa.Array[Any]:
        """Return the position of each row, as uint64."""
        ranks = [self._rank(batch.column(name), cuts) for name, cuts in self.cuts.items()]
        found = np.zeros(batch.num_rows, np.uint64)
        for bit in range(self.bits - 1, -1, -1):
            for rank in ranks:
                found = found << np.uint64(1) | rank >> np.uint64(bit) & np.uint64(1)
        return pa.array(found)

    def _rank(self, column: pa.Array[Any], cuts: pa.Array[Any]) -> npt.NDArray[np.uint64]:
        """Return 0 for NULL; else 1 or more, spread over all bits, so that columns of few values use the first bits."""
        encoded = column.dictionary_encode()
        values = encoded.dictionary
        # The sort is stable, so a cut comes before the values that are equal to it.
        order = pc.array_sort_indices(pa.concat_arrays([cuts, values])).to_numpy()
        below = np.cumsum(order < len(cuts), dtype=np.uint64)
        mine = order >= len(cuts)
        ranks = np.zeros(len(values) + 1, np.uint64)
        ranks[order[mine] - len(cuts)] = below[mine] + np.uint64(1)
        codes = encoded.indices.fill_null(len(values)).to_numpy()
        scale = np.uint64((1 << self.bits) - 1)
        spread: npt.NDArray[np.uint64] = ranks[codes] * scale // np.uint64(len(cuts) + 1)
        return spread


def _cuts(sample: pa.Array[Any], most: int) -> pa.Array[Any]:
    """Return at most ``most`` distinct values, without the smallest, that divide the sample into equal parts."""
    values = sample.drop_null()
    ordered = values.take(pc.array_sort_indices(values))
    wanted = np.unique(np.arange(1, most + 1) * len(ordered) // (most + 1))
    found = ordered.take(pa.array([0, *wanted] if len(ordered) else [], pa.int64())).unique()
    return found.slice(1)
