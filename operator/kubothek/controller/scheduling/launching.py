"""Launch of an attempt that may start, with everything that can prevent it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Generic, TypeVar

from kubothek.api.conditions import State, stalled, state_of, waiting
from kubothek.api.engine import Engine
from kubothek.api.meta import Attempts, Resource
from kubothek.controller.context import Action, AwaitPlace, CancelJob, Event, JobPhase, LaunchJob, World
from kubothek.controller.references import Blocked
from kubothek.controller.scheduling.attempts import ENGINE_FAULTS, Active, Start, Step
from kubothek.controller.scheduling.concurrency import admit, place_of

A = TypeVar("A", bound=Attempts)

REFUSALS = {
    # reason: (whether only a user can resolve it, when to try again)
    "AdmissionDenied": (True, timedelta(minutes=5)),
    "NamespaceTerminating": (True, timedelta(minutes=5)),
    "PodInvalid": (True, timedelta(minutes=5)),
    "QuotaExceeded": (False, timedelta(seconds=30)),
    "ServiceAccountNotFound": (False, timedelta(seconds=30)),
}
"""Reasons for which the API server may refuse a pod; all others count as temporary."""
SILENT = frozenset({"NodeLost"})
"""Reasons why a running job is no longer observed."""
_ANY_REFUSAL = (False, timedelta(seconds=30))


@dataclass(frozen=True, slots=True)
class Move(Generic[A]):
    """State, attempts and actions for an attempt that may start."""

    state: State
    attempts: A
    actions: tuple[Action, ...] = ()
    again: timedelta | None = None
    events: tuple[Event, ...] = ()
    """Events that the state does not report: a failure that is retried immediately."""


def start(step: Step[A], begin: Start, launch: LaunchJob, doing: State, engine_digest: str, world: World) -> Move[A]:
    """Launch the attempt now, or wait until it may start.

    While it waits, the state reports the failure that makes it wait: from the step that counts the failure, and from
    the published status after that.
    """
    owner = launch.owner
    actions: tuple[Action, ...] = tuple(CancelJob(owner.namespace, name) for name in step.cancel)
    if begin.not_before is not None and begin.not_before > world.now:
        return Move(_retrying(step, owner), step.attempts, actions, begin.not_before - world.now)
    actions += tuple(CancelJob(owner.namespace, name) for name in begin.stop)
    if (resting := suspended(launch)) is not None:
        return Move(resting, step.attempts, actions)
    held = held_back(launch, world)
    if held is not None:
        full, wait = held
        return Move(full.state, step.attempts, (*actions, wait), full.again)
    events: tuple[Event, ...] = ()
    if step.setback is not None:
        events = (
            Event("Warning", step.setback.reason, f"{step.setback.message}; another attempt follows immediately"),
        )
    announced = step.attempts.model_copy(update={"engine_digest": engine_digest, "next_attempt_time": None})
    blocked = refused(launch.job.job, owner, world)
    if blocked is not None:  # retry all the same: only another try shows that the refusal is over
        return Move(blocked.state, announced, (*actions, launch), blocked.again)
    return Move(_after(doing, announced.setback), announced, (*actions, launch), events=events)


def _after(doing: State, setback: str | None) -> State:
    """Add the failure of the previous attempt to the state's message."""
    return doing if setback is None else replace(doing, message=f"{doing.message}; the attempt before ended: {setback}")


def _retrying(step: Step[A], owner: Resource) -> State:
    if step.setback is not None:
        why, what = step.setback.reason, step.setback.message
        return waiting("ProgressingWithRetry", f"an attempt failed ({why}) and is followed by another: {what}")
    published = state_of(owner.status)
    if published is not None and published.worrying:
        return published
    return waiting("ProgressingWithRetry", "an attempt failed and is followed by another")


def suspended(launch: LaunchJob) -> State | None:
    """Return the state while the launch's Engine is suspended, or None. An edit of the Engine wakes its users."""
    engine, job = launch.engine, launch.job
    takes_place = place_of(job.verb, launch.owner.namespace, job.store.name) is not None
    if not isinstance(engine, Engine) or not engine.spec.suspend or not takes_place:
        return None
    message = f"nothing is started on Engine {engine.name!r} while its spec.suspend is true"
    return waiting("DependencyNotReady", message)


def held_back(launch: LaunchJob, world: World) -> tuple[Blocked, AwaitPlace] | None:
    """Return what a launch waits for, and the action to wait, if the operator's limits hold it back; otherwise None."""
    place = place_of(launch.job.verb, launch.owner.namespace, launch.job.store.name)
    blocked = admit(place, world.settings.limits, world.load) if place is not None else None
    if place is None or blocked is None:
        return None
    return blocked, AwaitPlace(place)


def refused(name: str, owner: Resource, world: World) -> Blocked | None:
    """Return why the last try to start this job was refused, or None."""
    refusal = world.launch_refusal(owner.namespace, name)
    if refusal is None:
        return None
    reason, message = refusal
    for_good, again = REFUSALS.get(reason, _ANY_REFUSAL)
    return Blocked(stalled(reason, message) if for_good else waiting(reason, message), again)


def under_way(active: Active, doing: State) -> State:
    """Return the state while a job exists: it runs, starts, or makes no progress."""
    view = active.view
    if not view.reason or (view.phase is JobPhase.RUNNING and view.reason not in SILENT):
        return _after(doing, active.setback)
    return (stalled if view.reason in ENGINE_FAULTS else waiting)(view.reason, view.message)
