"""Dataset: the declaration of a table, its observed state, and the deletion of its data.

A Dataset starts jobs that restore and delete its data. It ingests from its sources
(:mod:`kubothek.controller.tasks.sources`), feeds its ledger (:mod:`kubothek.controller.tasks.ledger`) and maintains its
table (:mod:`kubothek.controller.tasks.table_maintenance`). It is Ready when an inspection or a Commit has observed its
uuid and nothing prevents writes. A store that is unavailable later does not change that, because Commits check the
store themselves.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from kubothek.api.conditions import (
    State,
    corrupt,
    problem_state,
    problem_text,
    progressing,
    ready,
    resting,
    stalled,
    state_of,
)
from kubothek.api.dataset import Dataset, DatasetStatus, OneShot
from kubothek.api.engine import Engine
from kubothek.api.jobs import DeleteJob, RestoreJob
from kubothek.api.meta import FINALIZER
from kubothek.api.objectstore import ObjectStore
from kubothek.controller.context import Action, CancelJob, Context, Event, LaunchJob, Outcome, SetFinalizer
from kubothek.controller.outcome import conclude, unchanged
from kubothek.controller.references import (
    Blocked,
    find_engine,
    find_store,
    job_basics,
    launch_job,
    usable_store,
)
from kubothek.controller.scheduling.attempts import GivenUp, first, job_name, renewed
from kubothek.controller.scheduling.retries import Budget
from kubothek.controller.scheduling.runner import run_attempts
from kubothek.controller.scheduling.schedule import soonest
from kubothek.controller.status_merge import absorb, project
from kubothek.controller.tasks.ledger import keep_ledger, missing_chain
from kubothek.controller.tasks.skipping import with_uses
from kubothek.controller.tasks.sources import attend
from kubothek.controller.tasks.table_maintenance import keep_up
from kubothek.controller.tasks.task_runs import TaskInputs
from kubothek.controller.validation.layout import layout_mismatch

_FOR_EVER = Budget(limit=None, initial=timedelta(seconds=2), maximum=timedelta(minutes=1))
"""Deletion ends at its deadline, and restoration when the store answers; neither has a retry limit."""

_INSPECTING = progressing("Progressing", "an inspection of the store searches for the dataset")
_RESTORING = progressing("Restoring", "a job restores the deleted data")
_DELETING = progressing("Deleting", "a job deletes the data")
_DELETED = "the data is deleted; a new Dataset with spec.restore restores it within the store's grace period"


def reconcile(dataset: Dataset, context: Context) -> Outcome:
    """Reconcile a Dataset."""
    if dataset.frozen:
        return unchanged(dataset)
    if dataset.deleting:
        return _delete(dataset, context)
    finalizer = _finalizer(dataset)
    store = find_store(dataset.spec.store_ref.name, dataset, context)
    if isinstance(store, Blocked):
        return conclude(dataset, context, store.state, actions=finalizer, again=store.again)
    status = with_uses(dataset, project(dataset, store, context), context)
    engine = find_engine((dataset.spec.engine_ref,), dataset, context)
    if isinstance(engine, Blocked):
        return conclude(dataset, context, engine.state, status, actions=finalizer, again=engine.again)
    if dataset.spec.restore and status.deleted and not dataset.spec.suspend:
        return _restore(dataset, context, store, engine, status, finalizer)
    before = status.restoration
    if not dataset.spec.restore and before is not None and (before.done or before.problem is not None):
        status = status.model_copy(update={"restoration": renewed(before)})  # another restoration may run
    state = _state(dataset, context, status)
    fit = state.ready == "True" and not dataset.spec.suspend
    built = dataset.cube is None or status.version is not None  # sources append; only a Commit builds the cube
    sources = attend(dataset, context, store, engine, status, start=fit and built)
    inputs = TaskInputs(dataset, context, store, engine)
    ledger = keep_ledger(inputs, sources.status, start=fit)
    absent = missing_chain(ledger) if dataset.spec.ledger is not None else None
    kept = keep_up(inputs, ledger.status, start=fit and absent is None)
    blocker = absent or sources.blocker or ledger.blocker or kept.blocker
    state = blocker if fit and blocker is not None else state
    actions = (*finalizer, *sources.actions, *ledger.actions, *kept.actions)
    again = soonest(sources.again, ledger.again, kept.again)
    return conclude(dataset, context, state, kept.status, actions=actions, events=sources.events, again=again)


def _state(dataset: Dataset, context: Context, status: DatasetStatus) -> State:
    """Return the state of a Dataset that needs no action."""
    if status.problem is not None:
        return problem_state(status.problem)
    if status.corrupt is not None and not status.deleted:
        return corrupt(status.corrupt)
    mismatch = layout_mismatch(dataset, status)
    if mismatch is not None:
        return stalled("LayoutMismatch", mismatch)
    if status.inspected_time is None and status.version is None:
        return _state_before_inspection(dataset, context)
    if dataset.spec.suspend:
        if dataset.spec.restore and status.deleted:
            return resting("Suspended", "the data is restored when spec.suspend is false")
        return ready("Suspended", "no new jobs while spec.suspend is true")
    if status.deleted:
        return ready(
            "Succeeded",
            "ready for commits, which start a new table; spec.restore restores the deleted one within the store's "
            "grace period, until something is committed",
        )
    if dataset.spec.ledger is not None and dataset.spec.ledger.kind == "Derivative":
        return ready("Succeeded", "follows its inputs")
    return ready("Succeeded", "ready for commits")


def _state_before_inspection(dataset: Dataset, context: Context) -> State:
    """Return the state of a Dataset that no inspection has reported yet; a store's first inspection covers it."""
    store = usable_store(dataset.spec.store_ref.name, dataset, context)
    if not isinstance(store, Blocked):
        return _INSPECTING
    there = context.get(ObjectStore, dataset.namespace, dataset.spec.store_ref.name)
    fresh = there is not None and not there.deleting and not there.spec.suspend
    published = state_of(there.status) if there is not None else None
    return _INSPECTING if fresh and (published is None or published.ready == "Unknown") else store.state


