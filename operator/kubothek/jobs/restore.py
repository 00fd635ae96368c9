"""Restore of a deleted dataset within the store's grace period."""

from __future__ import annotations

from kubothek.api.jobs import JobResult, RestoreJob
from kubothek.jobs import translate
from kubothek.jobs.progress import Reporter
from kubothek.jobs.state import state_of
from kubothek.storage import Store


def run(job: RestoreJob, store: Store, reporter: Reporter) -> JobResult:
    """Make the version before the tombstone current again. Raises LakeError, in particular RestoreExpired."""
    reporter.report("Starting")
    log = translate.dataset_log(store, job.dataset, conditional_writes=job.store.conditional_writes)
    version = log.restore()
    state = state_of(store, log, job.dataset)
    return JobResult(outcome="Succeeded", reason="Succeeded", message=f"restored at version {version}", dataset=state)
