"""One query, in SQL or of a cube; its rows are written exactly once, as a file or as the content of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from kubothek.api.jobs import JobResult, QueryDataset, QueryJob, QueryLocation, QueryOutcome, QueryRead, StatementSpec
from kubothek.errors import InputError
from kubothek.jobs import cube_query, open_lineage, statement, translate
from kubothek.jobs.ingest import write_answer
from kubothek.jobs.open_lineage import LineageDataset, Run
from kubothek.jobs.outcome import shortened
from kubothek.jobs.progress import Reporter
from kubothek.jobs.state import state_of
from kubothek.sql.read import Read, json_lines
from kubothek.sql.result import Answer, Destination, Result, clean_up, digest, find, publish
from kubothek.storage import Store, open_store
from kubothek.table.log import AlreadyApplied, Change, Committed, DatasetLog, Snapshot, Transaction
from kubothek.table.operations import overwrite
from kubothek.table.operations.merging import Merge, Merger
from kubothek.table.scratch import Scratch
from kubothek.words import count

_MOST_READS: Final = 16
_FILTER_LIMIT: Final = 60


def run(job: QueryJob, store: Store, reporter: Reporter) -> JobResult:
    """Run the query, unless its result exists already. Raises LakeError and leaves the destination unchanged."""
    reporter.report("Starting")
    if job.sql is not None:
        statement.expect()
    target = job.becomes or job.location
    assert target is not None, "a rule of the kind"
    name = target.path if isinstance(target, QueryLocation) else target.dataset.uuid
    lineage = Run(
        id=f"{job.uid}/{job.attempt}",
        job=(job.lineage and job.lineage.job) or name,
        type="QUERY",
        sql=job.sql,
        output=LineageDataset(target.store.url, name),
    )
    with open_lineage.reporting(job.lineage, lambda: lineage):
        if isinstance(target, QueryLocation):
            return _into_file(job, target, store, reporter, lineage)
        return _into_dataset(job, target, store, reporter, lineage)


def _prepare(job: QueryJob, store: Store, reporter: Reporter) -> Answer:
    reporter.report("Planning")
    if job.cube is not None:
        as_of = statement.as_of(job.as_of_version, job.as_of_time, job.as_of_tag)
        answer: Answer = cube_query.prepare(job.cube, store, as_of)
    else:
        answer = statement.plan(_statement(job), store)
    reporter.report("Running")
    return answer


def _statement(job: QueryJob) -> StatementSpec:
    if job.sql is None:
        raise InputError("a query has a statement, or asks a cube")
    return StatementSpec(
        store=job.store,
        sql=job.sql,
        as_of_version=job.as_of_version,
        as_of_time=job.as_of_time,
        as_of_tag=job.as_of_tag,
        as_at=job.as_at,
        memory_bytes=job.memory_bytes,
        time_limit_seconds=job.time_limit_seconds,
    )


def _question(job: QueryJob) -> tuple[object, ...]:
    """Return what identifies a query."""
    asked = job.sql if job.cube is None else job.cube.model_dump_json(exclude_defaults=True)
    at = () if job.as_at is None else (f"at {job.as_at}",)
    return asked, f"tag {job.as_of_tag}" if job.as_of_tag else job.as_of_version, job.as_of_time, *at


def _report(reporter: Reporter) -> Callable[[int], None]:
    return lambda rows: reporter.report("Running", rows=rows)


# --- a file ---------------------------------------------------------------------------------------------------------


def _into_file(job: QueryJob, location: QueryLocation, store: Store, reporter: Reporter, lineage: Run) -> JobResult:
    target = open_store(translate.store_config(location.store))
    what = digest(*_question(job), location.path, location.format)
    destination = Destination(job.uid, job.attempt, what, location.path, location.format)
    result = find(target, destination)
    if result is None:
        result = publish(target, destination, _prepare(job, store, reporter), _report(reporter))
    clean_up(target, destination, result)
    lineage.note_reads(job.store.url, result.reads)
    lineage.output = replace(lineage.output, version=result.location.rpartition("/")[2], rows=result.rows)
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


def _into_dataset(job: QueryJob, becomes: QueryDataset, store: Store, reporter: Reporter, lineage: Run) -> JobResult:
    target = open_store(translate.store_config(becomes.store))
    log = translate.dataset_log(target, becomes.dataset, conditional_writes=becomes.store.conditional_writes)
    merged = ("merge by", *becomes.key) if becomes.key else ()
    what = digest(*_question(job), *merged)
    started = log.begin(becomes.commit_id, what)
    reads: tuple[QueryRead, ...] = ()
    if isinstance(started, AlreadyApplied):
        done: AlreadyApplied | Committed = started
    else:
        query = _prepare(job, store, reporter)
        reads = _reads(query.reads)
        lineage.note_reads(job.store.url, query.reads)
        _require_other_inputs(job, becomes, query)
        if becomes.key:
            with Scratch() as scratch:
                done, schema = _merge(becomes, query, target, log, started, what, scratch, reporter)
        else:
            now = started.snapshot
            written = write_answer(query, target, becomes.dataset, now, _report(reporter), table=now.schema)
            if written.files:
                started.note_written(written.files[0].key)
            reporter.report("Committing", rows=sum(file.rows for file in written.files))
            done = started.commit(overwrite(now, written, by=becomes.dataset.claim.owner))
            schema = written.schema
        lineage.output = replace(lineage.output, schema=schema, rows=done.added.rows)
    lineage.output = replace(lineage.output, version=str(done.version))
    added = done.added
    outcome = QueryOutcome(version=done.version, rows=added.rows, files=added.files, bytes=added.bytes, reads=reads)
    return JobResult(
        outcome="Succeeded",
        reason="Succeeded",
        message=f"{count(added.rows, 'row')} in version {done.version} of {becomes.dataset.uuid}",
        query=outcome,
        dataset=state_of(target, log, becomes.dataset),
    )


def _require_other_inputs(job: QueryJob, becomes: QueryDataset, query: Answer) -> None:
    """Raise InputError if a merge or a standing query reads the dataset of its result, at any version."""
    if not becomes.key and becomes.run is None:
        return
    if statement.reads_own_dataset(job.store, becomes, query):
        raise InputError(
            f"the query reads {becomes.dataset.uuid!r}, the dataset of its result, so each run would depend on the one "
            "before; let the rows become another Dataset"
        )


def _merge(
    becomes: QueryDataset,
    query: Answer,
    target: Store,
    log: DatasetLog,
    started: Transaction,
    what: str,
    scratch: Scratch,
    reporter: Reporter,
) -> tuple[Committed | AlreadyApplied, pa.Schema | None]:
    """Merge the rows by key in one commit, and return it with the schema of the table.

    A dataset without a version gets an empty one first, in a commit of its own, so that the first rows are checked as
    all later ones are. Raises Conflict if another commit changed the same rows: the rows of the query may be older than
    those, so the next attempt reads again.
    """
    rows = query.rows()
    if not started.snapshot.exists:
        _create_table(becomes, rows.schema, target, log, what)
        again = log.begin(becomes.commit_id, what)
        if isinstance(again, AlreadyApplied):  # by another attempt, since this one began
            return again, None
        started = again
    clauses = Merge.of(becomes.key, [{"action": "Update"}], [{"action": "Insert"}], [])
    evolve = translate.evolves(becomes.dataset.table)
    with started as now:
        merger = Merger(target, clauses, evolve=evolve, since=now.records_between, by=becomes.dataset.claim.owner)
        merger.read(now.snapshot, rows, scratch)

        def make(snapshot: Snapshot) -> Change:
            return now.note_added(merger.change(snapshot))

        change = make(now.snapshot)
        reporter.report("Committing", rows=sum(file.rows for file in change.added))
        return now.commit(change, on_conflict=make, on_compaction=make), change.schema


def _create_table(becomes: QueryDataset, schema: pa.Schema, target: Store, log: DatasetLog, what: str) -> None:
    """Commit an empty table with these columns, exactly once."""
    created = log.begin(f"{becomes.commit_id}/table", what)
    if isinstance(created, AlreadyApplied):
        return
    now, nothing = created.snapshot, _Empty(schema)
    written = write_answer(nothing, target, becomes.dataset, now, lambda rows: None, table=now.schema)
    created.commit(overwrite(now, written, by=becomes.dataset.claim.owner))


@dataclass(frozen=True, slots=True)
class _Empty:
    """An answer with columns and without rows."""

    schema: pa.Schema
    reads: tuple[Read, ...] = ()

    def rows(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, [])

    def lines(self) -> pa.RecordBatchReader:
        return json_lines(self.rows())
