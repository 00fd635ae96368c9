"""Reads of a chain's polling source until it has nothing new."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from kubothek.api.jobs import JobResult, PollJob, PollOutcome
from kubothek.ingest import UrlPolicy
from kubothek.jobs import translate
from kubothek.jobs.chains import opened, variables
from kubothek.jobs.progress import Reporter
from kubothek.jobs.state import state_of
from kubothek.odf.dataset.ingesting import Elsewhere
from kubothek.odf.distributed import StoredFile, can_spread
from kubothek.odf.ingest import Polled, poll_source
from kubothek.odf.sources.fetch import FetchContext, in_stores
from kubothek.odf.sources.fetch.prepared_containers import ran_beforehand
from kubothek.odf.sources.readers.content import ObjectContent
from kubothek.odf.spec.events import SetPollingSource
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.storage import Store
from kubothek.words import count


def run(job: PollJob, store: Store, reporter: Reporter) -> JobResult:
    """Commit each new file. Commits before a failure stay, and the next poll continues after them.

    Raises LakeError: SourceUnavailable if a retry can help.
    """
    reporter.report("Reading")
    log = translate.dataset_log(store, job.dataset, conditional_writes=job.store.conditional_writes)
    left = job.container
    context = FetchContext(
        policy=UrlPolicy(job.allowed_hosts, job.allow_local),
        now=Timestamp.of(log.journal.clock()),
        env=variables(job.env_dir),
        fetch_uncacheable=job.fetch_uncacheable,
        locate=in_stores([translate.store_config(job.store)]),
        run_container=None if left is None else ran_beforehand(Path(left.launcher_dir), Path(left.output_dir)),
    )

    def report(_name: str, polled: Polled) -> None:
        reporter.report("Reading", polled.commits, polled.commits, polled.records)

    root, spread = opened(store, log, job.dataset), partial(_elsewhere, job, reporter)
    done = poll_source(root, context, report, spread, once=left is not None)
    return JobResult(
        outcome="Succeeded",
        reason="Succeeded",
        message=described(done),
        poll=PollOutcome(version=done.version, commits=done.commits, records=done.records, has_more=done.has_more),
        dataset=state_of(store, log, job.dataset),
    )


def _elsewhere(job: PollJob, reporter: Reporter, source: SetPollingSource, stored: ObjectContent) -> Elsewhere | None:
    """Return rows that Spark reads, for a large file whose records need no comparison with all existing records."""
    if stored.info.size < job.spark.from_bytes or not can_spread(source.merge):
        return None
    # PySpark takes half a second to import, and jobs below the limit must not need it at all.
    from kubothek.spark.ledger import RowsWithSpark
    from kubothek.spark.session import running

    return RowsWithSpark(
        session=partial(running, job.spark.conf),
        files=[StoredFile(stored.name, stored.store.config, stored.info)],
        step=source.read,
        preprocess=source.preprocess,
        report=partial(reporter.report, "Writing"),
    )


def described(done: Polled) -> str:
    """Return a message about the result of a poll."""
    if done.commits:
        return f"version {done.version}: {count(done.records, 'record')} of {count(done.commits, 'file')}"
    if done.uncacheable:
        return "not read again, as the source does not say whether it changed; ledger.fetchUncacheable reads it always"
    return "the source has nothing new"
