"""Compaction: one rewrite of small files, now.

The store sees to it that a rewrite changes no row and happens once; what is decided here is when to start an attempt,
what to make of its end, and what to tell people. In order: a Compaction that has ended stays as it is; a job that is
there is followed; otherwise Dataset, store and Engine must be there and ready, and everything that writes to the
Dataset comes first (:mod:`kubothek.reconcile.giving_way`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubothek.reconcile.attempts import Active, GivenUp, Start, Step, Succeeded, first, follow, job_name
from kubothek.reconcile.budget import budget_of
from kubothek.reconcile.giving_way import LOOK_AGAIN, ahead_of_compaction, compaction_prefix
from kubothek.reconcile.launching import under_way
from kubothek.reconcile.projection import table_state
from kubothek.reconcile.references import (
    Blocked,
    clustering_of,
    digest,
    engine_digest,
    find_engine,
    job_basics,
    launch_job,
    spark_settings,
    usable_dataset,
    usable_store,
)
from kubothek.reconcile.runs import given_up, held_up, launched, revived
from kubothek.reconcile.summary import conclude, unchanged
from kubothek.reconcile.world import Outcome, World
from kubothek.resources import jobs
from kubothek.resources.compaction import Compaction, CompactionProgress, CompactionStatus
from kubothek.resources.conditions import complete, progressing, resting, state_of, waiting
from kubothek.resources.dataset import Dataset
from kubothek.resources.engine import Engine
from kubothek.resources.maintenance import Thresholds
from kubothek.resources.objectstore import ObjectStore
from kubothek.resources.values import parse_quantity

_RUNNING = progressing("Progressing", "a job rewrites small files")


def reconcile(compaction: Compaction, world: World) -> Outcome:
    """What to do about a Compaction."""
    if compaction.deleting or compaction.frozen:
        return unchanged(compaction)
    engine = _engine(compaction, world)
    known_engine = None if isinstance(engine, Blocked) else engine
    budget = budget_of(known_engine, compaction.spec.retry_limit)
    if compaction.finished and not revived(compaction.status, budget):
        state = state_of(compaction.status)
        assert state is not None, "a run that has ended has conditions"
        return conclude(compaction, world, state)
    on = engine_digest(known_engine, world.settings)
    step = follow(first(compaction.status), compaction_prefix(compaction), compaction, world, budget, on)
    status = step.attempts.model_copy(update={"progress": None})
    match step.stage:
        case Active() as active:
            return conclude(compaction, world, under_way(active, _RUNNING), _with_progress(status, active))
        case Succeeded(result):
            return _succeeded(compaction, world, status, result)
        case GivenUp() as end:
            return given_up(compaction, world, end, step, status)
        case Start() as begin:
            return _start(compaction, world, Step(status, begin, step.setback, step.cancel), begin, on)


def compact_job(
    basics: Mapping[str, Any],
    engine: Engine | None,
    thresholds: Thresholds,
    *,
    commit_id: str,
    where: str | None = None,
    dry_run: bool = False,
) -> jobs.CompactJob:
    """The job of one attempt. What it commits changes no row, so its id alone says what it does."""
    size = thresholds.target_file_size
    return jobs.CompactJob(
        **basics,
        commit_id=commit_id,
        digest=digest(commit_id),
        where=where,
        target_file_bytes=None if size is None else parse_quantity(size),
        min_files=thresholds.min_files,
        min_small_percent=thresholds.min_small_percent,
        clustering=clustering_of(thresholds),
        dry_run=dry_run,
        spark=spark_settings(engine),
    )


def _engine(compaction: Compaction, world: World) -> Engine | Blocked | None:
    dataset = world.get(Dataset, compaction.namespace, compaction.spec.dataset_ref.name)
    return find_engine((compaction.spec.engine_ref, dataset.spec.engine_ref if dataset else None), compaction, world)


def _with_progress(status: CompactionStatus, active: Active) -> CompactionStatus:
    progress = active.view.progress
    if progress is None:
        return status
    return status.model_copy(update={"progress": CompactionProgress.model_validate(progress.model_dump())})


# --- the end ---------------------------------------------------------------------------------------------------------


def _succeeded(compaction: Compaction, world: World, status: CompactionStatus, result: jobs.JobResult) -> Outcome:
    changes: dict[str, object] = {"completion_time": world.now.replace(microsecond=0)}
    if result.compact is not None:
        changes |= result.compact.model_dump(exclude={"already_applied"})
    if result.dataset is not None:
        changes["table"] = table_state(result.dataset)
    return conclude(compaction, world, complete("Succeeded", result.message), status.model_copy(update=changes))


# --- the start -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Parts:
    """All that a job needs, found and fit for use."""

    dataset: Dataset
    store: ObjectStore
    engine: Engine | None


def _start(
    compaction: Compaction, world: World, step: Step[CompactionStatus], begin: Start, engine_digest: str
) -> Outcome:
    parts = _gate(compaction, world)
    if isinstance(parts, Blocked):
        return held_up(compaction, world, step, parts)
    spec, attempt = compaction.spec, step.attempts.attempt
    name = job_name(compaction_prefix(compaction), attempt)
    basics = job_basics(name, attempt, compaction, parts.store, parts.dataset, world.settings)
    job = compact_job(basics, parts.engine, spec, commit_id=compaction.id, where=spec.where, dry_run=spec.dry_run)
    launch = launch_job(job, compaction, parts.engine, parts.store)
    return launched(compaction, world, step, begin, launch, _RUNNING, engine_digest)


def _gate(compaction: Compaction, world: World) -> _Parts | Blocked:
    """Everything that an attempt needs, or what it has to wait for."""
    if compaction.spec.suspend:
        return Blocked(resting("Suspended", "nothing is started while spec.suspend is true"))
    dataset = usable_dataset(compaction.spec.dataset_ref.name, compaction, world)
    if isinstance(dataset, Blocked):
        return dataset
    store = usable_store(dataset.spec.store_ref.name, compaction, world)
    if isinstance(store, Blocked):
        return store
    engine = _engine(compaction, world)
    if isinstance(engine, Blocked):
        return engine
    other = ahead_of_compaction(compaction, dataset, store, world)
    if other is not None:
        message = f"{other} of Dataset {dataset.name!r} comes first, or still runs: a compaction gives way to it"
        return Blocked(waiting("Waiting", message), LOOK_AGAIN)
    return _Parts(dataset, store, engine)
