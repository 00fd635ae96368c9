"""Commit: a change of a Dataset or (:mod:`kubothek.controller.kinds.cube_change`) of a Cube that happens exactly once.

The commit protocol in the store guarantees "exactly once", and :mod:`kubothek.controller.scheduling.runs` controls the
attempts for all kinds. This module decides when an attempt may start (``_gate``), how to evaluate its end, and what to
report.

A Commit whose Dataset is missing or not ready is *waiting* (Ready False, Reconciling True). Manifests are applied in
any order, and it continues by itself when the Dataset is ready. After some minutes a missing Dataset is more likely a
mistake. Then the Commit is Stalled, so that its watchers notice; it still recovers when the Dataset appears. Failed, in
contrast, is final: the job itself reported the failure.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubothek.api import jobs
from kubothek.api.commit import DEFAULT_PUSH_SOURCE, Commit, CommitProgress, CommitStatus, MemberChange
from kubothek.api.conditions import complete, progressing
from kubothek.api.cube import Cube
from kubothek.api.dataset import Dataset
from kubothek.api.engine import Engine
from kubothek.api.members import member_uuid
from kubothek.api.objectstore import ObjectStore
from kubothek.controller.context import Context, LaunchJob, Outcome, Settings
from kubothek.controller.kinds import cube_change
from kubothek.controller.outcome import conclude
from kubothek.controller.references import (
    Blocked,
    dataset_ref,
    find_engine,
    launch_job,
    open_lineage,
    refuse_member,
    source_spec,
    spark_settings,
    statement_spec,
    store_ref,
    usable_dataset,
    usable_store,
)
from kubothek.controller.scheduling.attempts import job_name
from kubothek.controller.scheduling.maintenance_priority import alone
from kubothek.controller.scheduling.queue import turn
from kubothek.controller.scheduling.runs import RunSpec, run_once
from kubothek.controller.status_merge import cube_state, table_state
from kubothek.controller.validation.compatibility import ledger_blocker

_RUNNING = progressing("Progressing", "a job makes the change")


def reconcile(commit: Commit, context: Context) -> Outcome:
    """Reconcile a Commit."""
    spec: RunSpec[CommitStatus] = RunSpec(
        prefix=commit.name,
        running=_RUNNING,
        progress=CommitProgress,
        engine=_engine(commit, context),
        launch=lambda attempt: (_launch if commit.spec.cube is None else cube_change.launch)(commit, attempt, context),
        succeeded=lambda status, result: _succeeded(commit, context, status, result),
        marks={"id": commit.id},
    )
    return run_once(commit, commit.status, context, spec)


def _engine(commit: Commit, context: Context) -> Engine | Blocked | None:
    kind, name = commit.subject
    cube = context.get(Cube, commit.namespace, name) if kind == "Cube" else None
    subject = cube or (context.get(Dataset, commit.namespace, name) if kind == "Dataset" else None)
    return find_engine((commit.spec.engine_ref, subject.spec.engine_ref if subject else None), commit, context)


# --- the end ---------------------------------------------------------------------------------------------------------


def _succeeded(commit: Commit, context: Context, status: CommitStatus, result: jobs.JobResult) -> Outcome:
    done = result.commit
    again = done is not None and done.already_applied
    changes: dict[str, object] = {"completion_time": context.now.replace(microsecond=0)}
    if done is not None:
        # Count only what *this* Commit added: nothing, if the change had already happened.
        added = {"rows": 0, "files": 0, "bytes": 0} if again else done.model_dump(include={"rows", "files", "bytes"})
        changes |= {"version": done.version} | added
    if result.dataset is not None:
        changes["table"] = table_state(result.dataset)
    if result.cube is not None:
        changes["cube"] = cube_state(result.cube)
        changes["members"] = tuple(_member(member, result) for member in done.members) if done is not None else ()
    state = (
        complete("AlreadyApplied", f"a commit with the id {commit.id!r} had made this change before; nothing was added")
        if again
        else complete("Succeeded", result.message or "the change is committed")
    )
    return conclude(commit, context, state, status.model_copy(update=changes))


def _member(done: jobs.MemberOutcome, result: jobs.JobResult) -> MemberChange:
    """Return the change of one dataset of a cube, and its present state if the result had room for it."""
    assert result.cube is not None, "asked only of changes of cubes"
    uuid = member_uuid(result.cube.prefix, done.name)
    state = next((state for state in result.datasets if state.uuid == uuid), None)
    return MemberChange.model_validate(
        done.model_dump() | {"table": None if state is None else table_state(state).model_dump()}
    )


# --- the start -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Parts:
    """Everything that a job needs, resolved and usable."""

    dataset: Dataset
    store: ObjectStore
    source_store: ObjectStore
    engine: Engine | None


def _launch(commit: Commit, attempt: int, context: Context) -> LaunchJob | Blocked:
    """Return the job of an attempt, or what it has to wait for."""
    parts = _gate(commit, context)
    if isinstance(parts, Blocked):
        return parts
    job = _job(commit, attempt, parts, context.settings)
    return launch_job(job, commit, parts.engine, parts.store, parts.source_store)


def _gate(commit: Commit, context: Context) -> _Parts | Blocked:
    """Return everything that an attempt needs, or what it has to wait for."""
    dataset = usable_dataset(commit.subject.name, commit, context)
    if isinstance(dataset, Blocked):
        return dataset
    member = refuse_member(dataset, "create a Commit with spec.cube")
    if member is not None:
        return member
    ledger = ledger_blocker(commit, dataset)
    if ledger is not None:
        return ledger
    store = usable_store(dataset.spec.store_ref.name, commit, context)
    if isinstance(store, Blocked):
        return store
    source = commit.spec.source
    other = None if source is None else source.store_ref
    source_store = store if other is None else usable_store(other.name, commit, context)
    if isinstance(source_store, Blocked):
        return source_store
    engine = _engine(commit, context)
    if isinstance(engine, Blocked):
        return engine
    blocked = turn(commit, context) or alone(commit, dataset, store, context)
    return blocked or _Parts(dataset, store, source_store, engine)


def _job(commit: Commit, attempt: int, parts: _Parts, settings: Settings) -> jobs.CommitJob:
    spec, source = commit.spec, commit.spec.source
    files = source if source is not None and source.sql is None else None
    return jobs.CommitJob(
        job=job_name(commit.name, attempt),
        uid=commit.metadata.uid,
        attempt=attempt,
        store=store_ref(parts.store),
        dataset=dataset_ref(parts.dataset, settings),
        commit_id=commit.id,
        digest=commit.digest(parts.store.name),
        operation=spec.operation or "Append",
        source=None if files is None else source_spec(files, parts.source_store, settings),
        statement=None if source is None else statement_spec(source, parts.source_store, parts.engine),
        key=spec.key or (),
        when_matched=spec.when_matched or (),
        when_not_matched=spec.when_not_matched or (),
        when_not_matched_by_source=spec.when_not_matched_by_source or (),
        where=spec.where,
        new_values=spec.new_values or {},
        row_level=spec.row_level,
        purge=spec.purge,
        to_version=spec.to_version,
        to_time=spec.to_time,
        to_tag=spec.to_tag,
        allow_schema_change=spec.allow_schema_change,
        on_conflict=spec.on_conflict,
        lineage=open_lineage(commit, settings, job=f"commit/{commit.name}")
        if source is not None and source.sql
        else None,
        push_source=(spec.push_source or DEFAULT_PUSH_SOURCE) if parts.dataset.spec.ledger is not None else None,
        spark=spark_settings(parts.engine),
    )
