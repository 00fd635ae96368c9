"""Evaluation of a job's attempts, and the choice of the next one.

One function, :func:`follow`, is the whole protocol, for commits, deletions, restorations and inspections alike:

* The attempt number is in the status before its job is created (write-ahead). After a crash in between, the same name
  is used again, and performing a launch twice has the effect of performing it once.
* ``observed_attempt`` is written when a job is observed. An absent job that was not observed was never created: create
  it again under the same name. An absent job that was observed is lost: count it and use the next number.
* The next attempt starts only when the previous job is terminal or gone. A lost job is cancelled by name first, in case
  it still runs.
* A name that belongs to another resource is skipped: an earlier resource of this name, whose pods still exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from kubothek.api.conditions import problem_text
from kubothek.api.jobs import JobResult
from kubothek.api.meta import Attempts, Resource
from kubothek.controller.context import ENDED, Context, FailureClass, JobPhase, JobView
from kubothek.controller.scheduling.retries import Budget

A = TypeVar("A", bound=Attempts)

ENGINE_FAULTS = frozenset({"ImagePullFailed", "InvalidImageName", "ConfigError", "AdmissionDenied"})
"""Reasons that only an edit of the Engine, or of what it names, can resolve."""


@dataclass(frozen=True, slots=True)
class Start:
    """The attempt may be started at ``not_before`` or later; the jobs in ``stop`` are stopped right before."""

    not_before: datetime | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Active:
    """The attempt's job exists and has not ended. ``view.reason`` is set if it makes no progress.

    ``setback`` is why the previous attempt ended, if there was one.
    """

    view: JobView
    setback: str | None = None


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The attempt's job succeeded with this result."""

    result: JobResult


@dataclass(frozen=True, slots=True)
class GivenUp:
    """There is no other attempt. ``exhausted`` tells a spent budget from a failure that a retry cannot resolve."""

    reason: str
    message: str
    exhausted: bool = False


@dataclass(frozen=True, slots=True)
class Setback:
    """Why the previous attempt ended."""

    failure: FailureClass
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Step(Generic[A]):
    """The attempts to publish, and the stage of the present one."""

    attempts: A
    stage: Start | Active | Succeeded | GivenUp
    setback: Setback | None = None
    """Set only in the step that counts a failure."""
    cancel: tuple[str, ...] = ()
    """Jobs to stop before another one starts."""


def job_name(prefix: str, attempt: int) -> str:
    """Return the name of an attempt's job."""
    return f"{prefix}-{attempt}"


def first(attempts: A) -> A:
    """Return the attempts with number 1 as the next one, if there was none yet."""
    return attempts if attempts.attempt else attempts.model_copy(update={"attempt": 1})


def renewed(before: A, **fields: object) -> A:
    """Return fresh attempts for another cause, with these fields; the number of an observed job is never reused."""
    numbers = {"attempt": before.attempt + 1, "observed_attempt": before.observed_attempt}
    return type(before).model_validate(numbers | fields)


def follow(attempts: A, prefix: str, owner: Resource, context: Context, budget: Budget, engine_digest: str) -> Step[A]:
    """Compare the attempts in the status with the observed job. ``attempts.attempt`` is at least 1."""
    name = job_name(prefix, attempts.attempt)
    view = context.job(owner.namespace, name)
    if view is not None and view.owner_uid not in ("", owner.metadata.uid):
        return _pass_over(attempts, view)
    if view is None and attempts.observed_attempt < attempts.attempt:
        due = _due(attempts, budget, context.now)
        return Step(attempts, Start(due, _leftover(attempts, prefix, owner, context)))
    if view is None:
        lost = Setback(
            FailureClass.INFRASTRUCTURE, "JobLost", "the job's pod was deleted, or its node no longer exists"
        )
        return _after(lost, attempts, budget, context.now, cancel=(name,))
    attempts = attempts.model_copy(update={"observed_attempt": attempts.attempt, "next_attempt_time": None})
    moved = attempts.engine_digest not in (None, engine_digest)
    if view.phase in (JobPhase.PENDING, JobPhase.RUNNING):
        if view.phase is JobPhase.PENDING and view.reason in ENGINE_FAULTS and moved:
            return Step(_next(attempts), Start(), cancel=(name,))
        return Step(attempts, Active(view, attempts.setback))
    if view.phase is JobPhase.SUCCEEDED and view.result is not None and view.result.outcome == "Succeeded":
        return Step(attempts, Succeeded(view.result))
    setback = _setback(view)
    if setback.reason in ENGINE_FAULTS:
        if moved:
            return Step(_next(attempts), Start())
        return Step(attempts, GivenUp(setback.reason, setback.message), setback)
    return _after(setback, attempts, budget, context.now, cancel=(name,) if view.lingers else ())


