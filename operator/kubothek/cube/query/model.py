"""The plan of a cube query: arrays of what to read and how to join it; picklable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kubothek.cube.query.asking import Join
from kubothek.table.expressions import Predicate
from kubothek.table.scan.plan import Step
from kubothek.words import count

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DatasetPlan:
    """The reads of one dataset. A combination is one set of values of ``aligned_on``.

    ``aligned_on``    the cube's partition columns that it has, which align its files with the seed's partitions
    ``dimensions``    further columns of the join
    ``payload``       other columns that are read
    ``schema``        schema of the columns that are read, in the cube's types
    ``keys``          keys of the files, by combination and then in the order of the head
    ``starts``        start of each combination's files in ``keys``; one more than there are combinations
    ``of_partition``  the combination of each partition of the plan
    ``in_paths``      columns of ``schema`` whose values are in paths
    ``steps``         number of files left by each planning step
    """

    name: str
    uuid: str
    join: Join
    aligned_on: tuple[str, ...]
    dimensions: tuple[str, ...]
    payload: tuple[str, ...]
    schema: pa.Schema
    keys: pa.Array[Any]
    starts: Numbers
    of_partition: Numbers
    in_paths: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def files(self) -> int:
        """The number of files to open."""
        return len(self.keys)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        return (*self.dimensions, *self.payload)

    def files_of(self, combination: int) -> list[str]:
        """Return the keys of the files of a combination, in the order of the head."""
        keys: Any = self.keys[int(self.starts[combination]) : int(self.starts[combination + 1])]
        found: list[str] = keys.to_pylist()
        return found

    @property
    def own_partitions(self) -> bool:
        """Whether combinations and partitions of the plan correspond one to one."""
        return len(self.starts) - 1 == len(self.of_partition) and bool(
            (self.of_partition == np.arange(len(self.of_partition))).all()
        )


@dataclass(frozen=True)
class Plan:
    """How to run a cube query.

    ``where``              bound conditions; :attr:`residual` is the part that is checked on joined rows
    ``dimension_columns``  sort order, before the partition columns
    ``distinct_by``        columns of a projection, in which rows must differ; None without a projection
    ``schema``             schema of the result
    ``types``              types of all columns that are read
    ``values``             partition columns of each remaining physical partition, in order
    ``datasets``           the seed first, then inner joins, then left joins
    ``newest_only``        whether conditions on payload apply only to the newest row of a cell
    ``bounds``             first partition of each piece of work; one more than there are pieces
    """

    prefix: str
    version: int
    where: Predicate
    residual: Predicate
    dimension_columns: tuple[str, ...]
    partition_by: tuple[str, ...]
    partition_columns: tuple[str, ...]
    distinct_by: tuple[str, ...] | None
    schema: pa.Schema
    types: pa.Schema = field(repr=False)
    values: pa.Table = field(repr=False)
    datasets: tuple[DatasetPlan, ...]
    bounds: Numbers = field(repr=False)
    newest_only: bool = False

    @property
    def seed(self) -> DatasetPlan:
        """The plan of the seed, the first dataset of the join."""
        return self.datasets[0]

    @property
    def partitions(self) -> int:
        """The number of remaining physical partitions."""
        return int(self.values.num_rows)

    @property
    def units(self) -> int:
        """The number of pieces of work, each of some whole partitions."""
        return len(self.bounds) - 1

    def unit(self, number: int) -> range:
        """Return the partitions of a piece of work."""
        return range(int(self.bounds[number]), int(self.bounds[number + 1]))

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON-compatible data, for job results and scripts."""
        return {
            "cube": self.prefix,
            "version": self.version,
            "where": self.where.to_sql(),
            "newestOnly": self.newest_only,
            "dimensionColumns": list(self.dimension_columns),
            "partitionBy": list(self.partition_by),
            "columns": list(self.schema.names),
            "partitions": self.partitions,
            "units": self.units,
            "datasets": [
                {
                    "name": each.name,
                    "join": each.join.value,
                    "on": [*each.aligned_on, *each.dimensions],
                    "columns": list(each.columns),
                    "files": each.files,
                    "steps": [{"step": step.name, "files": step.files_left} for step in each.steps],
                }
                for each in self.datasets
            ],
        }

    def explain(self) -> str:
        """Return the plan as text for users."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"cube {self.prefix} at version {self.version}"
        yield f"  where {self.where.to_sql()}" + (" in the newest row of each cell" if self.newest_only else "")
        for each in self.datasets:
            on = ", ".join((*each.aligned_on, *each.dimensions))
            yield f"  {each.name}: " + ("seed" if each.join is Join.SEED else f"{each.join} join on {on}")
            yield "    files: " + ", ".join(f"{step.name} {step.files_left:,}" for step in each.steps)
            yield f"    reads: {', '.join(each.columns) or 'nothing but the number of rows'}"
        groups = f", in groups by {', '.join(self.partition_by)}" if self.partition_by else ""
        yield f"  {count(self.partitions, 'partition')} in {count(self.units, 'piece of work')}{groups}; no shuffle"
        order = (*self.dimension_columns, *(c for c in self.partition_columns if c not in self.dimension_columns))
        yield f"  {'distinct rows ' if self.distinct_by else ''}sorted by {', '.join(order)}"
