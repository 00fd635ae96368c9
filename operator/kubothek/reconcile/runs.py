"""What the kinds that run once share, Commit, Query and Compaction: the end of a run, what revives it, its start."""

from __future__ import annotations

from typing import TypeVar

from kubothek.reconcile.attempts import ENGINE_FAULTS, GivenUp, Start, Step
from kubothek.reconcile.budget import DISRUPTION_LIMIT, Budget
from kubothek.reconcile.launching import start
from kubothek.reconcile.projection import Run
from kubothek.reconcile.references import Blocked
from kubothek.reconcile.summary import conclude
from kubothek.reconcile.world import CancelJob, FailureClass, LaunchJob, Outcome, World
from kubothek.resources.commit import CommitStatus
from kubothek.resources.compaction import CompactionStatus
from kubothek.resources.conditions import State, failed, stalled, state_of
from kubothek.resources.query import QueryStatus

S = TypeVar("S", CommitStatus, QueryStatus, CompactionStatus)

RunStatus = CommitStatus | QueryStatus | CompactionStatus


def revived(status: RunStatus, budget: Budget) -> bool:
    """Whether a run that was out of attempts has been given more."""
    state = state_of(status)
    return (
        state is not None
        and state.reason == "RetryLimitReached"
        and status.disruptions <= DISRUPTION_LIMIT
        and (budget.limit is None or status.failures <= budget.limit)
    )


def given_up(run: Run, world: World, end: GivenUp, step: Step[S], status: S) -> Outcome:
    """The outcome of a run for which there is no other attempt."""
    return conclude(run, world, _verdict(run.kind, end, step), status, actions=_cancelled(run, step))


def held_up(run: Run, world: World, step: Step[S], blocked: Blocked) -> Outcome:
    """The outcome of a run that cannot start yet."""
    return conclude(run, world, blocked.state, step.attempts, actions=_cancelled(run, step), again=blocked.again)


def launched(
    run: Run, world: World, step: Step[S], begin: Start, launch: LaunchJob, running: State, digest: str
) -> Outcome:
    """The outcome of a run whose next attempt may start; the first one that is launched is the run's beginning."""
    move = start(step, begin, launch, running, digest, world)
    status = move.attempts
    if launch in move.actions and status.start_time is None:
        status = status.model_copy(update={"start_time": world.now.replace(microsecond=0)})
    return conclude(run, world, move.state, status, actions=move.actions, again=move.again)


def _verdict(kind: str, end: GivenUp, step: Step[S]) -> State:
    if end.reason in ENGINE_FAULTS:
        return stalled(end.reason, f"{end.message}; when the Engine is mended, the {kind} goes on by itself")
    if not end.exhausted:
        return failed(end.reason, end.message)
    lost = step.setback is not None and step.setback.failure is FailureClass.INFRASTRUCTURE
    advice = f"mend the cluster and create the {kind} anew" if lost else "raise spec.retryLimit to try again"
    return failed("RetryLimitReached", f"the last attempt failed ({end.reason}): {end.message}; {advice}")


def _cancelled(run: Run, step: Step[S]) -> tuple[CancelJob, ...]:
    return tuple(CancelJob(run.namespace, name) for name in step.cancel)
