"""Runner of a task: jobs of one resource, one attempt after the other, until a job succeeds or the task is given up.

:func:`run_attempts` follows the present attempt, or launches it if nothing prevents that. Its caller publishes the
attempts and the state, and decides what an end means for its resource.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Generic, TypeVar

from kubothek.api.conditions import State, state_of, waiting
from kubothek.api.engine import Engine
from kubothek.api.jobs import JobResult, Progress
from kubothek.api.meta import Attempts, Resource
from kubothek.controller.context import Action, CancelJob, Context, Event, LaunchJob
from kubothek.controller.references import Blocked, engine_digest
from kubothek.controller.scheduling.attempts import (
    Active,
    GivenUp,
    Setback,
    Start,
    Succeeded,
    first,
    follow,
    job_name,
)
from kubothek.controller.scheduling.launching import held_back, refused, suspended, under_way, with_setback
from kubothek.controller.scheduling.retries import Budget

A = TypeVar("A", bound=Attempts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStep(Generic[A]):
    """Next step of a task.

    ``attempts``  the attempts to publish
    ``state``     the state while the task has no ``end``
    ``end``       the result of the job that succeeded, or why there is no other attempt; None while the task continues
    ``dropped``   whether the next attempt could start, but is not needed any more
    ``setback``   why the previous attempt ended; set only in the step that counts a failure
    ``active``    whether the attempt's job exists and has not ended, and ``progress``, what it reports
    ``events``    what the state does not report: a failure that is retried immediately
    ``again``     when to reconcile again
    """

    attempts: A
    state: State
    end: JobResult | GivenUp | None = None
    dropped: bool = False
    setback: Setback | None = None
    active: bool = False
    progress: Progress | None = None
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    again: timedelta | None = None


def run_attempts(
    attempts: A,
    prefix: str,
    owner: Resource,
    context: Context,
    *,
    engine: Engine | None,
    budget: Budget,
    running: State,
    launch: Callable[[A], LaunchJob | Blocked | None],
    keeps_two: bool = False,
) -> TaskStep[A]:
    """Follow the task's job, or launch the next attempt.

    ``prefix``     prefix of the names of its jobs
    ``running``    the state while a job runs
    ``launch``     the job of an attempt that may start, what it has to wait for, or None if it is not needed any more
    ``keeps_two``  whether only the last two jobs are kept, for their logs: a launch cancels the one before them
    """
    digest = engine_digest(engine, context.settings)
    step = follow(first(attempts), prefix, owner, context, budget, digest)
    present = TaskStep(
        attempts=step.attempts, state=running, setback=step.setback, actions=_cancelled(owner, step.cancel)
    )
    match step.stage:
        case Active(view) as active:
            return replace(present, state=under_way(active, running), active=True, progress=view.progress)
        case Succeeded(result):
            return replace(present, end=result)
        case GivenUp() as end:
            return replace(present, end=end)
        case Start() as begin:
            job = launch(step.attempts)
            if job is None:
                return replace(present, dropped=True)
            if isinstance(job, Blocked):
                return replace(present, state=job.state, again=job.again)
            if keeps_two and step.attempts.attempt > 2:
                old = _cancelled(owner, (job_name(prefix, step.attempts.attempt - 2),))
                present = replace(present, actions=(*old, *present.actions))
            return _start(present, begin, job, digest, context)


def _start(step: TaskStep[A], begin: Start, launch: LaunchJob, digest: str, context: Context) -> TaskStep[A]:
    """Launch the attempt now, or wait until it may start.

    While it waits, the state reports the failure that makes it wait: from the step that counts the failure, and from
    the published status after that.
    """
    owner, setback = launch.owner, step.setback
    if begin.not_before is not None and begin.not_before > context.now:
        return replace(step, state=_retrying(setback, owner), again=begin.not_before - context.now)
    step = replace(step, actions=(*step.actions, *_cancelled(owner, begin.stop)))
    if (resting := suspended(launch)) is not None:
        return replace(step, state=resting)
    held = held_back(launch, context)
    if held is not None:
        full, wait = held
        return replace(step, state=full.state, actions=(*step.actions, wait), again=full.again)
    attempts = step.attempts.model_copy(update={"engine_digest": digest, "next_attempt_time": None})
    step = replace(step, attempts=attempts, actions=(*step.actions, launch))
    blocked = refused(launch.job.job, owner, context)
    if blocked is not None:  # retry all the same: only another try shows that the refusal is over
        return replace(step, state=blocked.state, again=blocked.again)
    if setback is not None:
        event = Event("Warning", setback.reason, f"{setback.message}; another attempt follows immediately")
        step = replace(step, events=(event,))
    return replace(step, state=with_setback(step.state, attempts.setback))


def _cancelled(owner: Resource, names: tuple[str, ...]) -> tuple[Action, ...]:
    return tuple(CancelJob(owner.namespace, name) for name in names)


def _retrying(setback: Setback | None, owner: Resource) -> State:
    if setback is not None:
        message = f"an attempt failed ({setback.reason}) and is followed by another: {setback.message}"
        return waiting("ProgressingWithRetry", message)
    published = state_of(owner.status)
    if published is not None and published.worrying:
        return published
    return waiting("ProgressingWithRetry", "an attempt failed and is followed by another")