def _due(attempts: Attempts, budget: Budget, now: datetime) -> datetime | None:
    """Return when the next attempt may start. A longer wait than the budget's is ignored: the clock was set back."""
    due = attempts.next_attempt_time
    return None if due is not None and due - now > budget.maximum else due


def _leftover(attempts: Attempts, prefix: str, owner: Resource, context: Context) -> tuple[str, ...]:
    """Return the previous attempt, unless it is known to have ended.

    It was cancelled when it was counted as lost; but the operator may have crashed between counting and cancelling.
    """
    before = job_name(prefix, attempts.attempt - 1)
    view = context.job(owner.namespace, before)
    ended = view is not None and view.phase in ENDED and not view.lingers
    foreign = view is not None and view.owner_uid not in ("", owner.metadata.uid)
    return () if attempts.attempt == 1 or ended or foreign else (before,)


def _pass_over(attempts: A, view: JobView) -> Step[A]:
    if view.phase in (JobPhase.PENDING, JobPhase.RUNNING):
        message = "a job of an earlier resource of this name is still there; this one starts when it has ended"
        return Step(attempts, Active(JobView(view.name, view.attempt, JobPhase.PENDING, "NameTaken", message)))
    return Step(_next(attempts), Start(attempts.next_attempt_time))


def _next(attempts: A, **changes: object) -> A:
    return attempts.model_copy(update={"attempt": attempts.attempt + 1, "next_attempt_time": None} | changes)


def _setback(view: JobView) -> Setback:
    result = view.result
    if view.phase is JobPhase.SUCCEEDED and (result is None or result.outcome == "Succeeded"):
        # The job may have done its work: the next attempt will notice.
        return Setback(FailureClass.INFRASTRUCTURE, "ResultLost", "the job ended well, but its result was lost")
    failure = view.failure or (
        FailureClass.REPORT if result is not None and not result.retryable else FailureClass.RETRY
    )
    reason = (result.reason if result else view.reason) or "Failed"
    message = (result.message if result else view.message) or "the job ended without a word; see the log of its pod"
    return Setback(failure, reason, message)


def _after(setback: Setback, attempts: A, budget: Budget, now: datetime, cancel: tuple[str, ...] = ()) -> Step[A]:
    """Count a failure and advance to the next number, even without budget: the number prevents counting it twice."""
    if setback.failure is FailureClass.REPORT:
        return Step(attempts, GivenUp(setback.reason, setback.message), setback, cancel)
    disrupted = setback.failure is FailureClass.INFRASTRUCTURE
    failures, disruptions = attempts.failures + (not disrupted), attempts.disruptions + disrupted
    wait = budget.delay(disruptions if disrupted else failures)
    if disrupted and disruptions == 1:
        wait = timedelta(0)
    not_before = (now + wait).replace(microsecond=0) if wait else None
    problem = problem_text(setback.reason, setback.message)
    moved = _next(attempts, failures=failures, disruptions=disruptions, next_attempt_time=not_before, setback=problem)
    if budget.allows(setback.failure, failures=failures, disruptions=disruptions):
        return Step(moved, Start(not_before), setback, cancel)
    return Step(moved, GivenUp(setback.reason, setback.message, exhausted=True), setback, cancel)
