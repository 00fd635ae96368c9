"""Build and removal of a table's secondary indices, so that it has those that its Dataset names."""

from __future__ import annotations

from kubothek.api.jobs import IndexJob, JobResult
from kubothek.jobs import translate
from kubothek.jobs.progress import Reporter
from kubothek.jobs.state import state_of
from kubothek.storage import Store
from kubothek.table.log.update_indexes import Reindexed, reindex


def run(job: IndexJob, store: Store, reporter: Reporter) -> JobResult:
    """Build, drop and tidy indices. Idempotent. Raises LakeError.

    It runs without Spark: it reads only the indexed columns, one row group at a time.
    """
    reporter.report("Starting")
    log = translate.dataset_log(store, job.dataset, conditional_writes=job.store.conditional_writes)
    table = job.dataset.table
    done = reindex(
        store,
        log,
        translate.indices(table),
        dialect=translate.dialect(table),
        by=job.dataset.claim.owner,
        progress=lambda files, total: reporter.report("Reading", files, total),
    )
    state = state_of(store, log, job.dataset)
    return JobResult(outcome="Succeeded", reason="Succeeded", message=describe(done), dataset=state)


def describe(done: Reindexed) -> str:
    """Return a message about what was done."""
    parts = (("built", done.built), ("dropped", done.dropped), ("tidied up", done.tidied))
    said = [f"{word} {', '.join(columns)}" for word, columns in parts if columns]
    if done.pending:
        said.append(f"{', '.join(done.pending)} waits for values: a column of NULLs has no type")
    if done.version is None:
        return "; ".join(["the indices are up to date", *said])
    return f"version {done.version}: {'; '.join(said or ['another dialect'])}"
