"""Skipping metadata for the files of a table, as its Dataset asks."""

from __future__ import annotations

from typing import Final

from kubothek.api.jobs import JobResult, SkipJob
from kubothek.jobs import translate
from kubothek.jobs.progress import Reporter
from kubothek.jobs.state import state_of
from kubothek.storage import Store
from kubothek.table.log.update_skipping import Builder, Files, Reskipped, reskip
from kubothek.table.maintenance.choosing import with_chosen
from kubothek.table.skipping.collect.collect_files import Described, ReportProgress, describe_files
from kubothek.table.skipping.model import Part
from kubothek.words import count

_MOST_ASKED: Final = 1000
"""Most files whose sizes are requested; Spark describes more files, whatever their sizes."""


def run(job: SkipJob, store: Store, reporter: Reporter) -> JobResult:
    """Build, drop and merge skipping metadata. Idempotent. Raises LakeError."""
    reporter.report("Starting")
    log = translate.dataset_log(store, job.dataset, conditional_writes=job.store.conditional_writes)
    spec = job.dataset.table.skipping
    wanted = None if spec is None else translate.skipping(spec)
    if spec is not None and wanted is not None and spec.auto:
        reporter.report("Choosing")
        wanted = with_chosen(store, log.snapshot(), wanted, [(each.column, each.kind) for each in job.seen])
    done = reskip(
        store,
        log,
        wanted,
        build=_builder(job, reporter),
        by=job.dataset.claim.owner,
        report=lambda files, total: reporter.report("Describing", files, total),
    )
    state = state_of(store, log, job.dataset)
    return JobResult(outcome="Succeeded", reason="Succeeded", message=describe(done), dataset=state)


def describe(done: Reskipped) -> str:
    """Return a message about what was done."""
    said = [f"{count(done.described, 'file')} described"] if done.described else []
    if done.merged:
        said.append(f"{count(done.merged, 'piece of metadata')} merged")
    if done.missing:
        said.append(f"{count(done.missing, 'file')} without an entry, always opened")
    if done.version is None:
        return "; ".join(["the skipping metadata is up to date", *said])
    return f"version {done.version}: {'; '.join(said or ['other indices'])}"


def _builder(job: SkipJob, reporter: Reporter) -> Builder:
    """Describe files in this process if they are small in total; else with Spark."""

    def build(described: Described, store: Store, files: Files, report: ReportProgress) -> tuple[Part, ...]:
        if not _is_more(store, files, job.spark.from_bytes):
            return describe_files(described, store, files, report)
        # PySpark takes half a second to import, and jobs below the limit must not need it at all.
        from kubothek.spark.session import running
        from kubothek.spark.skipping import describe_with_spark

        reporter.report("Describing")
        with running(job.spark.conf) as session:
            return describe_with_spark(session, report)(described, store, files, report)

    return build


def _is_more(store: Store, files: Files, limit: int) -> bool:
    """Return whether the files have ``limit`` bytes or more."""
    if len(files) > _MOST_ASKED:
        return True
    size = 0
    for key, _ in files:
        size += store.stat(key).size
        if size >= limit:
            return True
    return False
