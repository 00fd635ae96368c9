"""One change of a dataset, made exactly once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from kubothek.api.jobs import CommitJob, CommitOutcome, JobResult, StatementSpec
from kubothek.errors import InputError
from kubothek.jobs import open_lineage, translate
from kubothek.jobs.ingest import Check, write_answer, write_source
from kubothek.jobs.open_lineage import LineageDataset, Run
from kubothek.jobs.progress import Reporter
from kubothek.jobs.state import state_of
from kubothek.storage import Store
from kubothek.table.expressions import Predicate, parse
from kubothek.table.layout import Layout
from kubothek.table.log import AlreadyApplied, Change, Committed, DatasetLog, Everything, Operation, Snapshot, Totals
from kubothek.table.operations import (
    Rewrite,
    Rewriter,
    Rewritten,
    Written,
    append,
    check_replace,
    delete,
    fitting,
    overwrite,
    parse_values,
    replace,
    rewrite_here,
    rollback,
    update,
)
from kubothek.table.scan.plan import PlannedFile
from kubothek.table.time_zones import zones_of
from kubothek.words import count

if TYPE_CHECKING:
    from kubothek.sql.result import Answer  # imports DuckDB

Maker = Callable[[Snapshot], Change]
"""Decides the change for a snapshot; called again for a newer snapshot after a conflict."""
Write = Callable[[Snapshot, pa.Schema | None, Check], Written]
"""Writes the rows for a snapshot; takes the stored schema that they must fit as well, and the check of their schema."""


def run(job: CommitJob, store: Store, reporter: Reporter) -> JobResult:
    """Commit the change, unless its commit id was applied before. Raises LakeError and leaves the head unchanged.

    The order (docs/commit-protocol.md): claim and marker, every check that does not read all rows, data files under
    new names, and last the swap of the head.
    """
    if job.push_source is not None:
        from kubothek.jobs import push  # imports the whole ledger

        return push.run(job, store, reporter)
    reporter.report("Starting")
    if job.statement is not None:
        from kubothek.jobs import statement  # imports DuckDB

        statement.expect()
    lineage = Run(
        id=f"{job.uid}/{job.attempt}",
        job=(job.lineage and job.lineage.job) or job.dataset.uuid,
        type="COMMIT",
        sql=None if job.statement is None else job.statement.sql,
        output=LineageDataset(job.store.url, job.dataset.uuid),
    )
    with open_lineage.reporting(job.lineage, lambda: lineage):
        return _commit(job, store, reporter, lineage)


def _commit(job: CommitJob, store: Store, reporter: Reporter, lineage: Run) -> JobResult:
    log = translate.dataset_log(store, job.dataset, conditional_writes=job.store.conditional_writes)
    started = log.begin(job.commit_id, job.digest)
    if isinstance(started, AlreadyApplied):
        outcome = _outcome(started, already_applied=True)
        message = f"version {started.version} had made this change before"
    else:
        made: list[Change] = []
        with started as now, ExitStack() as held:
            if job.operation == "Merge":
                from kubothek.jobs import merge  # imports DuckDB

                decide = merge.prepare(job, store, now, held, reporter, lineage)
            else:
                decide = _maker(job, store, log, now.snapshot, reporter, lineage)

            def make(snapshot: Snapshot) -> Change:
                made.append(now.note_added(decide(snapshot)))
                return made[-1]

            change = make(now.snapshot)
            reporter.report("Committing", rows=sum(file.rows for file in change.added))
            # A merge knows by itself which commits conflict.
            again = make if job.on_conflict == "Retry" or job.operation == "Merge" else None
            committed = now.commit(change, on_conflict=again, on_compaction=make)
        outcome = _outcome(committed, already_applied=False)
        message = _message(made[-1], committed)
        lineage.output = dataclasses.replace(lineage.output, schema=made[-1].schema, rows=outcome.rows)
    lineage.output = dataclasses.replace(lineage.output, version=str(outcome.version))
    state = state_of(store, log, job.dataset)
    return JobResult(outcome="Succeeded", reason="Succeeded", message=message, commit=outcome, dataset=state)


def _maker(
    job: CommitJob, store: Store, log: DatasetLog, snapshot: Snapshot, reporter: Reporter, lineage: Run
) -> Maker:
    """Write the rows of the source, if there is one, and return the function that decides the change."""
    by = job.dataset.claim.owner
    match job.operation:
        case "Append" | "Replace" | "Overwrite":
            if job.statement is not None:
                return _of_statement(job, job.statement, store, snapshot, reporter, lineage)

            def write(now: Snapshot, table: pa.Schema | None, check: Check) -> Written:
                return write_source(
                    job, store, now, reporter, table=table, check=check, zones=zones_of(now.head.metadata)
                )

            return _with_rows(job, store, snapshot, write)
        case "Delete":
            condemned = _where(job)
            return lambda now: delete(
                store,
                now,
                condemned,
                rewriter=_rewriter(job, store, now, reporter) if job.row_level else None,
                layout=translate.layout(job.dataset, now.head),
                purge=job.purge,
                by=by,
            )
        case "Update":
            concerned, values = _where(job), parse_values(job.new_values)
            return lambda now: update(
                store,
                now,
                concerned,
                values,
                rewriter=_rewriter(job, store, now, reporter) if job.row_level else None,
                layout=translate.layout(job.dataset, now.head),
                by=by,
            )
        case "Rollback":
            to = job.to_version or job.to_time or job.to_tag
            if to is None:
                raise InputError("a Rollback needs toVersion, toTime or toTag")
            return lambda now: rollback(store, log, now, to, allow_schema_change=job.allow_schema_change, by=by)
        case "Merge":
            raise AssertionError("a merge has its own function")


def _with_rows(job: CommitJob, store: Store, snapshot: Snapshot, write: Write) -> Maker:
    """Write the rows once: a conflict changes what they replace, not the rows."""
    by = job.dataset.claim.owner
    if job.operation == "Append":
        added = write(snapshot, snapshot.schema, lambda schema, layout: None)
        return lambda _: append(added, by=by)
    if job.operation == "Replace":
        where = None if job.where is None else parse(job.where)

        def check(schema: pa.Schema, layout: Layout) -> Predicate | None:
            return check_replace(store, snapshot, schema, layout.partition_on, where)

        new = write(snapshot, snapshot.schema, check)
        return lambda now: replace(store, now, new, where, by=by)
    allowed = job.allow_schema_change
    with fitting(snapshot, allow_schema_change=allowed) as table:
        written = write(snapshot, table, lambda schema, layout: None)
    return lambda now: overwrite(now, written, allow_schema_change=allowed, by=by)


def _of_statement(
    job: CommitJob, asked: StatementSpec, store: Store, snapshot: Snapshot, reporter: Reporter, lineage: Run
) -> Maker:
    """Write the rows of a statement.

    A statement that reads the dataset itself depends on all of it: any other commit since the snapshot conflicts, and
    the statement runs again for the newer snapshot. The rows of other statements are written once.
    """
    from kubothek.jobs import statement  # imports DuckDB

    source = statement.store_of(asked, job, store)

    def written(now: Snapshot) -> tuple[Maker, Answer]:
        reporter.report("Reading")
        answer = statement.plan(asked, source)
        lineage.note_reads(asked.store.url, answer.reads)

        def write(now: Snapshot, table: pa.Schema | None, check: Check) -> Written:
            report = partial(_report_rows, reporter)
            return write_answer(answer, store, job.dataset, now, report, table=table, check=check)

        return _with_rows(job, store, now, write), answer

    first, answer = written(snapshot)
    if not statement.reads_own_dataset(asked.store, job, answer):
        return first

    def make(now: Snapshot) -> Change:
        maker = first if now is snapshot else written(now)[0]
        return dataclasses.replace(maker(now), reads=Everything())

    return make


def _report_rows(reporter: Reporter, rows: int) -> None:
    reporter.report("Writing", rows=rows)


def _where(job: CommitJob) -> Predicate:
    if job.where is None:
        raise InputError(f"{job.operation} needs where, which rows it concerns; TRUE is all")
    return parse(job.where)


def _rewriter(job: CommitJob, store: Store, snapshot: Snapshot, reporter: Reporter) -> Rewriter:
    """Rewrite files in this process if they are small, by the average file size of the table; else with Spark."""
    report = partial(reporter.report, "Writing")
    totals = snapshot.totals or Totals()

    def run(rewrite: Rewrite, files: Sequence[PlannedFile]) -> Rewritten:
        size = len(files) * totals.bytes // max(1, totals.files)
        if size < job.spark.from_bytes:
            return rewrite_here(store, report)(rewrite, files)
        # PySpark takes half a second to import, and jobs below the limit must not need it at all.
        from kubothek.spark.rewrite import rewrite_with_spark
        from kubothek.spark.session import running

        with running(job.spark.conf, size) as session:
            return rewrite_with_spark(session, report)(rewrite, files)

    return run


def _message(change: Change, committed: Committed) -> str:
    if change.operation is Operation.ROLLBACK:
        return f"version {committed.version}: as version {change.restores} was"
    expired = ["all versions before it have expired"] if change.purges else []
    if change.operation is Operation.APPEND and not change.added:
        return f"version {committed.version}: the statement has no rows, so nothing has changed"
    if not change.added and not change.removed:
        return f"version {committed.version}: nothing matched, {expired[0] if expired else 'so nothing has changed'}"
    added = committed.added
    done = [f"{count(added.rows, 'row')} in {count(added.files, 'file')} added"] if change.added else []
    done += [f"{count(len(change.removed), 'file')} removed"] if change.removed else []
    return f"version {committed.version}: {', '.join(done + expired)}"


def _outcome(done: AlreadyApplied | Committed, *, already_applied: bool) -> CommitOutcome:
    added = done.added
    return CommitOutcome(
        version=done.version, already_applied=already_applied, rows=added.rows, files=added.files, bytes=added.bytes
    )
