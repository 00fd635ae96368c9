"""A planned cube query, and the forms of its result."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from os import cpu_count
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.cube.query.joining import joined, sorted_by
from kubothek.cube.query.model import Plan
from kubothek.cube.query.reading import PART, Reading
from kubothek.storage import Store
from kubothek.table.time_zones import in_zones, zoned

if TYPE_CHECKING:
    import pandas as pd

_BATCH_ROWS: Final = 65_536
_MOST_THREADS: Final = 8


@dataclass(frozen=True, slots=True)
class Group:
    """The rows with the same values, ``key``, in the columns of ``partition_by``."""

    key: dict[str, Any]
    rows: pa.Table


class CubeQuery:
    """A checked and planned query. Each method that returns rows reads the data again.

    Pieces of work, each of some whole partitions, run in up to 8 threads, one per core. Memory holds about as many
    pieces, and the rows that several pieces share.

    All methods raise VersionIncomplete if a file is gone, StoreError if one cannot be read.
    """

    def __init__(self, store: Store, plan: Plan, zones: Mapping[str, str] | None = None) -> None:
        """``zones``: of columns of times, as :mod:`kubothek.table.time_zones` has them."""
        self._store = store
        self._zones = zones or {}
        self.plan = plan

    @property
    def schema(self) -> pa.Schema:
        """Of the rows: columns by name, in stored types, times in the zones of their columns."""
        return zoned(self.plan.schema, self._zones)

    def explain(self) -> str:
        """Return the plan as text."""
        return self.plan.explain()

    def to_arrow(self) -> pa.Table:
        """Return all rows, sorted by the dimensions in the order of the query, then by the partition columns."""
        return self._shown(self._sorted(list(self._pieces())))

    def to_pandas(self) -> pd.DataFrame:
        """Return the same for pandas, which has no NULL for integers (they become floats) and no dates (datetime64)."""
        return self.to_arrow().to_pandas(date_as_object=False)

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of physical partitions; the rows of each are sorted by the dimensions."""
        batches = (
            batch
            for piece in self._pieces()
            for batch in self._shown(piece).combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)
        )
        return pa.RecordBatchReader.from_batches(self.schema, batches)

    def pieces(self, units: Iterable[int]) -> Iterator[pa.Table]:
        """The rows of these pieces of work, each sorted by partition and dimensions, without threads: for tasks.

        Times are as stored, naive UTC.
        """
        reading = Reading(self._store, self.plan)
        for unit in units:
            yield joined(self.plan, reading, unit).select(self.plan.schema.names)

    def groups(self) -> Iterator[Group]:
        """Yield non-empty groups in the order of their keys, each sorted like :meth:`to_arrow`.

        Without ``partition_by`` there is one group with the key ``{}``. Rows with NULL in these columns are in no
        group. Groups by partition columns are read one at a time, other groups all at once. If several datasets have an
        index on a dimension, kartothek returns all rows of a group's files; here a group has only its own rows.
        """
        by = self.plan.partition_by
        if {*by} <= {*self.plan.partition_columns} and by:
            yield from self._groups_of_partitions()
            return
        rows = self._sorted(list(self._pieces()), by)
        if not by:
            if rows.num_rows:
                yield Group({}, self._shown(rows))
            return
        for start, stop in _runs(rows, by):
            yield self._group(rows.slice(start, stop - start))

    __iter__ = groups

    def _groups_of_partitions(self) -> Iterator[Group]:
        """Yield groups; the plan has the partitions of one group next to each other."""
        by = self.plan.partition_by
        starts = np.array([start for start, _ in _runs(self.plan.values, by)])
        of_partition = np.searchsorted(starts, np.arange(self.plan.partitions), side="right")
        held: list[pa.Table] = []
        group = 0
        for piece in self._pieces():
            numbers = of_partition[piece.column(PART).to_numpy()]
            for number in np.unique(numbers).tolist():
                if number != group and held:
                    yield self._group(self._sorted(held))
                    held = []
                group = number
                held.append(piece.filter(pa.array(numbers == number)))
        if held:
            yield self._group(self._sorted(held))

    def _group(self, rows: pa.Table) -> Group:
        shown = self._shown(rows)
        return Group({name: shown.column(name)[0].as_py() for name in self.plan.partition_by}, shown)

    def _pieces(self) -> Iterator[pa.Table]:
        """Yield the rows of each non-empty piece of work, in order; read ahead one piece per thread."""
        reading = Reading(self._store, self.plan)
        threads = min(_MOST_THREADS, cpu_count() or 1, max(1, self.plan.units))
        with ThreadPoolExecutor(threads, thread_name_prefix="cube") as pool:
            ahead: deque[Future[pa.Table]] = deque()
            try:
                for unit in range(self.plan.units):
                    ahead.append(pool.submit(joined, self.plan, reading, unit))
                    if len(ahead) > threads and (found := ahead.popleft().result()).num_rows:
                        yield found
                while ahead:
                    if (found := ahead.popleft().result()).num_rows:
                        yield found
            finally:
                for each in ahead:
                    each.cancel()

    def _sorted(self, pieces: list[pa.Table], first: tuple[str, ...] = ()) -> pa.Table:
        """Return the pieces as one table, sorted by ``first``, the dimensions and the partition columns."""
        if not pieces:
            return self.plan.schema.append(pa.field(PART, pa.int32())).empty_table()
        rows = pa.concat_tables(pieces)
        if not first and _one_partition(rows):
            return rows
        dimensions = tuple(name for name in self.plan.dimension_columns if name not in first)
        partitions = tuple(name for name in self.plan.partition_columns if name not in first)
        return sorted_by(rows, (*first, *dimensions, *partitions))

    def _shown(self, rows: pa.Table) -> pa.Table:
        found = rows.select(self.plan.schema.names)
        schema = self.schema
        return pa.Table.from_batches([in_zones(batch, schema) for batch in found.to_batches()], schema)


def _one_partition(rows: pa.Table) -> bool:
    least = pc.min_max(rows.column(PART))
    return bool(least["min"].as_py() == least["max"].as_py())


def _runs(rows: pa.Table, by: tuple[str, ...]) -> list[tuple[int, int]]:
    """Return start and end of each run of rows with the same values in these columns."""
    if not rows.num_rows:
        return []
    differs = np.zeros(rows.num_rows - 1, np.bool_)
    for name in by:
        column = rows.column(name).combine_chunks()
        differ: Any = pc.not_equal(column[1:], column[:-1])
        differs |= differ.fill_null(True).to_numpy(zero_copy_only=False)
    starts = [0, *(np.flatnonzero(differs) + 1).tolist()]
    return list(zip(starts, [*starts[1:], rows.num_rows], strict=True))
