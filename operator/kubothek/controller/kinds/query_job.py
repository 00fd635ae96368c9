"""Job of a Query: everything that an attempt needs, and what it has to wait for.

It needs its stores to be ready, and the Dataset, if the rows change one. Queries do not wait for each other, nor for
Commits outside ``dependsOn``: each reads the current versions. If the rows change a Dataset in a store without
conditional writes, the Query waits for the other writers of the Dataset.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kubothek.api import jobs
from kubothek.api.commit import Commit
from kubothek.api.conditions import stalled, waiting
from kubothek.api.dataset import Dataset
from kubothek.api.engine import Engine, EngineSpec
from kubothek.api.meta import render_time
from kubothek.api.objectstore import ObjectStore
from kubothek.api.query import Query, QueryRun, QueryStatus
from kubothek.api.values import parse_duration, parse_quantity
from kubothek.controller.context import Context, LaunchJob, Settings
from kubothek.controller.references import (
    Blocked,
    dataset_ref,
    find_engine,
    launch_job,
    missing,
    open_lineage,
    store_ref,
    usable_dataset,
    usable_store,
)
from kubothek.controller.scheduling.attempts import job_name
from kubothek.controller.scheduling.maintenance_priority import alone, query_prefix
from kubothek.controller.status_merge import table_state
from kubothek.controller.validation.compatibility import query_blocker


@dataclass(frozen=True, slots=True)
class _Parts:
    """Everything that a job needs, resolved and usable. ``target`` is the store that the rows are written to."""

    store: ObjectStore
    target: ObjectStore
    dataset: Dataset | None
    engine: Engine | None


def launch(query: Query, attempt: int, context: Context, run: QueryRun | None = None) -> LaunchJob | Blocked:
    """Return the job of an attempt, or what it has to wait for; ``run`` is the run of a standing Query."""
    parts = _gate(query, context)
    if isinstance(parts, Blocked):
        return parts
    job = _job(query, run, attempt, parts, context.settings)
    return launch_job(job, query, parts.engine, parts.store, parts.target)


def with_result(status: QueryStatus, result: jobs.JobResult, now: datetime) -> QueryStatus:
    """Return the status with the result of a job that succeeded."""
    fields: dict[str, object] = {"completion_time": now.replace(microsecond=0).isoformat()}
    if result.query is not None:
        fields |= result.query.model_dump()
    if result.dataset is not None:
        fields["table"] = table_state(result.dataset).model_dump()
    return QueryStatus.model_validate(status.model_dump() | fields)


def _gate(query: Query, context: Context) -> _Parts | Blocked:
    """Return everything that an attempt needs, or what it has to wait for."""
    store = usable_store(query.spec.store_ref.name, query, context)
    if isinstance(store, Blocked):
        return store
    result = query.spec.result
    dataset, target = None, store
    if result.dataset_ref is not None:
        found = usable_dataset(result.dataset_ref.name, query, context)
        if isinstance(found, Blocked):
            return found
        unfit = query_blocker(found)
        if unfit is not None:
            return unfit
        dataset, other = found, found.spec.store_ref
    else:
        assert result.location is not None, "a rule of the kind"
        other = result.location.store_ref or query.spec.store_ref
    if other != query.spec.store_ref:
        elsewhere = usable_store(other.name, query, context)
        if isinstance(elsewhere, Blocked):
            return elsewhere
        target = elsewhere
    engine = find_engine((query.spec.engine_ref,), query, context)
    if isinstance(engine, Blocked):
        return engine
    awaited = None if query.status.completion_time is not None else _awaited(query, context)
    if awaited is None and dataset is not None:
        awaited = alone(query, dataset, target, context)
    return awaited or _Parts(store, target, dataset, engine)


def _awaited(query: Query, context: Context) -> Blocked | None:
    """Return the first Commit in ``dependsOn`` that is not complete, as what to wait for."""
    for reference in query.spec.depends_on:
        commit = context.get(Commit, query.namespace, reference.name)
        if commit is None:
            return missing("Commit", reference.name, query, context)
        if commit.status.holds("Failed"):
            message = (
                f"Commit {commit.name!r} of spec.dependsOn failed; create it again under the same name to continue"
            )
            return Blocked(stalled("DependencyFailed", message))
        if not commit.status.holds("Complete"):
            return Blocked(waiting("DependencyNotReady", f"Commit {commit.name!r} of spec.dependsOn is not complete"))
    return None


def _job(query: Query, run: QueryRun | None, attempt: int, parts: _Parts, settings: Settings) -> jobs.QueryJob:
    spec, target = query.spec, store_ref(parts.target)
    location = spec.result.location
    engine = parts.engine.spec if parts.engine is not None else EngineSpec()
    return jobs.QueryJob(
        job=job_name(query_prefix(query), attempt),
        uid=query.metadata.uid,
        attempt=attempt,
        store=store_ref(parts.store),
        sql=spec.sql,
        cube=spec.cube
        and jobs.CubeQuestion(prefix=spec.cube.uuid_prefix, **spec.cube.model_dump(exclude={"uuid_prefix"})),
        as_of_version=spec.as_of.version if spec.as_of else None,
        as_of_time=spec.as_of.time if spec.as_of else None,
        as_of_tag=spec.as_of.tag if spec.as_of else None,
        as_at=spec.as_at,
        location=location and jobs.QueryLocation(store=target, path=location.path, format=location.format),
        becomes=parts.dataset
        and jobs.QueryDataset(
            store=target,
            dataset=dataset_ref(parts.dataset, settings),
            commit_id=_commit_id(query, run),
            key=spec.result.key or (),
            run=run.number if run is not None else None,
        ),
        lineage=open_lineage(query, settings, job=f"query/{query.name}"),
        memory_bytes=parse_quantity(engine.driver.memory),
        time_limit_seconds=parse_duration(spec.time_limit).total_seconds(),
    )


def _commit_id(query: Query, run: QueryRun | None) -> str:
    """Return the id of the commit of a Query, or of one run of a standing Query.

    The time of the run is part of it: numbers begin again if the status is lost.
    """
    if run is None:
        return f"query:{query.namespace}/{query.name}"
    return f"query:{query.metadata.uid}:{run.number}:{render_time(run.time)}"
