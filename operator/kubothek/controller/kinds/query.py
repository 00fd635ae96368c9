"""Query: a SELECT whose result is written exactly once.

As for a Commit, the store guarantees "exactly once" (``jobs.query``), and :mod:`kubothek.controller.scheduling.runs`
controls the attempts. To start, it needs its stores to be ready, and the Dataset, if the rows become one. Queries do
not wait for each other, nor for Commits outside ``dependsOn``: each reads the present versions. If the rows become a
Dataset in a store without conditional writes, the Query waits for the other writers of the Dataset.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubothek.api import jobs
from kubothek.api.commit import Commit
from kubothek.api.conditions import complete, progressing, stalled, waiting
from kubothek.api.dataset import Dataset
from kubothek.api.engine import Engine, EngineSpec
from kubothek.api.objectstore import ObjectStore
from kubothek.api.query import Query, QueryProgress, QueryStatus
from kubothek.api.values import parse_duration, parse_quantity
from kubothek.controller.context import Context, LaunchJob, Outcome, Settings
from kubothek.controller.outcome import conclude
from kubothek.controller.references import (
    Blocked,
    dataset_ref,
    find_engine,
    launch_job,
    missing,
    open_lineage,
    refuse_member,
    store_ref,
    usable_dataset,
    usable_store,
)
from kubothek.controller.scheduling.attempts import job_name
from kubothek.controller.scheduling.maintenance_priority import alone, query_prefix
from kubothek.controller.scheduling.runs import RunSpec, run_once
from kubothek.controller.status_merge import table_state

_RUNNING = progressing("Progressing", "a job runs the query")


def reconcile(query: Query, context: Context) -> Outcome:
    """Reconcile a Query."""
    spec: RunSpec[QueryStatus] = RunSpec(
        prefix=query_prefix(query),
        running=_RUNNING,
        progress=QueryProgress,
        engine=find_engine((query.spec.engine_ref,), query, context),
        launch=lambda attempt: _launch(query, attempt, context),
        succeeded=lambda status, result: _succeeded(query, context, status, result),
    )
    return run_once(query, query.status, context, spec)


# --- the end ---------------------------------------------------------------------------------------------------------


def _succeeded(query: Query, context: Context, status: QueryStatus, result: jobs.JobResult) -> Outcome:
    fields: dict[str, object] = {"completion_time": context.now.replace(microsecond=0).isoformat()}
    if result.query is not None:
        fields |= result.query.model_dump()
    if result.dataset is not None:
        fields["table"] = table_state(result.dataset).model_dump()
    published = QueryStatus.model_validate(status.model_dump() | fields)
    return conclude(query, context, complete("Succeeded", result.message), published)


# --- the start -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Parts:
    """Everything that a job needs, resolved and usable. ``target`` is the store that the rows are written to."""

    store: ObjectStore
    target: ObjectStore
    dataset: Dataset | None
    engine: Engine | None


def _launch(query: Query, attempt: int, context: Context) -> LaunchJob | Blocked:
    """Return the job of an attempt, or what it has to wait for."""
    parts = _gate(query, context)
    if isinstance(parts, Blocked):
        return parts
    return launch_job(_job(query, attempt, parts, context.settings), query, parts.engine, parts.store, parts.target)


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
        member = refuse_member(found, "let the rows become a file, and append it with spec.cube of a Commit")
        if member is not None:
            return member
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
    awaited = _awaited(query, context)
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
            commit_id=f"query:{query.namespace}/{query.name}",
        ),
        lineage=open_lineage(query, settings, job=f"query/{query.name}"),
        memory_bytes=parse_quantity(engine.driver.memory),
        time_limit_seconds=parse_duration(spec.time_limit).total_seconds(),
    )
