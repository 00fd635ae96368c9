"""Writing the rows of a commit's source into data files, in this process or with Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from kubothek.api.jobs import CommitJob, DatasetRef, IntakeJob, SourceSpec, SparkSettings, StoreRef
from kubothek.errors import SourceChanged
from kubothek.ingest import Ingest, SourcePlan, SourceReader, decide_schemas, ingest_here
from kubothek.jobs import translate
from kubothek.jobs.progress import Reporter
from kubothek.storage import Store
from kubothek.table.expressions import Predicate
from kubothek.table.indexes import IndexKind, check_indexable
from kubothek.table.layout import Layout
from kubothek.table.log import PartitionFile, Snapshot
from kubothek.table.log.prepare.draft import require_rows_open
from kubothek.table.operations import Written
from kubothek.table.operations.gathering import Gatherer, Gathering
from kubothek.table.skipping.initial import beginning
from kubothek.table.skipping.model import SkippingState
from kubothek.table.time_zones import expected_zones
from kubothek.tracing import span

Check = Callable[[pa.Schema, Layout], Predicate | None]
"""Given the stored schema and the layout of the rows to come: raises what stands against them, and gives the bound
filter that each of them has to satisfy, if any."""
Arrange = Callable[[pa.Schema, Layout], tuple[Layout, Mapping[str, IndexKind]]]
"""Given the same: how the rows are laid out, and which indices a new table gets."""


@dataclass(frozen=True, slots=True)
class Inflow:
    """One source of a job that has several, and the dataset that its rows are for."""

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
    """Read, validate and write; everything that can be checked without reading all rows is checked first.

    ``table`` is the stored schema that the rows have to fit, ``versions`` the ETag of each source file, if only that
    version will do, ``zones`` those of the table's columns, None if its times are naive UTC whatever they were. Raises
    LakeError; files that were written by then are referenced by nothing.
    """
    assert job.source is not None, "asked only for operations that have one"
    require_rows_open(snapshot.head)
    layout = Layout.of(snapshot.head, translate.layout(job.dataset, snapshot.head))
    evolves = translate.evolves(job.dataset.table)
    source = translate.source(job.source, job.store)
    with SourceReader(source) as reader:
        reporter.tell("Reading")
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
            wanted: Mapping[str, IndexKind] = _wanted(job, snapshot, stored, layout.partition_on)
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


def skipping_to_begin_with(
    dataset: DatasetRef, store: Store, snapshot: Snapshot, stored: pa.Schema, partition_on: Sequence[str]
) -> SkippingState | None:
    """The skipping metadata of a table whose first rows come; indices that are to be chosen, a later job chooses."""
    if dataset.table.skipping is None or snapshot.schema is not None or snapshot.head.skipping.indices:
        return None
    return beginning(store, translate.skipping(dataset.table.skipping), stored, partition_on)


def _wanted(
    job: CommitJob | IntakeJob | Inflow, snapshot: Snapshot, stored: pa.Schema, partition_on: Sequence[str]
) -> dict[str, IndexKind]:
    """Indices to make with the first rows of a table; later ones are a job's to make.

    Raises IndexInvalid for a column that cannot have one.
    """
    asked = (translate.indices(job.dataset.table) or {}) if snapshot.schema is None else {}
    check_indexable(stored, partition_on, asked.items())
    return asked


def _require_versions(plan: SourcePlan, versions: Mapping[str, str]) -> None:
    if other := [file.name for file in plan.files if versions.get(file.name, file.fingerprint) != file.fingerprint]:
        raise SourceChanged(f"{other[0]!r} was replaced since it was listed; the next look finds the new one")


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
        told = partial(_tell, reporter, total)
        return ingest_here(ingest, reader, store, told, gatherer)
    reader.check_columns(ingest.plan, ingest.reading, ingest.layout.partition_on)  # before Spark takes time to start
    # PySpark takes half a second to import, and jobs below the limit must not need it at all.
    from kubothek.spark.session import running
    from kubothek.spark.write import write_with_spark

    with running(job.spark.conf, ingest.plan.total_bytes) as session:
        return write_with_spark(session, ingest, reader, partial(reporter.tell, "Writing"), gatherer)


def _tell(reporter: Reporter, total: int, done: int, rows: int) -> None:
    reporter.tell("Writing", done, total, rows)
