"""A merge by key: the rows of a source or of a statement, read once, and the change that they make.

Files from the Engine's ``sparkFrom`` on are merged with Spark. The rows of a statement are a stream of this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial

import pyarrow as pa

from kubothek.api.jobs import CommitJob, StatementSpec
from kubothek.api.merge import MergeClause
from kubothek.errors import InputError
from kubothek.ingest import SourcePlan, SourceReader, decide_schemas, require_rows
from kubothek.jobs import statement, translate
from kubothek.jobs.open_lineage import Run
from kubothek.jobs.progress import Reporter
from kubothek.storage import Store
from kubothek.table.log import Change, Snapshot, Transaction
from kubothek.table.log.prepare.draft import require_rows_open
from kubothek.table.operations.merging import Merge, Merger
from kubothek.table.scratch import Scratch
from kubothek.table.time_zones import zones_of


def prepare(
    job: CommitJob, store: Store, now: Transaction, held: ExitStack, reporter: Reporter, lineage: Run
) -> Callable[[Snapshot], Change]:
    """Read the rows, which ``held`` releases, and return the function that makes the change for a snapshot.

    That function raises Conflict by itself, unless ``job.on_conflict`` is ``Retry``. Raises LakeError, before anything
    is written to the table.
    """
    require_rows_open(now.snapshot.head)
    merger = Merger(
        store,
        _clauses(job),
        evolve=translate.evolves(job.dataset.table),
        since=now.records_between,
        on_conflict=job.on_conflict,
        by=job.dataset.claim.owner,
    )
    reporter.report("Reading")
    if job.statement is None:
        _read_files(job, store, merger, now.snapshot, held, reporter)
    else:
        rows = _rows_of_statement(job, job.statement, store, lineage)
        merger.read(now.snapshot, rows, held.enter_context(Scratch()))
    reporter.report("Writing")
    return merger.change


def _clauses(job: CommitJob) -> Merge:
    def fields(clauses: Sequence[MergeClause]) -> list[dict[str, object]]:
        return [clause.model_dump(by_alias=True, exclude_none=True) for clause in clauses]

    return Merge.of(
        job.key, fields(job.when_matched), fields(job.when_not_matched), fields(job.when_not_matched_by_source)
    )


def _rows_of_statement(job: CommitJob, asked: StatementSpec, store: Store, lineage: Run) -> pa.RecordBatchReader:
    """Raises InputError for a statement that reads the dataset that the merge changes, of which it would depend."""
    answer = statement.plan(asked, statement.store_of(asked, job, store))
    lineage.note_reads(asked.store.url, answer.reads)
    if statement.reads_own_dataset(asked.store, job, answer):
        raise InputError(
            f"source.sql reads {job.dataset.uuid!r}, which this Merge changes; let a Query write the rows to another "
            "Dataset first, and read that"
        )
    return answer.rows()


def _read_files(
    job: CommitJob, store: Store, merger: Merger, snapshot: Snapshot, held: ExitStack, reporter: Reporter
) -> None:
    """Read the rows of all files, in the types that the table has for their columns, and the declared time zones."""
    assert job.source is not None, "a rule of the kind"
    source = translate.source(job.source, job.store)
    reader = held.enter_context(SourceReader(source))
    plan = reader.plan()
    reading, _ = decide_schemas(
        declared=source.columns,
        table=snapshot.schema,
        contract=translate.schema(job.dataset.table.columns),
        partition_on=(),
        infer=partial(reader.infer_schema, plan),
        evolve=True,  # a source need not have all columns, and may have others for expressions
        zones=zones_of(snapshot.head.metadata),
    )
    if plan.total_bytes < job.spark.from_bytes:
        rows = _rows_of_files(reader, plan, reading, reporter)
        merger.read(snapshot, pa.RecordBatchReader.from_batches(reading, rows), held.enter_context(Scratch()))
        return
    reader.check_columns(plan, reading)  # before Spark takes time to start
    # PySpark takes half a second to import, and jobs below the limit must not need it at all.
    from kubothek.spark import session as spark_session
    from kubothek.spark.merging import spark_merges

    session = held.enter_context(spark_session.running(job.spark.conf, plan.total_bytes))
    merges = held.enter_context(spark_merges(session, store.config, job.dataset.uuid, reporter.report))
    merger.read_with(
        snapshot,
        reading,
        lambda schema: merges.rows_of_files(source, plan, reader, reading, schema, job.key),
    )


def _rows_of_files(
    reader: SourceReader, plan: SourcePlan, reading: pa.Schema, reporter: Reporter
) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in reader.read_all(plan, reading, report=partial(reporter.report, "Reading")):
        rows += batch.num_rows
        yield batch
    require_rows(plan, rows)
