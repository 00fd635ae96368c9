"""Compaction: a single rewrite of small files.

The store guarantees that the rewrite changes no row and happens once; :mod:`kubothek.controller.scheduling.runs`
controls the attempts. To start, it needs Dataset, store and Engine to exist and be ready. Everything else that writes
to the Dataset has priority (:mod:`kubothek.controller.scheduling.maintenance_priority`).
"""

from __future__ import annotations

from dataclasses import dataclass

from kubothek.api import jobs
from kubothek.api.compaction import Compaction, CompactionProgress, CompactionStatus
from kubothek.api.conditions import complete, progressing, waiting
from kubothek.api.dataset import Dataset
from kubothek.api.engine import Engine
from kubothek.api.objectstore import ObjectStore
from kubothek.controller.context import Context, LaunchJob, Outcome
from kubothek.controller.outcome import conclude
from kubothek.controller.references import Blocked, find_engine, job_basics, launch_job, usable_dataset, usable_store
from kubothek.controller.scheduling.attempts import job_name
from kubothek.controller.scheduling.maintenance_priority import RECHECK_INTERVAL, ahead_of_compaction, compaction_prefix
from kubothek.controller.scheduling.runs import RunSpec, run_once
from kubothek.controller.status_merge import table_state
from kubothek.controller.tasks.compaction import compact_job

_RUNNING = progressing("Progressing", "a job rewrites small files")


def reconcile(compaction: Compaction, context: Context) -> Outcome:
    """Reconcile a Compaction."""
    spec: RunSpec[CompactionStatus] = RunSpec(
        prefix=compaction_prefix(compaction),
        running=_RUNNING,
        progress=CompactionProgress,
        engine=_engine(compaction, context),
        launch=lambda attempt: _launch(compaction, attempt, context),
        succeeded=lambda status, result: _succeeded(compaction, context, status, result),
    )
    return run_once(compaction, compaction.status, context, spec)


def _engine(compaction: Compaction, context: Context) -> Engine | Blocked | None:
    dataset = context.get(Dataset, compaction.namespace, compaction.spec.dataset_ref.name)
    return find_engine((compaction.spec.engine_ref, dataset.spec.engine_ref if dataset else None), compaction, context)


# --- the end ---------------------------------------------------------------------------------------------------------


def _succeeded(compaction: Compaction, context: Context, status: CompactionStatus, result: jobs.JobResult) -> Outcome:
    changes: dict[str, object] = {"completion_time": context.now.replace(microsecond=0)}
    if result.compact is not None:
        changes |= result.compact.model_dump(exclude={"already_applied"})
    if result.dataset is not None:
        changes["table"] = table_state(result.dataset)
    return conclude(compaction, context, complete("Succeeded", result.message), status.model_copy(update=changes))


# --- the start -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Parts:
    """Everything that a job needs, resolved and usable."""

    dataset: Dataset
    store: ObjectStore
    engine: Engine | None


def _launch(compaction: Compaction, attempt: int, context: Context) -> LaunchJob | Blocked:
    """Return the job of an attempt, or what it has to wait for."""
    parts = _gate(compaction, context)
    if isinstance(parts, Blocked):
        return parts
    spec, name = compaction.spec, job_name(compaction_prefix(compaction), attempt)
    basics = job_basics(name, attempt, compaction, parts.store, parts.dataset, context.settings)
    job = compact_job(basics, parts.engine, spec, commit_id=compaction.id, where=spec.where, dry_run=spec.dry_run)
    return launch_job(job, compaction, parts.engine, parts.store)


def _gate(compaction: Compaction, context: Context) -> _Parts | Blocked:
    """Return everything that an attempt needs, or what it has to wait for."""
    dataset = usable_dataset(compaction.spec.dataset_ref.name, compaction, context)
    if isinstance(dataset, Blocked):
        return dataset
    store = usable_store(dataset.spec.store_ref.name, compaction, context)
    if isinstance(store, Blocked):
        return store
    engine = _engine(compaction, context)
    if isinstance(engine, Blocked):
        return engine
    other = ahead_of_compaction(compaction, dataset, store, context)
    if other is not None:
        message = f"{other} of Dataset {dataset.name!r} has priority or still runs; the compaction waits for it"
        return Blocked(waiting("Waiting", message), RECHECK_INTERVAL)
    return _Parts(dataset, store, engine)
