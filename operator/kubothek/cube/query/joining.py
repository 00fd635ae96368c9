"""The join of some physical partitions of a cube: rows of the seed with those of the other datasets.

Source: Kartothek Cube, "Seed-Based Join System". If a cell has several rows, the last one in the order of the head's
files counts: the last of all rows with ``Plan.newest_only``, else the last row that the conditions select in its
dataset, as in kartothek.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial, reduce
from itertools import product
from operator import and_, or_
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.cube.query.asking import Join
from kubothek.cube.query.keys import Cells
from kubothek.cube.query.model import DatasetPlan, Numbers, Plan
from kubothek.cube.query.reading import PART, Reading, columns_of, part_of
from kubothek.table.expressions import TRUE, Predicate
from kubothek.table.expressions.arrow import truth

_Mask = npt.NDArray[np.bool_]


def joined(plan: Plan, reading: Reading, unit: int) -> pa.Table:
    """Return the rows of one piece of work, with the plan's columns, sorted by partition and dimensions.

    Raises what reading raises.
    """
    partitions = plan.unit(unit)

    @cache
    def read(dataset: int) -> pa.Table:
        found = plan.datasets[dataset]
        return reading.read(found, np.unique(found.of_partition[partitions.start : partitions.stop]))

    split = [
        [(number, rows) for rows in _by_value(read(number), by)]
        for number, dataset in enumerate(plan.datasets)
        if not plan.newest_only and (by := [name for name in plan.partition_by if name in dataset.payload])
    ]
    if not split:
        return _joined(plan, read)
    pieces = [_joined(plan, partial(_either, dict(own), read)) for own in product(*split)]
    rows = pa.concat_tables([*pieces, _shown(plan).empty_table()])
    return sorted_by(rows, (PART, *plan.dimension_columns))


def _joined(plan: Plan, read: Callable[[int], pa.Table]) -> pa.Table:
    """Return the joined rows; ``read`` returns the rows of a dataset by number."""
    rows = _Rows(plan, read(0))
    for number, condition in enumerate(_stages(plan)):
        if not rows.count:
            break
        if number:
            rows.join(plan.datasets[number], read(number))
        rows.keep(condition)
    return rows.result()


def _either(own: Mapping[int, pa.Table], read: Callable[[int], pa.Table], dataset: int) -> pa.Table:
    return own[dataset] if dataset in own else read(dataset)


def _by_value(rows: pa.Table, columns: list[str]) -> Iterator[pa.Table]:
    """Yield the rows of each combination of values without NULL. An overwritten row is in its own value's group."""
    for values in rows.select(columns).group_by(columns).aggregate([]).drop_null().to_pylist():
        yield rows.filter(reduce(and_, (pc.field(name) == value for name, value in values.items())))


def _shown(plan: Plan) -> pa.Schema:
    return plan.schema.append(pa.field(PART, pa.int32()))


def _stages(plan: Plan) -> list[Predicate]:
    """Return the condition to check after each dataset: all terms whose columns are joined by then."""
    owners = {column: n for n, dataset in enumerate(plan.datasets) for column in dataset.payload}
    conjunctions = plan.residual.conjunctions
    if len(conjunctions) == 1:
        (terms,) = conjunctions
        return [
            Predicate((tuple(term for term in terms if owners.get(term.column, 0) == n),))
            for n in range(len(plan.datasets))
        ]
    last = max((owners.get(column, 0) for column in plan.residual.columns), default=0)
    return [plan.residual if n == last else TRUE for n in range(len(plan.datasets))]


@dataclass
class _Found:
    """Matches in another dataset: ``at`` is the row number there for each row, -1 for none; None = same positions."""

    table: pa.Table
    at: Numbers | None

    def column(self, name: str) -> pa.ChunkedArray[Any]:
        column = self.table.column(name)
        if self.at is None:
            return column
        missing = self.at < 0
        at: Any = pa.array(self.at, mask=missing) if missing.any() else self.at
        return column.take(at)


class _Rows:
    """Rows of the seed, with their matches in other datasets."""

    def __init__(self, plan: Plan, seed: pa.Table) -> None:
        self._plan = plan
        self._seed = seed
        self._part = part_of(seed)
        self._others: list[_Found] = []
        self._owner: dict[str, _Found] = {}
        self._cells = self._new_cells()
        self._sorted = self._cells.ascending()
        if not self._sorted:
            self._filter(self._cells.last())

    @property
    def count(self) -> int:
        """The number of rows."""
        return int(self._seed.num_rows)

    def join(self, dataset: DatasetPlan, table: pa.Table) -> None:
        """Find the matching rows of another dataset; an inner join drops rows without a match."""
        at = self._cells.find(dataset.of_partition[self._part], part_of(table), columns_of(table, dataset.dimensions))
        found = _Found(table, at)
        self._others.append(found)
        self._owner.update(dict.fromkeys(dataset.payload, found))
        if dataset.join is Join.INNER and at is not None:
            self._filter(at >= 0)

    def keep(self, condition: Predicate) -> None:
        """Keep only rows for which the condition is TRUE."""
        if () not in condition.conjunctions:
            self._filter(_holds(condition, self.column))

    def column(self, name: str) -> pa.ChunkedArray[Any]:
        """Return a column of all rows."""
        if name in self._plan.partition_columns:
            return self._plan.values.column(name).take(self._part)
        if name in self._owner:
            return self._owner[name].column(name)
        if name in self._seed.schema.names:
            return self._seed.column(name)
        assert not self.count, "all datasets that give columns are joined, unless no rows are left"
        return pa.chunked_array([], self._plan.schema.field(name).type)

    def result(self) -> pa.Table:
        """Return the sorted rows; distinct rows if the query is a projection."""
        if self._plan.distinct_by is not None:
            self._filter(self._cells.last(self._plan.distinct_by))
        columns = [self.column(name) for name in self._plan.schema.names]
        found = pa.table([*columns, pa.array(self._part, pa.int32())], schema=_shown(self._plan))
        if self._sorted and self._plan.dimension_columns == self._plan.seed.dimensions:
            return found
        return sorted_by(found, (PART, *self._plan.dimension_columns))

    def _filter(self, mask: _Mask) -> None:
        if mask.all():
            return
        chosen = np.flatnonzero(mask)
        self._seed = self._seed.take(chosen)
        self._part = self._part[mask]
        for each in self._others:
            each.at = chosen if each.at is None else each.at[mask]
        self._cells = self._new_cells()

    def _new_cells(self) -> Cells:
        return Cells(self._part, columns_of(self._seed, self._plan.seed.dimensions))


def _holds(condition: Predicate, column: Callable[[str], Any]) -> _Mask:
    columns = {name: column(name) for name in condition.columns}

    def true(term: Any) -> _Mask:
        found: _Mask = pc.fill_null(truth(term, columns[term.column]), False).to_numpy()
        return found

    conjunctions = [reduce(and_, map(true, terms)) for terms in condition.conjunctions]
    return reduce(or_, conjunctions)


def sorted_by(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the rows sorted; text sorts by its bytes."""
    if table.num_rows < 2:
        return table
    order: Any = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in columns])
    return table.take(order)
