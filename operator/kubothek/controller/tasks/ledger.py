"""Ledger of a Dataset. One job brings the events of the manifest into the chain; others poll its source, or derive it
from its inputs.

The first such job creates the chain. Until then the Dataset is not ready, and no other job starts for it. A poll is due
once for each edit of the events, at each slot of the schedule, and on request;
:mod:`kubothek.controller.tasks.transforms` decides when a derivative runs. Both wait only for the job that edits the
events, because ledgers serialise appends.

The chain's private key is in a Secret that the operator creates and never reads, unless the manifest names one
(decision 13). Only the job that creates or edits the chain mounts it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from kubothek.api.conditions import State, progressing, stalled, waiting
from kubothek.api.dataset import Dataset, DatasetStatus, PollState, TaskRun
from kubothek.api.jobs import JobResult, LedgerJob, PollJob
from kubothek.api.ledger import Ledger
from kubothek.api.meta import render_time
from kubothek.controller.context import Action, JobPhase, LaunchJob, MakeIdentity
from kubothek.controller.derivation import Ledgers, identity, references
from kubothek.controller.references import digest, spark_settings
from kubothek.controller.scheduling.attempts import ENGINE_FAULTS, job_name
from kubothek.controller.scheduling.maintenance_priority import RECHECK_INTERVAL, alone
from kubothek.controller.scheduling.schedule import Slots, fault, soonest
from kubothek.controller.status_merge import absorb
from kubothek.controller.tasks.containers import refused_container, source_container
from kubothek.controller.tasks.external_engines import asked_of, refused_engine
from kubothek.controller.tasks.task_runs import (
    TaskInputs,
    TaskResult,
    TaskType,
    begun,
    blocker_of,
    is_open,
    run_task,
    task_run_of,
)
from kubothek.controller.tasks.transforms import (
    CHANGES,
    TRANSFORM,
    awaited_input,
    due,
    input_refs,
    lacking_inputs,
    left_to_wait,
    marked,
    slot_of,
    transform_task,
)

IDENTITY_DIRECTORY = "/var/run/kubothek/identity"
"""Directory in which the job that creates a chain finds its private key."""

ENV_DIRECTORY = "/var/run/kubothek/env"
"""Directory in which polls find the variables of URLs and headers."""

CREATING = progressing("Progressing", "a job creates the chain")

AWAITING_CHAIN = waiting(
    "AwaitingChain", "the chain was neither pulled by a Sync nor pushed; create a Sync with direction: Pull"
)


def keep_ledger(inputs: TaskInputs, status: DatasetStatus, *, start: bool) -> TaskResult:
    """Return the next step of the ledger job that is due; none is started unless ``start``."""
    if inputs.dataset.spec.ledger is None:
        return TaskResult(status)
    if inputs.dataset.spec.ledger.kind == "Copy":
        return TaskResult(status, blocker=AWAITING_CHAIN if status.ledger is None else None)
    here = Ledgers(inputs.context, inputs.dataset.namespace)
    kept = _kept(inputs, status, here, start=start)
    return replace(kept, status=here.placed(inputs.dataset, kept.status))


def _kept(inputs: TaskInputs, status: DatasetStatus, here: Ledgers, *, start: bool) -> TaskResult:
    dataset = inputs.dataset
    lacking = lacking_inputs(dataset, here)
    define = replace(DEFINE, cause=lambda dataset, status, _now: _undefined(dataset, status, here))
    defined = _step(define, inputs, status, start=start and lacking is None)
    if lacking is not None:
        return replace(defined, blocker=lacking.state, again=soonest(defined.again, lacking.again))
    if is_open(DEFINE, defined.status) or defined.blocker is not None or defined.status.ledger is None:
        return defined
    if references(dataset):
        refused = refused_engine(dataset, inputs.engine, inputs.context.settings)
        fed = _derived(inputs, defined.status, here, start=start and refused is None)
        fed = replace(fed, blocker=refused or fed.blocker)
    else:
        fed = _polling(inputs, defined.status, start=start)
    fed = replace(fed, actions=(*defined.actions, *fed.actions), blocker=_faulty(dataset) or fed.blocker)
    return replace(fed, again=soonest(fed.again, _next_slot(dataset, fed.status, here.now)))


def _polling(inputs: TaskInputs, status: DatasetStatus, *, start: bool) -> TaskResult:
    """Return the next step of a poll; a poll whose container may not run here does not start."""
    assert inputs.dataset.spec.ledger is not None, "it has one"
    refused = refused_container(inputs.dataset.spec.ledger, inputs.context.settings)
    polled = _step(POLL, inputs, status, start=start and refused is None)
    return replace(polled, blocker=refused or polled.blocker)


def _derived(inputs: TaskInputs, status: DatasetStatus, here: Ledgers, *, start: bool) -> TaskResult:
    """Return the next step of a derivative's run; a run that is due does not begin while it waits for an input."""
    dataset = inputs.dataset
    status = marked(dataset, status, here)
    if is_open(TRANSFORM, status):
        return _step(transform_task(here), inputs, status, start=start)
    wait = due(dataset, status, here)
    left = left_to_wait(dataset, status, here.now)
    if wait.cause is not None and left > timedelta(0) and awaited_input(dataset, status, here) is not None:
        return TaskResult(status, again=min(RECHECK_INTERVAL, left), blocker=blocker_of(TRANSFORM, status))
    result = _step(transform_task(here), inputs, status, start=start)
    return replace(result, again=soonest(result.again, wait.again))


