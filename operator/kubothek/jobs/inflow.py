"""Rows for a change of a cube, read from its sources as streams or written by Spark as files."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial

import pyarrow as pa

from kubothek.api.jobs import CubeJob, CubeMemberRef, CubeRows
from kubothek.cube import validation
from kubothek.cube.handle import Cube
from kubothek.cube.writing import CheckSchema, Data, Writer
from kubothek.errors import DatasetNotFound, InputError
from kubothek.ingest import SourcePlan, SourceReader, decide_schemas
from kubothek.jobs import translate
from kubothek.jobs.ingest import Inflow, write_source
from kubothek.jobs.progress import Reporter
from kubothek.storage import Store
from kubothek.table.expressions import Predicate
from kubothek.table.indexes import IndexKind
from kubothek.table.layout import Layout
from kubothek.table.log import Snapshot
from kubothek.table.log.multi.spec import CubeSpec
from kubothek.table.operations import Written
from kubothek.table.skipping.model import SkippingState
from kubothek.table.time_zones import zones_of


@dataclass(frozen=True)
class Inflows:
    """All sources of a job; ``held`` keeps their downloads until all rows are read."""

    job: CubeJob
    store: Store
    cube: Cube
    held: ExitStack
    reporter: Reporter

    def layouts(self, rows: Mapping[str, Data]) -> dict[str, Layout]:
        """Return the layouts of new datasets whose rows are streams; the Spark writer sets the layout itself."""
        members = {member.name: member for member in self.job.cube.members}
        spec = translate.cube_spec(self.job.cube) or self.cube.spec
        return {
            name: _arranged(spec, name, data.schema, self._layout(members[name]))[0]
            for name, data in rows.items()
            if isinstance(data, pa.RecordBatchReader)
        }

    def skipping(self, rows: Mapping[str, Data]) -> dict[str, SkippingState]:
        """Return the skipping metadata that new datasets ask for, by dataset name."""
        specs = {member.name: member.dataset.table.skipping for member in self.job.cube.members}
        return {name: translate.skipping(specs[name]) for name in rows if specs[name] is not None}

    def _layout(self, member: CubeMemberRef) -> Layout:
        return replace(translate.plain_layout(member.dataset.table), partition_on=self._partition_on(member))

    def by_member(self) -> dict[str, Data]:
        """Return the rows of each dataset. All sources are planned before the first is read.

        Raises at once what can be known without reading all rows: SourceNotFound, SchemaMismatch, PartitionInvalid …
        """
        members = {member.name: member for member in self.job.cube.members}
        found: dict[str, Data] = {}
        for rows in self.job.rows:
            if rows.name not in members:
                raise InputError(f"the job has rows for dataset {rows.name!r}, and no claim on it")
            found[rows.name] = self._data(rows, members[rows.name])
        return found

    def _data(self, rows: CubeRows, member: CubeMemberRef) -> Data:
        reader = self.held.enter_context(SourceReader(translate.source(rows.source, self.job.store)))
        self.reporter.report("Reading")
        plan = reader.plan()
        if plan.total_bytes >= self.job.spark.from_bytes:
            return self._writer(rows, member)
        return self._stream(reader, plan, member)

    # --- in this process ---

    def _stream(self, reader: SourceReader, plan: SourcePlan, member: CubeMemberRef) -> pa.RecordBatchReader:
        stored, partition_on, zones = self._stored.get(member.name, (None, self._partition_on(member), {}))
        reading, _ = decide_schemas(
            declared=reader.source.columns,
            table=stored,
            contract=translate.schema(member.dataset.table.columns),
            partition_on=partition_on,
            infer=partial(reader.infer_schema, plan),
            evolve=translate.evolves(member.dataset.table),
            zones=zones,
        )
        return reader.read_all(plan, reading, partition_on, partial(self.reporter.report, "Reading"))

    @cached_property
    def _stored(self) -> Mapping[str, tuple[pa.Schema, tuple[str, ...], Mapping[str, str]]]:
        """Columns, partition columns and zones of datasets that rows are added to; none if rows take their place."""
        if self.job.operation not in ("Append", "Update"):
            return {}
        try:
            there = self.cube.snapshot().members
        except DatasetNotFound:
            return {}
        return {
            name: (member.schema, member.partition_on, zones_of(member.snapshot.head.metadata))
            for name, member in there.items()
        }

    def _partition_on(self, member: CubeMemberRef) -> tuple[str, ...]:
        return self.job.cube.partition_columns if member.partition_on is None else member.partition_on

    # --- by Spark ---

    def _writer(self, rows: CubeRows, member: CubeMemberRef) -> Writer:
        inflow = Inflow(rows.source, self.job.store, member.dataset, self.job.spark)

        def write(name: str, snapshot: Snapshot, check: CheckSchema) -> Written:
            def require(schema: pa.Schema, _: Layout) -> Predicate | None:
                check(schema)
                return None

            arrange = partial(_arranged, self.cube.spec, name) if snapshot.schema is None else None
            zones = zones_of(snapshot.head.metadata)
            return write_source(
                inflow,
                self.store,
                snapshot,
                self.reporter,
                table=snapshot.schema,
                check=require,
                arrange=arrange,
                zones=zones,
            )

        return write


def _arranged(spec: CubeSpec, name: str, schema: pa.Schema, layout: Layout) -> tuple[Layout, Mapping[str, IndexKind]]:
    """Return the layout sorted by the cube's dimensions, and the indices that the cube needs."""
    keys = layout.partition_on
    order = tuple(column for column in spec.dimension_columns if column in schema.names and column not in keys)
    wanted = validation.indexed(spec, name, schema, keys)
    return replace(layout, sort_by=order), dict.fromkeys(wanted, IndexKind.KARTOTHEK)
