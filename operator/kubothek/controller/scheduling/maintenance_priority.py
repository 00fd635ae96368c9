"""What maintenance of a Dataset gives way to.

Whatever changes rows comes first: a job of maintenance starts when none such runs or could run now. Where that never
comes, as there is always a next Commit, it starts beside them after a while: it gives way in the store as well
(docs/maintenance.md), which is why nobody ever waits for it. Of maintenance there is one job a Dataset at a time, and
what a person asked for (a Compaction) comes before what the Dataset does by itself. Two that start in the same moment
all the same do no harm.

A store without conditional writes bears one writer at a time: there everything that writes waits for what runs
(:func:`alone`).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from kubothek.api.compaction import Compaction
from kubothek.api.conditions import waiting
from kubothek.api.dataset import Dataset, DatasetStatus
from kubothek.api.meta import Resource
from kubothek.api.objectstore import ObjectStore
from kubothek.api.query import Query
from kubothek.api.sync import Sync
from kubothek.controller.context import World
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
"""How long maintenance gives way: a table without a quiet moment needs it most."""

LOOK_AGAIN = timedelta(seconds=30)
"""When to ask again whether the way is free, if nothing wakes us before."""

TASK_TYPES = {
    "ledger": "defining",
    "poll": "polling",
    "transform": "transforming",
    "heal": "healing",
    "tag": "tagging",
    "index": "indexing",
    "skip": "describing",
    "compact": "compaction",
}
"""The sorts of a Dataset's own jobs by their verbs, with the fields of the status (``upkeep``, ``ledger``)."""


def is_overdue(since: datetime | None, now: datetime) -> bool:
    """Whether what is due since then has given way for long enough."""
    return since is not None and now - since >= LONGEST_WAIT


def compaction_prefix(compaction: Compaction) -> str:
    """What the names of its jobs begin with; a Commit of the same name has jobs of its own, and so has a Dataset."""
    return f"{compaction.name}-compaction"


def query_prefix(query: Query) -> str:
    """What the names of its jobs begin with; a Commit of the same name has jobs of its own."""
    return f"{query.name}-query"


def sync_prefix(sync: Sync) -> str:
    """What the names of its jobs begin with; a Commit of the same name has jobs of its own."""
    return f"{sync.name}-sync"


def writer_ahead(dataset: Dataset, world: World) -> str | None:
    """What changes rows of the Dataset now, or could do so now, for people."""
    if about_to_commit(dataset, world):
        return "a Commit"
    if intake_active(dataset, world):
        return "a look at a source"
    if _errand_active("poll", dataset, dataset.status, world):
        return "a poll"
    if _errand_active("transform", dataset, dataset.status, world):
        return "a run of its transformation"
    for query in unfinished(Query, dataset.namespace, ("Dataset", dataset.name), world):
        if _runs(query, query_prefix(query), world) or could_run(query):
            return f"Query {query.name!r}"
    return next((f"Sync {sync.name!r}" for sync in _pulling(dataset, world)), None)


def _pulling(dataset: Dataset, world: World) -> Iterator[Sync]:
    """The Syncs that have a job which pulls into the Dataset."""
    for sync in world.list(Sync, dataset.namespace):
        run = sync.status.run
        here = sync.pulls and sync.spec.dataset_ref.name == dataset.name
        if here and run is not None and job_is_there(sync, job_name(sync_prefix(sync), run.attempt), world):
            yield sync


def compaction_ahead(dataset: Dataset, world: World, than: Compaction | None = None) -> str | None:
    """A Compaction of the Dataset that runs, or could run now and comes before ``than``, for people."""
    for other in unfinished(Compaction, dataset.namespace, ("Dataset", dataset.name), world):
        if than and other.name == than.name:
            continue
        before = than is None or order(other) < order(than)
        if _runs(other, compaction_prefix(other), world) or (before and could_run(other)):
            return f"Compaction {other.name!r}"
    return None


def chore_active(dataset: Dataset, status: DatasetStatus, world: World) -> str | None:
    """A job of the Dataset's own maintenance that is there, for people."""
    names = (_errand_active(verb, dataset, status, world) for verb in TASK_TYPES)
    return next((f"the job {name!r}" for name in names if name is not None), None)


def _errand_active(verb: str, dataset: Dataset, status: DatasetStatus, world: World) -> str | None:
    """The name of the job of an errand of this sort, if it is there."""
    errand = getattr(status, TASK_TYPES[verb])
    if errand is None or errand.done or errand.problem is not None:
        return None
    name = job_name(f"{dataset.name}-{verb}", errand.attempt)
    return name if job_is_there(dataset, name, world) else None


def alone(
    asker: Resource, dataset: Dataset, store: ObjectStore, world: World, status: DatasetStatus | None = None
) -> Blocked | None:
    """What must be waited for before something changes rows of the Dataset, where only one writer at a time is safe.

    ``asker``   the Commit or the Query, or the Dataset for a look at a source
    ``status``  of the Dataset, if it is newer than the published one
    """
    if not bears_one_writer(store):
        return None
    other = next(_writing(asker, dataset, status or dataset.status, world), None)
    if other is None:
        return None
    message = f"{other} of Dataset {dataset.name!r} runs, and without conditional writes one writer at a time is safe"
    return Blocked(waiting("Waiting", message), LOOK_AGAIN)


def _writing(asker: Resource, dataset: Dataset, status: DatasetStatus, world: World) -> Iterator[str]:
    """Everything else that has a job which writes to the Dataset, for people."""
    for commit in queued(dataset, world):
        if is_active(commit, world) and not _same(commit, asker):
            yield f"Commit {commit.name!r}"
    if intake_active(dataset, world) and not _same(dataset, asker):
        yield "a look at a source"
    for query in unfinished(Query, dataset.namespace, ("Dataset", dataset.name), world):
        if _runs(query, query_prefix(query), world) and not _same(query, asker):
            yield f"Query {query.name!r}"
    for compaction in unfinished(Compaction, dataset.namespace, ("Dataset", dataset.name), world):
        if _runs(compaction, compaction_prefix(compaction), world):
            yield f"Compaction {compaction.name!r}"
    for sync in _pulling(dataset, world):
        if not _same(sync, asker):
            yield f"Sync {sync.name!r}"
    if (chore := chore_active(dataset, status, world)) is not None:
        yield chore


def _same(one: Resource, other: Resource) -> bool:
    return (one.kind, one.name) == (other.kind, other.name)


def _runs(run: Query | Compaction, prefix: str, world: World) -> bool:
    return job_is_there(run, job_name(prefix, run.status.attempt), world)


def ahead_of_compaction(compaction: Compaction, dataset: Dataset, store: ObjectStore, world: World) -> str | None:
    """What a Compaction has to wait for, for people."""
    overdue = is_overdue(compaction.metadata.creation_timestamp, world.now) and not bears_one_writer(store)
    return (
        (None if overdue else writer_ahead(dataset, world))
        or chore_active(dataset, dataset.status, world)
        or compaction_ahead(dataset, world, compaction)
    )