def _finalizer(dataset: Dataset) -> tuple[Action, ...]:
    """Return the change of the finalizer: it is present only while deletion has to delete data."""
    wanted, present = dataset.spec.deletion_policy == "Delete", FINALIZER in dataset.metadata.finalizers
    return () if wanted == present else (SetFinalizer(wanted),)


# --- restoration -----------------------------------------------------------------------------------------------------


def _restore(
    dataset: Dataset,
    context: Context,
    store: ObjectStore,
    engine: Engine | None,
    status: DatasetStatus,
    finalizer: tuple[Action, ...],
) -> Outcome:
    restoration, prefix = status.restoration or OneShot(), f"{dataset.name}-restore"
    if restoration.problem is not None:
        return conclude(dataset, context, problem_state(restoration.problem), status, actions=finalizer)

    def launch(attempts: OneShot) -> LaunchJob:
        return launch_job(RestoreJob(**_basics(dataset, context, store, prefix, attempts)), dataset, engine, store)

    step = run_attempts(
        restoration, prefix, dataset, context, engine=engine, budget=_FOR_EVER, running=_RESTORING, launch=launch
    )
    match step.end:
        case None:
            status, actions = _restored(status, step.attempts), (*finalizer, *step.actions)
            return conclude(dataset, context, step.state, status, actions=actions, again=step.again)
        case GivenUp(reason, message):
            problem = problem_text(reason, f"{message}; set spec.restore to false to start a new table")
            status = _restored(status, step.attempts, problem=problem)
            return conclude(dataset, context, problem_state(problem), status, actions=finalizer)
        case result:
            status = _restored(status, step.attempts, done=True).model_copy(update={"deleted": False})
            if result.dataset is not None:
                status = absorb(status, result.dataset)
            return conclude(dataset, context, _state(dataset, context, status), status, actions=finalizer)


def _basics(dataset: Dataset, context: Context, store: ObjectStore, prefix: str, attempts: OneShot) -> dict[str, Any]:
    """Return the fields that jobs of restoration and deletion have."""
    return job_basics(job_name(prefix, attempts.attempt), attempts.attempt, dataset, store, dataset, context.settings)


