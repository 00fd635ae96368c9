"""Priority of maintenance: what it waits for.

Whatever changes rows comes first: a maintenance job starts only when no such job runs or could run now. If there is
always a next Commit, maintenance starts beside it after :data:`LONGEST_WAIT`. It loses conflicts in the store as well
(docs/maintenance.md), so other writers never wait for it. Each Dataset has one maintenance job at a time. What a user
requested (a Compaction) comes before what the Dataset does by itself. Two jobs that start at the same moment do no
harm.

A store without conditional writes allows one writer at a time: there, every writer waits for the running one
(:func:`alone`).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from kubothek.api.compaction import Compaction
from kubothek.api.conditions import waiting
from kubothek.api.dataset import TASK_FIELDS, Dataset, DatasetStatus
from kubothek.api.meta import Resource
from kubothek.api.objectstore import ObjectStore
from kubothek.api.query import Query
from kubothek.api.sync import Sync
from kubothek.controller.context import Context
from kubothek.controller.references import Blocked, bears_one_writer
from kubothek.controller.run_index import unfinished
from kubothek.controller.scheduling.attempts import job_name
from kubothek.controller.scheduling.queue import (
    about_to_commit,
    could_run,
    intake_active,
    is_active,
    job_is_there,
    order,
    queued,
)

LONGEST_WAIT = timedelta(hours=1)
"""How long maintenance waits for other writers: a table that is always written to needs it most."""

RECHECK_INTERVAL = timedelta(seconds=30)
"""Requeue interval of waiting maintenance, in case no change wakes it earlier."""


def is_overdue(since: datetime | None, now: datetime) -> bool:
    """Return whether something due at ``since`` has waited for :data:`LONGEST_WAIT`."""
    return since is not None and now - since >= LONGEST_WAIT


def compaction_prefix(compaction: Compaction) -> str:
    """Return the prefix of a Compaction's job names, which no Commit or Dataset of the same name uses."""
    return f"{compaction.name}-compaction"


def query_prefix(query: Query) -> str:
    """Return the prefix of a Query's job names, which no Commit of the same name uses."""
    return f"{query.name}-query"


def sync_prefix(sync: Sync) -> str:
    """Return the prefix of a Sync's job names, which no Commit of the same name uses."""
    return f"{sync.name}-sync"


def writer_ahead(dataset: Dataset, context: Context) -> str | None:
    """Describe, for a message, what changes rows of the Dataset now or could do so now; None if there is nothing."""
    if about_to_commit(dataset, context):
        return "a Commit"
    if intake_active(dataset, context):
        return "a look at a source"
    if _task_active("poll", dataset, dataset.status, context):
        return "a poll"
    if _task_active("transform", dataset, dataset.status, context):
        return "a run of its transformation"
    for query in unfinished(Query, dataset.namespace, ("Dataset", dataset.name), context):
        if _runs(query, query_prefix(query), context) or could_run(query):
            return f"Query {query.name!r}"
    return next((f"Sync {sync.name!r}" for sync in _pulling(dataset, context)), None)


def _pulling(dataset: Dataset, context: Context) -> Iterator[Sync]:
    """Yield the Syncs that have a job which pulls into the Dataset."""
    for sync in context.list(Sync, dataset.namespace):
        run = sync.status.run
        here = sync.pulls and sync.spec.dataset_ref.name == dataset.name
        if here and run is not None and job_is_there(sync, job_name(sync_prefix(sync), run.attempt), context):
            yield sync


def compaction_ahead(dataset: Dataset, context: Context, than: Compaction | None = None) -> str | None:
    """Describe, for a message, a Compaction of the Dataset that runs, or could run now and comes before ``than``."""
    for other in unfinished(Compaction, dataset.namespace, ("Dataset", dataset.name), context):
        if than and other.name == than.name:
            continue
        before = than is None or order(other) < order(than)
        if _runs(other, compaction_prefix(other), context) or (before and could_run(other)):
            return f"Compaction {other.name!r}"
    return None


def active_task(dataset: Dataset, status: DatasetStatus, context: Context) -> str | None:
    """Describe, for a message, an active job of the Dataset's own tasks; None if there is none."""
    names = (_task_active(verb, dataset, status, context) for verb in TASK_FIELDS)
    return next((f"the job {name!r}" for name in names if name is not None), None)


def _task_active(verb: str, dataset: Dataset, status: DatasetStatus, context: Context) -> str | None:
    """Return the name of the active job with this verb; None if there is none."""
    task_run = getattr(status, TASK_FIELDS[verb])
    if task_run is None or task_run.done or task_run.problem is not None:
        return None
    name = job_name(f"{dataset.name}-{verb}", task_run.attempt)
    return name if job_is_there(dataset, name, context) else None


def alone(
    asker: Resource, dataset: Dataset, store: ObjectStore, context: Context, status: DatasetStatus | None = None
) -> Blocked | None:
    """Return which writer must end first, where only one writer at a time is safe; None if there is none.

    ``asker``   the Commit or the Query, or the Dataset for an intake
    ``status``  of the Dataset, if it is newer than the published one
    """
    if not bears_one_writer(store):
        return None
    other = next(_writing(asker, dataset, status or dataset.status, context), None)
    if other is None:
        return None
    message = f"{other} of Dataset {dataset.name!r} runs, and without conditional writes one writer at a time is safe"
    return Blocked(waiting("Waiting", message), RECHECK_INTERVAL)


def _writing(asker: Resource, dataset: Dataset, status: DatasetStatus, context: Context) -> Iterator[str]:
    """Describe, for a message, every other resource with a job that writes to the Dataset."""
    for commit in queued(dataset, context):
        if is_active(commit, context) and not _same(commit, asker):
            yield f"Commit {commit.name!r}"
    if intake_active(dataset, context) and not _same(dataset, asker):
        yield "a look at a source"
    for query in unfinished(Query, dataset.namespace, ("Dataset", dataset.name), context):
        if _runs(query, query_prefix(query), context) and not _same(query, asker):
            yield f"Query {query.name!r}"
    for compaction in unfinished(Compaction, dataset.namespace, ("Dataset", dataset.name), context):
        if _runs(compaction, compaction_prefix(compaction), context):
            yield f"Compaction {compaction.name!r}"
    for sync in _pulling(dataset, context):
        if not _same(sync, asker):
            yield f"Sync {sync.name!r}"
    if (task := active_task(dataset, status, context)) is not None:
        yield task


def _same(one: Resource, other: Resource) -> bool:
    return (one.kind, one.name) == (other.kind, other.name)


def _runs(run: Query | Compaction, prefix: str, context: Context) -> bool:
    return job_is_there(run, job_name(prefix, run.status.attempt), context)


def ahead_of_compaction(compaction: Compaction, dataset: Dataset, store: ObjectStore, context: Context) -> str | None:
    """Describe, for a message, what a Compaction has to wait for; None if it may start."""
    overdue = is_overdue(compaction.metadata.creation_timestamp, context.now) and not bears_one_writer(store)
    return (
        (None if overdue else writer_ahead(dataset, context))
        or active_task(dataset, dataset.status, context)
        or compaction_ahead(dataset, context, compaction)
    )
