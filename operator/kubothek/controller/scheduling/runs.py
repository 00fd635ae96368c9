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
from kubothek.controller.context import Context, FailureClass, LaunchJob, Outcome
from kubothek.controller.outcome import conclude, unchanged
from kubothek.controller.references import Blocked
from kubothek.controller.scheduling.attempts import (
    ENGINE_FAULTS,
    GivenUp,
    Setback,
    job_name,
)
from kubothek.controller.scheduling.retention import SOONEST, kept
from kubothek.controller.scheduling.retries import DISRUPTION_LIMIT, Budget, budget_of
from kubothek.controller.scheduling.runner import run_attempts

S = TypeVar("S", CommitStatus, QueryStatus, CompactionStatus, VerificationStatus)

Run = Commit | Query | Compaction | Verification
RunStatus = CommitStatus | QueryStatus | CompactionStatus | VerificationStatus

_SUSPENDED = resting("Suspended", "nothing is started while spec.suspend is true")


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


def run_once(run: Run, status: S, context: Context, spec: RunSpec[S]) -> Outcome:
    """Reconcile a run, of which ``status`` is the published one. The first launch sets ``start_time``."""
    if run.deleting or run.frozen:
        return unchanged(run)
    engine = None if isinstance(spec.engine, Blocked) else spec.engine
    budget = budget_of(engine, run.spec.retry_limit)
    if run.finished and not _revived(status, budget):
        state = state_of(status)
        assert state is not None, "a run that has ended has conditions"
        left = kept(run, spec.prefix, engine, context)
        return conclude(run, context, state, actions=left.actions, again=left.again)

    def launch(attempts: S) -> LaunchJob | Blocked:
        return Blocked(_SUSPENDED) if run.spec.suspend else spec.launch(attempts.attempt)

    step = run_attempts(
        status, spec.prefix, run, context, engine=engine, budget=budget, running=spec.running, launch=launch
    )
    status = step.attempts.model_copy(update={**spec.marks, "progress": None})
    match step.end:
        case None:
            pass
        case GivenUp() as end:
            return _and_again(
                conclude(run, context, _verdict(run.kind, end, step.setback), status, actions=step.actions)
            )
        case result:
            return _and_again(spec.succeeded(with_log(status, run, context, spec.prefix, ended=True), result))
    if step.active:
        status = with_log(status, run, context, spec.prefix)
    if step.progress is not None:
        progress = spec.progress.model_validate(step.progress.model_dump())
        status = status.model_copy(update={"progress": progress})
    if status.start_time is None and any(isinstance(action, LaunchJob) for action in step.actions):
        status = status.model_copy(update={"start_time": context.now.replace(microsecond=0)})
    return conclude(run, context, step.state, status, actions=step.actions, events=step.events, again=step.again)


def _and_again(outcome: Outcome) -> Outcome:
    """Return the outcome with a requeue: only that triggers the next reconciliation, which applies retention."""
    return replace(outcome, requeue_after=outcome.requeue_after or SOONEST)


def with_log(status: S, run: Run, context: Context, prefix: str, *, ended: bool = False) -> S:
    """Return the status with the link to the log of its attempt, from the start of the run.

    ``ended``: to this moment; otherwise to the present one, whenever the link is opened.
    """
    start, end = status.start_time or context.now, context.now if ended else None
    link = log_link(context.settings.logs, run.namespace, job_name(prefix, status.attempt), start, end)
    return status if link is None else status.model_copy(update={"logs": link})


def _revived(status: RunStatus, budget: Budget) -> bool:
    """Return whether a run that had exhausted its attempts has a larger budget now."""
    state = state_of(status)
    return (
        state is not None
        and state.reason == "RetryLimitReached"
        and status.disruptions <= DISRUPTION_LIMIT
        and (budget.limit is None or status.failures <= budget.limit)
    )


def _verdict(kind: str, end: GivenUp, setback: Setback | None) -> State:
    if end.reason in ENGINE_FAULTS:
        return stalled(end.reason, f"{end.message}; when the Engine is corrected, the {kind} continues automatically")
    if not end.exhausted:
        return failed(end.reason, end.message)
    lost = setback is not None and setback.failure is FailureClass.INFRASTRUCTURE
    advice = f"repair the cluster and create the {kind} again" if lost else "raise spec.retryLimit to try again"
    return failed("RetryLimitReached", f"the last attempt failed ({end.reason}): {end.message}; {advice}")


# Links to logs: the operator's URL template, with the placeholders filled in for the job.


PLACEHOLDERS = ("{namespace}", "{pod}", "{start}", "{end}")
"""Placeholders of the template. Times are milliseconds since 1970, and the end is ``now`` while the job runs, as
Grafana reads them."""


def log_link(template: str, namespace: str, pod: str, start: datetime, end: datetime | None) -> str | None:
    """Return the URL of a job's log; None without a template. Names in a cluster need no quoting in URLs."""
    if not template:
        return None
    values = (namespace, pod, _milliseconds(start), "now" if end is None else _milliseconds(end))
    for placeholder, value in zip(PLACEHOLDERS, values, strict=True):
        template = template.replace(placeholder, value)
    return template


def _milliseconds(moment: datetime) -> str:
    return str(int(moment.timestamp() * 1000))