def _restored(status: DatasetStatus, attempts: OneShot, **changes: object) -> DatasetStatus:
    return status.model_copy(update={"restoration": attempts.model_copy(update=changes)})


# --- deletion --------------------------------------------------------------------------------------------------------


def _delete(dataset: Dataset, context: Context) -> Outcome:
    """Delete the data first, if the policy says so, but never block the resource or its namespace forever."""
    deletion_time = dataset.metadata.deletion_timestamp
    assert deletion_time is not None
    if FINALIZER not in dataset.metadata.finalizers:
        return unchanged(dataset)
    deletion = first(dataset.status.deletion or OneShot())
    name = job_name(f"{dataset.name}-delete", deletion.attempt)
    stop: tuple[Action, ...] = (CancelJob(dataset.namespace, name),) if dataset.status.deletion else ()
    if dataset.spec.deletion_policy == "Retain":
        return _let_go(dataset, Event("Normal", "Retained", "the data is kept, as spec.deletionPolicy says"), *stop)
    if dataset.spec.suspend and not stop:
        return _kept(dataset, "Suspended", "spec.suspend is true")
    store = context.get(ObjectStore, dataset.namespace, dataset.spec.store_ref.name)
    if store is None:
        why = f"ObjectStore {dataset.spec.store_ref.name!r} does not exist"
        return _kept(dataset, "ObjectStoreNotFound", why, *stop)
    left = deletion_time + context.settings.deletion_deadline - context.now
    if left <= timedelta(0):
        return _kept(dataset, "DeletionDeadlineExceeded", "the data could not be deleted in time", *stop)
    refusal = context.launch_refusal(dataset.namespace, name)
    if refusal is not None and refusal[0] == "NamespaceTerminating":
        return _kept(dataset, "NamespaceTerminating", "no job can start in a namespace that is being deleted", *stop)
    return _follow_deletion(dataset, context, store, deletion, left)


def _follow_deletion(
    dataset: Dataset, context: Context, store: ObjectStore, deletion: OneShot, left: timedelta
) -> Outcome:
    found, prefix = find_engine((dataset.spec.engine_ref,), dataset, context), f"{dataset.name}-delete"
    engine = None if isinstance(found, Blocked) else found  # a missing Engine must not prevent deletion

    def launch(attempts: OneShot) -> LaunchJob:
        return launch_job(DeleteJob(**_basics(dataset, context, store, prefix, attempts)), dataset, engine, store)

    step = run_attempts(
        deletion, prefix, dataset, context, engine=engine, budget=_FOR_EVER, running=_DELETING, launch=launch
    )
    attempts, state, again = step.attempts, step.state, step.again or left
    match step.end:
        case None:
            pass
        case GivenUp("DatasetNotFound" | "DatasetDeleted"):
            return _let_go(dataset, Event("Normal", "Deleted", "there was no data to delete"))
        case GivenUp("OwnedByAnother" | "NotAdopted" as reason, message):
            return _kept(dataset, reason, message)
        case GivenUp(reason, message):
            # A user may resolve it before the deadline: retry, and show the failure.
            state = stalled(reason, f"{message}; correct it, or set spec.deletionPolicy to Retain to keep the data")
            again = _FOR_EVER.delay(attempts.failures + 1)
            failures, due = attempts.failures + 1, context.now + again
            attempts = renewed(attempts, failures=failures, next_attempt_time=due)
            step = replace(step, actions=())
        case _:
            return _let_go(dataset, Event("Normal", "Deleted", _DELETED))
    status = dataset.status.model_copy(update={"deletion": attempts})
    return conclude(dataset, context, state, status, actions=step.actions, again=min(again, left))


def _kept(dataset: Dataset, reason: str, why: str, *actions: Action) -> Outcome:
    message = f"{why}: the data of {dataset.uuid!r} is kept in ObjectStore {dataset.spec.store_ref.name!r}"
    return _let_go(dataset, Event("Warning", reason, message), *actions)


def _let_go(dataset: Dataset, event: Event, *actions: Action) -> Outcome:
    """Return the outcome that removes the finalizer, so that the API server deletes the resource."""
    return unchanged(dataset, actions=(*actions, SetFinalizer(False)), events=(event,))
