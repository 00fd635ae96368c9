"""Deletion of a dataset: one tombstone commit."""

from __future__ import annotations

from kubothek.api.jobs import DeleteJob, JobResult
from kubothek.jobs import translate
from kubothek.jobs.progress import Reporter
from kubothek.storage import Store


def run(job: DeleteJob, store: Store, reporter: Reporter) -> JobResult:
    """Replace the head by a tombstone. Idempotent; without a dataset nothing changes. Raises LakeError."""
    reporter.report("Starting")
    log = translate.dataset_log(store, job.dataset, conditional_writes=job.store.conditional_writes)
    version = log.delete()
    state = translate.dataset_state(log.inspect())
    message = "there was nothing to delete" if version is None else f"deleted at version {version}"
    return JobResult(outcome="Succeeded", reason="Succeeded", message=message, dataset=state)
