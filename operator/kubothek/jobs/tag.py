"""Tags of a table, as its Dataset names them."""

from __future__ import annotations

from kubothek.api.jobs import JobResult, TagJob
from kubothek.jobs import translate
from kubothek.jobs.progress import Reporter
from kubothek.jobs.state import state_of
from kubothek.storage import Store

_SHOWN = 8


def run(job: TagJob, store: Store, reporter: Reporter) -> JobResult:
    """Set exactly the tags of the job, in one commit. Idempotent.

    Raises LakeError and changes no tag, even if only one of them is invalid.
    """
    reporter.report("Starting")
    log = translate.dataset_log(store, job.dataset, conditional_writes=job.store.conditional_writes)
    log.set_tags(job.tags)
    state = state_of(store, log, job.dataset)
    return JobResult(outcome="Succeeded", reason="Succeeded", message=_message(job), dataset=state)


def _message(job: TagJob) -> str:
    if not job.tags:
        return "the table has no tags"
    shown = [f"{name} is version {version}" for name, version in sorted(job.tags.items())[:_SHOWN]]
    more = len(job.tags) - len(shown)
    return f"tags: {', '.join(shown)}{f' and {more} more' if more else ''}"
