"""Compaction of a table's small files into fewer, larger ones, made exactly once."""

from __future__ import annotations

from collections.abc import Sequence

from kubothek.api.jobs import CompactJob, CompactOutcome, JobResult
from kubothek.api.values import render_bytes
from kubothek.jobs import translate
from kubothek.jobs.progress import Reporter
from kubothek.jobs.state import state_of
from kubothek.storage import Store
from kubothek.table.expressions import parse
from kubothek.table.log import DatasetLog, Totals
from kubothek.table.maintenance import (
    Bundle,
    Compaction,
    CompactionPlan,
    CompactionRequest,
    Compactor,
    compact,
    plan_compaction,
    rewrite_here,
)
from kubothek.table.maintenance.rewriting import Compacting, Rewritten
from kubothek.words import count


def run(job: CompactJob, store: Store, reporter: Reporter) -> JobResult:
    """Compact, unless the commit id was applied before; with ``dry_run`` only plan.

    Raises LakeError and leaves the head unchanged.
    If there is nothing to compact, the job succeeds without a commit; a repetition plans again.
    """
    reporter.report("Starting")
    log = translate.dataset_log(store, job.dataset, conditional_writes=job.store.conditional_writes)
    request = compaction_request(job, log)
    reporter.report("Planning")
    if job.dry_run:
        plan = plan_compaction(store, log, log.snapshot(), request)
        outcome, message = _planned(plan), _intent(plan)
    else:
        done = compact(
            store,
            log,
            request,
            commit_id=job.commit_id,
            digest=job.digest,
            compactor=_compactor(job, store, reporter),
            by=job.dataset.claim.owner,
        )
        outcome, message = _outcome(done), _message(done)
    state = state_of(store, log, job.dataset)
    return JobResult(outcome="Succeeded", reason="Succeeded", message=message, compact=outcome, dataset=state)


def compaction_request(job: CompactJob, log: DatasetLog) -> CompactionRequest:
    """Return what to compact. New files get the Dataset's current layout, so an edit of it takes effect."""
    return CompactionRequest(
        where=None if job.where is None else parse(job.where),
        layout=translate.layout(job.dataset, log.snapshot().head),
        target_bytes=job.target_file_bytes,
        min_files=job.min_files,
        min_small_share=job.min_small_percent / 100,
        clustering=translate.clustering(job.clustering or job.dataset.clustering),
    )


def _compactor(job: CompactJob, store: Store, reporter: Reporter) -> Compactor:
    """Rewrite in this process if the replaced files are small in total; else with Spark."""

    def report(done: int, total: int) -> None:
        reporter.report("Rewriting", done, total)

    def rewrite(compacting: Compacting, bundles: Sequence[Bundle]) -> Rewritten:
        if sum(bundle.bytes for bundle in bundles) < job.spark.from_bytes:
            return rewrite_here(store, report)(compacting, bundles)
        # PySpark takes half a second to import, and jobs below the limit must not need it at all.
        from kubothek.spark.compact import compact_with_spark
        from kubothek.spark.session import running

        with running(job.spark.conf) as session:
            return compact_with_spark(session, report)(compacting, bundles)

    def rewrite_and_report(compacting: Compacting, bundles: Sequence[Bundle]) -> Rewritten:
        reporter.report("Rewriting")
        rewritten = rewrite(compacting, bundles)
        reporter.report("Committing", rows=sum(bundle.rows for bundle in bundles))
        return rewritten

    return rewrite_and_report


def _planned(plan: CompactionPlan) -> CompactOutcome:
    files = plan.rewritten
    return CompactOutcome(
        partitions=len({bundle.group.path for bundle in plan.bundles}),
        files_before=files.files,
        bytes_before=files.bytes,
    )


def _intent(plan: CompactionPlan) -> str:
    if not plan.bundles:
        return f"nothing to compact ({count(plan.files.files, 'file')})"
    return f"{_files(plan.rewritten)} of {plan.files.files:,} would be rewritten"


def _outcome(done: Compaction) -> CompactOutcome:
    return CompactOutcome(
        version=done.version,
        already_applied=done.repeated,
        partitions=done.partitions,
        files_before=done.removed.files,
        files_after=done.added.files,
        bytes_before=done.removed.bytes,
        bytes_after=done.added.bytes,
        given_way=len(done.skipped),
    )


def _message(done: Compaction) -> str:
    if done.repeated:
        return f"version {done.version} had made this change before"
    if done.version is None and not done.skipped:
        return "nothing to compact"
    left_out = f"{count(len(done.skipped), 'partition')} skipped: other commits changed them during the compaction"
    if done.version is None:
        return f"nothing was committed: {left_out}"
    text = f"version {done.version}: {_files(done.removed)} became {_files(done.added)}, with the same rows"
    return f"{text}; {left_out}" if done.skipped else text


def _files(totals: Totals) -> str:
    return f"{count(totals.files, 'file')} ({render_bytes(totals.bytes)})"
