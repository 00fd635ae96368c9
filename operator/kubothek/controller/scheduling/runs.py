"""Control of run-once kinds (Commit, Query, Compaction, Verification) from the first attempt to the end.

An ended run stays as it is. Otherwise an existing job is followed, whatever else has changed. Otherwise the next
attempt is announced and launched, if nothing prevents it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Generic, TypeVar

from kubothek.api.commit import Commit, CommitProgress, CommitStatus
from kubothek.api.compaction import Compaction, CompactionProgress, CompactionStatus
from kubothek.api.conditions import State, failed, resting, stalled, state_of
from kubothek.api.engine import Engine
from kubothek.api.jobs import JobResult
from kubothek.api.query import Query, QueryProgress, QueryStatus
from kubothek.api.verification import Verification, VerificationProgress, VerificationStatus
from kubothek.controller.context import CancelJob, FailureClass, LaunchJob, Outcome, World
from kubothek.controller.outcome import conclude, unchanged
from kubothek.controller.references import Blocked, engine_digest
from kubothek.controller.scheduling.attempts import (
    ENGINE_FAULTS,
    Active,
    GivenUp,
    Start,
    Step,
    Succeeded,
    first,
    follow,
    job_name,
)
from kubothek.controller.scheduling.launching import start, under_way
from kubothek.controller.scheduling.retention import SOONEST, kept
from kubothek.controller.scheduling.retries import DISRUPTION_LIMIT, Budget, budget_of

S = TypeVar("S", CommitStatus, QueryStatus, CompactionStatus, VerificationStatus)

Run = Commit | Query | Compaction | Verification
RunStatus = CommitStatus | QueryStatus | CompactionStatus | VerificationStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec(Generic[S]):
    """What is specific to one kind of run.

    ``prefix``     prefix of the names of its jobs
    ``running``    its state while a job runs
    ``progress``   the model of ``status.progress``
    ``engine``     the Engine of its jobs, None for the operator's defaults, or why there is none
    ``launch``     the job of an attempt, or what that has to wait for
    ``succeeded``  the outcome when a job has succeeded
    ``marks``      fields that its status has from the start
    """

    prefix: str
    running: State
    progress: type[CommitProgress | QueryProgress | CompactionProgress | VerificationProgress]
    engine: Engine | Blocked | None
    launch: Callable[[int], LaunchJob | Blocked]
    succeeded: Callable[[S, JobResult], Outcome]
    marks: Mapping[str, object] = field(default_factory=dict)


def go_through(run: Run, status: S, world: World, course: RunSpec[S]) -> Outcome:
    """Reconcile a run, of which ``status`` is the published one."""
    if run.deleting or run.frozen:
        return unchanged(run)
    engine = None if isinstance(course.engine, Blocked) else course.engine
    budget = budget_of(engine, run.spec.retry_limit)
    if run.finished and not _revived(status, budget):
        state = state_of(status)
        assert state is not None, "a run that has ended has conditions"
        left = kept(run, course.prefix, engine, world)
        return conclude(run, world, state, actions=left.actions, again=left.again)
    digest = engine_digest(engine, world.settings)
    step = follow(first(status), course.prefix, run, world, budget, digest)
    status = step.attempts.model_copy(update={**course.marks, "progress": None})
    match step.stage:
        case Active() as active:
            status = _with_log(_with_progress(status, active, course), run, world, course.prefix)
            return conclude(run, world, under_way(active, course.running), status)
        case Succeeded(result):
            return _and_again(course.succeeded(_with_log(status, run, world, course.prefix, ended=True), result))
        case GivenUp() as end:
            return _and_again(_given_up(run, world, end, step, status))
        case Start() as begin:
            return _start(run, world, Step(status, begin, step.setback, step.cancel), begin, course, digest)


def _with_progress(status: S, active: Active, course: RunSpec[S]) -> S:
    progress = active.view.progress
    if progress is None:
        return status
    return status.model_copy(update={"progress": course.progress.model_validate(progress.model_dump())})


def _and_again(outcome: Outcome) -> Outcome:
    """Return the outcome with a requeue: only that triggers the next reconciliation, which applies retention."""
    return replace(outcome, requeue_after=outcome.requeue_after or SOONEST)


def _with_log(status: S, run: Run, world: World, prefix: str, *, ended: bool = False) -> S:
    """Return the status with the link to the log of its attempt, from the start of the run."""
    start, end = status.start_time or world.now, world.now if ended else None
    link = log_link(world.settings.logs, run.namespace, job_name(prefix, status.attempt), start, end)
    return status if link is None else status.model_copy(update={"logs": link})


def _start(run: Run, world: World, step: Step[S], begin: Start, course: RunSpec[S], digest: str) -> Outcome:
    suspended = Blocked(resting("Suspended", "nothing is started while spec.suspend is true"))
    launch = suspended if run.spec.suspend else course.launch(step.attempts.attempt)
    if isinstance(launch, Blocked):
        return conclude(run, world, launch.state, step.attempts, actions=_cancelled(run, step), again=launch.again)
    return _launched(run, world, step, begin, launch, course.running, digest)


def _revived(status: RunStatus, budget: Budget) -> bool:
    """Return whether a run that had exhausted its attempts has a larger budget now."""
    state = state_of(status)
    return (
        state is not None
        and state.reason == "RetryLimitReached"
        and status.disruptions <= DISRUPTION_LIMIT
        and (budget.limit is None or status.failures <= budget.limit)
    )


def _given_up(run: Run, world: World, end: GivenUp, step: Step[S], status: S) -> Outcome:
    """Return the outcome of a run for which there is no other attempt."""
    return conclude(run, world, _verdict(run.kind, end, step), status, actions=_cancelled(run, step))


def _launched(
    run: Run, world: World, step: Step[S], begin: Start, launch: LaunchJob, running: State, digest: str
) -> Outcome:
    """Return the outcome of a run whose next attempt may start. The first launch sets ``start_time``."""
    move = start(step, begin, launch, running, digest, world)
    status = move.attempts
    if launch in move.actions and status.start_time is None:
        status = status.model_copy(update={"start_time": world.now.replace(microsecond=0)})
    return conclude(run, world, move.state, status, actions=move.actions, events=move.events, again=move.again)


def _verdict(kind: str, end: GivenUp, step: Step[S]) -> State:
    if end.reason in ENGINE_FAULTS:
        return stalled(end.reason, f"{end.message}; when the Engine is corrected, the {kind} continues automatically")
    if not end.exhausted:
        return failed(end.reason, end.message)
    lost = step.setback is not None and step.setback.failure is FailureClass.INFRASTRUCTURE
    advice = f"repair the cluster and create the {kind} again" if lost else "raise spec.retryLimit to try again"
    return failed("RetryLimitReached", f"the last attempt failed ({end.reason}): {end.message}; {advice}")


def _cancelled(run: Run, step: Step[S]) -> tuple[CancelJob, ...]:
    return tuple(CancelJob(run.namespace, name) for name in step.cancel)


# Links to logs: the operator's URL template, with the placeholders filled in for the job.


PLACES = ("{namespace}", "{pod}", "{start}", "{end}")
"""Placeholders of the template. Times are milliseconds since 1970, and the end is ``now`` while the job runs, as
Grafana reads them."""


def log_link(template: str, namespace: str, pod: str, start: datetime, end: datetime | None) -> str | None:
    """Return the URL of a job's log; None without a template. Names in a cluster need no quoting in URLs."""
    if not template:
        return None
    values = (namespace, pod, _milliseconds(start), "now" if end is None else _milliseconds(end))
    for place, value in zip(PLACES, values, strict=True):
        template = template.replace(place, value)
    return template


def _milliseconds(moment: datetime) -> str:
    return str(int(moment.timestamp() * 1000))
