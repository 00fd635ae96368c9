"""Commit a source to a dataset, exactly once."""

from __future__ import annotations

from functools import partial

from kubothek.jobs import translate
from kubothek.jobs.progress import Reporter
from kubothek.lake.commits import AlreadyApplied, Change, Committed, Operation, PartitionFile, Snapshot
from kubothek.lake.errors import PartitionInvalid
from kubothek.lake.sources import Ingest, SourceReader, decide_schemas, ingest_here
from kubothek.lake.store import Store
from kubothek.resources.jobs import CommitJob, CommitOutcome, JobResult


def run(job: CommitJob, store: Store, reporter: Reporter) -> JobResult:
    """Do it, or learn that it was done. Raises LakeError with the head as it was.

    The order (commit-protocol): claim and marker, then everything that can be checked without reading all
    rows, then data files under new names, then the swap. An append reads nothing, so ``on_conflict`` never matters.
    """
    reporter.tell("Starting")
    log = translate.dataset_log(store, job.dataset, conditional_writes=store.probe().conditional_writes)
    started = log.begin(job.commit_id, job.digest)
    if isinstance(started, AlreadyApplied):
        outcome = _outcome(started, already_applied=True)
        message = f"version {started.version} had made this change before"
    else:
        ingest, files = _ingest(job, store, started.snapshot, reporter)
        reporter.tell("Committing", rows=sum(file.rows for file in files))
        change = Change(
            operation=Operation.APPEND,
            added=tuple(files),
            schema=ingest.stored,
            partition_keys=ingest.partition_on,
            by=job.dataset.claim.owner,
        )
        committed = started.commit(change)
        outcome = _outcome(committed, already_applied=False)
        message = f"version {committed.version}: {outcome.rows} rows in {outcome.files} files added"
    state = translate.dataset_state(log.inspect())
    return JobResult(outcome="Succeeded", reason="Succeeded", message=message, commit=outcome, dataset=state)


def _ingest(job: CommitJob, store: Store, snapshot: Snapshot, reporter: Reporter) -> tuple[Ingest, list[PartitionFile]]:
    table = job.dataset.table
    if snapshot.schema is not None and snapshot.head.partition_keys != table.partition_on:
        raise PartitionInvalid(
            f"dataset {job.dataset.uuid!r} is partitioned on {list(snapshot.head.partition_keys)}, not on "
            f"{list(table.partition_on)}; that cannot be changed, correct table.partitionOn"
        )
    source = translate.source(job.source, job.store)
    with SourceReader(source) as reader:
        reporter.tell("Reading")
        plan = reader.plan()
        reading, stored = decide_schemas(
            declared=source.columns,
            table=snapshot.schema,
            contract=translate.schema(table.columns),
            partition_on=table.partition_on,
            infer=partial(reader.infer_schema, plan),
        )
        ingest = Ingest(
            source=source,
            plan=plan,
            reading=reading,
            store=store.config,
            uuid=job.dataset.uuid,
            table=snapshot.head.table,
            stored=stored,
            partition_on=table.partition_on,
            target_file_bytes=table.target_file_bytes,
            compression=table.compression,
        )
        if plan.total_bytes < job.spark.from_bytes:
            total = len(plan.files)
            told = partial(_tell, reporter, total)
            return ingest, ingest_here(ingest, reader, store, told)
        return ingest, _with_spark(job, ingest, reader, reporter)


def _tell(reporter: Reporter, total: int, done: int, rows: int) -> None:
    reporter.tell("Writing", done, total, rows)


def _with_spark(job: CommitJob, ingest: Ingest, reader: SourceReader, reporter: Reporter) -> list[PartitionFile]:
    # PySpark takes half a second to import, and jobs below the limit must not need it at all.
    from kubothek.spark.session import running
    from kubothek.spark.write import write_with_spark

    with running(job.spark.conf) as session:
        return write_with_spark(session, ingest, reader, partial(reporter.tell, "Writing"))


def _outcome(done: AlreadyApplied | Committed, *, already_applied: bool) -> CommitOutcome:
    added = done.added
    return CommitOutcome(
        version=done.version, already_applied=already_applied, rows=added.rows, files=added.files, bytes=added.bytes
    )
