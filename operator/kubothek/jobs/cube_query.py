"""A query of a cube, as an answer whose rows can be stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from kubothek.api.jobs import CubeQuestion
from kubothek.cube.handle import Cube
from kubothek.cube.query import CubeQuery, query
from kubothek.errors import QueryInvalid
from kubothek.sql.read import Read, json_lines
from kubothek.storage import Store

_PLAN_FIELDS: list[pa.Field[Any]] = [
    pa.field("dataset", pa.string()),
    pa.field("join", pa.string()),
    pa.field("step", pa.string()),
    pa.field("files_left", pa.int64()),
]


@dataclass(frozen=True, slots=True)
class CubeAnswer:
    """The rows of a planned query, one group at a time if it has groups; with ``explain`` its plan."""

    found: CubeQuery
    reads: tuple[Read, ...]
    explain: bool = False

    def rows(self) -> pa.RecordBatchReader:
        """Return the rows as a stream."""
        if self.explain:
            return _plan_of(self.found).to_reader()
        if not self.found.plan.partition_by:
            return self.found.reader()
        return pa.RecordBatchReader.from_batches(self.found.schema, self._grouped())

    def lines(self) -> pa.RecordBatchReader:
        """Return a stream with one column that holds each row as a JSON object."""
        return json_lines(self.rows())

    def _grouped(self) -> Iterator[pa.RecordBatch]:
        for group in self.found.groups():
            yield from group.rows.to_batches()


def prepare(asked: CubeQuestion, store: Store, as_of: int | str | datetime | None) -> CubeAnswer:
    """Check and plan the query without reading data. Raises QueryInvalid, FilterInvalid, VersionNotFound."""
    if isinstance(as_of, str):
        raise QueryInvalid("versions of a cube have no tags: give asOf a version or a time")
    cube = Cube.open(store, asked.prefix).snapshot(as_of)
    found = query(
        store,
        cube,
        conditions=asked.conditions,
        datasets=asked.datasets,
        dimension_columns=asked.dimension_columns,
        partition_by=asked.partition_by or None,
        payload_columns=asked.payload_columns,
        newest_only=asked.newest_only,
    )
    reads = tuple(
        Read.of(each.uuid, cube.member(each.name).snapshot.version, each.steps, found.plan.where, each.schema.names)
        for each in found.plan.datasets
    )
    return CubeAnswer(found, reads, asked.explain)


def _plan_of(found: CubeQuery) -> pa.Table:
    """Return one row per dataset and planning step."""
    rows = [
        {"dataset": dataset.name, "join": str(dataset.join), "step": step.name, "files_left": step.files_left}
        for dataset in found.plan.datasets
        for step in dataset.steps
    ]
    return pa.Table.from_pylist(rows, pa.schema(_PLAN_FIELDS))
