"""Secondary indices: a job when those of the table are not those of the manifest, or need work.

The Dataset is ready all the while, as commits keep up the indices that are there. What a job was started for is kept as
a digest: what it could not change is not tried again until something else changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from kubothek.reconcile.attempts import Active, GivenUp, Start, Succeeded, first, follow, job_name
from kubothek.reconcile.budget import Budget
from kubothek.reconcile.launching import start as start_attempt
from kubothek.reconcile.projection import absorb
from kubothek.reconcile.references import (
    dataset_ref,
    digest,
    engine_digest,
    launch_job,
    store_ref,
)
from kubothek.reconcile.world import Action, World
from kubothek.resources.conditions import State, progressing, stalled
from kubothek.resources.dataset import Dataset, DatasetStatus, Indexing
from kubothek.resources.engine import Engine
from kubothek.resources.jobs import IndexJob
from kubothek.resources.objectstore import ObjectStore

_BUDGET = Budget(limit=6, initial=timedelta(seconds=10))
_INDEXING = progressing("Indexing", "a job makes the secondary indices what spec.table says")


@dataclass(frozen=True, slots=True)
class Indexed:
    """The next step. ``trouble``: what stands against the indices that the manifest names, if anything."""

    status: DatasetStatus
    trouble: State | None = None
    actions: tuple[Action, ...] = ()
    again: timedelta | None = None


def index_table(
    dataset: Dataset, world: World, store: ObjectStore, engine: Engine | None, status: DatasetStatus, *, start: bool
) -> Indexed:
    """The next step towards the indices that the manifest names; a new job only if ``start`` allows one."""
    indexing = status.indexing
    wanted = difference(dataset, status)
    if indexing is None or indexing.done or indexing.problem is not None:
        if wanted is None:
            return Indexed(_with(status, None if indexing is None else indexing.model_copy(update=_SETTLED)))
        if indexing is not None and indexing.digest == wanted:
            return Indexed(status, None if indexing.problem is None else stalled("IndexStalled", indexing.problem))
        if not start or status.version is None or status.deleted:
            return Indexed(status)
        indexing = _next(indexing, wanted)
    return _follow(dataset, world, store, engine, status, first(indexing))


_SETTLED = {"digest": "", "done": True, "problem": None}


def difference(dataset: Dataset, status: DatasetStatus) -> str | None:
    """What a job has to do about the indices of the table, as a digest; None if there is nothing."""
    table = dataset.spec.table
    present = {index.column: index.kind for index in status.indices}
    wanted = present if table.indices is None else {index.column: index.kind for index in table.indices}
    unwell = sorted(f"{index.column}:{index.state}" for index in status.indices if index.state in ("Partial", "Stale"))
    dialect = table.dialect or status.dialect
    if wanted == present and dialect == status.dialect and not unwell:
        return None
    version = str(status.version) if unwell else ""
    return digest(str(sorted(wanted.items())), str(sorted(present.items())), dialect, status.dialect, version)


def _next(before: Indexing | None, wanted: str) -> Indexing:
    """The job for this difference; the number of a job that was seen is never used again."""
    if before is None:
        return Indexing(digest=wanted)
    return Indexing(attempt=before.attempt + 1, observed_attempt=before.observed_attempt, digest=wanted)


def _follow(
    dataset: Dataset, world: World, store: ObjectStore, engine: Engine | None, status: DatasetStatus, indexing: Indexing
) -> Indexed:
    prefix, on = f"{dataset.name}-index", engine_digest(engine, world.settings)
    step = follow(indexing, prefix, dataset, world, _BUDGET, on)
    indexing = step.attempts
    match step.stage:
        case Active():
            return Indexed(_with(status, indexing))
        case Succeeded(result):
            if result.dataset is not None:
                status = absorb(status, result.dataset)
            return Indexed(_with(status, indexing.model_copy(update={"done": True})))
        case GivenUp(reason, message):
            problem = f"the indices are not what spec.table says: {reason}: {message}"
            status = _with(status, indexing.model_copy(update={"problem": problem}))
            return Indexed(status, stalled("IndexStalled", problem))
        case Start() as begin:
            job = IndexJob(
                job=job_name(prefix, indexing.attempt),
                uid=dataset.metadata.uid,
                attempt=indexing.attempt,
                store=store_ref(store),
                dataset=dataset_ref(dataset, world.settings),
            )
            launch = launch_job(job, dataset, engine, store)
            move = start_attempt(step, begin, launch, _INDEXING, on, world)
            trouble = move.state if move.state.worrying else None
            return Indexed(_with(status, move.attempts), trouble, move.actions, move.again)


def _with(status: DatasetStatus, indexing: Indexing | None) -> DatasetStatus:
    return status.model_copy(update={"indexing": indexing})
