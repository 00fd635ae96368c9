"""Ingestion of the files that landed for one standing source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from kubothek.api.jobs import IntakeJob, IntakeOutcome, JobResult, StalledFile
from kubothek.ingest import decide_schemas
from kubothek.ingest.watch import Landed, Landing, Refusal, Report, Round, Terms
from kubothek.jobs import translate
from kubothek.jobs.ingest import write_source
from kubothek.jobs.progress import Reporter
from kubothek.jobs.state import state_of
from kubothek.storage import Store, open_store
from kubothek.table.layout import Layout
from kubothek.table.log import Change, Operation, Snapshot
from kubothek.table.log.journal import system_clock
from kubothek.table.operations import Written, append, check_replace, replace
from kubothek.words import count

PROBLEM_LIMIT: Final = 800
"""Most characters of one file's problem in a result, which holds two problems."""


def run(job: IntakeJob, store: Store, reporter: Reporter) -> JobResult:
    """Run one round. A file at which the source stalls is a result, not a failure of the job.

    Raises LakeError for everything else; earlier commits stay, and the next round continues after them.
    """
    reporter.report("Starting")
    log = translate.dataset_log(store, job.dataset, conditional_writes=job.store.conditional_writes)
    landed_in = open_store(translate.store_config(job.source.store or job.store))
    round_ = Round(log, store, landed_in, terms_of(job), _Loader(job, store, reporter), clock=system_clock)
    report = round_.run()
    state = state_of(store, log, job.dataset)
    return JobResult(
        outcome="Succeeded", reason="Succeeded", message=_message(report), intake=_outcome(report), dataset=state
    )


def terms_of(job: IntakeJob) -> Terms:
    """Return which files a round takes, and how many."""
    own = job.source.store is None or job.source.store.url == job.store.url
    stalled = job.stalled
    reason, _, message = stalled.problem.partition(": ") if stalled else ("", "", "")
    return Terms(
        source=job.name,
        landing=Landing.of(job.prefix, job.glob, foreign=(f"{job.dataset.uuid}/",) if own else ()),
        reading=job.reading,
        max_files=1 if job.operation == "Replace" else job.max_files,
        max_bytes=job.max_bytes,
        quarantine=job.quarantine,
        deadline=job.deadline_seconds,
        stalled=Refusal(stalled.key, stalled.etag, reason, message, stalled.version) if stalled else None,
    )


class _Loader:
    """The files of a batch as the source of a commit."""

    def __init__(self, job: IntakeJob, store: Store, reporter: Reporter) -> None:
        self._job = job
        self._store = store
        self._reporter = reporter

    def check(self, snapshot: Snapshot) -> None:
        table = self._job.dataset.table
        layout = Layout.of(snapshot.head, translate.layout(self._job.dataset, snapshot.head))
        declared, contract = translate.schema(self._job.source.columns), translate.schema(table.columns)
        known = declared or snapshot.schema or contract
        if known is not None:
            decide_schemas(
                declared=declared,
                table=snapshot.schema,
                contract=contract,
                partition_on=layout.partition_on,
                infer=lambda: known,
                evolve=translate.evolves(table),
            )
        if self._job.operation == "Replace":
            check_replace(self._store, snapshot, known or pa.schema([]), layout.partition_on, None)

    def load(
        self, snapshot: Snapshot, files: Sequence[Landed], schema: pa.Schema | None, zones: Mapping[str, str]
    ) -> Written:
        source = self._job.source.model_copy(update={"paths": tuple(file.key for file in files)})
        job = self._job.model_copy(update={"source": source})
        versions = {file.key: file.etag for file in files}
        return write_source(job, self._store, snapshot, self._reporter, table=schema, versions=versions, zones=zones)

    def change(self, snapshot: Snapshot, written: Sequence[Written]) -> Change:
        by = self._job.dataset.claim.owner
        self._reporter.report("Committing", rows=sum(file.rows for each in written for file in each.files))
        if not written:
            return Change(operation=Operation(self._job.operation), by=by)
        together = Written.joined(written)
        if self._job.operation == "Replace":
            return replace(self._store, snapshot, together, by=by)
        return append(together, by=by)


def _message(report: Report) -> str:
    if report.stalled is not None:
        return f"stopped at {report.stalled.key!r}: {report.stalled.message}"
    text = f"{count(report.rows, 'row')} of {count(report.files, 'file')} in {count(report.commits, 'commit')}"
    more = f", {count(report.waiting.files, 'file')} waiting" if report.waiting.files else ""
    passed_over = f", {count(len(report.refused), 'file')} put into quarantine" if report.refused else ""
    return f"{text}{passed_over}{more}" if report.commits else f"nothing new was taken{more}"


def _outcome(report: Report) -> IntakeOutcome:
    page, since, stalled = report.page, report.waiting.since(), report.stalled
    return IntakeOutcome(
        version=report.last.version if report.last else None,
        commits=report.commits,
        files=report.files,
        rows=report.rows,
        taken=page.files,
        last_file=page.last_file or None,
        last_commit_time=page.last_time.isoformat() if page.last_time else None,
        waiting_files=report.waiting.files,
        waiting_bytes=report.waiting.bytes,
        oldest_waiting=since.isoformat() if since else None,
        current_until=report.current_until.isoformat(),
        quarantined=report.quarantined,
        refused=len(report.refused),
        refusal=_problem(report.refused[0]) if report.refused else None,
        stalled=StalledFile(key=stalled.key, etag=stalled.etag, version=stalled.version, problem=_problem(stalled))
        if stalled
        else None,
    )


def _problem(refusal: Refusal) -> str:
    text = f"{refusal.reason}: {refusal.message}"
    return text if len(text) <= PROBLEM_LIMIT else f"{text[: PROBLEM_LIMIT - 1]}…"
