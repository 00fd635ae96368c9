"""One query, in SQL or of a cube; its rows are written exactly once, as a file or as the content of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa

from kubothek.api.jobs import DatasetRef, JobResult, QueryDataset, QueryJob, QueryLocation, QueryOutcome, QueryRead
from kubothek.errors import DataTypeMismatch, InputError
from kubothek.ingest import decide_schemas
from kubothek.jobs import cube_query, translate
from kubothek.jobs.ingest import skipping_to_begin_with
from kubothek.jobs.outcome import shortened
from kubothek.jobs.progress import Reporter
from kubothek.jobs.state import state_of
from kubothek.sandbox import limited
from kubothek.sandboxed_sql import LimitedQuery, OneStore, in_process
from kubothek.sql import Limits
from kubothek.sql.read import Read
from kubothek.sql.result import Answer, Destination, Result, clean_up, digest, find, publish
from kubothek.storage import Store, open_store
from kubothek.table.files import PartitionedWriter
from kubothek.table.layout import Layout
from kubothek.table.log import AlreadyApplied, Committed, Snapshot
from kubothek.table.operations import Written, overwrite
from kubothek.table.operations.written import Gathering
from kubothek.table.time_zones import declared_zones, zones_after, zones_in, zones_of
from kubothek.words import count

_MOST_READS: Final = 16
_FILTER_LIMIT: Final = 60


def run(job: QueryJob, store: Store, reporter: Reporter) -> JobResult:
    """Run the query, unless its result exists already. Raises LakeError and leaves the destination unchanged."""
    reporter.report("Starting")
    if job.sql is not None and limited.available():
        limited.start(0)
    if job.becomes is not None:
        return _into_dataset(job, job.becomes, store, reporter)
    assert job.location is not None, "a rule of the kind"
    return _into_file(job, job.location, store, reporter)


def _prepare(job: QueryJob, store: Store, reporter: Reporter) -> Answer:
    reporter.report("Planning")
    as_of = (job.as_of_version or job.as_of_tag) if job.as_of_time is None else _moment(job.as_of_time, "asOf.time")
    if job.cube is not None:
        asked = cube_query.prepare(job.cube, store, as_of)
        reporter.report("Running")
        return asked
    if job.sql is None:
        raise InputError("a query has a statement, or asks a cube")
    limits = Limits(f"{job.memory_bytes >> 20}MiB", job.time_limit_seconds)
    as_at = None if job.as_at is None else _moment(job.as_at, "asAt")
    query: Answer
    if limited.available():
        query = LimitedQuery(OneStore(store, as_of, as_at), job.sql, limits)
    else:  # a workstation, whose user wrote the text
        query = in_process(OneStore(store, as_of, as_at), job.sql, limits)
    reporter.report("Running")
    return query


def _question(job: QueryJob) -> tuple[object, ...]:
    """Return what identifies a query."""
    asked = job.sql if job.cube is None else job.cube.model_dump_json(exclude_defaults=True)
    at = () if job.as_at is None else (f"at {job.as_at}",)
    return asked, f"tag {job.as_of_tag}" if job.as_of_tag else job.as_of_version, job.as_of_time, *at


def _moment(text: str, field: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InputError(f"{field} {text!r} is no time; write it as 2026-11-21T14:00:00Z") from None


def _report(reporter: Reporter) -> Callable[[int], None]:
    return lambda rows: reporter.report("Running", rows=rows)


# --- a file ---------------------------------------------------------------------------------------------------------


def _into_file(job: QueryJob, location: QueryLocation, store: Store, reporter: Reporter) -> JobResult:
    target = open_store(translate.store_config(location.store))
    what = digest(*_question(job), location.path, location.format)
    destination = Destination(job.uid, job.attempt, what, location.path, location.format)
    result = find(target, destination)
    if result is None:
        result = publish(target, destination, _prepare(job, store, reporter), _report(reporter))
    clean_up(target, destination, result)
    message = f"{count(result.rows, 'row')} in {result.location}"
    return JobResult(outcome="Succeeded", reason="Succeeded", message=message, query=_file_outcome(result))


def _file_outcome(result: Result) -> QueryOutcome:
    return QueryOutcome(
        location=result.location, rows=result.rows, files=1, bytes=result.bytes, reads=_reads(result.reads)
    )


def _reads(reads: Sequence[Read]) -> tuple[QueryRead, ...]:
    """Return the first few reads, as a result has little room."""
    return tuple(
        QueryRead(
            dataset=read.name,
            version=read.version,
            files=read.files,
            considered=read.considered,
            skipped=read.skipped,
            filters=tuple(shortened(text, _FILTER_LIMIT) for text in read.filters),
        )
        for read in reads[:_MOST_READS]
    )


# --- a dataset ------------------------------------------------------------------------------------------------------


def _into_dataset(job: QueryJob, becomes: QueryDataset, store: Store, reporter: Reporter) -> JobResult:
    target = open_store(translate.store_config(becomes.store))
    log = translate.dataset_log(target, becomes.dataset, conditional_writes=becomes.store.conditional_writes)
    started = log.begin(becomes.commit_id, digest(*_question(job)))
    reads: tuple[QueryRead, ...] = ()
    if isinstance(started, AlreadyApplied):
        done: AlreadyApplied | Committed = started
    else:
        query = _prepare(job, store, reporter)
        reads = _reads(query.reads)
        written = _write(query, target, becomes.dataset, started.snapshot, _report(reporter))
        if written.files:
            started.note_written(written.files[0].key)
        reporter.report("Committing", rows=sum(file.rows for file in written.files))
        done = started.commit(overwrite(started.snapshot, written, by=becomes.dataset.claim.owner))
    added = done.added
    outcome = QueryOutcome(version=done.version, rows=added.rows, files=added.files, bytes=added.bytes, reads=reads)
    return JobResult(
        outcome="Succeeded",
        reason="Succeeded",
        message=f"{count(added.rows, 'row')} in version {done.version} of {becomes.dataset.uuid}",
        query=outcome,
        dataset=state_of(target, log, becomes.dataset),
    )


def _write(
    query: Answer, store: Store, dataset: DatasetRef, snapshot: Snapshot, report: Callable[[int], None]
) -> Written:
    """Write the rows to data files. Raises SchemaMismatch, PartitionInvalid before the first row is read."""
    layout = Layout.of(snapshot.head, translate.layout(dataset, snapshot.head))
    reader = query.rows()
    contract = translate.schema(dataset.table.columns)
    reading, stored = decide_schemas(
        declared=reader.schema,
        table=snapshot.schema,
        contract=contract,
        partition_on=layout.partition_on,
        infer=lambda: reader.schema,
    )
    zones, asked = zones_in(reader.schema), declared_zones(contract)
    zones_after(snapshot.schema, zones_of(snapshot.head.metadata), zones)
    if snapshot.schema is None:
        zones = zones_after(stored, asked, zones) | {name: zone for name, zone in zones.items() if name not in asked}
    begins = skipping_to_begin_with(dataset, store, snapshot, stored, layout.partition_on)
    gathering = Gathering.of(snapshot, stored, begins=begins)
    gatherer = gathering.gatherer(store, dataset.uuid, snapshot.head.table, stored, layout.partition_on)
    rows, table = 0, snapshot.head.table
    with PartitionedWriter(store, dataset.uuid, stored, layout, table=table, observer=gatherer) as writer:
        for batch in reader:
            _require_values(batch, reading)
            writer.write(batch)
            rows += batch.num_rows
            report(rows)
        files = writer.finish()
    return Written(
        tuple(files),
        stored,
        layout.partition_on,
        layout.to_json(),
        gathered=gatherer.finish(),
        begins=begins,
        zones=zones,
    )


def _require_values(batch: pa.RecordBatch, reading: pa.Schema) -> None:
    """Raise DataTypeMismatch for a null in a column that is not nullable."""
    for field in reading:
        if not field.nullable and batch.column(field.name).null_count:
            raise DataTypeMismatch(f"column {field.name!r} of the result has a null, which table.schema rules out")