def missing_chain(result: TaskResult) -> State | None:
    """Return the state of a Dataset that has a ledger but no chain yet; None if it has one."""
    if result.status.ledger is not None:
        return None
    if result.blocker is None:
        return CREATING
    if result.blocker is AWAITING_CHAIN or result.blocker.reason != DEFINE.reason:
        return result.blocker
    # Not LedgerStalled, a reason under which commits still work: without a chain they do not.
    return replace(result.blocker, reason="LedgerNotCreated")


def _step(task_type: TaskType, inputs: TaskInputs, status: DatasetStatus, *, start: bool) -> TaskResult:
    now = inputs.context.now
    if not is_open(task_type, status) or (start and _outdated(task_type, inputs, status)):
        cause, last = task_type.cause(inputs.dataset, status, now), task_run_of(task_type, status)
        if cause is None or not start or (last is not None and last.cause == cause):
            return TaskResult(status, blocker=blocker_of(task_type, status))
        slot = slot_of(inputs.dataset, status, now)
        status = begun(task_type, status, cause, now)
        if task_type.verb in (POLL.verb, TRANSFORM.verb):
            scheduled = getattr(status, task_type.field).model_copy(update={"slot": slot})
            status = status.model_copy(update={task_type.field: scheduled})
    waits = alone(inputs.dataset, inputs.dataset, inputs.store, inputs.context, status)
    inputs = replace(inputs, dataset=inputs.dataset.model_copy(update={"status": status}))
    result = run_task(task_type, inputs, status, start_jobs=start and waits is None)
    result = replace(result, actions=_with_secrets(inputs.dataset, result.actions))
    if waits is not None and result.again is None:
        return replace(result, again=RECHECK_INTERVAL)
    return result


def _outdated(task_type: TaskType, inputs: TaskInputs, status: DatasetStatus) -> bool:
    """Return whether an open poll cannot start because of an outdated manifest, for example one with a missing image.
    The next job stops it.
    """
    task_run, dataset = task_run_of(task_type, status), inputs.dataset
    if (
        task_type is not POLL
        or task_run is None
        or task_type.cause(dataset, status, inputs.context.now) in (None, task_run.cause)
    ):
        return False
    view = inputs.context.job(dataset.namespace, job_name(inputs.prefix(task_type), task_run.attempt))
    return view is not None and view.phase is JobPhase.PENDING and view.reason in ENGINE_FAULTS


