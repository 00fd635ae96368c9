"""Writes of rows to data files: of a source's files, in this process or with Spark, or of a statement, as a stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from kubothek.api.jobs import CommitJob, DatasetRef, IntakeJob, SourceSpec, SparkSettings, StoreRef
from kubothek.cores import available_cores
from kubothek.errors import DataTypeMismatch, SourceChanged
from kubothek.ingest import Ingest, SourcePlan, SourceReader, decide_schemas, ingest_here
from kubothek.jobs import translate
from kubothek.jobs.progress import Reporter
from kubothek.storage import Store
from kubothek.table.expressions import Predicate
from kubothek.table.files import PartitionedWriter
from kubothek.table.indexes import IndexKind, check_indexable
from kubothek.table.layout import Layout
from kubothek.table.log import PartitionFile, Snapshot
from kubothek.table.log.prepare.draft import require_rows_open
from kubothek.table.operations import Written, require_met
from kubothek.table.operations.written import Gatherer, Gathering
from kubothek.table.schema import with_nulls
from kubothek.table.skipping.model import SkippingState
from kubothek.table.skipping.refresh import beginning
from kubothek.table.time_zones import declared_zones, expected_zones, zones_after, zones_in, zones_of
from kubothek.tracing import span

if TYPE_CHECKING:
    from kubothek.sql.result import Answer  # imports DuckDB, which most jobs do not need

Check = Callable[[pa.Schema, Layout], Predicate | None]
"""Takes the stored schema and the layout of the rows; raises if they are not allowed, and returns the bound filter that
each row must satisfy, if any."""
Arrange = Callable[[pa.Schema, Layout], tuple[Layout, Mapping[str, IndexKind]]]
"""Takes the same arguments; returns the layout of the rows and the indices of a new table."""


@dataclass(frozen=True, slots=True)
class Inflow:
    """One of several sources of a job, and the dataset that gets its rows."""

    source: SourceSpec
    store: StoreRef
    dataset: DatasetRef
    spark: SparkSettings


def write_source(
    job: CommitJob | IntakeJob | Inflow,
    store: Store,
    snapshot: Snapshot,
    reporter: Reporter,
    *,
    table: pa.Schema | None,
    check: Check = lambda schema, layout: None,
    arrange: Arrange | None = None,
    versions: Mapping[str, str] | None = None,
    zones: Mapping[str, str] | None = None,
) -> Written:
    """Read, validate and write the rows; first make every check that does not read all rows.

    ``table``     stored schema that the rows must fit
    ``versions``  required ETag of each source file; empty allows any
    ``zones``     time zones of the table's columns; None stores all times as naive UTC

    Raises LakeError; no head references the files written before.
    """
    assert job.source is not None, "asked only for operations that have one"
    require_rows_open(snapshot.head)
    layout = Layout.of(snapshot.head, translate.layout(job.dataset, snapshot.head))
    evolves = translate.evolves(job.dataset.table)
    source = translate.source(job.source, job.store)
    with SourceReader(source) as reader:
        reporter.report("Reading")
        with span("plan") as planning:
            plan = reader.plan()
            planning.set(files=len(plan.files), bytes=plan.total_bytes)
            _require_versions(plan, versions or {})
            reading, stored = decide_schemas(
                declared=source.columns,
                table=table,
                contract=translate.schema(job.dataset.table.columns),
                partition_on=layout.partition_on,
                infer=partial(reader.infer_schema, plan),
                evolve=evolves,
                zones=zones,
            )
        if arrange is None:
            wanted: Mapping[str, IndexKind] = _wanted(job.dataset, snapshot, stored, layout.partition_on)
        else:
            layout, wanted = arrange(stored, layout)
        layout.check(stored)
        begins = skipping_to_begin_with(job.dataset, store, snapshot, stored, layout.partition_on)
        ingest = Ingest(
            source=source,
            plan=plan,
            reading=reading,
            store=store.config,
            uuid=job.dataset.uuid,
            table=snapshot.head.table,
            stored=stored,
            layout=layout,
            where=check(stored, layout),
            gathering=Gathering.of(snapshot, stored, wanted, begins),
        )
        gatherer = ingest.gatherer(store)
        files = _write(job, store, ingest, reader, reporter, gatherer)
    return Written(
        tuple(files),
        stored,
        layout.partition_on,
        layout.to_json(),
        evolves,
        gathered=gatherer.finish(),
        wanted=wanted,
        dialect=translate.dialect(job.dataset.table) if snapshot.schema is None else None,
        begins=begins,
        zones={} if zones is None else expected_zones(reading),
    )


def write_answer(
    answer: Answer,
    store: Store,
    dataset: DatasetRef,
    snapshot: Snapshot,
    report: Callable[[int], None],
    *,
    table: pa.Schema | None,
    check: Check = lambda schema, layout: None,
) -> Written:
    """Write the rows of a statement, batch by batch; first make every check that does not read all rows.

    ``report``  gets the number of rows written so far
    ``table``   stored schema that the rows must fit

    A result without rows is one: no files, and the schema of the statement. Raises LakeError; no head references the
    files written before.
    """
    require_rows_open(snapshot.head)
    layout = Layout.of(snapshot.head, translate.layout(dataset, snapshot.head))
    evolves, contract = translate.evolves(dataset.table), translate.schema(dataset.table.columns)
    reader = answer.rows()
    reading, stored = decide_schemas(
        declared=reader.schema,
        table=table,
        contract=contract,
        partition_on=layout.partition_on,
        infer=lambda: reader.schema,
        evolve=evolves,
    )
    zones, asked = zones_in(reader.schema), declared_zones(contract)
    zones_after(table, zones_of(snapshot.head.metadata), zones)
    if snapshot.schema is None:
        zones = zones_after(stored, asked, zones) | {name: zone for name, zone in zones.items() if name not in asked}
    layout.check(stored)
    wanted = _wanted(dataset, snapshot, stored, layout.partition_on)
    begins = skipping_to_begin_with(dataset, store, snapshot, stored, layout.partition_on)
    where = check(stored, layout)
    gathering = Gathering.of(snapshot, stored, wanted, begins)
    gatherer = gathering.gatherer(store, dataset.uuid, snapshot.head.table, stored, layout.partition_on)
    rows = 0
    with PartitionedWriter(
        store,
        dataset.uuid,
        stored,
        layout,
        table=snapshot.head.table,
        observer=gatherer,
        cores=available_cores(),
    ) as writer:
        for batch in reader:
            _require_values(batch, reading)
            if where is not None:
                require_met(where, batch, "the result", rows + 1)
            writer.write(with_nulls(batch, stored))
            rows += batch.num_rows
            report(rows)
        files = writer.finish()
    return Written(
        tuple(files),
        stored,
        layout.partition_on,
        layout.to_json(),
        evolves,
        gathered=gatherer.finish(),
        wanted=wanted,
        dialect=translate.dialect(dataset.table) if snapshot.schema is None else None,
        begins=begins,
        zones=zones,
    )


def _require_values(batch: pa.RecordBatch, reading: pa.Schema) -> None:
    """Raise DataTypeMismatch for a null in a column that is not nullable."""
    for field in reading:
        if not field.nullable and batch.column(field.name).null_count:
            raise DataTypeMismatch(f"column {field.name!r} of the result has a null, which table.schema rules out")


def skipping_to_begin_with(
    dataset: DatasetRef, store: Store, snapshot: Snapshot, stored: pa.Schema, partition_on: Sequence[str]
) -> SkippingState | None:
    """Return the skipping metadata of a table that gets its first rows; a later job chooses automatic indices."""
    if dataset.table.skipping is None or snapshot.schema is not None or snapshot.head.skipping.indices:
        return None
    return beginning(store, translate.skipping(dataset.table.skipping), stored, partition_on)


def _wanted(
    dataset: DatasetRef, snapshot: Snapshot, stored: pa.Schema, partition_on: Sequence[str]
) -> dict[str, IndexKind]:
    """Return the indices to build with the first rows of a table; an index job builds later ones.

    Raises IndexInvalid for a column that cannot have an index.
    """
    asked = (translate.indices(dataset.table) or {}) if snapshot.schema is None else {}
    check_indexable(stored, partition_on, asked.items())
    return asked


def _require_versions(plan: SourcePlan, versions: Mapping[str, str]) -> None:
    if other := [file.name for file in plan.files if versions.get(file.name, file.fingerprint) != file.fingerprint]:
        raise SourceChanged(f"{other[0]!r} was replaced since it was listed; the next inspection finds the new one")


def _write(
    job: CommitJob | IntakeJob | Inflow,
    store: Store,
    ingest: Ingest,
    reader: SourceReader,
    reporter: Reporter,
    gatherer: Gatherer,
) -> list[PartitionFile]:
    if ingest.plan.total_bytes < job.spark.from_bytes:
        total = len(ingest.plan.files)
        report = partial(_report_written, reporter, total)
        return ingest_here(ingest, reader, store, report, gatherer, cores=_cores(job.spark))
    reader.check_columns(ingest.plan, ingest.reading, ingest.layout.partition_on)  # before Spark takes time to start
    # PySpark takes half a second to import, and jobs below the limit must not need it at all.
    from kubothek.spark.session import running
    from kubothek.spark.write import write_with_spark

    with running(job.spark.conf, ingest.plan.total_bytes) as session:
        return write_with_spark(session, ingest, reader, partial(reporter.report, "Writing"), gatherer)


def _cores(spark: SparkSettings) -> int:
    """Return the cores that the Engine gives the driver, if the process has as many."""
    available = available_cores()
    return min(available, int(spark.conf.get("spark.driver.cores", available)))


def _report_written(reporter: Reporter, total: int, done: int, rows: int) -> None:
    reporter.report("Writing", done, total, rows)
