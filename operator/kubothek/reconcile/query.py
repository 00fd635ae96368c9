"""Query: a SELECT whose result is there exactly once.

As for a Commit, the store sees to "once" (``jobs.query``); what is decided here is when to start an attempt, what to
make of its end, and what to tell people. In order: a Query that has ended stays as it is; a job that is there is
followed; otherwise the stores (and the Dataset, if the rows become one) must be ready, and the next attempt is
announced and launched. Queries do not wait for each other, nor for Commits that ``dependsOn`` does not name: each reads
the versions that it finds. Only where the rows become a Dataset in a store that bears one writer is that waited for.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubothek.reconcile.attempts import (
    Active,
    GivenUp,
    Start,
    Step,
    Succeeded,
    first,
    follow,
    job_name,
)
from kubothek.reconcile.budget import budget_of
from kubothek.reconcile.giving_way import alone, query_prefix
from kubothek.reconcile.launching import under_way
from kubothek.reconcile.projection import table_state
from kubothek.reconcile.references import (
    Blocked,
    dataset_ref,
    engine_digest,
    find_engine,
    launch_job,
    missing,
    store_ref,
    usable_dataset,
    usable_store,
)
from kubothek.reconcile.runs import given_up, held_up, launched, revived
from kubothek.reconcile.summary import conclude, unchanged
from kubothek.reconcile.world import Outcome, Settings, World
from kubothek.resources import jobs
from kubothek.resources.commit import Commit
from kubothek.resources.conditions import complete, progressing, resting, stalled, state_of, waiting
from kubothek.resources.dataset import Dataset
from kubothek.resources.engine import Engine, EngineSpec
from kubothek.resources.objectstore import ObjectStore
from kubothek.resources.query import Query, QueryProgress, QueryStatus
from kubothek.resources.values import parse_duration, parse_quantity

_RUNNING = progressing("Progressing", "a job runs the query")


def reconcile(query: Query, world: World) -> Outcome:
    """What to do about a Query."""
    if query.deleting or query.frozen:
        return unchanged(query)
    engine = find_engine((query.spec.engine_ref,), query, world)
    known_engine = None if isinstance(engine, Blocked) else engine
    budget = budget_of(known_engine, query.spec.retry_limit)
    if query.finished and not revived(query.status, budget):
        state = state_of(query.status)
        assert state is not None, "a run that has ended has conditions"
        return conclude(query, world, state)
    digest = engine_digest(known_engine, world.settings)
    step = follow(first(query.status), query_prefix(query), query, world, budget, digest)
    status = step.attempts.model_copy(update={"progress": None})
    match step.stage:
        case Active() as active:
            return conclude(query, world, under_way(active, _RUNNING), _with_progress(status, active))
        case Succeeded(result):
            return _succeeded(query, world, status, result)
        case GivenUp() as end:
            return given_up(query, world, end, step, status)
        case Start() as begin:
            return _start(query, world, Step(status, begin, step.setback, step.cancel), begin, digest)


def _with_progress(status: QueryStatus, active: Active) -> QueryStatus:
    progress = active.view.progress
    if progress is None:
        return status
    return status.model_copy(update={"progress": QueryProgress(stage=progress.stage, rows=progress.rows)})


# --- the end ---------------------------------------------------------------------------------------------------------


def _succeeded(query: Query, world: World, status: QueryStatus, result: jobs.JobResult) -> Outcome:
    fields: dict[str, object] = {"completion_time": world.now.replace(microsecond=0).isoformat()}
    if result.query is not None:
        fields |= result.query.model_dump()
    if result.dataset is not None:
        fields["table"] = table_state(result.dataset).model_dump()
    published = QueryStatus.model_validate(status.model_dump() | fields)
    return conclude(query, world, complete("Succeeded", result.message), published)


# --- the start -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Parts:
    """All that a job needs, found and fit for use. ``target`` is the store that the rows go to."""

    store: ObjectStore
    target: ObjectStore
    dataset: Dataset | None
    engine: Engine | None


def _start(query: Query, world: World, step: Step[QueryStatus], begin: Start, digest: str) -> Outcome:
    parts = _gate(query, world)
    if isinstance(parts, Blocked):
        return held_up(query, world, step, parts)
    job = _job(query, step.attempts.attempt, parts, world.settings)
    launch = launch_job(job, query, parts.engine, parts.store, parts.target)
    return launched(query, world, step, begin, launch, _RUNNING, digest)


def _gate(query: Query, world: World) -> _Parts | Blocked:
    """Everything that an attempt needs, or what it has to wait for."""
    if query.spec.suspend:
        return Blocked(resting("Suspended", "nothing is started while spec.suspend is true"))
    store = usable_store(query.spec.store_ref.name, query, world)
    if isinstance(store, Blocked):
        return store
    result = query.spec.result
    dataset, target = None, store
    if result.dataset_ref is not None:
        found = usable_dataset(result.dataset_ref.name, query, world)
        if isinstance(found, Blocked):
            return found
        dataset, other = found, found.spec.store_ref
    else:
        assert result.location is not None, "a rule of the kind"
        other = result.location.store_ref or query.spec.store_ref
    if other != query.spec.store_ref:
        elsewhere = usable_store(other.name, query, world)
        if isinstance(elsewhere, Blocked):
            return elsewhere
        target = elsewhere
    engine = find_engine((query.spec.engine_ref,), query, world)
    if isinstance(engine, Blocked):
        return engine
    awaited = _awaited(query, world)
    if awaited is None and dataset is not None:
        awaited = alone(query, dataset, target, world)
    return awaited or _Parts(store, target, dataset, engine)


def _awaited(query: Query, world: World) -> Blocked | None:
    """The first Commit that must be waited for."""
    for reference in query.spec.depends_on:
        commit = world.get(Commit, query.namespace, reference.name)
        if commit is None:
            return missing("Commit", reference.name, query, world)
        if commit.status.holds("Failed"):
            message = f"Commit {commit.name!r} of spec.dependsOn failed: create it anew under the same name"
            return Blocked(stalled("DependencyFailed", f"{message}, and this Query goes on"))
        if not commit.status.holds("Complete"):
            return Blocked(waiting("DependencyNotReady", f"Commit {commit.name!r} of spec.dependsOn is not complete"))
    return None


def _job(query: Query, attempt: int, parts: _Parts, settings: Settings) -> jobs.QueryJob:
    spec, target = query.spec, store_ref(parts.target)
    location = spec.result.location
    engine = parts.engine.spec if parts.engine is not None else EngineSpec()
    return jobs.QueryJob(
        job=job_name(query_prefix(query), attempt),
        uid=query.metadata.uid,
        attempt=attempt,
        store=store_ref(parts.store),
        sql=spec.sql,
        as_of_version=spec.as_of.version if spec.as_of else None,
        as_of_time=spec.as_of.time if spec.as_of else None,
        as_of_tag=spec.as_of.tag if spec.as_of else None,
        location=location and jobs.QueryLocation(store=target, path=location.path, format=location.format),
        becomes=parts.dataset
        and jobs.QueryDataset(
            store=target,
            dataset=dataset_ref(parts.dataset, settings),
            commit_id=f"query:{query.namespace}/{query.name}",
        ),
        memory_bytes=parse_quantity(engine.driver.memory),
        time_limit_seconds=parse_duration(spec.time_limit).total_seconds(),
    )