def _with_secrets(dataset: Dataset, actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """Return the actions with the Secrets that launched jobs mount, preceded by the creation of the key."""
    ledger = dataset.spec.ledger
    assert ledger is not None, "asked only of ledgers"
    found: list[Action] = []
    for action in actions:
        if not isinstance(action, LaunchJob):
            found.append(action)
            continue
        job, mounts = action.job, dict[str, str]()
        if isinstance(job, LedgerJob) and job.identity_dir is not None:
            if ledger.identity_secret_ref is None:
                found.append(MakeIdentity(identity_secret(dataset)))
            mounts = {job.identity_dir: identity_secret(dataset)}
        elif isinstance(job, PollJob) and job.env_dir is not None and ledger.env_secret_ref is not None:
            mounts = {job.env_dir: ledger.env_secret_ref.name}
        found.append(replace(action, mounts=mounts))
    return tuple(found)


def identity_secret(dataset: Dataset) -> str:
    """Return the name of the Secret with the private key."""
    ledger = dataset.spec.ledger
    named = ledger.identity_secret_ref if ledger is not None else None
    return named.name if named is not None else f"{dataset.name}-identity"


_LAYOUT = {
    "sort_by",
    "bucket_by",
    "num_buckets",
    "target_file_size",
    "row_group_rows",
    "compression",
    "dictionary_columns",
}
"""Fields of spec.table that the head must hold for the next write."""


def _definition(dataset: Dataset, ledger: Ledger, here: Ledgers) -> str:
    """Return a digest of the events that the chain should hold, of its version, and of the layout of its table."""
    parts = [ledger.model_dump_json(include={"metadata"}), dataset.spec.table.model_dump_json(include=_LAYOUT)]
    if ledger.spec_version is not None:
        parts.append(ledger.spec_version)
    if ledger.kind == "Derivative":
        parts += [ledger.following.on_change, *(identity(other) or "" for other in here.inputs(dataset))]
    return digest(*parts)


# --- the events ------------------------------------------------------------------------------------------------------


def _undefined(dataset: Dataset, status: DatasetStatus, here: Ledgers) -> str | None:
    ledger, last = dataset.spec.ledger, status.defining
    if ledger is None:
        return None
    cause = _definition(dataset, ledger, here)
    known = last is not None and last.cause.startswith(cause)
    if last is None or not known:
        return cause
    if last.done and status.ledger is None:  # the chain existed and is gone: create it again
        return f"{cause}-{last.attempt}"
    return None if last.done else last.cause


def _ledger_job(inputs: TaskInputs, _task_run: TaskRun, basics: Mapping[str, Any]) -> LedgerJob:
    ledger = inputs.dataset.spec.ledger
    assert ledger is not None, "there is no cause without one"
    assert ledger.kind != "Copy", "its chain is defined elsewhere"
    return LedgerJob(
        **basics,
        kind=ledger.kind,
        metadata=ledger.metadata,
        inputs=input_refs(inputs.dataset, Ledgers(inputs.context, inputs.dataset.namespace)),
        on_change=ledger.following.on_change,
        types=ledger.types,
        spec_version=ledger.spec_version,
        view=ledger.view == "Table",
        identity_dir=IDENTITY_DIRECTORY if inputs.dataset.status.ledger is None else None,
        foreign=asked_of(inputs.dataset, inputs.engine) is not None,
    )


# --- polls -----------------------------------------------------------------------------------------------------------


def _unpolled(dataset: Dataset, status: DatasetStatus, now: datetime) -> str | None:
    ledger, last = dataset.spec.ledger, status.polling
    if ledger is None or not ledger.polling or status.ledger is None:
        return None
    slot = slot_of(dataset, status, now)
    reading = ledger.model_dump_json(include={"metadata", "env_secret_ref", "fetch_uncacheable"})
    marks = (reading, dataset.requested_at or "", "" if slot is None else render_time(slot))
    cause = digest(*marks)
    if last is None or not last.cause.startswith(cause):
        return cause
    if last.done and last.has_more:  # a pod runs a container once, or ends amid messages; another continues
        return f"{cause}-{last.attempt}"
    return None if last.done else last.cause


def _next_slot(dataset: Dataset, status: DatasetStatus, now: datetime) -> timedelta | None:
    ledger = dataset.spec.ledger
    return None if ledger is None else Slots.of(dataset, ledger.schedule, slot_of(dataset, status, now), now).wait


def _faulty(dataset: Dataset) -> State | None:
    ledger = dataset.spec.ledger
    mistake = fault(ledger.schedule) if ledger is not None and ledger.schedule is not None else None
    return None if mistake is None else stalled("InvalidSchedule", f"ledger.schedule: {mistake}; Commits continue")


def _poll_job(inputs: TaskInputs, _task_run: TaskRun, basics: Mapping[str, Any]) -> PollJob:
    ledger, settings = inputs.dataset.spec.ledger, inputs.context.settings
    return PollJob(
        **basics,
        fetch_uncacheable=ledger is not None and ledger.fetch_uncacheable,
        env_dir=ENV_DIRECTORY if ledger is not None and ledger.env_secret_ref is not None else None,
        allowed_hosts=settings.allowed_source_hosts,
        allow_local=settings.allow_local_sources,
        container=source_container(ledger, settings) if ledger is not None else None,
        spark=spark_settings(inputs.engine),
    )


def _polled(task_run: TaskRun, result: JobResult, now: datetime) -> PollState:
    found = result.poll
    counts = found.model_dump(include={"records", "commits", "has_more"}) if found is not None else {}
    return PollState.model_validate(task_run.model_dump() | counts | {"time": now})


DEFINE = TaskType(
    verb="ledger",
    reason="LedgerStalled",
    problem="the chain does not hold the events of spec.ledger",
    running=progressing("Defining", "a job makes the chain hold the events of spec.ledger"),
    cause=lambda dataset, status, now: None,
    job=_ledger_job,
    absorb=absorb,
    reasons=CHANGES,
)
"""The cause depends on the identities of other Datasets: see :func:`keep_ledger`."""
POLL = TaskType(
    verb="poll",
    reason="SourceStalled",
    problem="the polling source was not read, and will be at the next slot, edit or request",
    running=progressing("Polling", "a job reads the polling source"),
    cause=_unpolled,
    job=_poll_job,
    absorb=absorb,
    record=_polled,
    state=PollState,
)
